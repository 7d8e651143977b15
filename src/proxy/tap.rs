//! The response body on its way to the agent: read the clock, keep a reference, pass the
//! frame on, measure afterwards.

use super::body::BodyError;
use super::connection::Http1;
use super::filter::Filtering;
use super::timer::IdleTimer;
use super::upstream::{Endpoint, Taken};
use super::watch::{Call, Watch};
use crate::observer::{End, FailureKind, Filter, Frame, Phase};
use bytes::Bytes;
use http_body::{Body, SizeHint};
use hyper::body::Incoming;
use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

/// Time that measuring may take at once, before traffic has its turn again.
const BUDGET: Duration = Duration::from_micros(200);
/// Bytes that wait for their measurement before it is done without a pause in the traffic.
const KEEP: usize = 16 * 1024;
/// Bytes that wait at most; frames beyond are not measured.
const KEEP_AT_MOST: usize = 256 * 1024;
/// A frame that takes longer to measure, twice in a row, makes measuring rest.
const SLOW: Duration = Duration::from_millis(5);
/// How many times as long as it took it rests then.
const REST: u32 = 4;

/// Reads the clock. Nothing else in the proxy does.
pub(super) fn now() -> Instant {
    Instant::now()
}

/// Where a response body comes from.
pub(super) enum Source {
    /// HTTP/1: the connection is polled here, and goes home afterwards.
    Http1 {
        incoming: Incoming,
        http1: Box<Http1>,
        endpoint: Arc<Endpoint>,
    },
    /// HTTP/2: a task of the connection's own drives it.
    Http2 { incoming: Incoming, _stream: Taken },
    /// Nothing more comes.
    Over,
}

/// A response body under way.
pub(super) struct Streaming {
    source: Source,
    filter: Option<Filtering>,
    kept: Kept,
    /// `None` once it is over.
    call: Option<Call>,
    idle: IdleTimer,
    outstanding: Option<Taken>,
}

type Polled = Poll<Option<Result<http_body::Frame<Bytes>, BodyError>>>;

impl Streaming {
    pub fn new(source: Source, call: Call, idle: Duration, outstanding: Taken) -> Streaming {
        let idle = IdleTimer::new(idle);
        Streaming {
            source,
            filter: None,
            kept: Kept::default(),
            call: Some(call),
            idle,
            outstanding: Some(outstanding),
        }
    }

    /// Lets `filter` edit the body.
    pub fn filtered(mut self, filter: Box<dyn Filter>) -> Streaming {
        self.filter = Some(Filtering::new(filter));
        self
    }

    /// The head alone was all there is.
    pub fn finish_if_empty(&mut self) {
        if self.filter.is_none() && self.source.is_end_stream() {
            self.over(now(), End::Complete);
        }
    }

    pub fn is_over(&self) -> bool {
        self.call.is_none()
            && self
                .filter
                .as_ref()
                .is_none_or(|filtering| filtering.is_finished())
    }

    pub fn size_hint(&self) -> SizeHint {
        if self.filter.is_some() {
            SizeHint::default()
        } else {
            self.source.size_hint()
        }
    }

    pub fn poll_frame(&mut self, cx: &mut Context<'_>) -> Polled {
        if self.call.is_none() {
            return Poll::Ready(self.filter.as_mut().and_then(Filtering::rest).map(Ok));
        }
        if self.kept.bytes >= KEEP {
            self.measure();
        }
        loop {
            let frame = match self.source.poll_frame(cx) {
                Poll::Pending => return self.nothing_yet(cx),
                Poll::Ready(frame) => frame,
            };
            match self.passed(frame) {
                Some(frame) => return Poll::Ready(Some(frame)),
                None if self.call.is_none() => {
                    return Poll::Ready(self.filter.as_mut().and_then(Filtering::rest).map(Ok));
                }
                // The filter held everything back.
                None => {}
            }
        }
    }

    /// Notes a frame, and gives what leaves in its place.
    fn passed(
        &mut self,
        frame: Option<Result<http_body::Frame<Bytes>, hyper::Error>>,
    ) -> Option<Result<http_body::Frame<Bytes>, BodyError>> {
        let at = now();
        match frame {
            Some(Ok(frame)) => {
                self.note(at, &frame);
                // Servers do not ask again after trailers.
                if frame.is_trailers() || self.source.is_end_stream() {
                    self.over(at, End::Complete);
                }
                let frame = match &mut self.filter {
                    Some(filtering) => filtering.edit(frame),
                    None => Some(frame),
                };
                frame.map(Ok)
            }
            Some(Err(error)) => {
                self.filter = None;
                self.over(at, End::UpstreamReset);
                Some(Err(error.into()))
            }
            None => {
                self.over(at, End::Complete);
                None
            }
        }
    }

    fn note(&mut self, at: Instant, frame: &http_body::Frame<Bytes>) {
        if let Some(call) = &self.call {
            call.watch().moved(at);
        }
        if let Some(bytes) = frame.data_ref() {
            self.kept.keep(Frame {
                at,
                bytes: bytes.clone(),
            });
        }
    }

    /// The upstream is silent: time to measure, unless the last frame is still to be
    /// written. The server writes when this returns, so measuring waits for the next turn.
    fn nothing_yet(&mut self, cx: &mut Context<'_>) -> Polled {
        let Some(call) = &self.call else {
            return Poll::Ready(None);
        };
        if self.kept.is_empty() {
            // Nothing to measure.
        } else if !self.kept.written {
            self.kept.written = true;
            cx.waker().wake_by_ref();
        } else if !self.kept.show(call.watch()) {
            cx.waker().wake_by_ref();
        }
        if self.idle.poll(cx, call.watch().last_moved()).is_ready() {
            self.filter = None;
            self.over(now(), End::Failed(FailureKind::IdleTimeout));
            return Poll::Ready(Some(Err(BodyError::Idle)));
        }
        Poll::Pending
    }

    fn measure(&mut self) {
        if let Some(call) = &self.call {
            self.kept.show(call.watch());
        }
    }

    /// Ends the call; the connection goes home. What is left to measure is done in a task
    /// of its own: the last frame is not written yet.
    fn over(&mut self, at: Instant, end: End) {
        self.source.finish();
        self.outstanding = None;
        let Some(call) = self.call.take() else { return };
        let last = Last {
            kept: std::mem::take(&mut self.kept),
            call: Some(call),
            at,
            end,
        };
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(last.told());
        }
    }
}

impl Drop for Streaming {
    fn drop(&mut self) {
        if let Some(call) = self.call.take() {
            // Nobody reads this body any more; the upstream hears of it first.
            self.source = Source::Over;
            let kept = std::mem::take(&mut self.kept);
            drop(Last {
                kept,
                call: Some(call),
                at: now(),
                end: End::ClientCancelled,
            });
        }
    }
}

impl std::fmt::Debug for Streaming {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Streaming")
            .field("over", &self.is_over())
            .finish_non_exhaustive()
    }
}

impl Source {
    fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, hyper::Error>>> {
        match self {
            Source::Http1 {
                incoming, http1, ..
            } => poll_http1(incoming, http1, cx),
            Source::Http2 { incoming, .. } => Pin::new(incoming).poll_frame(cx),
            Source::Over => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Source::Http1 { incoming, .. } | Source::Http2 { incoming, .. } => {
                incoming.is_end_stream()
            }
            Source::Over => true,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Source::Http1 { incoming, .. } | Source::Http2 { incoming, .. } => incoming.size_hint(),
            Source::Over => SizeHint::with_exact(0),
        }
    }

    fn finish(&mut self) {
        if let Source::Http1 {
            http1,
            endpoint,
            incoming,
        } = std::mem::replace(self, Source::Over)
        {
            drop(incoming);
            endpoint.give_back(http1);
        }
    }
}

/// Takes what has arrived, else moves the connection and looks again. Only the connection
/// fills `incoming`, and it is polled right here: nobody has to be woken for that.
fn poll_http1(
    incoming: &mut Incoming,
    http1: &mut Http1,
    cx: &mut Context<'_>,
) -> Poll<Option<Result<http_body::Frame<Bytes>, hyper::Error>>> {
    let mut unobserved = Context::from_waker(Waker::noop());
    if let Poll::Ready(frame) = Pin::new(&mut *incoming).poll_frame(&mut unobserved) {
        return Poll::Ready(frame);
    }
    if http1.poll(cx).is_ready() {
        // What it knows of its end is in `incoming` when it is gone.
        http1.close();
    }
    Pin::new(incoming).poll_frame(&mut unobserved)
}

/// Frames that are not going to be measured.
#[derive(Default)]
struct Skipped {
    frames: u64,
    bytes: u64,
}

impl Skipped {
    fn add(&mut self, frame: &Frame) {
        self.frames += 1;
        self.bytes += frame.bytes.len() as u64;
    }
}

/// Frames that left and are not measured yet.
#[derive(Default)]
struct Kept {
    frames: VecDeque<Frame>,
    bytes: usize,
    skipped: Skipped,
    /// The server had its turn to write them.
    written: bool,
    slowest: Duration,
    /// Frames in a row that took too long to measure.
    slow: u32,
    rest_until: Option<Instant>,
}

impl Kept {
    fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    fn keep(&mut self, frame: Frame) {
        self.written = false;
        if self.bytes + frame.bytes.len() > KEEP_AT_MOST && !self.frames.is_empty() {
            self.skipped.add(&frame);
            return;
        }
        self.bytes += frame.bytes.len();
        self.frames.push_back(frame);
    }

    /// Shows what there is, as far as the budget goes; whether to leave it at that.
    fn show(&mut self, watch: &Watch) -> bool {
        let began = now();
        if self.rests(began) {
            return true;
        }
        if let Some(first) = self.frames.front() {
            self.slowest = self.slowest.max(began.saturating_duration_since(first.at));
        }
        let mut last = began;
        while let Some(frame) = self.frames.pop_front() {
            self.bytes -= frame.bytes.len();
            watch.response_frame(frame);
            let at = now();
            self.pace(at, at.saturating_duration_since(last));
            last = at;
            if self.rests(at) {
                return true;
            }
            if !self.frames.is_empty() && at.saturating_duration_since(began) > BUDGET {
                return false;
            }
        }
        let skipped = std::mem::take(&mut self.skipped);
        if skipped.frames > 0 {
            watch.tell(|call| call.lagged(skipped.frames, skipped.bytes));
        }
        true
    }

    /// Lets measuring rest when it is so slow that traffic would feel it. Once may be an
    /// accident of scheduling.
    fn pace(&mut self, at: Instant, cost: Duration) {
        self.slow = if cost > SLOW { self.slow + 1 } else { 0 };
        self.rest_until = self.is_slow().then(|| at + cost * REST);
    }

    fn is_slow(&self) -> bool {
        self.slow > 1
    }

    fn rests(&self, at: Instant) -> bool {
        self.rest_until.is_some_and(|until| at < until)
    }

    /// Shows what is left when the body is over; whether that was all.
    fn show_last(&mut self, watch: &Watch) -> bool {
        if self.is_slow() {
            self.rest_until = None;
            self.frames.iter().for_each(|frame| self.skipped.add(frame));
            self.frames.clear();
            self.bytes = 0;
        }
        self.show(watch) && self.frames.is_empty()
    }
}

/// What is left to tell when a body is over. Told when it is dropped, so that nothing
/// that ends a task can lose it.
struct Last {
    kept: Kept,
    call: Option<Call>,
    at: Instant,
    end: End,
}

impl Last {
    async fn told(mut self) {
        while !self
            .call
            .as_ref()
            .is_none_or(|call| self.kept.show_last(call.watch()))
        {
            tokio::task::yield_now().await;
        }
    }
}

impl Drop for Last {
    fn drop(&mut self) {
        let Some(call) = self.call.take() else { return };
        while !self.kept.show_last(call.watch()) {}
        let slowest = self.kept.slowest;
        if slowest > Duration::ZERO {
            call.watch()
                .tell(|observer| observer.overhead(Phase::Chunk, slowest));
        }
        call.end(self.at, self.end.clone());
    }
}
