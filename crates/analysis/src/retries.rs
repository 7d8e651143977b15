//! Requests that failed, by which a repetition is found.

use super::lru::Lru;
use std::time::{Duration, Instant};

/// A repetition after a longer time is another attempt of a person.
const WITHIN: Duration = Duration::from_secs(10 * 60);
const MAX_FAILED: usize = 4096;

#[derive(Default)]
pub(crate) struct Retries {
    failed: Lru<u64, (Box<str>, Instant)>,
    /// Failed requests that were forgotten because there were too many.
    pub(crate) forgotten: u64,
}

impl Retries {
    /// The id of the last call with this request that failed before `started`, and the time since its
    /// end.
    pub(crate) fn before(&self, request: u64, started: Instant) -> Option<(&str, Duration)> {
        let (id, ended) = self.failed.peek(&request)?;
        let since = started.checked_duration_since(*ended)?;
        (since <= WITHIN).then_some((&**id, since))
    }

    /// Adds the result of a call.
    pub(crate) fn ended(&mut self, request: u64, id: &str, ended: Instant, failed: bool) {
        if !failed {
            self.failed.remove(&request);
            return;
        }
        self.failed.insert(request, (id.into(), ended), id.len());
        if self.failed.len() > MAX_FAILED {
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        self.failed.pop_oldest();
        self.forgotten += 1;
    }

    pub(crate) fn bytes(&self) -> usize {
        self.failed.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(retries: &Retries, request: u64, started: Instant) -> Option<&str> {
        retries.before(request, started).map(|(id, _)| id)
    }

    #[test]
    fn only_a_recent_failure_makes_a_call_a_repetition() {
        let at = Instant::now();
        let mut retries = Retries::default();
        retries.ended(1, "a", at, true);
        assert_eq!(id(&retries, 1, at + Duration::from_secs(9)), Some("a"));
        assert_eq!(id(&retries, 1, at + Duration::from_secs(601)), None);
        assert_eq!(
            id(&retries, 1, at - Duration::from_secs(1)),
            None,
            "it still ran"
        );
        assert_eq!(id(&retries, 2, at), None);
        retries.ended(1, "b", at, false);
        assert_eq!(id(&retries, 1, at), None);
        (0..5_000).for_each(|request| retries.ended(request, "c", at, true));
        assert_eq!((retries.failed.len(), retries.forgotten), (MAX_FAILED, 904));
    }
}
