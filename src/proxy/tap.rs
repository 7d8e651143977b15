//! The response body on its way to the agent: read the clock, keep a reference, pass the
//! frame on, measure afterwards.

mod express;
mod kept;
mod source;

pub(super) use source::Source;

use super::body::BodyError;
use super::direct::Direct;
use super::filter::Filtering;
use super::timer::IdleTimer;
use super::upstream::Taken;
use super::watch::Call;
use crate::observer::{End, FailureKind, Filter, Frame};
use bytes::Bytes;
use express::{Express, Passed};
use http_body::SizeHint;
use kept::{Kept, Last};
use source::Polled;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// Pieces that one stream passes on before others have their turn.
const TURNS: usize = 16;

/// Reads the clock. Nothing else in the proxy does.
pub(super) fn now() -> Instant {
    Instant::now()
}

/// A response body under way.
pub(super) struct Streaming {
    source: Source,
    filter: Option<Filtering>,
    express: Option<Box<Express>>,
    kept: Kept,
    /// `None` once it is over.
    call: Option<Call>,
    idle: IdleTimer,
    outstanding: Option<Taken>,
}

impl Streaming {
    pub fn new(source: Source, call: Call, idle: Duration, outstanding: Taken) -> Streaming {
        let idle = IdleTimer::new(idle);
        Streaming {
            source,
            filter: None,
            express: None,
            kept: Kept::default(),
            call: Some(call),
            idle,
            outstanding: Some(outstanding),
        }
    }

    /// Lets `filter` edit the body.
    pub fn filtered(mut self, filter: Box<dyn Filter>) -> Streaming {
        self.filter = Some(Filtering::new(filter));
        self.express = None;
        self
    }

    /// Lets chunks leave as they came, past the server, which gets this body for an
    /// HTTP/1.1 agent and will write it chunked.
    pub fn past_the_server(mut self, agent: Direct) -> Streaming {
        if self.source.is_chunked() && self.filter.is_none() {
            self.express = Some(Box::new(Express::new(agent)));
        }
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
            return self.rest();
        }
        if self
            .express
            .as_mut()
            .is_some_and(|express| express.is_open())
        {
            return self.poll_express(cx);
        }
        if self.kept.is_full() {
            self.measure();
        }
        loop {
            let frame = match self.source.poll_frame(cx) {
                Poll::Pending => return self.nothing_yet(cx),
                Poll::Ready(frame) => frame,
            };
            match self.passed(frame) {
                Some(frame) => {
                    if let Some(express) = &mut self.express {
                        express.hands_over();
                    }
                    return Poll::Ready(Some(frame));
                }
                None if self.call.is_none() => return self.rest(),
                // The filter held everything back.
                None => {}
            }
        }
    }

    fn rest(&mut self) -> Polled {
        Poll::Ready(self.filter.as_mut().and_then(Filtering::rest).map(Ok))
    }

    /// Passes on what comes until nothing comes, measuring each piece when it has left.
    fn poll_express(&mut self, cx: &mut Context<'_>) -> Polled {
        for _ in 0..TURNS {
            let Some(express) = &mut self.express else {
                return self.poll_frame(cx);
            };
            match express.poll_unsent(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(_)) => return self.agent_left(),
            }
            let passed = self.source.poll_piece(cx, |cx, piece, buffer| {
                let at = now();
                (at, express.pass(cx, &piece, buffer), piece.payload)
            });
            match passed {
                Poll::Pending => return self.nothing_yet(cx),
                Poll::Ready(Ok(Some((at, Ok(Passed::Sent), payload)))) => self.sent(at, payload),
                Poll::Ready(Ok(Some((_, Ok(Passed::Left), payload)))) => {
                    self.express = None;
                    let frame = self.passed(Some(Ok(http_body::Frame::data(payload))));
                    return Poll::Ready(frame);
                }
                Poll::Ready(Ok(Some((_, Err(_), _)))) => return self.agent_left(),
                // The server writes the end, and the trailers.
                Poll::Ready(Ok(None)) => self.express = None,
                Poll::Ready(Err(error)) => {
                    let frame = self.passed(Some(Err(error)));
                    return Poll::Ready(frame);
                }
            }
        }
        // Others wait for this thread, too.
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// A piece has left, or is about to as fast as the agent takes it.
    fn sent(&mut self, at: Instant, payload: Bytes) {
        let Some(call) = &self.call else { return };
        call.watch().moved(at);
        if !payload.is_empty() {
            self.kept.keep(Frame { at, bytes: payload });
        }
        self.kept.written = true;
        self.kept.show(call.watch());
    }

    fn agent_left(&mut self) -> Polled {
        self.over(now(), End::ClientCancelled);
        Poll::Ready(Some(Err(BodyError::Agent)))
    }

    /// Notes what came, and gives what leaves in its place.
    fn passed(
        &mut self,
        frame: Option<Result<http_body::Frame<Bytes>, BodyError>>,
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
                Some(Err(error))
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
        let last = Last::new(std::mem::take(&mut self.kept), call, at, end);
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
            drop(Last::new(kept, call, now(), End::ClientCancelled));
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
