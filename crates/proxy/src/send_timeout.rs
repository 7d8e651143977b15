//! The send timeout towards an agent: how long the agent may accept no bytes of a response. Also determines how calls
//! end when the proxy closes the connection or stream.

use super::clock::now;
use super::drain::CallGuard;
use super::timer::Timer;
use crate::settings::Timeouts;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};
use tokengauge_core::observer::{End, FailureKind};
use tokio::task::futures::TaskLocalFuture;

tokio::task_local! {
    static CURRENT_STREAM: Arc<SendState>;
}

/// The send state of an agent's connection, or of one HTTP/2 stream.
#[derive(Debug)]
pub(super) struct SendState {
    created: Instant,
    /// When writes began to block, in nanoseconds from `created`. 0 if no write is blocked.
    blocked_since: AtomicU64,
    /// The send timeout in milliseconds. 0 before a call has set it.
    timeout_millis: AtomicU64,
    close_reason: AtomicU8,
    unflushed: AtomicBool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum CloseReason {
    Drained = 1,
    SendTimeout = 2,
}

impl SendState {
    pub fn new() -> SendState {
        SendState {
            created: now(),
            blocked_since: AtomicU64::new(0),
            timeout_millis: AtomicU64::new(0),
            close_reason: AtomicU8::new(0),
            unflushed: AtomicBool::new(false),
        }
    }

    pub fn set_blocked(&self) {
        if self.blocked_since.load(Ordering::Relaxed) == 0 {
            let nanos = u64::try_from(self.created.elapsed().as_nanos());
            let nanos = nanos.unwrap_or(u64::MAX).max(1);
            self.blocked_since.store(nanos, Ordering::Relaxed);
        }
    }

    pub fn clear_blocked(&self) {
        if self.blocked_since.load(Ordering::Relaxed) != 0 {
            self.blocked_since.store(0, Ordering::Relaxed);
        }
    }

    pub fn set_flushed(&self, flushed: bool) {
        self.unflushed.store(!flushed, Ordering::Relaxed);
    }

    pub fn is_flushed(&self) -> bool {
        !self.unflushed.load(Ordering::Relaxed)
    }

    pub fn has_timed_out(&self) -> bool {
        self.close_reason.load(Ordering::Relaxed) == CloseReason::SendTimeout as u8
    }

    /// When the send timeout expires. `None` if no write is blocked.
    pub fn deadline(&self) -> Option<Instant> {
        let blocked = match self.blocked_since.load(Ordering::Relaxed) {
            0 => return None,
            nanos => Duration::from_nanos(nanos),
        };
        let limit = match self.timeout_millis.load(Ordering::Relaxed) {
            0 => Timeouts::default().send,
            millis => Duration::from_millis(millis),
        };
        Some(self.created + blocked + limit)
    }

    pub fn set_close_reason(&self, reason: CloseReason) {
        self.close_reason.store(reason as u8, Ordering::Relaxed);
    }

    fn close_end(&self) -> Option<End> {
        match self.close_reason.load(Ordering::Relaxed) {
            closed if closed == CloseReason::Drained as u8 => Some(End::Drained),
            closed if closed == CloseReason::SendTimeout as u8 => {
                Some(End::Failed(FailureKind::AgentSendTimeout))
            }
            _ => None,
        }
    }
}

/// The agent's side of one call: its connection, and over HTTP/2 also its stream.
#[derive(Debug)]
pub(super) struct DownstreamState {
    connection: Arc<SendState>,
    stream: Option<Arc<SendState>>,
    _guard: CallGuard,
}

impl DownstreamState {
    pub fn new(
        connection: &Arc<SendState>,
        stream: Option<&Arc<SendState>>,
        guard: CallGuard,
    ) -> DownstreamState {
        DownstreamState {
            connection: Arc::clone(connection),
            stream: stream.cloned(),
            _guard: guard,
        }
    }

    /// Sets the send timeout. A connection has the longest timeout of its streams.
    pub fn set_send_timeout(&self, timeout: Duration) {
        let millis = u64::try_from(timeout.as_millis())
            .unwrap_or(u64::MAX)
            .max(1);
        match &self.stream {
            Some(stream) => {
                stream.timeout_millis.store(millis, Ordering::Relaxed);
                self.connection
                    .timeout_millis
                    .fetch_max(millis, Ordering::Relaxed);
            }
            None => self
                .connection
                .timeout_millis
                .store(millis, Ordering::Relaxed),
        }
    }

    pub fn abandoned_end(&self) -> End {
        let stream = self.stream.as_ref().and_then(|stream| stream.close_end());
        let end = stream.or_else(|| self.connection.close_end());
        end.unwrap_or(End::ClientCancelled)
    }
}

pub(super) fn current_stream() -> Option<Arc<SendState>> {
    CURRENT_STREAM.try_with(Arc::clone).ok()
}

/// Runs each HTTP/2 stream in a separate task, and resets streams whose send window stays closed for too long. Hyper
/// does not poll a body without a window.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StreamExecutor;

impl<F> hyper::rt::Executor<F> for StreamExecutor
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, stream: F) {
        let state = Arc::new(SendState::new());
        tokio::spawn(TimedStream {
            stream: Box::pin(CURRENT_STREAM.scope(Arc::clone(&state), stream)),
            state,
            timer: Timer::default(),
        });
    }
}

struct TimedStream<F> {
    stream: Pin<Box<TaskLocalFuture<Arc<SendState>, F>>>,
    state: Arc<SendState>,
    timer: Timer,
}

impl<F: Future<Output = ()>> Future for TimedStream<F> {
    type Output = ();

    /// Ready when the stream has ended or the send timeout has expired. Dropping the stream then resets it.
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        if this.stream.as_mut().poll(cx).is_ready() {
            return Poll::Ready(());
        }
        let Some(deadline) = this.state.deadline() else {
            return Poll::Pending;
        };
        ready!(this.timer.poll(cx, || deadline));
        this.state.set_close_reason(CloseReason::SendTimeout);
        Poll::Ready(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_send_timeout_runs_from_the_first_blocked_byte_until_one_is_accepted() {
        let state = SendState::new();
        assert_eq!(state.deadline(), None);
        state.set_blocked();
        let first = state.deadline().expect("something waits");
        assert!(first >= state.created + Timeouts::default().send);
        std::thread::sleep(Duration::from_millis(2));
        state.set_blocked();
        assert_eq!(state.deadline(), Some(first), "it continues to wait");
        state.clear_blocked();
        assert_eq!(state.deadline(), None);
        state.set_blocked();
        assert!(state.deadline() > Some(first), "anew");
    }

    #[test]
    fn a_streams_close_reason_precedes_its_connections() {
        let (connection, stream) = (Arc::new(SendState::new()), Arc::new(SendState::new()));
        let open = || CallGuard::default();
        let other = DownstreamState::new(&connection, Some(&Arc::new(SendState::new())), open());
        let side = DownstreamState::new(&connection, Some(&stream), open());
        assert_eq!(side.abandoned_end(), End::ClientCancelled);
        stream.set_close_reason(CloseReason::SendTimeout);
        connection.set_close_reason(CloseReason::Drained);
        assert_eq!(
            side.abandoned_end(),
            End::Failed(FailureKind::AgentSendTimeout)
        );
        assert_eq!(other.abandoned_end(), End::Drained);
    }
}
