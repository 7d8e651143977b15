//! The only place in the proxy that reads the clock.

use std::time::{Duration, Instant};

/// The current instant.
pub(super) fn now() -> Instant {
    Instant::now()
}

/// The processor time that this thread has used. Takes about a microsecond.
pub(super) fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_that_share_cores_use_a_part_of_the_time() {
        const TIME: Duration = Duration::from_millis(200);
        let cores = std::thread::available_parallelism()
            .expect("a number")
            .get();
        let run = || {
            let (begun, before) = (now(), processor_time());
            while begun.elapsed() < TIME {}
            (processor_time().saturating_sub(before), begun.elapsed())
        };
        let (used, all) = std::thread::scope(|threads| {
            let threads: Vec<_> = (0..4 * cores).map(|_| threads.spawn(run)).collect();
            let times = threads
                .into_iter()
                .map(|thread| thread.join().expect("no panic"));
            times.fold(
                (Duration::ZERO, Duration::ZERO),
                |(used, all), (time, elapsed)| (used + time, all + elapsed),
            )
        });
        assert!(
            used > Duration::ZERO && used < all / 2,
            "{used:?} of {all:?}"
        );
    }
}
