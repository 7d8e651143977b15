//! Limits on slowness, watched without a timer per byte.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::time::{Sleep, sleep_until};

/// Fires when nothing moved for too long. Armed once, and again only when it fires: what
/// moves meanwhile just leaves its instant.
pub(super) struct IdleTimer {
    limit: Duration,
    timer: Timer,
}

impl IdleTimer {
    pub fn new(limit: Duration) -> IdleTimer {
        IdleTimer {
            limit,
            timer: Timer::default(),
        }
    }

    /// How long nothing may move.
    pub fn limit(&self) -> Duration {
        self.limit
    }

    /// Ready when `last` is too long ago.
    pub fn poll(&mut self, cx: &mut Context<'_>, last: Instant) -> Poll<()> {
        let limit = self.limit;
        self.timer.poll(cx, || last + limit)
    }
}

/// A timer whose deadline may move while it runs.
#[derive(Default)]
pub(super) struct Timer(Option<Pin<Box<Sleep>>>);

impl Timer {
    /// Ready when `deadline` has passed. One that moved back is looked at when the timer
    /// fires for the old one.
    pub fn poll(&mut self, cx: &mut Context<'_>, deadline: impl Fn() -> Instant) -> Poll<()> {
        let wanted = deadline().into();
        let timer = self.0.get_or_insert_with(|| Box::pin(sleep_until(wanted)));
        if wanted < timer.deadline() {
            timer.as_mut().reset(wanted);
        }
        while timer.as_mut().poll(cx).is_ready() {
            let wanted = deadline().into();
            if wanted <= timer.deadline() {
                return Poll::Ready(());
            }
            timer.as_mut().reset(wanted);
        }
        Poll::Pending
    }
}
