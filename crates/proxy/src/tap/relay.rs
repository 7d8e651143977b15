//! Relays chunks unchanged from the upstream's socket to the agent's, in a task that does nothing
//! else.

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

/// Pieces that a relay forwards per poll before it yields to other tasks.
const MAX_PIECES_PER_POLL: usize = 16;
/// How long the queued frames of a stream that falls silent, less than a second's worth, wait to be
/// measured, plus at most one tick. Waking up sooner would often be for nothing, as most streams go
/// on.
const MEASURE_WITHIN: Duration = MAX_MEASURE_DELAY.saturating_sub(Duration::from_millis(50));
/// Streams check their queues at common instants, this far apart: a wake-up for each stream costs
/// more, and too many streams at once delay others.
const TICK: Duration = Duration::from_millis(20);
/// How soon frames that are left over are measured.
const MEASURE_AGAIN: Duration = Duration::from_millis(5);

/// A response body that bypasses the server.
pub(super) struct Relay {
    /// `None` once it has ended.
    pub response: Option<BodyReader<Io>>,
    pub endpoint: Arc<Endpoint>,
    pub writer: PassthroughWriter,
    pub queue: MeasureQueue,
    /// `None` once it has ended.
    pub call: Option<Call>,
    pub idle_timeout: Duration,
    pub send_timer: SendTimer,
    pub in_flight: Option<InFlightGuard>,
    pub timer: LazyTimer,
    /// When a byte was last transferred; only the relay transfers any.
    pub last_activity: Instant,
    /// Whether forwarded frames are to be measured once other tasks have had their turn.
    pub measure_due: bool,
    /// How long the agent accepts nothing.
    pub backpressure: Backpressure,
}

/// What the server has to write after the relay.
#[derive(Debug, Default)]
pub(super) struct Tail {
    /// The last piece, if it arrived with the end of the body: both are written together.
    pub payload: Option<Bytes>,
    pub trailers: Option<HeaderMap>,
}

impl Tail {
    pub fn is_empty(&self) -> bool {
        self.payload.is_none() && self.trailers.is_none()
    }

    /// The next frame to write.
    pub fn next(&mut self) -> Option<http_body::Frame<Bytes>> {
        let payload = self.payload.take().map(http_body::Frame::data);
        payload.or_else(|| self.trailers.take().map(http_body::Frame::trailers))
    }
}

/// A running relay, aborted on drop.
#[derive(Debug)]
pub(super) struct RelayTask(JoinHandle<Result<Tail, BodyError>>);

impl RelayTask {
    pub fn start(relay: Relay) -> RelayTask {
        RelayTask(tokio::spawn(relay))
    }

    /// Ready when the relay has ended.
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

    /// Forwards what arrives until nothing does.
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // When the last piece of this poll was written: no timer can have fired since.
        let mut at = None;
        for _ in 0..MAX_PIECES_PER_POLL {
            match self.writer.poll_flush(cx) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(_)) => return self.finish_agent_gone(),
                Poll::Pending => {
                    self.backpressure.begin(now);
                    self.measure_or_defer(cx, at.is_some());
                    let pending = self.writer.pending_bytes();
                    ready!(self.send_timer.poll(cx, pending));
                    return self.finish_agent_stalled();
                }
            }
            self.send_timer.reset();
            self.backpressure.end(now);
            let Relay {
                response, writer, ..
            } = &mut *self;
            let response = response.as_mut().expect("polled until it is over");
            let routed =
                with_buffer(|buffer| {
                    let piece = ready!(response.poll_piece(cx, buffer));
                    let received_at = now();
                    Poll::Ready(piece.map(|piece| {
                        piece.map(|piece| route(writer, cx, piece, buffer, received_at))
                    }))
                });
            match routed {
                Poll::Pending => return self.on_pending(cx, at),
                Poll::Ready(Ok(Some(FrameRoute::Passthrough(received_at, payload)))) => {
                    at = Some(self.record_sent(received_at, payload));
                }
                Poll::Ready(Ok(Some(FrameRoute::ToServer(received_at, payload)))) => {
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
    /// It was written past the server.
    Passthrough(Instant, Bytes),
    /// The server writes it: the last piece goes together with the end of the body.
    ToServer(Instant, Bytes),
    /// The agent has closed the connection.
    AgentGone,
}

fn route(
    writer: &mut PassthroughWriter,
    cx: &mut Context<'_>,
    piece: Piece,
    buffer: &[u8],
    at: Instant,
) -> FrameRoute {
    if piece.is_last && piece.starts_at_chunk && !piece.payload.is_empty() {
        return FrameRoute::ToServer(at, piece.payload);
    }
    match writer.send(cx, &buffer[piece.raw]) {
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
        self.queue.record_delay(received_at, written_at);
        self.measure_due |= self.queue.is_due(written_at);
        if self.queue.is_full() {
            self.measure();
        }
        written_at
    }

    /// Measures what is due, unless it was written in this poll: other tasks go first. Returns
    /// whether measuring was deferred to the next poll.
    fn measure_or_defer(&mut self, cx: &Context<'_>, just_written: bool) -> bool {
        if self.measure_due && just_written {
            cx.waker().wake_by_ref();
            return true;
        }
        if self.measure_due {
            self.measure();
        }
        false
    }

    fn measure(&mut self) {
        self.measure_due = false;
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

    fn finish_agent_stalled(&mut self) -> Poll<Result<Tail, BodyError>> {
        self.finish(now(), End::Failed(FailureKind::AgentSendTimeout));
        self.writer.agent().abort();
        Poll::Ready(Err(BodyError::Agent))
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
        let mut at = at.unwrap_or_else(now);
        loop {
            let idle_deadline = self.last_activity + self.idle_timeout;
            if at >= idle_deadline {
                self.finish(at, End::Failed(FailureKind::IdleTimeout));
                return Poll::Ready(Err(BodyError::Idle));
            }
            let oldest = self.queue.oldest();
            if oldest.is_some_and(|since| at >= since + MEASURE_WITHIN) {
                self.measure();
            }
            // Frames left over because measuring is paused, or its budget is spent, wait until
            // other tasks have had their turn.
            let oldest = self.queue.oldest();
            let measure =
                oldest.map(|since| next_tick(since + MEASURE_WITHIN).max(at + MEASURE_AGAIN));
            let wanted = measure.map_or(idle_deadline, |measure| idle_deadline.min(measure));
            ready!(self.timer.poll(cx, at, wanted));
            at = now();
        }
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

/// The first tick that is not before `at`.
fn next_tick(at: Instant) -> Instant {
    static START: LazyLock<Instant> = LazyLock::new(now);
    let elapsed = at.saturating_duration_since(*START);
    let ticks = elapsed.as_nanos().div_ceil(TICK.as_nanos());
    *START + TICK * u32::try_from(ticks).unwrap_or(u32::MAX)
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
