//! How long an agent may take to send a head, and keep a connection that it does not use.

use crate::send_timeout::SendState;
use parking_lot::{Mutex, MutexGuard};
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

/// How long an unused connection is kept. Longer than clients' pools keep theirs (90 s at
/// most), so that it is they who close and no request crosses our closing.
const IDLE: Duration = Duration::from_secs(120);

/// Where a connection is between requests, shared by its socket, its requests and its timer.
#[derive(Debug)]
pub(super) struct ConnectionTimeouts {
    head_timeout: Duration,
    state: Mutex<State>,
    sending: Arc<SendState>,
}

#[derive(Debug)]
struct State {
    phase: Phase,
    /// HTTP/2: what is read between requests need not be the start of a head.
    multiplexed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// A head is on its way since then; a new connection is there to send one.
    Head(Instant),
    /// So many requests are under way.
    Requests(usize),
    /// Nothing is under way since then.
    Idle(Instant),
}

/// What took too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TimeoutKind {
    /// A request head did not come in time.
    Head,
    /// The connection was idle for too long.
    Idle,
    /// The agent did not take what was written.
    Send,
}

impl ConnectionTimeouts {
    pub(super) fn new(
        now: Instant,
        head_timeout: Duration,
        sending: Arc<SendState>,
    ) -> ConnectionTimeouts {
        let state = State {
            phase: Phase::Head(now),
            multiplexed: false,
        };
        ConnectionTimeouts {
            head_timeout,
            state: Mutex::new(state),
            sending,
        }
    }

    pub(super) fn request_begins(&self, multiplexed: bool) {
        let mut state = self.state();
        state.multiplexed = multiplexed;
        state.phase = match state.phase {
            Phase::Requests(count) => Phase::Requests(count + 1),
            Phase::Head(_) | Phase::Idle(_) => Phase::Requests(1),
        };
    }

    pub(super) fn request_ends(&self, now: Instant) {
        let mut state = self.state();
        state.phase = match state.phase {
            Phase::Requests(count) if count > 1 => Phase::Requests(count - 1),
            _ => Phase::Idle(now),
        };
    }

    /// The connection has been asked to close: it may take as long as a head.
    pub(super) fn closes(&self, now: Instant) {
        self.state().phase = Phase::Head(now);
    }

    /// Resolves when the agent has taken too long. The deadline moves with what the
    /// connection does, so this wants to be polled after it.
    pub(super) async fn overdue(&self, mut sleep: Pin<&mut Sleep>) -> TimeoutKind {
        poll_fn(|context| {
            let Some((deadline, overdue)) = self.deadline() else {
                return Poll::Pending;
            };
            if sleep.deadline() != deadline {
                sleep.as_mut().reset(deadline);
            }
            ready!(sleep.as_mut().poll(context));
            Poll::Ready(overdue)
        })
        .await
    }

    fn received(&self, now: impl FnOnce() -> Instant) {
        let mut state = self.state();
        if matches!(state.phase, Phase::Idle(_)) && !state.multiplexed {
            state.phase = Phase::Head(now());
        }
    }

    fn deadline(&self) -> Option<(Instant, TimeoutKind)> {
        match self.state().phase {
            Phase::Head(since) => Some((since + self.head_timeout, TimeoutKind::Head)),
            Phase::Requests(_) => {
                let deadline = self.sending.deadline()?;
                Some((deadline.into(), TimeoutKind::Send))
            }
            Phase::Idle(since) => Some((since + IDLE, TimeoutKind::Idle)),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

/// A socket that tells when something came, and when what is written is not taken.
#[derive(Debug)]
pub(super) struct TimedSocket<I> {
    io: I,
    pace: Arc<ConnectionTimeouts>,
}

impl<I> TimedSocket<I> {
    pub(super) fn new(io: I, pace: Arc<ConnectionTimeouts>) -> Self {
        TimedSocket { io, pace }
    }

    fn wrote<T>(&self, polled: Poll<T>) -> Poll<T> {
        match polled {
            Poll::Pending => self.pace.sending.blocks(),
            Poll::Ready(_) => self.pace.sending.takes(),
        }
        polled
    }
}

impl<I: AsyncRead + Unpin> AsyncRead for TimedSocket<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.io).poll_read(cx, buf))?;
        if buf.filled().len() > before {
            self.pace.received(Instant::now);
        }
        Poll::Ready(Ok(()))
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for TimedSocket<I> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.io).poll_write(cx, buf);
        self.wrote(polled)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.io).poll_write_vectored(cx, bufs);
        self.wrote(polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.io).poll_flush(cx);
        self.wrote(polled)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: Duration = Duration::from_secs(30);

    #[test]
    fn a_new_connection_has_the_head_timeout_from_its_start() {
        let start = Instant::now();
        let pace = ConnectionTimeouts::new(start, HEAD, Arc::new(SendState::new()));
        pace.received(|| start + HEAD / 2);
        assert_eq!(pace.deadline(), Some((start + HEAD, TimeoutKind::Head)));
    }

    #[test]
    fn nothing_is_overdue_while_any_request_is_under_way() {
        let start = Instant::now();
        let pace = ConnectionTimeouts::new(start, HEAD, Arc::new(SendState::new()));
        pace.request_begins(true);
        pace.request_begins(true);
        pace.request_ends(start);
        pace.received(|| start);
        assert_eq!(pace.deadline(), None);
    }

    #[test]
    fn an_agent_that_takes_nothing_of_an_answer_is_overdue_until_it_takes_some() {
        let start = Instant::now();
        let sending = Arc::new(SendState::new());
        let pace = ConnectionTimeouts::new(start, HEAD, Arc::clone(&sending));
        pace.request_begins(false);
        assert_eq!(pace.deadline(), None);
        sending.blocks();
        let (_, overdue) = pace.deadline().expect("it is watched");
        assert_eq!(overdue, TimeoutKind::Send);
        sending.takes();
        assert_eq!(pace.deadline(), None);
    }

    #[test]
    fn a_later_head_is_timed_from_its_first_byte() {
        let start = Instant::now();
        let pace = ConnectionTimeouts::new(start, HEAD, Arc::new(SendState::new()));
        pace.request_begins(false);
        let over = start + Duration::from_secs(50);
        pace.request_ends(over);
        assert_eq!(pace.deadline(), Some((over + IDLE, TimeoutKind::Idle)));
        let first_byte = over + Duration::from_secs(60);
        pace.received(|| first_byte);
        pace.received(|| first_byte + Duration::from_secs(20));
        assert_eq!(
            pace.deadline(),
            Some((first_byte + HEAD, TimeoutKind::Head))
        );
    }

    #[test]
    fn frames_between_requests_of_http2_are_not_the_start_of_a_head() {
        let start = Instant::now();
        let pace = ConnectionTimeouts::new(start, HEAD, Arc::new(SendState::new()));
        pace.request_begins(true);
        pace.request_ends(start);
        pace.received(|| start + HEAD);
        assert_eq!(pace.deadline(), Some((start + IDLE, TimeoutKind::Idle)));
    }
}
