//! Relays chunks unchanged from the upstream's socket to the agent's.

use super::measured_body::MeasuredBody;
use crate::agent_connection::AgentConnection;
use crate::body_error::BodyError;
use crate::clock::now;
use crate::connection::Io;
use crate::http1::{BodyReader, Piece};
use crate::read_buffer::with_buffer;
use bytes::Bytes;
use http::HeaderMap;
use std::task::{Context, Poll, ready};
use std::time::Instant;
use tokengauge_core::observer::{End, FailureKind};

/// Pieces that a relay forwards per poll before it yields to other tasks.
const MAX_PIECES_PER_POLL: usize = 16;

pub(crate) struct Relay {
    /// `None` once the body has ended. Dropped first, so that the upstream's connection is closed before the call ends.
    pub(super) response: Option<BodyReader<Io>>,
    pub(super) measured: MeasuredBody,
    /// When a byte was last transferred. Only the relay transfers bytes of this call.
    pub(super) last_activity: Instant,
    /// Whether the head is still buffered, to be written with the first piece.
    pub(super) head_unsent: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Tail {
    /// The last piece, if it arrived with the end of the body. Both are written together.
    pub payload: Option<Bytes>,
    pub trailers: Option<HeaderMap>,
}

impl Relay {
    pub fn poll(
        &mut self,
        cx: &mut Context<'_>,
        agent: &AgentConnection,
    ) -> Poll<Result<Tail, BodyError>> {
        // When the last piece of this poll was written. No timer can have fired since.
        let mut at = None;
        for _ in 0..MAX_PIECES_PER_POLL {
            if !std::mem::take(&mut self.head_unsent) {
                match agent.poll_flush(cx) {
                    Poll::Ready(Ok(())) => {}
                    Poll::Ready(Err(_)) => return self.finish_agent_gone(),
                    Poll::Pending => {
                        self.measured.backpressure.begin(now);
                        self.measured.measure_or_defer(cx, at.is_some());
                        return Poll::Pending;
                    }
                }
            }
            self.measured.backpressure.end(now);
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
                Poll::Ready(Ok(Some(PieceRoute::Passthrough(received_at, payload)))) => {
                    at = Some(self.record_sent(received_at, payload));
                }
                Poll::Ready(Ok(Some(PieceRoute::Last(received_at, payload)))) => {
                    return self.finish_with_last_piece(received_at, payload);
                }
                Poll::Ready(Ok(Some(PieceRoute::AgentGone))) => return self.finish_agent_gone(),
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

enum PieceRoute {
    Passthrough(Instant, Bytes),
    /// The piece must be written together with the end of the body.
    Last(Instant, Bytes),
    AgentGone,
}

fn route(
    agent: &AgentConnection,
    cx: &mut Context<'_>,
    piece: Piece,
    buffer: &[u8],
    at: Instant,
) -> PieceRoute {
    if piece.is_last && piece.starts_at_chunk && !piece.payload.is_empty() {
        return PieceRoute::Last(at, piece.payload);
    }
    match agent.send(cx, &buffer[piece.raw]) {
        Ok(()) => PieceRoute::Passthrough(at, piece.payload),
        Err(_) => PieceRoute::AgentGone,
    }
}

impl Relay {
    /// Queues a piece that was written or buffered. Returns when it was written.
    fn record_sent(&mut self, received_at: Instant, payload: Bytes) -> Instant {
        self.last_activity = received_at;
        let written_at = now();
        if !payload.is_empty() {
            self.measured.push(received_at, payload);
        }
        self.measured.queue.record_written(received_at, written_at);
        self.measured.measure_if_full();
        written_at
    }

    fn finish_with_last_piece(
        &mut self,
        at: Instant,
        payload: Bytes,
    ) -> Poll<Result<Tail, BodyError>> {
        self.last_activity = at;
        self.measured.push(at, payload.clone());
        self.finish_complete(at, Some(payload))
    }

    fn finish_complete(
        &mut self,
        at: Instant,
        payload: Option<Bytes>,
    ) -> Poll<Result<Tail, BodyError>> {
        let response = self.response.as_mut();
        let trailers = response.and_then(BodyReader::take_trailers);
        if let Some(trailers) = &trailers {
            self.measured.trailers(trailers);
        }
        self.finish(at, End::Complete);
        Poll::Ready(Ok(Tail { payload, trailers }))
    }

    fn finish_agent_gone(&mut self) -> Poll<Result<Tail, BodyError>> {
        self.finish(now(), self.measured.abandoned_end());
        Poll::Ready(Err(BodyError::Agent))
    }

    /// No data has arrived, so a buffered head is sent without a first piece.
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
                self.measured.backpressure.begin(now);
                self.measured.measure_or_defer(cx, at.is_some());
                Poll::Pending
            }
        }
    }

    fn on_pending(
        &mut self,
        cx: &mut Context<'_>,
        written_at: Option<Instant>,
    ) -> Poll<Result<Tail, BodyError>> {
        let last_activity = self.last_activity;
        let at = ready!(self.measured.poll_idle(cx, written_at, |_| last_activity));
        self.finish(at, End::Failed(FailureKind::IdleTimeout));
        Poll::Ready(Err(BodyError::Idle))
    }

    fn finish(&mut self, at: Instant, end: End) {
        let reusable = self.response.take().and_then(BodyReader::into_reusable);
        self.measured.finish(reusable, at, end);
    }
}
