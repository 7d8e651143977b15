//! Delays between attempts. They are random, so that processes that failed together do not retry together.

use backon::{BackoffBuilder, ExponentialBuilder};
use std::time::Duration;

/// Endless delays, at least `shortest` and at most `longest`. Each is between `d` and `2 d`, and `d` doubles from one delay to
/// the next.
pub fn delays(shortest: Duration, longest: Duration) -> ExponentialBuilder {
    ExponentialBuilder::new()
        .with_min_delay(shortest.min(longest / 2))
        .with_max_delay(longest / 2)
        .with_jitter()
        .without_max_times()
}

/// The delay after a failure that follows `failures` others without a success in between, by [`delays`].
pub fn delay(failures: u32, shortest: Duration, longest: Duration) -> Duration {
    // After 64 doublings, a nanosecond is longer than any delay.
    delays(shortest, longest)
        .build()
        .nth(failures.min(64) as usize)
        .unwrap_or(longest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_are_random_and_grow_from_the_shortest_to_the_longest() {
        let (shortest, longest) = (Duration::from_millis(500), Duration::from_secs(60));
        for failures in 0..200 {
            let least = (shortest * (1 << failures.min(10))).min(longest / 2);
            let delays = [(); 20].map(|()| delay(failures, shortest, longest));
            assert!(
                delays
                    .iter()
                    .all(|delay| (least..=least * 2).contains(delay)),
                "{failures}: {delays:?}"
            );
            assert_ne!(delays[1..], delays[..19]);
        }
        assert!(delay(0, longest, longest) <= longest);
    }
}
