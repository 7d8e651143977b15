//! Limits how often clients may ask for the usage of a key.

use super::server::Source;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::time::{Duration, Instant};

const PER_SOURCE: u32 = 60;
/// The number of source addresses that are counted. Other addresses must wait for the next minute.
const MAX_SOURCES: usize = 10_000;
const MINUTE: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
pub(super) struct OwnUseLimit(Mutex<Option<Counted>>);

#[derive(Debug)]
struct Counted {
    since: Instant,
    requests: HashMap<Option<Source>, u32>,
}

impl OwnUseLimit {
    /// Counts a request at `now`. If it exceeds the limit, the error is the time to wait.
    pub(super) fn take(&self, source: Option<Source>, now: Instant) -> Result<(), Duration> {
        let mut state = self.0.lock();
        let fresh = || Counted {
            since: now,
            requests: HashMap::new(),
        };
        let counted = state.get_or_insert_with(fresh);
        let past = now.saturating_duration_since(counted.since);
        if past >= MINUTE {
            *counted = fresh();
        }
        let wait = MINUTE.saturating_sub(past);
        let full = counted.requests.len() >= MAX_SOURCES;
        if full && !counted.requests.contains_key(&source) {
            return Err(wait);
        }
        let requests = counted.requests.entry(source).or_default();
        if *requests >= PER_SOURCE {
            return Err(wait);
        }
        *requests += 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_has_so_many_a_minute_and_sources_are_bounded() {
        let limit = OwnUseLimit::default();
        let start = Instant::now();
        let source = |number: u32| Some(Source::of(std::net::Ipv4Addr::from(number).into()));
        for _ in 0..PER_SOURCE {
            assert_eq!(limit.take(source(1), start), Ok(()));
        }
        let later = start + Duration::from_secs(20);
        assert_eq!(limit.take(source(1), later), Err(Duration::from_secs(40)));
        assert_eq!(limit.take(source(2), later), Ok(()));
        for number in 3..=MAX_SOURCES as u32 {
            assert_eq!(limit.take(source(number), later), Ok(()));
        }
        assert!(limit.take(source(0), later).is_err(), "too many sources");
        assert_eq!(limit.take(source(2), later), Ok(()));
        assert_eq!(limit.take(source(1), start + MINUTE), Ok(()));
    }
}
