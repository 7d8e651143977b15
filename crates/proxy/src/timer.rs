//! Timers for timeouts whose deadline moves with each byte.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;
use tokio::time::{Sleep, sleep_until};

#[derive(Default)]
pub(super) struct Timer(Option<Pin<Box<Sleep>>>);

impl Timer {
    /// Ready when `deadline` has passed. If the deadline was moved to a later time, the timer is reset when it fires
    /// for the earlier one.
    pub fn poll(&mut self, cx: &mut Context<'_>, deadline: impl Fn() -> Instant) -> Poll<()> {
        let deadline_at = deadline().into();
        let timer = self
            .0
            .get_or_insert_with(|| Box::pin(sleep_until(deadline_at)));
        if deadline_at < timer.deadline() {
            timer.as_mut().reset(deadline_at);
        }
        while timer.as_mut().poll(cx).is_ready() {
            let deadline_at = deadline().into();
            if deadline_at <= timer.deadline() {
                return Poll::Ready(());
            }
            timer.as_mut().reset(deadline_at);
        }
        Poll::Pending
    }

    fn fires_at(&self) -> Option<Instant> {
        self.0.as_ref().map(|timer| timer.deadline().into_std())
    }
}

/// A timer for a future that is polled much more often than the timer fires.
#[derive(Default)]
pub(super) struct LazyTimer {
    timer: Timer,
    fires_at: Option<Instant>,
}

impl LazyTimer {
    /// Ready when `deadline` has passed. The inner timer is polled only when it may have fired, because firing too
    /// early costs less than a reset at each poll.
    pub fn poll(&mut self, cx: &mut Context<'_>, at: Instant, deadline: Instant) -> Poll<()> {
        if self
            .fires_at
            .is_some_and(|fires_at| at < fires_at && fires_at <= deadline)
        {
            return Poll::Pending;
        }
        let polled = self.timer.poll(cx, || deadline);
        // This may be before `deadline` and in the past, because timers fire up to a millisecond late.
        self.fires_at = self.timer.fires_at();
        polled
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use std::time::Duration;
    use tokio::time::timeout;

    #[tokio::test]
    async fn a_lazy_timer_that_is_polled_just_before_it_fires_fires_again() {
        let mut timer = LazyTimer::default();
        let began = Instant::now();
        let (first, second) = (
            began + Duration::from_millis(20),
            began + Duration::from_millis(60),
        );
        let mut polls = 0;
        let fired = poll_fn(|cx| {
            polls += 1;
            if polls > 1 {
                return timer.poll(cx, Instant::now(), second);
            }
            assert!(timer.poll(cx, began, first).is_pending());
            // The deadline has passed, but the timer fires within the next millisecond.
            assert!(timer.poll(cx, first, second).is_pending());
            Poll::Pending
        });
        let fired = timeout(Duration::from_secs(10), fired).await;
        fired.expect("it is also woken for the second deadline");
        assert!(Instant::now() >= second);
    }
}
