//! Wall-clock time by the monotonic clock, so that setting the wall clock does not move what
//! was counted.

use std::time::{Duration, Instant, SystemTime};
use tokengauge_core::time::since_1970;

/// A difference between the two clocks up to which they only drift.
const DRIFT: Duration = Duration::from_secs(60);

/// Turns instants into seconds since 1970.
#[derive(Clone, Copy, Debug)]
pub struct Calendar {
    at: Instant,
    /// Seconds since 1970 at `at`.
    wall: f64,
}

impl Calendar {
    pub fn new(at: Instant, wall: SystemTime) -> Calendar {
        Calendar {
            at,
            wall: since_1970(wall),
        }
    }

    pub fn seconds(&self, now: Instant) -> f64 {
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        let before = self.at.saturating_duration_since(now).as_secs_f64();
        (self.wall + passed - before).max(0.0)
    }

    /// Follows the drift of the wall clock. Returns by how many seconds it was set, where it was:
    /// dated counts must then be moved by that, so that they keep their age.
    pub fn follow(&mut self, now: Instant, wall: SystemTime) -> Option<i64> {
        let jump = since_1970(wall) - self.seconds(now);
        *self = Calendar::new(now, wall);
        (jump.abs() > DRIFT.as_secs_f64()).then_some(jump.round() as i64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drift_is_followed_and_a_jump_is_reported() {
        let start = Instant::now();
        let wall = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut calendar = Calendar::new(start, wall(1_000_000));
        assert_eq!(calendar.seconds(at(5)), 1_000_005.0);
        assert_eq!(calendar.follow(at(10), wall(1_000_012)), None);
        assert_eq!(calendar.seconds(at(11)), 1_000_013.0);
        assert_eq!(calendar.follow(at(11), wall(1_003_613)), Some(3_600));
        assert_eq!(calendar.follow(at(12), wall(900_000)), Some(-103_614));
        assert_eq!(calendar.seconds(at(12)), 900_000.0);
    }
}
