//! The activity of a connection: its requests in flight, and since when it is idle.

use super::Timeouts;
use axum::body::Body;
use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokengauge_core::background;
use tokio::time::Instant;

#[derive(Debug)]
pub(super) struct Activity(Mutex<RequestsInProgress>);

#[derive(Debug)]
struct RequestsInProgress {
    requests: BTreeMap<u64, Instant>,
    begun: u64,
    idle_since: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Liveness {
    /// Check again at this instant.
    Fine(Instant),
    /// The connection was idle for too long and must shut down gracefully.
    Idle,
    /// The peer did not send a complete request head, or stopped reading or sending. The connection must be closed.
    Stalled,
}

impl Activity {
    pub(super) fn new(now: Instant) -> Activity {
        Activity(Mutex::new(RequestsInProgress {
            requests: BTreeMap::new(),
            begun: 0,
            idle_since: now,
        }))
    }

    pub(super) fn begin(self: &Arc<Self>) -> RequestInProgress {
        let mut state = self.state();
        let number = state.begun;
        state.begun += 1;
        state.requests.insert(number, Instant::now());
        drop(state);
        RequestInProgress {
            activity: Arc::clone(self),
            number,
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.state().requests.is_empty()
    }

    pub(super) fn has_begun(&self) -> bool {
        self.state().begun > 0
    }

    pub(super) fn verdict(&self, now: Instant, timeouts: &Timeouts) -> Liveness {
        let state = self.state();
        let (deadline, late) = match state.requests.values().min() {
            Some(progress) => (*progress + timeouts.stalled, Liveness::Stalled),
            None if state.begun == 0 => (state.idle_since + timeouts.head, Liveness::Stalled),
            None => (state.idle_since + timeouts.idle, Liveness::Idle),
        };
        if now < deadline {
            Liveness::Fine(deadline)
        } else {
            late
        }
    }

    fn state(&self) -> MutexGuard<'_, RequestsInProgress> {
        self.0.lock()
    }
}

/// A request in flight, until this is dropped.
#[derive(Debug)]
pub(super) struct RequestInProgress {
    activity: Arc<Activity>,
    number: u64,
}

impl RequestInProgress {
    fn progress(&self) {
        let mut state = self.activity.state();
        state.requests.insert(self.number, Instant::now());
    }
}

impl Drop for RequestInProgress {
    fn drop(&mut self) {
        let mut state = self.activity.state();
        state.requests.remove(&self.number);
        state.idle_since = Instant::now();
    }
}

/// A response body that records progress. Hyper polls for the next part when it has room, which means that the peer reads.
pub(super) struct TrackedBody {
    body: Body,
    rest: Bytes,
    in_progress: RequestInProgress,
}

impl TrackedBody {
    pub(super) fn new(body: Body, in_progress: RequestInProgress) -> TrackedBody {
        TrackedBody {
            body,
            rest: Bytes::new(),
            in_progress,
        }
    }

    /// The next part of a frame. A frame can be megabytes of metrics. Writing all of it at once would block traffic on the
    /// same core for too long, so traffic runs in between.
    fn part(&mut self) -> Bytes {
        const AT_ONCE: usize = 32 * 1024;
        self.rest.split_to(AT_ONCE.min(self.rest.len()))
    }
}

impl HttpBody for TrackedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        self.in_progress.progress();
        if !self.rest.is_empty() {
            background::yield_now();
            return Poll::Ready(Some(Ok(Frame::data(self.part()))));
        }
        let frame = match ready!(Pin::new(&mut self.body).poll_frame(context)) {
            Some(Ok(frame)) => frame,
            other => return Poll::Ready(other),
        };
        let frame = frame.into_data().map(|data| {
            self.rest = data;
            Frame::data(self.part())
        });
        Poll::Ready(Some(Ok(frame.unwrap_or_else(|frame| frame))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (rest, body) = (self.rest.len() as u64, self.body.size_hint());
        let mut hint = SizeHint::new();
        hint.set_lower(rest + body.lower());
        if let Some(upper) = body.upper() {
            hint.set_upper(rest + upper);
        }
        hint
    }
}
