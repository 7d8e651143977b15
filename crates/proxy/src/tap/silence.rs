//! Waits for an upstream that sends nothing.

use super::measure_queue::MeasureQueue;
use crate::call_handle::CallHandle;
use crate::clock::now;
use crate::timer::LazyTimer;
use std::sync::LazyLock;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};
use tokengauge_core::observer::MAX_MEASURE_DELAY;

/// How long the queued chunks of a stream that falls silent, less than a second's worth, wait to be
/// measured, plus at most one tick. Waking up sooner would often be for nothing, as most streams go
/// on.
const MEASURE_WITHIN: Duration = MAX_MEASURE_DELAY.saturating_sub(Duration::from_millis(50));
/// Streams check their queues at common instants, this far apart: a wake-up for each stream costs
/// more, and too many streams at once delay others.
const TICK: Duration = Duration::from_millis(20);
/// How soon chunks that are left over are measured.
const MEASURE_AGAIN: Duration = Duration::from_millis(5);

/// Fires when a body has had nothing for the idle timeout, and measures its queue until then.
#[derive(Default)]
pub(super) struct SilenceTimer {
    idle_timeout: Duration,
    timer: LazyTimer,
}

impl SilenceTimer {
    pub fn new(idle_timeout: Duration) -> SilenceTimer {
        SilenceTimer {
            idle_timeout,
            timer: LazyTimer::default(),
        }
    }

    /// Waits up to the idle timeout behind `last_activity`, and returns when it was over. Measures
    /// meanwhile what has been in `queue` for too long.
    pub fn poll(
        &mut self,
        cx: &mut Context<'_>,
        mut at: Instant,
        queue: &mut MeasureQueue,
        call: &CallHandle,
        last_activity: impl Fn() -> Instant,
    ) -> Poll<Instant> {
        loop {
            let idle_deadline = last_activity() + self.idle_timeout;
            if at >= idle_deadline {
                return Poll::Ready(at);
            }
            let oldest = queue.oldest();
            if oldest.is_some_and(|since| at >= since + MEASURE_WITHIN) {
                queue.measure(call);
            }
            // Chunks left over because measuring is paused, or its budget is spent, wait until
            // other tasks have had their turn.
            let oldest = queue.oldest();
            let measure =
                oldest.map(|since| next_tick(since + MEASURE_WITHIN).max(at + MEASURE_AGAIN));
            let wanted = measure.map_or(idle_deadline, |measure| idle_deadline.min(measure));
            ready!(self.timer.poll(cx, at, wanted));
            at = now();
        }
    }
}

/// The first tick that is not before `at`.
fn next_tick(at: Instant) -> Instant {
    static START: LazyLock<Instant> = LazyLock::new(now);
    let elapsed = at.saturating_duration_since(*START);
    let ticks = elapsed.as_nanos().div_ceil(TICK.as_nanos());
    *START + TICK * u32::try_from(ticks).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_the_same_for_all_and_never_late() {
        let at = now();
        for offset in (0..2_000).step_by(7).map(Duration::from_millis) {
            let instant = at + offset;
            let next = next_tick(instant);
            assert!(next >= instant && next - instant < TICK);
            assert_eq!(next_tick(next), next);
        }
        assert_eq!(next_tick(at + TICK), next_tick(at) + TICK);
    }
}
