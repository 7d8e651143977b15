//! Delays between retries. They are random, so that processes that fail together do not retry
//! together.

use backon::{BackoffBuilder, ExponentialBuilder};
use std::time::Duration;

/// An endless iterator of delays, from `shortest` to `longest`. Each delay is between `d` and `2
/// d`, and `d` doubles with every delay.
pub fn delays(shortest: Duration, longest: Duration) -> ExponentialBuilder {
    ExponentialBuilder::new()
        .with_min_delay(shortest.min(longest / 2))
        .with_max_delay(longest / 2)
        .with_jitter()
        .without_max_times()
}

/// The delay before the next retry, by [`delays`]. `failures` is the number of earlier consecutive
/// failures.
pub fn delay(failures: u32, shortest: Duration, longest: Duration) -> Duration {
    // After 64 doublings, even a nanosecond exceeds any limit.
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
