//! Rate limit per route, in requests per minute. Off by default.

use crate::settings::{Limits, Route};
use governor::clock::{Clock, DefaultClock};
use governor::state::keyed::HashMapStateStore;
use governor::{Quota, RateLimiter};
use std::sync::Arc;
use std::time::Duration;

#[derive(Debug)]
pub struct Limiter {
    routes: Option<RateLimiter<Arc<str>, HashMapStateStore<Arc<str>>, DefaultClock>>,
}

impl Limiter {
    pub fn new(limits: &Limits) -> Limiter {
        let limiter = |rate| RateLimiter::hashmap(Quota::per_minute(rate));
        Limiter {
            routes: limits.requests_per_minute.map(limiter),
        }
    }

    /// Forgets routes whose quota is full again, including removed routes.
    pub(super) fn forget_idle(&self) {
        if let Some(routes) = &self.routes {
            routes.retain_recent();
        }
    }

    /// Takes one request from the route's quota.
    ///
    /// # Errors
    ///
    /// The time until a request is allowed, if the quota is used up.
    pub fn check(&self, route: &Route) -> Result<(), RetryAfter> {
        let Some(routes) = &self.routes else {
            return Ok(());
        };
        let refused = routes.check_key(&route.name).err();
        refused.map_or(Ok(()), |until| {
            Err(RetryAfter(
                until.wait_time_from(DefaultClock::default().now()),
            ))
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryAfter(pub Duration);

impl RetryAfter {
    /// The value of `retry-after`: whole seconds, rounded up and at least 1, so that a retry never comes too early.
    pub fn seconds(self) -> u64 {
        let whole = self.0.as_secs();
        if self.0.subsec_nanos() > 0 {
            whole + 1
        } else {
            whole.max(1)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Upstream;
    use std::num::NonZeroU32;

    fn route(name: &str) -> Route {
        Route::new(name, Upstream::new("engine", Vec::new()).into())
    }

    fn limiter(requests_per_minute: u32) -> Limiter {
        let requests_per_minute = NonZeroU32::new(requests_per_minute);
        Limiter::new(&Limits {
            requests_per_minute,
            ..Limits::default()
        })
    }

    #[test]
    fn without_a_setting_nothing_is_limited() {
        let limiter = Limiter::new(&Limits::default());
        assert!((0..100_000).all(|_| limiter.check(&route("a")).is_ok()));
    }

    #[test]
    fn each_route_has_its_own_quota_and_retry_after() {
        let limiter = limiter(3);
        let (a, b) = (route("a"), route("b"));
        assert!((0..3).all(|_| limiter.check(&a).is_ok()));
        let retry_after = limiter.check(&a).expect_err("none left");
        assert!(
            (19..=20).contains(&retry_after.seconds()),
            "a third of a minute: {retry_after:?}"
        );
        assert_eq!(limiter.check(&b), Ok(()));
    }

    #[test]
    fn a_request_is_allowed_after_retry_after() {
        let (limiter, route) = (limiter(60), route("a"));
        assert!((0..60).all(|_| limiter.check(&route).is_ok()));
        let retry_after = limiter.check(&route).expect_err("none left");
        assert!(retry_after.0 <= Duration::from_secs(1));
        // The limiter's clock may be a little slower than the clock of `sleep`.
        std::thread::sleep(retry_after.0 + Duration::from_millis(5));
        assert_eq!(limiter.check(&route), Ok(()));
    }

    #[test]
    fn retry_after_is_in_whole_seconds_rounded_up() {
        let seconds = |millis| RetryAfter(Duration::from_millis(millis)).seconds();
        assert_eq!(
            [
                seconds(0),
                seconds(1),
                seconds(1000),
                seconds(1001),
                seconds(60_000)
            ],
            [1, 1, 1, 2, 60]
        );
    }
}
