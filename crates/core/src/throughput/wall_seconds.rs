//! Converts seconds of the monotonic clock to seconds of the wall clock.

use std::collections::VecDeque;

/// The difference in seconds beyond which the wall clock counts as set. Two readings of the same
/// moment may be in neighbouring seconds.
const MAX_DRIFT: i64 = 2;
const MAX_SETTINGS: usize = 64;

/// The offset of the wall clock from the monotonic clock over time.
#[derive(Debug, Default)]
pub(super) struct WallSeconds {
    /// The monotonic second from which an offset applies, and the offset in seconds. Oldest first.
    settings: VecDeque<(u64, i64)>,
}

impl WallSeconds {
    /// Detects a change of the wall clock. `second` and `wall` are the same moment on the two
    /// clocks. Seconds before `second` keep their previous offset.
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
