//! When upstreams came up again, as the calls that have ended show it.

use crate::hash::FastMap;
use std::time::SystemTime;

/// Upstreams that are remembered, at most; then all are forgotten.
const MAX_UPSTREAMS: usize = 1_000;

/// The warm-ups of upstreams.
#[derive(Debug, Default)]
pub struct WarmUps {
    upstreams: FastMap<String, WarmUp>,
}

#[derive(Clone, Copy, Debug)]
struct WarmUp {
    /// Whether a call after it has ended.
    over: bool,
    /// When the call began that decided so.
    since: SystemTime,
    /// When it last warmed up after calls that were not of its warm-up.
    again: Option<SystemTime>,
}

impl WarmUps {
    /// Takes a call that has ended: its upstream, whether it is of a warm-up, and when it began. Whether the upstream came
    /// up again with it, after calls that were not of its warm-up. Calls do not end in the order in which they began: one
    /// from before what is known changes nothing.
    pub fn began(&mut self, upstream: &str, warm_up: bool, started: SystemTime) -> bool {
        let Some(known) = self.upstreams.get_mut(upstream) else {
            if self.upstreams.len() >= MAX_UPSTREAMS {
                self.upstreams.clear();
            }
            let first = WarmUp {
                over: !warm_up,
                since: started,
                again: None,
            };
            self.upstreams.insert(upstream.to_owned(), first);
            return false;
        };
        if known.over != warm_up || started <= known.since {
            return false;
        }
        known.over = !warm_up;
        known.since = started;
        if warm_up {
            known.again = Some(started);
        }
        warm_up
    }

    /// When an upstream last came up again.
    pub fn again(&self, upstream: &str) -> Option<SystemTime> {
        self.upstreams.get(upstream)?.again
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn an_upstream_comes_up_again_after_calls_that_were_not_of_its_warm_up() {
        let mut all = WarmUps::default();
        let at = |second| SystemTime::UNIX_EPOCH + Duration::from_secs(second);
        let mut found = Vec::new();
        for (second, warm_up) in [
            (1, true),
            (2, true),
            (3, false),
            (5, true),  // it came up again
            (4, false), // a long call from before
            (6, true),
            (7, false),
            (9, false),
            (10, true),
        ] {
            if all.began("engine", warm_up, at(second)) {
                found.push(second);
            }
        }
        assert_eq!(found, [5, 10]);
        assert!(!all.began("other", true, at(11)));
        assert_eq!(
            (all.again("engine"), all.again("other")),
            (Some(at(10)), None)
        );
    }
}
