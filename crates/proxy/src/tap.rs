//! Taps a response body: read the clock, keep a reference to the frame, forward it, and measure it
//! afterwards.

mod backpressure;
mod measure_queue;
mod passthrough_switch;
mod relay;
mod source;

pub(super) use source::ResponseSource;

use super::agent_socket::SharedSocket;
use super::body::BodyError;
use super::call_handle::Call;
use super::clock::now;
use super::filter::BodyFilter;
use super::timer::{IdleTimer, LazyTimer, SendTimer};
use super::upstream::InFlightGuard;
use crate::settings::Timeouts;
use backpressure::Backpressure;
use bytes::Bytes;
use http_body::SizeHint;
use measure_queue::{FinalFlush, MeasureQueue};
use passthrough_switch::PassthroughSwitch;
use relay::{Relay, RelayTask, Tail};
use source::Polled;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};
use tokengauge_core::observer::{End, FailureKind, Filter, Frame};

/// A response body that is forwarded to the agent and measured.
pub(super) struct StreamingBody {
    source: ResponseSource,
    filter: Option<BodyFilter>,
    /// Switches to passthrough once the server has written the head.
    passthrough: Option<PassthroughSwitch>,
    relay_task: Option<RelayTask>,
    /// What the server has to write after the relay has ended.
    tail: Tail,
    queue: MeasureQueue,
    /// `None` once it has ended.
    call: Option<Call>,
    idle_timer: IdleTimer,
    /// How long the agent may accept nothing.
    send_timeout: Duration,
    in_flight: Option<InFlightGuard>,
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
        let idle_timer = IdleTimer::new(timeouts.idle);
        let queue = MeasureQueue::new(call.handle());
        StreamingBody {
            source,
            filter: None,
            passthrough: None,
            relay_task: None,
            tail: Tail::default(),
            queue,
            call: Some(call),
            idle_timer,
            send_timeout: timeouts.send,
            in_flight: Some(in_flight),
            backpressure: Backpressure::default(),
        }
    }

    /// Passes the body through `filter`.
    pub fn filtered(mut self, filter: Box<dyn Filter>) -> StreamingBody {
        self.filter = Some(BodyFilter::new(filter));
        self.passthrough = None;
        self
    }

    /// Lets chunks bypass the server unchanged. For an HTTP/1.1 agent to whom the server would
    /// write the body chunked.
    pub fn with_passthrough(mut self, agent: SharedSocket) -> StreamingBody {
        if self.source.is_chunked() && self.filter.is_none() {
            self.passthrough = Some(PassthroughSwitch::new(agent));
        }
        self
    }

    /// Ends the call at once if there is no body.
    pub fn finish_if_empty(&mut self) {
        if self.filter.is_none() && self.source.is_end_stream() {
            self.finish(now(), End::Complete);
        }
    }

    pub fn is_over(&self) -> bool {
        let filtered = self.filter.as_ref().is_none_or(BodyFilter::is_finished);
        self.call.is_none() && self.relay_task.is_none() && self.tail.is_empty() && filtered
    }

    pub fn size_hint(&self) -> SizeHint {
        if self.filter.is_some() {
            SizeHint::default()
        } else {
            self.source.size_hint()
        }
    }

    pub fn poll_frame(&mut self, cx: &mut Context<'_>) -> Polled {
        // The server frames what it gets as chunks of its own, so the switch has to happen between
        // the upstream's chunks.
        if self
            .passthrough
            .as_ref()
            .is_some_and(PassthroughSwitch::is_ready)
            && self.source.is_between_chunks()
        {
            self.start_relay();
        }
        if let Some(relay_task) = &mut self.relay_task {
            let tail = ready!(relay_task.poll_tail(cx));
            self.relay_task = None;
            match tail {
                Ok(tail) => self.tail = tail,
                Err(error) => return Poll::Ready(Some(Err(error))),
            }
        }
        if self.call.is_none() {
            return Poll::Ready(self.next_remaining().map(Ok));
        }
        self.backpressure.frame_requested(now);
        if self.queue.is_full() {
            self.measure();
        }
        loop {
            let frame = match self.source.poll_frame(cx) {
                Poll::Pending => return self.on_pending(cx),
                Poll::Ready(frame) => frame,
            };
            match self.process_frame(frame) {
                Some(frame) => {
                    self.passthrough
                        .iter_mut()
                        .for_each(PassthroughSwitch::record_frame);
                    return Poll::Ready(Some(frame));
                }
                None if self.call.is_none() => {
                    return Poll::Ready(self.next_remaining().map(Ok));
                }
                // The filter held everything back, so that there is nothing to write.
                None => self.backpressure = Backpressure::default(),
            }
        }
    }

    fn next_remaining(&mut self) -> Option<http_body::Frame<Bytes>> {
        match &mut self.filter {
            Some(filter) => filter.next_remaining(),
            None => self.tail.next(),
        }
    }

    /// Forwards the rest of the body past the server, which has written the head.
    fn start_relay(&mut self) {
        let Some(passthrough) = self.passthrough.take() else {
            return;
        };
        match (
            std::mem::replace(&mut self.source, ResponseSource::Ended),
            self.call.take(),
        ) {
            (ResponseSource::Http1 { response, endpoint }, Some(call)) => {
                self.relay_task = Some(RelayTask::start(Relay {
                    last_activity: call.handle().last_activity(),
                    // What arrived with the head is measured even if nothing follows.
                    measure_due: !self.queue.is_empty(),
                    response: Some(*response),
                    endpoint,
                    writer: passthrough.into_writer(),
                    queue: std::mem::take(&mut self.queue),
                    call: Some(call),
                    idle_timeout: self.idle_timer.limit(),
                    send_timer: SendTimer::new(self.send_timeout),
                    in_flight: self.in_flight.take(),
                    timer: LazyTimer::default(),
                    backpressure: Backpressure::default(),
                }));
            }
            (source, call) => (self.source, self.call) = (source, call),
        }
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
                self.finish(at, End::UpstreamReset);
                Some(Err(error))
            }
            None => {
                self.finish(at, End::Complete);
                None
            }
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
        }
    }

    /// The upstream is silent, so that there is time to measure, unless the last frame has yet to
    /// be written: the server writes it when this returns, so measuring waits for the next poll.
    fn on_pending(&mut self, cx: &mut Context<'_>) -> Polled {
        let Some(call) = &self.call else {
            return Poll::Ready(None);
        };
        if self.queue.is_empty() {
            // Nothing to measure.
        } else if !self.queue.written {
            self.queue.mark_written(now());
            cx.waker().wake_by_ref();
        } else if !self.queue.measure(call.handle()) {
            cx.waker().wake_by_ref();
        }
        if self
            .idle_timer
            .poll(cx, call.handle().last_activity())
            .is_ready()
        {
            self.filter = None;
            self.finish(now(), End::Failed(FailureKind::IdleTimeout));
            return Poll::Ready(Some(Err(BodyError::Idle)));
        }
        Poll::Pending
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
