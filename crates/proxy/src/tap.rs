//! Taps a response body: read the clock, keep a reference to the frame, forward it, and measure it
//! afterwards.

mod backpressure;
mod measure_queue;
mod relay;
mod silence;
mod source;

pub(super) use relay::{Relay, Tail};
pub(super) use source::ResponseSource;

use super::body_error::BodyError;
use super::call_handle::{Call, UploadError};
use super::clock::now;
use super::filter::BodyFilter;
use super::upstream::InFlightGuard;
use crate::settings::Timeouts;
use backpressure::Backpressure;
use bytes::Bytes;
use http_body::SizeHint;
use measure_queue::{FinalFlush, MeasureQueue};
use silence::SilenceTimer;
use source::Polled;
use std::task::{Context, Poll, ready};
use std::time::Instant;
use tokengauge_core::observer::{End, FailureKind, Filter, Frame};

/// A response body that is forwarded to the agent and measured.
pub(super) struct StreamingBody {
    source: ResponseSource,
    filter: Option<BodyFilter>,
    queue: MeasureQueue,
    /// `None` once it has ended.
    call: Option<Call>,
    silence: SilenceTimer,
    in_flight: Option<InFlightGuard>,
    /// When the first of the frames was received that the server may not have written yet.
    unwritten: Option<Instant>,
    /// How long the agent accepts nothing, while the server writes.
    backpressure: Backpressure,
}

impl StreamingBody {
    pub fn new(
        source: ResponseSource,
        call: Call,
        timeouts: &Timeouts,
        in_flight: InFlightGuard,
    ) -> StreamingBody {
        let queue = MeasureQueue::new(call.handle());
        StreamingBody {
            source,
            filter: None,
            queue,
            call: Some(call),
            silence: SilenceTimer::new(timeouts.idle),
            in_flight: Some(in_flight),
            unwritten: None,
            backpressure: Backpressure::default(),
        }
    }

    /// Passes the body through `filter`.
    pub fn filtered(mut self, filter: Box<dyn Filter>) -> StreamingBody {
        self.filter = Some(BodyFilter::new(filter));
        self
    }

    /// The body as a relay, if its chunks can be forwarded unchanged: for an HTTP/1.1 agent who gets
    /// it chunked, and before any of it was read.
    pub fn take_relay(&mut self) -> Option<Box<Relay>> {
        if !self.source.is_chunked() || self.filter.is_some() {
            return None;
        }
        let call = self.call.take()?;
        match std::mem::replace(&mut self.source, ResponseSource::Ended) {
            ResponseSource::Http1 { response, endpoint } => Some(Box::new(Relay {
                last_activity: call.handle().last_activity(),
                response: Some(*response),
                endpoint,
                queue: std::mem::take(&mut self.queue),
                call: Some(call),
                in_flight: self.in_flight.take(),
                silence: SilenceTimer::new(self.silence.idle_timeout()),
                backpressure: Backpressure::default(),
                head_unsent: true,
            })),
            source => {
                (self.source, self.call) = (source, Some(call));
                None
            }
        }
    }

    /// Ends the call at once if there is no body.
    pub fn finish_if_empty(&mut self) {
        if self.filter.is_none() && self.source.is_end_stream() {
            self.finish(now(), End::Complete);
        }
    }

    pub fn is_over(&self) -> bool {
        let filtered = self.filter.as_ref().is_none_or(BodyFilter::is_finished);
        self.call.is_none() && filtered
    }

    pub fn size_hint(&self) -> SizeHint {
        if self.filter.is_some() {
            SizeHint::default()
        } else {
            self.source.size_hint()
        }
    }

    pub fn poll_frame(&mut self, cx: &mut Context<'_>) -> Polled {
        if self.call.is_none() {
            return Poll::Ready(self.next_remaining().map(Ok));
        }
        if self.backpressure.frame_requested(now) {
            // The agent's time, and not the proxy's.
            self.unwritten = self.unwritten.map(|_| now());
        }
        if self.queue.is_full() {
            self.measure();
        }
        loop {
            let frame = match self.source.poll_frame(cx) {
                Poll::Pending => return self.on_pending(cx),
                Poll::Ready(frame) => frame,
            };
            match self.process_frame(frame) {
                Some(frame) => return Poll::Ready(Some(frame)),
                None if self.call.is_none() => {
                    return Poll::Ready(self.next_remaining().map(Ok));
                }
                // The filter held everything back, so that there is nothing to write.
                None => self.backpressure = Backpressure::default(),
            }
        }
    }

    fn next_remaining(&mut self) -> Option<http_body::Frame<Bytes>> {
        self.filter.as_mut()?.next_remaining()
    }

    /// Records a frame, and returns what to forward in its place.
    fn process_frame(
        &mut self,
        frame: Option<Result<http_body::Frame<Bytes>, BodyError>>,
    ) -> Option<Result<http_body::Frame<Bytes>, BodyError>> {
        let at = now();
        match frame {
            Some(Ok(frame)) => {
                self.record_frame(at, &frame);
                if let (Some(trailers), Some(call)) = (frame.trailers_ref(), &self.call) {
                    call.handle().notify(|call| call.trailers(trailers));
                }
                // hyper does not poll again after trailers.
                if frame.is_trailers() || self.source.is_end_stream() {
                    self.finish(at, End::Complete);
                }
                let frame = match &mut self.filter {
                    Some(filter) => filter.apply(frame),
                    None => Some(frame),
                };
                frame.map(Ok)
            }
            Some(Err(error)) => {
                self.filter = None;
                self.finish(at, self.broken_end());
                Some(Err(error))
            }
            None => {
                self.finish(at, End::Complete);
                None
            }
        }
    }

    /// How a call ends whose response broke off. If the upload had broken off, the agent is to blame.
    fn broken_end(&self) -> End {
        let Some(call) = &self.call else {
            return End::UpstreamReset;
        };
        match call.handle().upload_error() {
            Some(UploadError::Malformed) => End::Failed(FailureKind::BadRequest),
            Some(UploadError::Abandoned) => call.downstream().abandoned_end(),
            None => End::UpstreamReset,
        }
    }

    fn record_frame(&mut self, at: Instant, frame: &http_body::Frame<Bytes>) {
        if let Some(call) = &self.call {
            call.handle().record_activity(at);
        }
        if let Some(bytes) = frame.data_ref() {
            self.queue.push(Frame {
                at,
                bytes: bytes.clone(),
                agent_blocked: self.backpressure.take(),
            });
            self.backpressure.frame_given(at);
            self.unwritten.get_or_insert(at);
        }
    }

    /// The upstream is silent, so that there is time to measure, unless the last frame has yet to
    /// be written: the server writes it when this returns, so measuring waits for the next poll.
    fn on_pending(&mut self, cx: &mut Context<'_>) -> Polled {
        let Some(call) = &self.call else {
            return Poll::Ready(None);
        };
        let (at, call) = (now(), call.handle());
        let unwritten = self.unwritten.take();
        if let Some(received) = unwritten {
            self.queue.record_written(received, at);
        }
        let queue = &mut self.queue;
        if queue.measure_or_defer(cx, call, unwritten.is_some()) {
            return Poll::Pending;
        }
        let last_activity = || call.last_activity();
        let at = ready!(self.silence.poll(cx, at, queue, call, last_activity));
        self.filter = None;
        self.finish(at, End::Failed(FailureKind::IdleTimeout));
        Poll::Ready(Some(Err(BodyError::Idle)))
    }

    fn measure(&mut self) {
        if let Some(call) = &self.call {
            self.queue.measure(call.handle());
        }
    }

    /// Ends the call and releases the connection. What is left to measure is measured in another
    /// task, as the last frame has yet to be written.
    fn finish(&mut self, at: Instant, end: End) {
        self.source.finish();
        self.in_flight = None;
        let Some(call) = self.call.take() else { return };
        self.queue.agent_blocked = self.backpressure.take_at_end(at);
        FinalFlush::new(std::mem::take(&mut self.queue), call, at, end).flush_later();
    }
}

impl Drop for StreamingBody {
    fn drop(&mut self) {
        if let Some(call) = self.call.take() {
            // The agent reads no more of this body. The upstream's connection is closed first.
            self.source = ResponseSource::Ended;
            let at = now();
            self.queue.agent_blocked = self.backpressure.take_at_end(at);
            let queue = std::mem::take(&mut self.queue);
            let end = call.downstream().abandoned_end();
            drop(FinalFlush::new(queue, call, at, end));
        }
    }
}

impl std::fmt::Debug for StreamingBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StreamingBody")
            .field("over", &self.is_over())
            .finish_non_exhaustive()
    }
}
