//! Timeouts of an agent's connection: for request heads, for idle connections, and for responses that the agent does
//! not read.

use crate::agent_io::AgentIo;
use crate::send_timeout::SendState;
use parking_lot::{Mutex, MutexGuard};
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

pub(super) const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// The phase of a connection, shared by its socket, its requests and its timer.
#[derive(Debug)]
pub(super) struct ConnectionTimeouts {
    head_timeout: Duration,
    idle_timeout: Duration,
    state: Mutex<TimeoutState>,
    send_state: Arc<SendState>,
}

#[derive(Debug)]
struct TimeoutState {
    phase: Phase,
    /// Whether the connection must close to make room for another.
    evicted: bool,
    task: Option<Waker>,
    /// Whether the connection uses HTTP/2. Bytes between HTTP/2 requests need not start a head.
    multiplexed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Opened at this time, and nothing was read.
    Silent(Instant),
    /// Reading a request head since this time.
    Head(Instant),
    Requests(usize),
    /// Idle since this time.
    Idle(Instant),
    /// Reading the rest of a request after its response. The last bytes arrived at this time.
    Upload(Instant),
    /// Must close before this time.
    Closing(Instant),
}

impl Phase {
    fn idle_since(self) -> Option<Instant> {
        match self {
            Phase::Silent(since) | Phase::Idle(since) => Some(since),
            _ => None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TimeoutKind {
    Head,
    Idle,
    Send,
    Evicted,
    Closing,
}

impl ConnectionTimeouts {
    pub(super) fn new(
        now: Instant,
        (head_timeout, idle_timeout): (Duration, Duration),
        send_state: Arc<SendState>,
    ) -> ConnectionTimeouts {
        let state = TimeoutState {
            phase: Phase::Silent(now),
            evicted: false,
            task: None,
            multiplexed: false,
        };
        ConnectionTimeouts {
            head_timeout,
            idle_timeout,
            state: Mutex::new(state),
            send_state,
        }
    }

    pub(super) fn request_started(&self, multiplexed: bool) {
        let mut state = self.state();
        state.multiplexed = multiplexed;
        state.phase = match state.phase {
            Phase::Requests(count) => Phase::Requests(count + 1),
            _ => Phase::Requests(1),
        };
    }

    pub(super) fn request_ended(&self, now: Instant) {
        let mut state = self.state();
        state.phase = match state.phase {
            Phase::Requests(count) if count > 1 => Phase::Requests(count - 1),
            _ => Phase::Idle(now),
        };
    }

    /// Records that the response is complete but the request is not, so that further bytes are not a request head.
    pub(super) fn upload_continues(&self) {
        let mut state = self.state();
        if let Phase::Idle(since) = state.phase {
            state.phase = Phase::Upload(since);
        }
    }

    pub(super) fn upload_ended(&self, now: Instant) {
        let mut state = self.state();
        if matches!(state.phase, Phase::Upload(_)) {
            state.phase = Phase::Idle(now);
        }
    }

    /// Records that the connection was asked to close. It has as much time as for a head.
    pub(super) fn closing(&self, now: Instant) {
        self.state().phase = Phase::Closing(now + self.head_timeout);
    }

    /// Since when the connection has been idle. `None` while it serves a request.
    pub(super) fn idle_since(&self) -> Option<Instant> {
        self.state().phase.idle_since()
    }

    /// Closes the connection if it has been idle since `since`. Returns whether it did.
    pub(super) fn evict(&self, since: Instant) -> bool {
        let mut state = self.state();
        if state.phase.idle_since() != Some(since) {
            return false;
        }
        state.phase = Phase::Closing(Instant::now() + CLOSE_TIMEOUT);
        state.evicted = true;
        if let Some(task) = state.task.take() {
            task.wake();
        }
        true
    }

    /// Resolves when a timeout expires. Poll this after the connection, because the connection's activity moves the
    /// deadline.
    pub(super) async fn expired(&self, mut sleep: Pin<&mut Sleep>) -> TimeoutKind {
        poll_fn(|context| {
            if self.poll_evicted(context).is_ready() {
                return Poll::Ready(TimeoutKind::Evicted);
            }
            let Some((deadline, kind)) = self.deadline() else {
                return Poll::Pending;
            };
            if sleep.deadline() != deadline {
                sleep.as_mut().reset(deadline);
            }
            ready!(sleep.as_mut().poll(context));
            Poll::Ready(kind)
        })
        .await
    }

    fn poll_evicted(&self, context: &Context<'_>) -> Poll<()> {
        let state = &mut *self.state();
        if std::mem::take(&mut state.evicted) {
            return Poll::Ready(());
        }
        if state.phase.idle_since().is_some() {
            match &mut state.task {
                Some(task) => task.clone_from(context.waker()),
                task => *task = Some(context.waker().clone()),
            }
        }
        Poll::Pending
    }

    fn record_read(&self, now: impl FnOnce() -> Instant) {
        let mut state = self.state();
        match state.phase {
            Phase::Silent(since) => state.phase = Phase::Head(since),
            Phase::Idle(_) if !state.multiplexed => state.phase = Phase::Head(now()),
            Phase::Upload(_) => state.phase = Phase::Upload(now()),
            _ => {}
        }
    }

    fn deadline(&self) -> Option<(Instant, TimeoutKind)> {
        match self.state().phase {
            Phase::Silent(since) | Phase::Head(since) => {
                Some((since + self.head_timeout, TimeoutKind::Head))
            }
            Phase::Requests(_) => {
                let deadline = self.send_state.deadline()?;
                Some((deadline.into(), TimeoutKind::Send))
            }
            Phase::Idle(since) | Phase::Upload(since) => {
                Some((since + self.idle_timeout, TimeoutKind::Idle))
            }
            Phase::Closing(until) => Some((until, TimeoutKind::Closing)),
        }
    }

    fn state(&self) -> MutexGuard<'_, TimeoutState> {
        self.state.lock()
    }
}

#[derive(Debug)]
pub(crate) struct TimedSocket {
    io: AgentIo,
    timeouts: Arc<ConnectionTimeouts>,
}

impl TimedSocket {
    pub(super) fn new(io: AgentIo, timeouts: Arc<ConnectionTimeouts>) -> Self {
        TimedSocket { io, timeouts }
    }

    pub fn record_read(&self) {
        self.timeouts.record_read(Instant::now);
    }

    pub fn reset_on_close(&self) {
        self.io.reset_on_close();
    }

    fn record_write<T>(&self, polled: Poll<T>) -> Poll<T> {
        match polled {
            Poll::Pending => self.timeouts.send_state.set_blocked(),
            Poll::Ready(_) => self.timeouts.send_state.clear_blocked(),
        }
        polled
    }
}

impl AsyncRead for TimedSocket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.io).poll_read(cx, buf))?;
        if buf.filled().len() > before {
            self.timeouts.record_read(Instant::now);
        }
        Poll::Ready(Ok(()))
    }
}

impl Drop for TimedSocket {
    fn drop(&mut self) {
        // Unread data of the agent would keep a closed connection in the kernel for minutes.
        if self.timeouts.send_state.has_timed_out() {
            self.io.abort();
        }
    }
}

impl AsyncWrite for TimedSocket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.io).poll_write(cx, buf);
        self.timeouts.send_state.set_flushed(false);
        self.record_write(polled)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.io).poll_write_vectored(cx, bufs);
        self.timeouts.send_state.set_flushed(false);
        self.record_write(polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.io).poll_flush(cx);
        self.timeouts.send_state.set_flushed(polled.is_ready());
        self.record_write(polled)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: Duration = Duration::from_secs(30);
    const IDLE: Duration = Duration::from_secs(120);

    fn timeouts(start: Instant) -> ConnectionTimeouts {
        ConnectionTimeouts::new(start, (HEAD, IDLE), Arc::new(SendState::new()))
    }

    #[test]
    fn a_new_connection_has_the_head_timeout_from_its_start() {
        let start = Instant::now();
        let timeouts = timeouts(start);
        timeouts.record_read(|| start + HEAD / 2);
        assert_eq!(timeouts.deadline(), Some((start + HEAD, TimeoutKind::Head)));
    }

    #[test]
    fn no_timeout_runs_while_a_request_is_in_flight() {
        let start = Instant::now();
        let timeouts = timeouts(start);
        timeouts.request_started(true);
        timeouts.request_started(true);
        timeouts.request_ended(start);
        timeouts.record_read(|| start);
        assert_eq!(timeouts.deadline(), None);
    }

    #[test]
    fn the_send_timeout_runs_while_the_agent_accepts_nothing() {
        let start = Instant::now();
        let send_state = Arc::new(SendState::new());
        let timeouts = ConnectionTimeouts::new(start, (HEAD, IDLE), Arc::clone(&send_state));
        timeouts.request_started(false);
        assert_eq!(timeouts.deadline(), None);
        send_state.set_blocked();
        let (_, kind) = timeouts.deadline().expect("it is watched");
        assert_eq!(kind, TimeoutKind::Send);
        send_state.clear_blocked();
        assert_eq!(timeouts.deadline(), None);
    }

    #[test]
    fn a_later_head_is_timed_from_its_first_byte() {
        let start = Instant::now();
        let timeouts = timeouts(start);
        timeouts.request_started(false);
        let over = start + Duration::from_secs(50);
        timeouts.request_ended(over);
        assert_eq!(timeouts.deadline(), Some((over + IDLE, TimeoutKind::Idle)));
        let first_byte = over + Duration::from_secs(60);
        timeouts.record_read(|| first_byte);
        timeouts.record_read(|| first_byte + Duration::from_secs(20));
        assert_eq!(
            timeouts.deadline(),
            Some((first_byte + HEAD, TimeoutKind::Head))
        );
    }

    #[test]
    fn an_upload_after_its_response_is_timed_from_its_last_byte() {
        let start = Instant::now();
        let timeouts = timeouts(start);
        timeouts.request_started(false);
        timeouts.request_ended(start);
        timeouts.upload_continues();
        let last = start + Duration::from_secs(100);
        timeouts.record_read(|| last);
        timeouts.upload_continues();
        let idle = |since| Some((since + IDLE, TimeoutKind::Idle));
        assert_eq!(timeouts.deadline(), idle(last));
        let end = last + Duration::from_secs(1);
        timeouts.upload_ended(end);
        assert_eq!(timeouts.deadline(), idle(end));
        timeouts.record_read(|| end);
        assert_eq!(timeouts.deadline(), Some((end + HEAD, TimeoutKind::Head)));
    }

    #[test]
    fn frames_between_requests_of_http2_are_not_the_start_of_a_head() {
        let start = Instant::now();
        let timeouts = timeouts(start);
        timeouts.request_started(true);
        timeouts.request_ended(start);
        timeouts.record_read(|| start + HEAD);
        assert_eq!(timeouts.deadline(), Some((start + IDLE, TimeoutKind::Idle)));
    }

    #[tokio::test]
    async fn only_a_connection_that_is_still_idle_makes_room() {
        let start = Instant::now();
        let timeouts = timeouts(start);
        let silent = timeouts.idle_since().expect("nothing was read");
        timeouts.record_read(|| start);
        assert!(!timeouts.evict(silent), "it reads a head");
        timeouts.request_started(false);
        assert_eq!(timeouts.idle_since(), None);
        timeouts.request_ended(start + HEAD);
        assert!(!timeouts.evict(silent), "it has been used since");
        let mut sleep = std::pin::pin!(tokio::time::sleep(IDLE));
        let expired = timeouts.expired(sleep.as_mut());
        let evicted = async {
            tokio::task::yield_now().await;
            timeouts.evict(start + HEAD)
        };
        let (kind, evicted) = tokio::join!(expired, evicted);
        assert_eq!((kind, evicted), (TimeoutKind::Evicted, true));
        let (deadline, kind) = timeouts.deadline().expect("it has to close");
        assert_eq!(kind, TimeoutKind::Closing);
        assert!(deadline <= Instant::now() + CLOSE_TIMEOUT);
    }
}
