//! The only place in the proxy that reads the clock.

use std::time::{Duration, Instant};

pub(super) fn now() -> Instant {
    Instant::now()
}

/// How long this thread has waited for a core in total while ready to run. Zero if the system does not report it. Takes
/// a few microseconds.
pub(super) fn waited_for_core() -> Duration {
    // Field 1 is the time on the CPU, field 2 the time on a run queue, in nanoseconds:
    // Documentation/scheduler/sched-stats.
    let statistics = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let waited = statistics.split_ascii_whitespace().nth(1);
    Duration::from_nanos(waited.and_then(|waited| waited.parse().ok()).unwrap_or(0))
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn threads_that_share_cores_wait_for_most_of_the_time() {
        const TIME: Duration = Duration::from_millis(200);
        let cores = std::thread::available_parallelism()
            .expect("a number")
            .get();
        let run = || {
            let (begun, before) = (now(), waited_for_core());
            while begun.elapsed() < TIME {}
            (begun.elapsed(), waited_for_core().saturating_sub(before))
        };
        let (ran, all) = std::thread::scope(|threads| {
            let threads: Vec<_> = (0..4 * cores).map(|_| threads.spawn(run)).collect();
            let times = threads
                .into_iter()
                .map(|thread| thread.join().expect("no panic"));
            times.fold(
                (Duration::ZERO, Duration::ZERO),
                |(ran, all), (time, waited)| (ran + time.saturating_sub(waited), all + time),
            )
        });
        assert!(ran > Duration::ZERO && ran < all / 2, "{ran:?} of {all:?}");
    }
}
