//! The response body: gives hyper each frame when it is due.

use super::gzip::Gzip;
use super::pace::Pace;
use super::profile::FaultKind;
use super::socket::ConnectionState;
use super::truth::{Call, Carried, Ending};
use bytes::{Bytes, BytesMut};
use http_body::{Frame, SizeHint};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};
use tokengauge_core::call::Usage;
use tokio::time::Sleep;

/// Where a stream's frames come from.
pub trait Source: Send {
    /// What comes with the response head, before any token.
    fn open(&mut self, out: &mut BytesMut);
    /// At which token frame `n` begins, and the pause before it; `None` after the last.
    fn step(&self, n: usize) -> Option<(u64, Duration)>;
    /// Writes frame `n`.
    fn frame(&mut self, n: usize, out: &mut BytesMut) -> Carried;
    /// A sign of life, where the dialect has one.
    fn ping(&mut self, out: &mut BytesMut);
    /// What comes after the last token, and what it says.
    fn close(&mut self, out: &mut BytesMut) -> Closing;
    /// What goes wrong after the last frame.
    fn fault(&self) -> Option<FaultKind>;
    /// Writes an error event; gives its type as written.
    fn error(&mut self, kind: Option<&str>, out: &mut BytesMut) -> String;
}

/// What the end of a stream says.
#[derive(Clone, Debug, Default)]
pub struct Closing {
    pub finish_reasons: Vec<String>,
    pub usage: Option<Usage>,
}

/// A fault that was asked for: the body ends here, in the middle.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("torn off, as asked")]
pub struct Torn;

/// A response body of the simulator.
pub enum Body {
    /// A body in one piece.
    Whole(Option<Whole>),
    /// Frames, each in its time.
    Stream(Box<Stream>),
}

/// A body of one piece, and the call it belongs to, where it belongs to one.
pub struct Whole {
    pub bytes: Bytes,
    pub call: Option<(Arc<ConnectionState>, Arc<Call>, Carried)>,
}

/// A body of frames, each in its time.
pub struct Stream {
    pub source: Box<dyn Source>,
    pub pace: Pace,
    pub ping: Option<Duration>,
    pub gzip: Option<Gzip>,
    pub call: Arc<Call>,
    pub connection: Arc<ConnectionState>,
    pub http1: bool,
    pub sleep: Pin<Box<Sleep>>,
    pub last_frame: Instant,
    pub stage: Stage,
}

/// How far a stream has come.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    Opening,
    Saying(usize),
    Over,
}

enum Alarm {
    Due,
    Ping,
}

impl Body {
    /// A small body that belongs to no call.
    pub fn plain(bytes: impl Into<Bytes>) -> Body {
        Body::Whole(Some(Whole {
            bytes: bytes.into(),
            call: None,
        }))
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = Torn;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Torn>>> {
        match self.get_mut() {
            Body::Whole(whole) => Poll::Ready(whole.take().map(|whole| {
                if let Some((connection, call, carried)) = whole.call {
                    connection.mark(&call, carried, &whole.bytes);
                }
                Ok(Frame::data(whole.bytes))
            })),
            Body::Stream(stream) => stream
                .poll_next(cx)
                .map(|next| next.map(|bytes| bytes.map(Frame::data))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Body::Whole(whole) => whole.is_none(),
            Body::Stream(stream) => stream.stage == Stage::Over,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Body::Whole(whole) => {
                SizeHint::with_exact(whole.as_ref().map_or(0, |whole| whole.bytes.len() as u64))
            }
            Body::Stream(_) => SizeHint::default(),
        }
    }
}

impl Stream {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Torn>>> {
        loop {
            let mut out = BytesMut::new();
            let carried = match self.stage {
                Stage::Over => return Poll::Ready(None),
                Stage::Opening => {
                    self.source.open(&mut out);
                    self.stage = Stage::Saying(0);
                    Carried::default()
                }
                Stage::Saying(n) => match ready!(self.poll_alarm(cx, n)) {
                    Alarm::Ping => {
                        self.source.ping(&mut out);
                        self.last_frame = Instant::now();
                        Carried::default()
                    }
                    Alarm::Due => match self.say(n, &mut out) {
                        Ok(carried) => carried,
                        Err(torn) => return Poll::Ready(Some(Err(torn))),
                    },
                },
            };
            if !out.is_empty() || self.stage == Stage::Over {
                return Poll::Ready(self.hand_over(out.freeze(), carried));
            }
        }
    }

    /// Waits for the next frame, or for the moment to give a sign of life. What comes
    /// after the last token does not wait; a fault takes the place of a token.
    fn poll_alarm(&mut self, cx: &mut Context<'_>, n: usize) -> Poll<Alarm> {
        if self.source.step(n).is_none() && self.source.fault().is_none() {
            return Poll::Ready(Alarm::Due);
        }
        let mut due = self.pace.due();
        if self.tears_at(n) && self.call.unwritten() {
            // Hyper throws away what it has not written when a body fails.
            due = due.max(Instant::now() + Duration::from_millis(1));
        }
        let ping = self
            .ping
            .map(|silence| self.last_frame + silence)
            .filter(|at| *at < due);
        let until = ping.unwrap_or(due);
        if Instant::now() < until {
            self.sleep.as_mut().reset(until.into());
            ready!(self.sleep.as_mut().poll(cx));
        }
        Poll::Ready(if ping.is_some() {
            Alarm::Ping
        } else {
            Alarm::Due
        })
    }

    /// Whether the connection is torn in place of frame `n`.
    fn tears_at(&self, n: usize) -> bool {
        let torn = |fault| matches!(fault, FaultKind::Reset | FaultKind::Close);
        self.source.step(n).is_none() && self.source.fault().is_some_and(torn)
    }

    fn say(&mut self, n: usize, out: &mut BytesMut) -> Result<Carried, Torn> {
        if let Some((position, _)) = self.source.step(n) {
            let pause = self
                .source
                .step(n + 1)
                .map_or(Duration::ZERO, |(_, pause)| pause);
            self.pace.advance(position, pause, self.call.concurrency());
            self.stage = Stage::Saying(n + 1);
            return Ok(self.source.frame(n, out));
        }
        self.stage = Stage::Over;
        match self.source.fault() {
            None => {
                let closing = self.source.close(out);
                self.call.note(|truth| truth.complete(closing));
            }
            Some(FaultKind::Error(kind)) => {
                let kind = self.source.error(kind.as_deref(), out);
                self.call.note(|truth| {
                    truth.outcome = Ending::ErrorEvent;
                    truth.error_type = Some(kind);
                });
            }
            Some(FaultKind::Close) => return Err(self.tear(Ending::Closed)),
            Some(FaultKind::Reset) => {
                if self.http1 {
                    self.connection.reset();
                }
                return Err(self.tear(Ending::Reset));
            }
        }
        Ok(Carried::default())
    }

    fn tear(&self, ending: Ending) -> Torn {
        self.call.note(|truth| truth.outcome = ending);
        Torn
    }

    fn hand_over(&mut self, bytes: Bytes, carried: Carried) -> Option<Result<Bytes, Torn>> {
        let last = self.stage == Stage::Over;
        let bytes = match &mut self.gzip {
            // Compressing into memory cannot fail; were it to, the stream ends torn.
            Some(gzip) => match gzip.frame(&bytes, last) {
                Ok(pressed) => pressed,
                Err(_) => return Some(Err(Torn)),
            },
            None => bytes,
        };
        self.last_frame = Instant::now();
        self.connection.mark(&self.call, carried, &bytes);
        Some(Ok(bytes))
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if self.stage != Stage::Over {
            self.call.note(|truth| truth.outcome = Ending::Cancelled);
        }
    }
}
