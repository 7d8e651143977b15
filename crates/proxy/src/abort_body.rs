//! The end of a body that broke off: the agent gets what came before, and does not take it
//! for all there is.

use super::agent_socket::SharedSocket;
use super::body::BodyError;
use super::clock::now;
use super::timer::Timer;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

/// How often it is looked whether all has left.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// An agent that does not read what is left is not waited for any longer.
const MAX_WAIT: Duration = Duration::from_secs(60);

/// An error that a server gets when what it got before has left: it forgets what it has
/// not written.
pub(super) struct BodyAbort {
    error: Option<BodyError>,
    agent: Option<SharedSocket>,
    /// Only a reset tells this agent that the body is not whole.
    reset: bool,
    next_check: Instant,
    deadline: Instant,
    timer: Timer,
}

impl BodyAbort {
    pub fn new(error: BodyError, agent: Option<SharedSocket>, reset: bool) -> BodyAbort {
        let at = now();
        BodyAbort {
            error: Some(error),
            agent,
            reset,
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
            let flushed = self.agent.as_ref().is_none_or(SharedSocket::is_flushed);
            if flushed || at >= self.deadline {
                break;
            }
            self.next_check = at + POLL_INTERVAL;
        }
        if let Some(agent) = self.agent.take().filter(|_| self.reset) {
            agent.reset_on_close();
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
