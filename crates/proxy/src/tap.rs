//! The response body on its way to the agent: read the clock, keep a reference, pass the
//! frame on, measure afterwards.

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

/// A response body under way.
pub(super) struct Streaming {
    source: ResponseSource,
    filter: Option<BodyFilter>,
    /// The way past the server, while that has a head to write.
    handover: Option<PassthroughSwitch>,
    relayed: Option<RelayTask>,
    /// What the server writes after a relay.
    tail: Tail,
    queue: MeasureQueue,
    /// `None` once it is over.
    call: Option<Call>,
    idle: IdleTimer,
    /// How long the agent may take nothing.
    send: Duration,
    outstanding: Option<InFlightGuard>,
    /// How long the agent takes nothing, while the server writes.
    blocked: Backpressure,
}

impl Streaming {
    pub fn new(
        source: ResponseSource,
        call: Call,
        timeouts: &Timeouts,
        outstanding: InFlightGuard,
    ) -> Streaming {
        let idle = IdleTimer::new(timeouts.idle);
        let queue = MeasureQueue::new(call.handle());
        Streaming {
            source,
            filter: None,
            handover: None,
            relayed: None,
            tail: Tail::default(),
            queue,
            call: Some(call),
            idle,
            send: timeouts.send,
            outstanding: Some(outstanding),
            blocked: Backpressure::default(),
        }
    }

    /// Lets `filter` edit the body.
    pub fn filtered(mut self, filter: Box<dyn Filter>) -> Streaming {
        self.filter = Some(BodyFilter::new(filter));
        self.handover = None;
        self
    }

    /// Lets chunks leave as they came, past the server, which gets this body for an
    /// HTTP/1.1 agent and will write it chunked.
    pub fn past_the_server(mut self, agent: SharedSocket) -> Streaming {
        if self.source.is_chunked() && self.filter.is_none() {
            self.handover = Some(PassthroughSwitch::new(agent));
        }
        self
    }

    /// The head alone was all there is.
    pub fn finish_if_empty(&mut self) {
        if self.filter.is_none() && self.source.is_end_stream() {
            self.over(now(), End::Complete);
        }
    }

    pub fn is_over(&self) -> bool {
        let filtered = self.filter.as_ref().is_none_or(BodyFilter::is_finished);
        self.call.is_none() && self.relayed.is_none() && self.tail.is_empty() && filtered
    }

    pub fn size_hint(&self) -> SizeHint {
        if self.filter.is_some() {
            SizeHint::default()
        } else {
            self.source.size_hint()
        }
    }

    pub fn poll_frame(&mut self, cx: &mut Context<'_>) -> Polled {
        // The server wraps what it gets as a chunk of its own: a chunk that began there
        // ends there.
        if self
            .handover
            .as_ref()
            .is_some_and(PassthroughSwitch::is_open)
            && self.source.is_between_chunks()
        {
            self.hand_over();
        }
        if let Some(relayed) = &mut self.relayed {
            let tail = ready!(relayed.poll_tail(cx));
            self.relayed = None;
            match tail {
                Ok(tail) => self.tail = tail,
                Err(error) => return Poll::Ready(Some(Err(error))),
            }
        }
        if self.call.is_none() {
            return Poll::Ready(self.what_is_left().map(Ok));
        }
        self.blocked.asked(now);
        if self.queue.is_full() {
            self.measure();
        }
        loop {
            let frame = match self.source.poll_frame(cx) {
                Poll::Pending => return self.nothing_yet(cx),
                Poll::Ready(frame) => frame,
            };
            match self.passed(frame) {
                Some(frame) => {
                    self.handover.iter_mut().for_each(PassthroughSwitch::gave);
                    return Poll::Ready(Some(frame));
                }
                None if self.call.is_none() => {
                    return Poll::Ready(self.what_is_left().map(Ok));
                }
                // The filter held everything back: there is nothing to write.
                None => self.blocked = Backpressure::default(),
            }
        }
    }

    fn what_is_left(&mut self) -> Option<http_body::Frame<Bytes>> {
        match &mut self.filter {
            Some(filtering) => filtering.rest(),
            None => self.tail.next(),
        }
    }

    /// The head has left: what follows leaves past the server.
    fn hand_over(&mut self) {
        let Some(handover) = self.handover.take() else {
            return;
        };
        match (
            std::mem::replace(&mut self.source, ResponseSource::Over),
            self.call.take(),
        ) {
            (ResponseSource::Http1 { response, endpoint }, Some(call)) => {
                self.relayed = Some(RelayTask::start(Relay {
                    moved: call.handle().last_moved(),
                    // What came with the head is measured even if nothing follows it.
                    due: !self.queue.is_empty(),
                    response: Some(*response),
                    endpoint,
                    past: handover.past(),
                    queue: std::mem::take(&mut self.queue),
                    call: Some(call),
                    idle: self.idle.limit(),
                    send: SendTimer::new(self.send),
                    outstanding: self.outstanding.take(),
                    timer: LazyTimer::default(),
                    blocked: Backpressure::default(),
                }));
            }
            (source, call) => (self.source, self.call) = (source, call),
        }
    }

    /// Notes what came, and gives what leaves in its place.
    fn passed(
        &mut self,
        frame: Option<Result<http_body::Frame<Bytes>, BodyError>>,
    ) -> Option<Result<http_body::Frame<Bytes>, BodyError>> {
        let at = now();
        match frame {
            Some(Ok(frame)) => {
                self.note(at, &frame);
                if let (Some(trailers), Some(call)) = (frame.trailers_ref(), &self.call) {
                    call.handle().notify(|call| call.trailers(trailers));
                }
                // Servers do not ask again after trailers.
                if frame.is_trailers() || self.source.is_end_stream() {
                    self.over(at, End::Complete);
                }
                let frame = match &mut self.filter {
                    Some(filtering) => filtering.edit(frame),
                    None => Some(frame),
                };
                frame.map(Ok)
            }
            Some(Err(error)) => {
                self.filter = None;
                self.over(at, End::UpstreamReset);
                Some(Err(error))
            }
            None => {
                self.over(at, End::Complete);
                None
            }
        }
    }

    fn note(&mut self, at: Instant, frame: &http_body::Frame<Bytes>) {
        if let Some(call) = &self.call {
            call.handle().moved(at);
        }
        if let Some(bytes) = frame.data_ref() {
            self.queue.keep(Frame {
                at,
                bytes: bytes.clone(),
                agent_blocked: self.blocked.take(),
            });
            self.blocked.gave(at);
        }
    }

    /// The upstream is silent: time to measure, unless the last frame is still to be
    /// written. The server writes when this returns, so measuring waits for the next turn.
    fn nothing_yet(&mut self, cx: &mut Context<'_>) -> Polled {
        let Some(call) = &self.call else {
            return Poll::Ready(None);
        };
        if self.queue.is_empty() {
            // There is nothing to measure.
        } else if !self.queue.written {
            self.queue.written(now());
            cx.waker().wake_by_ref();
        } else if !self.queue.show(call.handle()) {
            cx.waker().wake_by_ref();
        }
        if self.idle.poll(cx, call.handle().last_moved()).is_ready() {
            self.filter = None;
            self.over(now(), End::Failed(FailureKind::IdleTimeout));
            return Poll::Ready(Some(Err(BodyError::Idle)));
        }
        Poll::Pending
    }

    fn measure(&mut self) {
        if let Some(call) = &self.call {
            self.queue.show(call.handle());
        }
    }

    /// Ends the call; the connection returns to the pool. What is left to measure is done in a task
    /// of its own: the last frame is not written yet.
    fn over(&mut self, at: Instant, end: End) {
        self.source.finish();
        self.outstanding = None;
        let Some(call) = self.call.take() else { return };
        self.queue.agent_blocked = self.blocked.tail(at);
        FinalFlush::new(std::mem::take(&mut self.queue), call, at, end).flush_later();
    }
}

impl Drop for Streaming {
    fn drop(&mut self) {
        if let Some(call) = self.call.take() {
            // The agent reads no more of this body; the upstream's side is closed first.
            self.source = ResponseSource::Over;
            let at = now();
            self.queue.agent_blocked = self.blocked.tail(at);
            let queue = std::mem::take(&mut self.queue);
            let end = call.agent().end();
            drop(FinalFlush::new(queue, call, at, end));
        }
    }
}

impl std::fmt::Debug for Streaming {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Streaming")
            .field("over", &self.is_over())
            .finish_non_exhaustive()
    }
}
