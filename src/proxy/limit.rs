//! How many requests a minute a route may get. Off by default.

use crate::config::{Limits, Route};
use governor::clock::{Clock, DefaultClock};
use governor::state::keyed::HashMapStateStore;
use governor::{Quota, RateLimiter};
use std::sync::Arc;
use std::time::Duration;

/// Lets each route have so many requests a minute, at once or spread out.
#[derive(Debug)]
pub struct Limiter {
    routes: Option<RateLimiter<Arc<str>, HashMapStateStore<Arc<str>>, DefaultClock>>,
}

impl Limiter {
    /// Reads the limit out of the settings.
    pub fn new(limits: &Limits) -> Limiter {
        let limiter = |rate| RateLimiter::hashmap(Quota::per_minute(rate));
        Limiter {
            routes: limits.requests_per_minute.map(limiter),
        }
    }

    /// Takes one of the route's requests.
    ///
    /// # Errors
    ///
    /// When there is none left: how long until there is.
    pub fn check(&self, route: &Route) -> Result<(), RetryAfter> {
        let Some(routes) = &self.routes else {
            return Ok(());
        };
        // The routes of a configuration are few: the map is bounded by them.
        let refused = routes.check_key(&route.name).err();
        refused.map_or(Ok(()), |until| {
            Err(RetryAfter(
                until.wait_time_from(DefaultClock::default().now()),
            ))
        })
    }
}

/// How long a route has no request left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryAfter(pub Duration);

impl RetryAfter {
    /// For `retry-after`: whole seconds, never 0, so that a retry then is not too early.
    pub fn seconds(self) -> u64 {
        let whole = self.0.as_secs();
        if self.0.subsec_nanos() > 0 {
            whole + 1
        } else {
            whole.max(1)
        }
    }
}
