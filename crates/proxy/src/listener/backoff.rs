//! Backoff for failing accepts, so that they neither spin nor flood the log.

use std::time::Duration;
use tokengauge_core::backoff;
use tokio::time::Instant;

const SHORTEST: Duration = Duration::from_millis(5);
const LONGEST: Duration = Duration::from_secs(1);
const REPORT_EVERY: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
pub(super) struct Backoff {
    consecutive: u32,
    unreported: u64,
    reported: Option<Instant>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pause {
    pub(super) length: Duration,
    pub(super) report: Option<u64>,
}

impl Backoff {
    pub(super) fn succeeded(&mut self) {
        self.consecutive = 0;
    }

    pub(super) fn failed(&mut self, now: Instant) -> Pause {
        let length = backoff::delay(self.consecutive, SHORTEST, LONGEST);
        self.consecutive = self.consecutive.saturating_add(1);
        self.unreported += 1;
        let due = self
            .reported
            .is_none_or(|last| now.duration_since(last) >= REPORT_EVERY);
        let report = due.then(|| std::mem::take(&mut self.unreported));
        if due {
            self.reported = Some(now);
        }
        Pause { length, report }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_second_and_start_again_after_a_success() {
        let (mut backoff, now) = (Backoff::default(), Instant::now());
        assert!(backoff.failed(now).length <= SHORTEST * 2);
        let last = (0..10).map(|_| backoff.failed(now).length).last();
        assert!(last.is_some_and(|last| last >= LONGEST / 2), "{last:?}");
        backoff.succeeded();
        assert!(backoff.failed(now).length <= SHORTEST * 2);
    }

    #[test]
    fn reports_at_most_every_ten_seconds_and_counts_what_was_not_reported() {
        let (mut backoff, start) = (Backoff::default(), Instant::now());
        assert_eq!(backoff.failed(start).report, Some(1));
        assert_eq!(backoff.failed(start + Duration::from_secs(1)).report, None);
        backoff.succeeded();
        assert_eq!(backoff.failed(start + Duration::from_secs(9)).report, None);
        assert_eq!(
            backoff.failed(start + Duration::from_secs(10)).report,
            Some(3)
        );
    }
}
