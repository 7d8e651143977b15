//! Seconds of the wall clock by seconds of the monotonic clock.

use std::collections::VecDeque;

/// By how many seconds the wall clock may differ before it counts as set. Two readings of one
/// moment may lie in neighbouring seconds.
const MAX_DRIFT: i64 = 2;
/// Times at which the wall clock was set that are remembered, the newest.
const MAX_SETTINGS: usize = 64;

/// How far the wall clock is from the monotonic one, by when it was set.
#[derive(Debug, Default)]
pub(super) struct WallSeconds {
    /// From which second on it is ahead by how many seconds, the oldest first.
    settings: VecDeque<(u64, i64)>,
}

impl WallSeconds {
    /// Notices that the wall clock was set. `second` and `wall` are the same moment on two
    /// clocks. Seconds before `second` keep the time that the wall clock had.
    pub(super) fn follow(&mut self, second: u64, wall: u64) {
        let ahead = wall.wrapping_sub(second).cast_signed();
        if (ahead - self.ahead(second)).abs() <= MAX_DRIFT {
            return;
        }
        self.settings.push_back((second, ahead));
        if self.settings.len() > MAX_SETTINGS {
            self.settings.pop_front();
        }
    }

    /// The second of the wall clock.
    pub(super) fn of(&self, second: u64) -> u64 {
        second.saturating_add_signed(self.ahead(second))
    }

    fn ahead(&self, second: u64) -> i64 {
        let settings = self.settings.iter().rev();
        let last = settings.copied().find(|(from, _)| *from <= second);
        last.map_or(0, |(_, ahead)| ahead)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_second_has_the_time_that_the_wall_clock_had() {
        let mut seconds = WallSeconds::default();
        seconds.follow(1_000, 1_002);
        assert_eq!(seconds.of(1_000), 1_000, "two seconds are drift");
        seconds.follow(1_010, 4_610);
        seconds.follow(1_020, 1_017);
        assert_eq!(
            [1_009, 1_010, 1_019].map(|at| seconds.of(at)),
            [1_009, 4_610, 4_619]
        );
        assert_eq!(seconds.of(1_020), 1_017);
        seconds.follow(1_021, 1_018);
        assert_eq!(seconds.settings.len(), 2, "it was not set again");
    }

    #[test]
    fn only_the_newest_settings_are_remembered() {
        let mut seconds = WallSeconds::default();
        for at in 0..200 {
            seconds.follow(1_000 + at, 2_000 + at * 11);
        }
        assert_eq!(seconds.settings.len(), MAX_SETTINGS);
        assert_eq!(seconds.of(1_199), 2_000 + 199 * 11);
    }
}
