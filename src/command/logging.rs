//! The log of the process: text on a terminal, JSON lines otherwise.

use std::io::IsTerminal;
use std::panic::{PanicHookInfo, set_hook};
use tokengauge_process::output::printable;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::field::MakeExt;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::FormatFields;
use tracing_subscriber::fmt::format::debug_fn;

const LEVEL: &str = "TOKENGAUGE_LOG";

pub(super) fn start(default: LevelFilter) {
    set_hook(Box::new(log_panic));
    let named = std::env::var(LEVEL).ok();
    let log = tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::new(directives(level(named.as_deref(), default))))
        .with_writer(std::io::stderr)
        // Internal errors are written to standard error, which panics if it is closed.
        .log_internal_errors(false);
    // A second start in one process, as in tests, has no effect.
    let _ = if std::io::stderr().is_terminal() {
        log.compact().fmt_fields(harmless_fields()).try_init()
    } else {
        log.json().flatten_event(true).try_init()
    };
}

/// Escapes fields for a terminal. Names from traffic and responses of stores cannot forge lines or send control
/// sequences.
fn harmless_fields() -> impl for<'a> FormatFields<'a> + 'static {
    let write = debug_fn(|writer, field, value| {
        let text = format!("{value:?}");
        let text = printable(&text);
        match field.name() {
            "message" => write!(writer, "{text}"),
            name => write!(writer, "{name}={text}"),
        }
    });
    write.delimited(" ")
}

/// Logs only the location of a panic, because the message may quote prompts or responses.
fn log_panic(panic: &PanicHookInfo<'_>) {
    let place = panic.location().map(ToString::to_string);
    let place = place.unwrap_or_default();
    let thread = std::thread::current();
    let thread = thread.name().unwrap_or_default();
    tracing::error!(
        place,
        thread,
        "panicked: this is a bug in tokengauge, please report the location"
    );
}

fn level(named: Option<&str>, default: LevelFilter) -> LevelFilter {
    let level = named.and_then(|name| name.trim().parse().ok());
    level.unwrap_or(default)
}

/// Returns the filter. The level applies to the crates of tokengauge. Messages of other crates may quote traffic, so
/// only their warnings and errors are logged.
fn directives(level: LevelFilter) -> String {
    let others = level.min(LevelFilter::WARN);
    format!("{others},tokengauge={level}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use parking_lot::Mutex;
    use std::io::{self, Write};
    use std::process::Command;
    use std::sync::Arc;

    const TEXT: &str = "an answer: PLANTED-7f3a é";

    #[test]
    #[ignore = "the test below runs this in a separate process"]
    fn panics_while_reading_a_text() {
        start(LevelFilter::INFO);
        let reader = std::thread::Builder::new().name("reader".into());
        let reader = reader.spawn(|| {
            let end = std::hint::black_box(TEXT.len() - 1);
            TEXT[..end].len()
        });
        assert!(reader.expect("a thread").join().is_err());
    }

    #[test]
    fn a_panic_is_logged_with_its_location_and_never_its_message() {
        let test = "command::logging::tests::panics_while_reading_a_text";
        let child = Command::new(std::env::current_exe().expect("this program"))
            .args([test, "--exact", "--ignored", "--nocapture"])
            .output()
            .expect("a child");
        let said = String::from_utf8_lossy(&child.stderr);
        let all = format!("{said}{}", String::from_utf8_lossy(&child.stdout));
        assert!(child.status.success(), "{all}");
        assert!(
            said.contains("logging.rs") && said.contains("reader"),
            "{all}"
        );
        assert!(
            !all.contains("PLANTED") && !all.contains("char boundary"),
            "{all}"
        );
    }

    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl Write for Written {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_terminal_gets_a_line_for_an_event_and_no_commands() {
        let written = Written::default();
        let log = tracing_subscriber::fmt()
            .with_writer({
                let written = written.clone();
                move || written.clone()
            })
            .with_ansi(false)
            .compact()
            .fmt_fields(harmless_fields())
            .finish();
        let answer = "no\nFORGED \u{1b}[2J\u{202e}";
        tracing::subscriber::with_default(log, || {
            tracing::warn!(error = %answer, model = answer, "said: {answer}");
        });
        let text = String::from_utf8(written.0.lock().clone()).expect("UTF-8");
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(!text.contains(['\u{1b}', '\u{202e}']), "{text:?}");
        let error = "said: no\\nFORGED \\u{1b}[2J\\u{202e} error=no\\nFORGED";
        assert!(text.contains(error), "{text}");
    }

    #[test]
    fn the_level_is_ours_and_others_may_warn() {
        let of = |named| directives(level(named, LevelFilter::INFO));
        assert_eq!(of(None), "warn,tokengauge=info");
        assert_eq!(of(Some("debug")), "warn,tokengauge=debug");
        assert_eq!(of(Some("error")), "error,tokengauge=error");
        assert_eq!(of(Some("off")), "off,tokengauge=off");
        assert_eq!(of(Some("h2=trace")), "warn,tokengauge=info");
    }
}
