//! Relays chunks unchanged from the upstream's socket to the agent's.

use super::backpressure::Backpressure;
use super::measure_queue::{FinalFlush, MeasureQueue};
use super::silence::SilenceTimer;
use crate::agent_connection::AgentConnection;
use crate::body_error::BodyError;
use crate::call_handle::Call;
use crate::clock::now;
use crate::connection::Io;
use crate::http1::{BodyReader, Piece};
use crate::read_buffer::with_buffer;
use crate::upstream::{Endpoint, InFlightGuard};
use bytes::Bytes;
use http::HeaderMap;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Instant;
use tokengauge_core::observer::{End, FailureKind, Frame};

/// Pieces that a relay forwards per poll before it yields to other tasks.
const MAX_PIECES_PER_POLL: usize = 16;
/// A response body whose chunks leave as they came.
pub(crate) struct Relay {
    /// `None` once it has ended.
    pub(super) response: Option<BodyReader<Io>>,
    pub(super) endpoint: Arc<Endpoint>,
    pub(super) queue: MeasureQueue,
    /// `None` once it has ended.
    pub(super) call: Option<Call>,
    pub(super) in_flight: Option<InFlightGuard>,
    pub(super) silence: SilenceTimer,
    /// When a byte was last transferred; only the relay transfers any.
    pub(super) last_activity: Instant,
    /// How long the agent accepts nothing.
    pub(super) backpressure: Backpressure,
    /// The head waits to be written with the first piece.
    pub(super) head_unsent: bool,
}

/// What is left to write after a relay, besides the end of the body.
#[derive(Debug, Default)]
pub(crate) struct Tail {
    /// The last piece, if it arrived with the end of the body: both are written together.
    pub payload: Option<Bytes>,
    pub trailers: Option<HeaderMap>,
}

impl Relay {
    /// Forwards what arrives to `agent`, until nothing does.
    pub fn poll(
        &mut self,
        cx: &mut Context<'_>,
        agent: &AgentConnection,
    ) -> Poll<Result<Tail, BodyError>> {
        // When the last piece of this poll was written: no timer can have fired since.
        let mut at = None;
        for _ in 0..MAX_PIECES_PER_POLL {
            if !std::mem::take(&mut self.head_unsent) {
                match agent.poll_flush(cx) {
                    Poll::Ready(Ok(())) => {}
                    Poll::Ready(Err(_)) => return self.finish_agent_gone(),
                    Poll::Pending => {
                        self.backpressure.begin(now);
                        self.measure_or_defer(cx, at.is_some());
                        return Poll::Pending;
                    }
                }
            }
            self.backpressure.end(now);
            let response = &mut self.response;
            let response = response.as_mut().expect("polled until it is over");
            let routed =
                with_buffer(|buffer| {
                    let piece = ready!(response.poll_piece(cx, buffer));
                    let received_at = now();
                    Poll::Ready(piece.map(|piece| {
                        piece.map(|piece| route(agent, cx, piece, buffer, received_at))
                    }))
                });
            match routed {
                Poll::Pending => return self.flush_and_wait(cx, agent, at),
                Poll::Ready(Ok(Some(FrameRoute::Passthrough(received_at, payload)))) => {
                    at = Some(self.record_sent(received_at, payload));
                }
                Poll::Ready(Ok(Some(FrameRoute::Last(received_at, payload)))) => {
                    return self.finish_with_last_piece(received_at, payload);
                }
                Poll::Ready(Ok(Some(FrameRoute::AgentGone))) => return self.finish_agent_gone(),
                Poll::Ready(Ok(None)) => return self.finish_complete(now(), None),
                Poll::Ready(Err(error)) => {
                    self.finish(now(), End::UpstreamReset);
                    return Poll::Ready(Err(error.into()));
                }
            }
        }
        // Yields to other tasks on this thread.
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

/// Who writes a piece.
enum FrameRoute {
    /// It was written as it came.
    Passthrough(Instant, Bytes),
    /// It is written together with the end of the body.
    Last(Instant, Bytes),
    /// The agent has closed the connection.
    AgentGone,
}

fn route(
    agent: &AgentConnection,
    cx: &mut Context<'_>,
    piece: Piece,
    buffer: &[u8],
    at: Instant,
) -> FrameRoute {
    if piece.is_last && piece.starts_at_chunk && !piece.payload.is_empty() {
        return FrameRoute::Last(at, piece.payload);
    }
    match agent.send(cx, &buffer[piece.raw]) {
        Ok(()) => FrameRoute::Passthrough(at, piece.payload),
        Err(_) => FrameRoute::AgentGone,
    }
}

impl Relay {
    /// Queues a piece that was written, or buffered until the agent accepts it. Returns when it was
    /// written.
    fn record_sent(&mut self, received_at: Instant, payload: Bytes) -> Instant {
        self.last_activity = received_at;
        let written_at = now();
        if !payload.is_empty() {
            self.queue.push(Frame {
                at: received_at,
                bytes: payload,
                agent_blocked: self.backpressure.take(),
            });
        }
        self.queue.record_written(received_at, written_at);
        if self.queue.is_full() {
            self.measure();
        }
        written_at
    }

    /// Measures what is due, unless something was written in this poll. Returns whether that was
    /// deferred.
    fn measure_or_defer(&mut self, cx: &Context<'_>, just_written: bool) -> bool {
        let call = self.call.as_ref();
        call.is_some_and(|call| self.queue.measure_or_defer(cx, call.handle(), just_written))
    }

    fn measure(&mut self) {
        if let Some(call) = &self.call {
            self.queue.measure(call.handle());
        }
    }

    fn finish_with_last_piece(
        &mut self,
        at: Instant,
        payload: Bytes,
    ) -> Poll<Result<Tail, BodyError>> {
        self.last_activity = at;
        let bytes = payload.clone();
        let agent_blocked = self.backpressure.take();
        self.queue.push(Frame {
            at,
            bytes,
            agent_blocked,
        });
        self.finish_complete(at, Some(payload))
    }

    fn finish_complete(
        &mut self,
        at: Instant,
        payload: Option<Bytes>,
    ) -> Poll<Result<Tail, BodyError>> {
        let response = self.response.as_mut();
        let trailers = response.and_then(BodyReader::take_trailers);
        if let (Some(trailers), Some(call)) = (&trailers, &self.call) {
            call.handle().notify(|call| call.trailers(trailers));
        }
        self.finish(at, End::Complete);
        Poll::Ready(Ok(Tail { payload, trailers }))
    }

    fn finish_agent_gone(&mut self) -> Poll<Result<Tail, BodyError>> {
        let end = self
            .call
            .as_ref()
            .map(|call| call.downstream().abandoned_end());
        self.finish(now(), end.unwrap_or(End::ClientCancelled));
        Poll::Ready(Err(BodyError::Agent))
    }

    /// Nothing has arrived: a head that waited for the first piece leaves alone.
    fn flush_and_wait(
        &mut self,
        cx: &mut Context<'_>,
        agent: &AgentConnection,
        at: Option<Instant>,
    ) -> Poll<Result<Tail, BodyError>> {
        match agent.poll_flush(cx) {
            Poll::Ready(Ok(())) => self.on_pending(cx, at),
            Poll::Ready(Err(_)) => self.finish_agent_gone(),
            Poll::Pending => {
                self.backpressure.begin(now);
                self.measure_or_defer(cx, at.is_some());
                Poll::Pending
            }
        }
    }

    /// Waits for the upstream, up to the idle timeout.
    fn on_pending(
        &mut self,
        cx: &mut Context<'_>,
        at: Option<Instant>,
    ) -> Poll<Result<Tail, BodyError>> {
        if self.measure_or_defer(cx, at.is_some()) {
            return Poll::Pending;
        }
        let Some(call) = &self.call else {
            return Poll::Pending;
        };
        let (at, last_activity) = (at.unwrap_or_else(now), self.last_activity);
        let (queue, call) = (&mut self.queue, call.handle());
        let silence = &mut self.silence;
        let at = ready!(silence.poll(cx, at, queue, call, || last_activity));
        self.finish(at, End::Failed(FailureKind::IdleTimeout));
        Poll::Ready(Err(BodyError::Idle))
    }

    /// Ends the call and releases the connection. What is left to measure is measured later, as the
    /// last piece has yet to be written.
    fn finish(&mut self, at: Instant, end: End) {
        let response = self.response.take();
        if let Some(io) = response.and_then(BodyReader::into_reusable) {
            self.endpoint.release(io);
        }
        self.in_flight = None;
        if let Some(call) = self.call.take() {
            self.queue.agent_blocked = self.backpressure.take_at_end(at);
            let queue = std::mem::take(&mut self.queue);
            FinalFlush::new(queue, call, at, end).flush_later();
        }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        // Closes the upstream's connection first.
        self.response = None;
        if let Some(call) = self.call.take() {
            let at = now();
            self.queue.agent_blocked = self.backpressure.take_at_end(at);
            let queue = std::mem::take(&mut self.queue);
            let end = call.downstream().abandoned_end();
            drop(FinalFlush::new(queue, call, at, end));
        }
    }
}
