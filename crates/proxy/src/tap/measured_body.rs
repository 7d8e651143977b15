use super::backpressure::Backpressure;
use super::measure_queue::{FinalFlush, MeasureQueue};
use super::silence::SilenceTimer;
use crate::call_handle::{Call, CallHandle};
use crate::clock::now;
use crate::connection::Io;
use crate::settings::Timeouts;
use crate::upstream::{Endpoint, InFlightGuard};
use bytes::Bytes;
use http::HeaderMap;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;
use tokengauge_core::observer::{Chunk, End};

#[derive(Default)]
pub(crate) struct MeasuredBody {
    /// `None` once the body has ended.
    open: Option<OpenCall>,
    pub(super) queue: MeasureQueue,
    silence: SilenceTimer,
    pub(super) backpressure: Backpressure,
}

struct OpenCall {
    call: Call,
    endpoint: Arc<Endpoint>,
    in_flight: InFlightGuard,
}

impl MeasuredBody {
    pub fn new(
        call: Call,
        endpoint: Arc<Endpoint>,
        in_flight: InFlightGuard,
        timeouts: &Timeouts,
    ) -> MeasuredBody {
        MeasuredBody {
            queue: MeasureQueue::new(call.handle()),
            open: Some(OpenCall {
                call,
                endpoint,
                in_flight,
            }),
            silence: SilenceTimer::new(timeouts.idle),
            backpressure: Backpressure::default(),
        }
    }

    pub fn is_over(&self) -> bool {
        self.open.is_none()
    }

    /// `None` once the body has ended.
    pub fn handle(&self) -> Option<&CallHandle> {
        self.open.as_ref().map(|open| &**open.call.handle())
    }

    pub fn abandoned_end(&self) -> End {
        let open = self.open.as_ref();
        open.map_or(End::ClientCancelled, |open| {
            open.call.downstream().abandoned_end()
        })
    }

    pub fn push(&mut self, at: Instant, bytes: Bytes) {
        self.queue.push(Chunk {
            at,
            bytes,
            agent_blocked: self.backpressure.take(),
        });
    }

    pub fn trailers(&self, trailers: &HeaderMap) {
        if let Some(handle) = self.handle() {
            handle.notify(|call| call.trailers(trailers));
        }
    }

    pub fn measure_if_full(&mut self) {
        if self.queue.is_full()
            && let Some(open) = &self.open
        {
            self.queue.measure(open.call.handle());
        }
    }

    /// Measures due chunks, unless data was written in this poll. Returns whether measuring was deferred.
    pub fn measure_or_defer(&mut self, cx: &Context<'_>, just_written: bool) -> bool {
        let queue = &mut self.queue;
        self.open
            .as_ref()
            .is_some_and(|open| queue.measure_or_defer(cx, open.call.handle(), just_written))
    }

    /// Waits for a silent upstream and measures meanwhile. Ready when no byte was transferred for the idle timeout.
    /// `written_at` is the time of a write in this poll, after which no timer can have fired.
    pub fn poll_idle(
        &mut self,
        cx: &mut Context<'_>,
        written_at: Option<Instant>,
        last_activity: impl Fn(&CallHandle) -> Instant,
    ) -> Poll<Instant> {
        if self.measure_or_defer(cx, written_at.is_some()) {
            return Poll::Pending;
        }
        let Some(open) = &self.open else {
            return Poll::Pending;
        };
        let at = written_at.unwrap_or_else(now);
        let handle = open.call.handle();
        let last_activity = || last_activity(handle);
        self.silence
            .poll(cx, at, &mut self.queue, handle, last_activity)
    }

    /// Ends the call. Releases the upstream's connection `reusable` for other requests. The remaining chunks are
    /// measured in another task, because the last chunk is not written yet.
    pub fn finish(&mut self, reusable: Option<Io>, at: Instant, end: End) {
        let Some(open) = self.open.take() else { return };
        if let Some(io) = reusable {
            open.endpoint.release(io);
        }
        drop(open.in_flight);
        self.final_flush(open.call, at, end).flush_later();
    }

    fn final_flush(&mut self, call: Call, at: Instant, end: End) -> FinalFlush {
        let blocked = self.backpressure.take_at_end(at);
        FinalFlush::new(std::mem::take(&mut self.queue), call, blocked, at, end)
    }
}

impl Drop for MeasuredBody {
    fn drop(&mut self) {
        let end = self.abandoned_end();
        if let Some(open) = self.open.take() {
            drop(self.final_flush(open.call, now(), end));
        }
    }
}
