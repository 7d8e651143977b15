//! Limits how often a repeating failure is logged.

use parking_lot::Mutex;
use std::time::{Duration, Instant};

/// The interval between two log lines about one failure.
pub const LOG_EVERY: Duration = Duration::from_secs(60);

/// Remembers when a failure was last logged.
///
/// ```
/// use std::time::{Duration, Instant};
/// use tokengauge_core::log_interval::{LOG_EVERY, LogInterval};
///
/// let (interval, now) = (LogInterval::default(), Instant::now());
/// assert!(interval.should_log(now));
/// assert!(!interval.should_log(now + LOG_EVERY / 2));
/// assert!(interval.should_log(now + LOG_EVERY));
/// assert!(interval.recovered(), "it was logged, and works again");
/// assert!(!interval.recovered());
/// ```
#[derive(Debug, Default)]
pub struct LogInterval {
    logged_at: Mutex<Option<Instant>>,
}

impl LogInterval {
    /// Whether to log a failure at `now`: the first one, and then one every [`LOG_EVERY`].
    pub fn should_log(&self, now: Instant) -> bool {
        let mut logged_at = self.logged_at.lock();
        let due = logged_at.is_none_or(|last| now.saturating_duration_since(last) >= LOG_EVERY);
        if due {
            *logged_at = Some(now);
        }
        due
    }

    /// Records a success. Returns whether the failure was logged. The next failure is logged at
    /// once.
    pub fn recovered(&self) -> bool {
        self.logged_at.lock().take().is_some()
    }
}
