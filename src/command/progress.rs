//! The progress of long work as a changing line on standard error, if that is a terminal.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// Work that takes less time shows no progress.
const QUIET: Duration = Duration::from_secs(1);
const EVERY: Duration = Duration::from_millis(200);

/// The progress line. Dropping it removes the line.
pub(super) struct Progress {
    what: &'static str,
    began: Instant,
    /// The time of the next update; `None` if standard error is not a terminal.
    next: Option<Instant>,
    shown: bool,
}

impl Progress {
    /// The progress of work that writes nothing else to the terminal.
    pub(super) fn of(what: &'static str) -> Progress {
        Progress::new(what, std::io::stderr().is_terminal())
    }

    /// The progress of work that also writes to standard output. Shows nothing if standard output is a terminal.
    pub(super) fn beside_output(what: &'static str) -> Progress {
        let alone = !std::io::stdout().is_terminal();
        Progress::new(what, alone && std::io::stderr().is_terminal())
    }

    fn new(what: &'static str, visible: bool) -> Progress {
        let began = Instant::now();
        Progress {
            what,
            began,
            next: visible.then_some(began + QUIET),
            shown: false,
        }
    }

    /// Updates the line. `units` names what is counted, such as `calls`.
    pub(super) fn at(&mut self, done: u64, of: Option<u64>, units: &str) {
        let Some(next) = self.next else { return };
        let now = Instant::now();
        if now < next {
            return;
        }
        self.next = Some(now + EVERY);
        self.shown = true;
        let line = line(self.what, done, of, units, now - self.began);
        let _ = write!(std::io::stderr(), "\r\x1b[K{line}");
        let _ = std::io::stderr().flush();
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.shown {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}

fn line(what: &str, done: u64, of: Option<u64>, units: &str, since: Duration) -> String {
    let of = of.map_or(String::new(), |of| format!(" of {of}"));
    let since = humantime::format_duration(Duration::from_secs(since.as_secs()));
    format!("{what}: {done}{of} {units}, {since}")
}

pub(super) struct Counted<W> {
    inner: W,
    progress: Progress,
    bytes: u64,
}

impl<W: Write> Counted<W> {
    pub(super) fn new(inner: W, progress: Progress) -> Counted<W> {
        Counted {
            inner,
            progress,
            bytes: 0,
        }
    }
}

impl<W: Write> Write for Counted<W> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let length = self.inner.write(bytes)?;
        self.bytes += length as u64;
        self.progress.at(self.bytes / 1_000_000, None, "MB");
        Ok(length)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.inner.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_what_how_much_and_how_long() {
        let since = Duration::from_millis(63_900);
        assert_eq!(
            line("report", 1200, None, "calls", since),
            "report: 1200 calls, 1m 3s"
        );
        assert_eq!(
            line("slo test", 3, Some(8), "objectives", since),
            "slo test: 3 of 8 objectives, 1m 3s"
        );
    }
}
