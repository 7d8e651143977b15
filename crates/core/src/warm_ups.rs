//! Remembers when upstreams restarted, based on the warm-up flag of finished calls.

use crate::hash::FastMap;
use std::time::SystemTime;

/// Maximum number of upstreams that are remembered. When it is exceeded, all are forgotten.
const MAX_UPSTREAMS: usize = 1_000;

/// The latest warm-up of each upstream.
#[derive(Debug, Default)]
pub struct WarmUps {
    upstreams: FastMap<String, WarmUp>,
}

#[derive(Clone, Copy, Debug)]
struct WarmUp {
    /// Whether a call that is not part of a warm-up has ended since.
    over: bool,
    since: SystemTime,
    /// When the latest warm-up began, if it followed calls outside of a warm-up.
    again: Option<SystemTime>,
}

impl WarmUps {
    /// Records a finished call and whether it belongs to a warm-up of its upstream. Returns true if
    /// the upstream restarted: the call belongs to a warm-up, and previous calls did not. Calls may
    /// end in another order than they started. A call that started before the latest known one
    /// changes nothing.
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

    /// The start of the latest warm-up of an upstream that had already warmed up before.
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
            (5, true),  // the upstream restarted
            (4, false), // a long call that started before
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
