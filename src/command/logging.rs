//! The process's own log: for people on a terminal, JSON lines otherwise.

use std::io::IsTerminal;
use tracing_subscriber::EnvFilter;

/// The variable that sets the level.
const LEVEL: &str = "TOKENGAUGE_LOG";

/// Starts logging to standard error.
pub(super) fn start() {
    let filter = EnvFilter::try_from_env(LEVEL).unwrap_or_else(|_| EnvFilter::new("info"));
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr);
    // A second start in one process (tests) keeps the first.
    let _ = if std::io::stderr().is_terminal() {
        log.compact().try_init()
    } else {
        log.json().flatten_event(true).try_init()
    };
}
