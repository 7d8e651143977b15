//! A limit per minute for each name.

use governor::clock::{Clock, DefaultClock};
use governor::middleware::StateInformationMiddleware;
use governor::state::keyed::HashMapStateStore;
use governor::{Quota as Pace, RateLimiter};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::{Duration, Instant};

type Limiter =
    RateLimiter<Arc<str>, HashMapStateStore<Arc<str>>, DefaultClock, StateInformationMiddleware>;

pub(super) const MINUTE: Duration = Duration::from_secs(60);

/// A bucket for each name. It is full at first, and full again after a minute without use.
#[derive(Debug)]
pub(super) struct Rate {
    per_minute: NonZeroU32,
    limiter: Limiter,
    /// The rest for each name after the last take. The limiter shows it only when something is
    /// taken.
    left: Mutex<HashMap<Arc<str>, (u32, Instant)>>,
}

impl Rate {
    pub(super) fn new(per_minute: NonZeroU32) -> Rate {
        let limiter = RateLimiter::hashmap(Pace::per_minute(per_minute));
        Rate {
            per_minute,
            limiter: limiter.with_middleware(),
            left: Mutex::default(),
        }
    }

    pub(super) fn take(&self, name: &Arc<str>, count: NonZeroU32) -> Result<(), Duration> {
        match self.limiter.check_key_n(name, count) {
            Ok(Ok(now)) => {
                let left = now.remaining_burst_capacity();
                let mut all = self.left.lock();
                all.insert(Arc::clone(name), (left, Instant::now()));
                Ok(())
            }
            Ok(Err(until)) => Err(until.wait_time_from(DefaultClock::default().now())),
            // This never happens, because no caller takes more than a minute's worth.
            Err(_) => Ok(()),
        }
    }

    pub(super) fn left(&self, name: &str) -> u32 {
        let most = self.per_minute.get();
        let all = self.left.lock();
        all.get(name).map_or(most, |(left, at)| {
            let back = at.elapsed().as_secs_f64() / MINUTE.as_secs_f64() * f64::from(most);
            left.saturating_add(back as u32).min(most)
        })
    }

    pub(super) fn retain_recent(&self) {
        self.limiter.retain_recent();
        let mut all = self.left.lock();
        all.retain(|_, (_, at)| at.elapsed() < MINUTE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_known_without_taking_it() {
        let count = |count| NonZeroU32::new(count).expect("above 0");
        // One token takes six seconds to return, which is longer than this test.
        let rate = Rate::new(count(10));
        let name: Arc<str> = "a".into();
        assert_eq!(rate.left("a"), 10);
        rate.take(&name, count(3)).expect("there are ten");
        assert_eq!((rate.left("a"), rate.left("a"), rate.left("b")), (7, 7, 10));
        assert!(rate.take(&name, count(8)).is_err());
        rate.take(&name, count(7)).expect("there are seven");
        assert_eq!(rate.left("a"), 0);
        rate.retain_recent();
        assert_eq!(rate.left("a"), 0);
    }
}
