use super::measure_queue::MeasureQueue;
use crate::call_handle::CallHandle;
use crate::clock::now;
use crate::timer::LazyTimer;
use std::sync::LazyLock;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};
use tokengauge_core::observer::MAX_MEASURE_DELAY;

/// How long queued chunks wait to be measured when a stream falls silent. With one tick added, this is less than a
/// second. Most streams continue, so an earlier wake-up would usually be wasted.
const MEASURE_WITHIN: Duration = MAX_MEASURE_DELAY.saturating_sub(Duration::from_millis(50));
/// Interval of the common instants at which streams check their queues. A wake-up per stream costs more, and too many
/// streams at the same instant would delay others.
const TICK: Duration = Duration::from_millis(20);
const MEASURE_AGAIN: Duration = Duration::from_millis(5);

/// Fires when no byte was transferred for the idle timeout. Measures the queue until then.
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

    /// Waits until the idle timeout after `last_activity` and returns when it expired. Measures chunks that are in
    /// `queue` for too long meanwhile.
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
            // If measuring is paused or its budget is used up, the remaining chunks wait until other tasks have had
            // their turn.
            let oldest = queue.oldest();
            let measure =
                oldest.map(|since| next_tick(since + MEASURE_WITHIN).max(at + MEASURE_AGAIN));
            let wanted = measure.map_or(idle_deadline, |measure| idle_deadline.min(measure));
            ready!(self.timer.poll(cx, at, wanted));
            at = now();
        }
    }
}

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
