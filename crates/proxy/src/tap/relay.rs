//! The short way of a chunk: from the upstream's socket to the agent's as it came, in a
//! task that touches nothing else.

use super::backpressure::Backpressure;
use super::measure_queue::{FinalFlush, MeasureQueue};
use super::source::with_buffer;
use crate::agent_socket::PassthroughWriter;
use crate::body::BodyError;
use crate::call_handle::Call;
use crate::clock::now;
use crate::connection::Io;
use crate::http1::{BodyReader, Piece};
use crate::timer::{LazyTimer, SendTimer};
use crate::upstream::{Endpoint, InFlightGuard};
use bytes::Bytes;
use http::HeaderMap;
use std::pin::Pin;
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};
use tokengauge_core::observer::{End, FailureKind, Frame, MAX_MEASURE_DELAY};
use tokio::task::JoinHandle;

/// Pieces that one stream passes on before others have their turn.
const TURNS: usize = 16;
/// What waits to be measured when a stream falls silent, less than a second of it, waits
/// no longer than this and a beat. Streams that go on wake as often for nothing.
const MEASURE_WITHIN: Duration = MAX_MEASURE_DELAY.saturating_sub(Duration::from_millis(50));
/// Streams look at what waits at the same instants: to wake for each costs more, and to see
/// to many at once delays others.
const BEAT: Duration = Duration::from_millis(20);
/// When what is left over then is looked at again.
const MEASURE_AGAIN: Duration = Duration::from_millis(5);

/// A response on its way past the server.
pub(super) struct Relay {
    /// `None` when it is over.
    pub response: Option<BodyReader<Io>>,
    pub endpoint: Arc<Endpoint>,
    pub past: PassthroughWriter,
    pub queue: MeasureQueue,
    /// `None` when it is over.
    pub call: Option<Call>,
    pub idle: Duration,
    pub send: SendTimer,
    pub outstanding: Option<InFlightGuard>,
    pub timer: LazyTimer,
    /// When a byte moved last: nothing but this moves any.
    pub moved: Instant,
    /// What has left is measured as soon as others have had their turn.
    pub due: bool,
    /// How long the agent takes nothing.
    pub blocked: Backpressure,
}

/// What the server has to write when a relay is done.
#[derive(Debug, Default)]
pub(super) struct Tail {
    /// The last piece, where it came with the end: both leave together.
    pub payload: Option<Bytes>,
    pub trailers: Option<HeaderMap>,
}

impl Tail {
    pub fn is_empty(&self) -> bool {
        self.payload.is_none() && self.trailers.is_none()
    }

    /// What is next to write.
    pub fn next(&mut self) -> Option<http_body::Frame<Bytes>> {
        let payload = self.payload.take().map(http_body::Frame::data);
        payload.or_else(|| self.trailers.take().map(http_body::Frame::trailers))
    }
}

/// A relay at work. It ends with this.
#[derive(Debug)]
pub(super) struct RelayTask(JoinHandle<Result<Tail, BodyError>>);

impl RelayTask {
    pub fn start(relay: Relay) -> RelayTask {
        RelayTask(tokio::spawn(relay))
    }

    /// Ready when the relay is done.
    pub fn poll_tail(&mut self, cx: &mut Context<'_>) -> Poll<Result<Tail, BodyError>> {
        let done = ready!(Pin::new(&mut self.0).poll(cx));
        Poll::Ready(done.unwrap_or(Err(BodyError::Agent)))
    }
}

impl Drop for RelayTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Future for Relay {
    type Output = Result<Tail, BodyError>;

    /// Passes on what comes until nothing comes.
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // What was sent was sent in this turn, so that no timer can have fired unseen since.
        let mut at = None;
        for _ in 0..TURNS {
            match self.past.poll_unsent(cx) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(_)) => return self.agent_left(),
                Poll::Pending => {
                    self.blocked.begin(now);
                    self.measures_later(cx, at.is_some());
                    let left = self.past.left();
                    ready!(self.send.poll(cx, left));
                    return self.agent_stalls();
                }
            }
            self.send.sent();
            self.blocked.end(now);
            let Relay { response, past, .. } = &mut *self;
            let response = response.as_mut().expect("polled until it is over");
            let passed = with_buffer(|buffer| {
                let piece = ready!(response.poll_piece(cx, buffer));
                let came = now();
                Poll::Ready(
                    piece.map(|piece| piece.map(|piece| pass(past, cx, piece, buffer, came))),
                )
            });
            match passed {
                Poll::Pending => return self.nothing_yet(cx, at),
                Poll::Ready(Ok(Some(FrameRoute::Sent(came, payload)))) => {
                    at = Some(self.sent(came, payload));
                }
                Poll::Ready(Ok(Some(FrameRoute::Left(came, payload)))) => {
                    return self.last(came, payload);
                }
                Poll::Ready(Ok(Some(FrameRoute::Lost))) => return self.agent_left(),
                Poll::Ready(Ok(None)) => return self.done(now(), None),
                Poll::Ready(Err(error)) => {
                    self.over(now(), End::UpstreamReset);
                    return Poll::Ready(Err(error.into()));
                }
            }
        }
        // Others wait for this thread, too.
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

/// Who sees to a piece.
enum FrameRoute {
    /// It has left.
    Sent(Instant, Bytes),
    /// The server: it can write the last piece and the end of the body at once.
    Left(Instant, Bytes),
    /// Nobody: the agent is gone.
    Lost,
}

fn pass(
    past: &mut PassthroughWriter,
    cx: &mut Context<'_>,
    piece: Piece,
    buffer: &[u8],
    at: Instant,
) -> FrameRoute {
    if piece.last && piece.whole_chunks && !piece.payload.is_empty() {
        return FrameRoute::Left(at, piece.payload);
    }
    match past.send(cx, &buffer[piece.raw]) {
        Ok(()) => FrameRoute::Sent(at, piece.payload),
        Err(_) => FrameRoute::Lost,
    }
}

impl Relay {
    /// A piece has left, or is about to as fast as the agent takes it: it is measured soon,
    /// or with those that follow. Tells when it left.
    fn sent(&mut self, came: Instant, payload: Bytes) -> Instant {
        self.moved = came;
        let left = now();
        if !payload.is_empty() {
            self.queue.keep(Frame {
                at: came,
                bytes: payload,
                agent_blocked: self.blocked.take(),
            });
        }
        self.queue.left(came, left);
        self.due |= self.queue.is_due(left);
        if self.queue.is_full() {
            self.measure();
        }
        left
    }

    /// Measures what is due, unless it has just left: whoever has something to send goes first.
    /// Tells whether it is going to be measured in a turn of its own.
    fn measures_later(&mut self, cx: &Context<'_>, just_left: bool) -> bool {
        if self.due && just_left {
            cx.waker().wake_by_ref();
            return true;
        }
        if self.due {
            self.measure();
        }
        false
    }

    fn measure(&mut self) {
        self.due = false;
        if let Some(call) = &self.call {
            self.queue.show(call.handle());
        }
    }

    fn last(&mut self, at: Instant, payload: Bytes) -> Poll<Result<Tail, BodyError>> {
        self.moved = at;
        let bytes = payload.clone();
        let agent_blocked = self.blocked.take();
        self.queue.keep(Frame {
            at,
            bytes,
            agent_blocked,
        });
        self.done(at, Some(payload))
    }

    fn done(&mut self, at: Instant, payload: Option<Bytes>) -> Poll<Result<Tail, BodyError>> {
        let response = self.response.as_mut();
        let trailers = response.and_then(BodyReader::take_trailers);
        self.over(at, End::Complete);
        Poll::Ready(Ok(Tail { payload, trailers }))
    }

    fn agent_left(&mut self) -> Poll<Result<Tail, BodyError>> {
        let end = self.call.as_ref().map(|call| call.agent().end());
        self.over(now(), end.unwrap_or(End::ClientCancelled));
        Poll::Ready(Err(BodyError::Agent))
    }

    fn agent_stalls(&mut self) -> Poll<Result<Tail, BodyError>> {
        self.over(now(), End::Failed(FailureKind::AgentSendTimeout));
        self.past.agent().abort();
        Poll::Ready(Err(BodyError::Agent))
    }

    /// Waits for the upstream, but not for ever.
    fn nothing_yet(
        &mut self,
        cx: &mut Context<'_>,
        at: Option<Instant>,
    ) -> Poll<Result<Tail, BodyError>> {
        if self.measures_later(cx, at.is_some()) {
            return Poll::Pending;
        }
        let mut at = at.unwrap_or_else(now);
        loop {
            let silent = self.moved + self.idle;
            if at >= silent {
                self.over(at, End::Failed(FailureKind::IdleTimeout));
                return Poll::Ready(Err(BodyError::Idle));
            }
            let waits_since = self.queue.since();
            if waits_since.is_some_and(|since| at >= since + MEASURE_WITHIN) {
                self.measure();
            }
            // What measuring left over, because it rests or its budget is spent, has to wait:
            // others have their turn first.
            let measure = self.queue.since();
            let measure = measure.map(|since| beat(since + MEASURE_WITHIN).max(at + MEASURE_AGAIN));
            let wanted = measure.map_or(silent, |measure| silent.min(measure));
            ready!(self.timer.poll(cx, at, wanted));
            at = now();
        }
    }

    /// Ends the call; the connection returns to its pool. What is left to measure is measured later:
    /// the last piece is not written yet.
    fn over(&mut self, at: Instant, end: End) {
        let response = self.response.take();
        if let Some(io) = response.and_then(BodyReader::into_reusable) {
            self.endpoint.give_back(io);
        }
        self.outstanding = None;
        if let Some(call) = self.call.take() {
            self.queue.agent_blocked = self.blocked.tail(at);
            let queue = std::mem::take(&mut self.queue);
            FinalFlush::new(queue, call, at, end).flush_later();
        }
    }
}

/// The first beat that is not before `at`.
fn beat(at: Instant) -> Instant {
    static BEGAN: LazyLock<Instant> = LazyLock::new(now);
    let since = at.saturating_duration_since(*BEGAN);
    let beats = since.as_nanos().div_ceil(BEAT.as_nanos());
    *BEGAN + BEAT * u32::try_from(beats).unwrap_or(u32::MAX)
}

impl Drop for Relay {
    fn drop(&mut self) {
        // The upstream hears of it first.
        self.response = None;
        if let Some(call) = self.call.take() {
            let at = now();
            self.queue.agent_blocked = self.blocked.tail(at);
            let queue = std::mem::take(&mut self.queue);
            let end = call.agent().end();
            drop(FinalFlush::new(queue, call, at, end));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beats_are_the_same_for_all_and_never_late() {
        let at = now();
        for offset in (0..2_000).step_by(7).map(Duration::from_millis) {
            let instant = at + offset;
            let next = beat(instant);
            assert!(next >= instant && next - instant < BEAT);
            assert_eq!(beat(next), next);
        }
        assert_eq!(beat(at + BEAT), beat(at) + BEAT);
    }
}
