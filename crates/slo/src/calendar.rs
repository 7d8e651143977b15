//! Converts monotonic time to wall-clock time, so that counts do not move when the wall clock is
//! set.

use std::time::{Duration, Instant, SystemTime};
use tokengauge_core::time::since_1970;

/// Up to this difference, the two clocks only drift apart.
const DRIFT: Duration = Duration::from_secs(60);

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

    /// Follows the drift of the wall clock. If the clock was set, returns by how many seconds:
    /// dated counts must be moved by this difference to keep their age.
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
