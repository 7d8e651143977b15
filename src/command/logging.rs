//! The process's own log: for people on a terminal, JSON lines otherwise.

use std::io::IsTerminal;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

/// The variable that sets the level.
const LEVEL: &str = "TOKENGAUGE_LOG";

/// Starts logging to standard error, from `default` on unless the variable names another.
pub(super) fn start(default: LevelFilter) {
    let named = std::env::var(LEVEL).ok();
    let log = tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::new(directives(level(named.as_deref(), default))))
        .with_writer(std::io::stderr);
    // A second start in one process (tests) keeps the first.
    let _ = if std::io::stderr().is_terminal() {
        log.compact().try_init()
    } else {
        log.json().flatten_event(true).try_init()
    };
}

fn level(named: Option<&str>, default: LevelFilter) -> LevelFilter {
    let level = named.and_then(|name| name.trim().parse().ok());
    level.unwrap_or(default)
}

/// The level is ours alone: what others write while they move bytes could quote them, so
/// of theirs only warnings and errors are let through.
fn directives(level: LevelFilter) -> String {
    let others = level.min(LevelFilter::WARN);
    format!("{others},tokengauge={level}")
}

#[cfg(test)]
mod tests {
    use super::*;

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
