//! Aborts a response body over HTTP/2. The agent still gets the data that was sent before the error, and can tell that
//! the body is incomplete.

use super::body_error::BodyError;
use super::clock::now;
use super::send_timeout::SendState;
use super::timer::Timer;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// How long to wait for an agent that does not read the data that was already written.
const MAX_WAIT: Duration = Duration::from_secs(60);

/// Delays an error until all previous data is flushed, because the HTTP server discards its write buffer on an error.
pub(super) struct BodyAbort {
    error: Option<BodyError>,
    connection: Arc<SendState>,
    next_check: Instant,
    deadline: Instant,
    timer: Timer,
}

impl BodyAbort {
    pub fn new(error: BodyError, connection: Arc<SendState>) -> BodyAbort {
        let at = now();
        BodyAbort {
            error: Some(error),
            connection,
            next_check: at + POLL_INTERVAL,
            deadline: at + MAX_WAIT,
            timer: Timer::default(),
        }
    }

    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<BodyError> {
        loop {
            let next_check = self.next_check;
            ready!(self.timer.poll(cx, || next_check));
            let at = now();
            if self.connection.is_flushed() || at >= self.deadline {
                break;
            }
            self.next_check = at + POLL_INTERVAL;
        }
        let error = self.error.take();
        Poll::Ready(error.unwrap_or(BodyError::Agent))
    }
}

impl std::fmt::Debug for BodyAbort {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BodyAbort")
            .field("error", &self.error)
            .finish_non_exhaustive()
    }
}
