//! The response body, which yields each chunk when it is due.

use super::gzip::Gzip;
use super::pace::Pace;
use super::profile::FaultKind;
use super::socket::ConnectionState;
use super::truth::{Call, ChunkTokens, Ending, ResponseSummary};
use crate::clock;
use bytes::{Bytes, BytesMut};
use http_body::{Frame, SizeHint};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};
use tokio::time::Sleep;

pub trait Source: Send {
    /// Writes the data that is sent with the response head, before any token.
    fn open(&mut self, out: &mut BytesMut);
    /// The token at which chunk `n` begins, and the pause before it; `None` after the last chunk.
    fn step(&self, n: usize) -> Option<(u64, Duration)>;
    fn chunk(&mut self, n: usize, out: &mut BytesMut) -> ChunkTokens;
    /// Writes a keep-alive event if the dialect has one.
    fn ping(&mut self, out: &mut BytesMut);
    /// Writes everything after the last token, and returns the values that the end reports.
    fn close(&mut self, out: &mut BytesMut) -> ResponseSummary;
    fn fault(&self) -> Option<FaultKind>;
    /// Writes an error event. Returns its type as written.
    fn error(&mut self, kind: Option<&str>, out: &mut BytesMut) -> String;
}

/// The error with which a requested fault aborts the body.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("a requested fault aborted the body")]
pub struct BodyAborted;

pub enum Body {
    Whole(Option<CompleteBody>),
    Stream(Box<Stream>),
}

/// A complete body, with its call if it belongs to one.
pub struct CompleteBody {
    pub bytes: Bytes,
    pub call: Option<(Arc<ConnectionState>, Arc<Call>, ChunkTokens)>,
}

pub struct Stream {
    pub source: Box<dyn Source>,
    pub pace: Pace,
    pub ping: Option<Duration>,
    pub gzip: Option<Gzip>,
    pub call: Arc<Call>,
    pub connection: Arc<ConnectionState>,
    pub http1: bool,
    pub sleep: Pin<Box<Sleep>>,
    pub last_chunk: Instant,
    pub stage: Stage,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    Opening,
    Saying(usize),
    Over,
}

enum Wakeup {
    Due,
    Ping,
}

impl Body {
    /// A small body that belongs to no call.
    pub fn plain(bytes: impl Into<Bytes>) -> Body {
        Body::Whole(Some(CompleteBody {
            bytes: bytes.into(),
            call: None,
        }))
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = BodyAborted;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyAborted>>> {
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
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyAborted>>> {
        loop {
            let mut out = BytesMut::new();
            let carried = match self.stage {
                Stage::Over => return Poll::Ready(None),
                Stage::Opening => {
                    self.source.open(&mut out);
                    self.stage = Stage::Saying(0);
                    ChunkTokens::default()
                }
                Stage::Saying(n) => match ready!(self.poll_wakeup(cx, n)) {
                    Wakeup::Ping => {
                        self.source.ping(&mut out);
                        self.last_chunk = clock::now();
                        ChunkTokens::default()
                    }
                    Wakeup::Due => match self.say(n, &mut out) {
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

    /// Waits until the next chunk or a ping is due. The end after the last token does not wait. A
    /// fault is due at the time of a token.
    fn poll_wakeup(&mut self, cx: &mut Context<'_>, n: usize) -> Poll<Wakeup> {
        if self.source.step(n).is_none() && self.source.fault().is_none() {
            return Poll::Ready(Wakeup::Due);
        }
        let mut due = self.pace.due();
        if self.tears_at(n) && self.call.unwritten() {
            // When a body fails, hyper discards the data that it has not written.
            due = due.max(clock::now() + Duration::from_millis(1));
        }
        let ping = self
            .ping
            .map(|silence| self.last_chunk + silence)
            .filter(|at| *at < due);
        let until = ping.unwrap_or(due);
        if clock::now() < until {
            self.sleep.as_mut().reset(until.into());
            ready!(self.sleep.as_mut().poll(cx));
        }
        Poll::Ready(if ping.is_some() {
            Wakeup::Ping
        } else {
            Wakeup::Due
        })
    }

    /// Whether the connection is aborted instead of sending chunk `n`.
    fn tears_at(&self, n: usize) -> bool {
        let torn = |fault| matches!(fault, FaultKind::Reset | FaultKind::Close);
        self.source.step(n).is_none() && self.source.fault().is_some_and(torn)
    }

    fn say(&mut self, n: usize, out: &mut BytesMut) -> Result<ChunkTokens, BodyAborted> {
        if let Some((position, _)) = self.source.step(n) {
            let pause = self
                .source
                .step(n + 1)
                .map_or(Duration::ZERO, |(_, pause)| pause);
            self.pace.advance(position, pause, self.call.concurrency());
            self.stage = Stage::Saying(n + 1);
            return Ok(self.source.chunk(n, out));
        }
        self.stage = Stage::Over;
        match self.source.fault() {
            None => {
                let summary = self.source.close(out);
                self.call.note(|truth| truth.complete(summary));
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
        Ok(ChunkTokens::default())
    }

    fn tear(&self, ending: Ending) -> BodyAborted {
        self.call.note(|truth| truth.outcome = ending);
        BodyAborted
    }

    fn hand_over(
        &mut self,
        bytes: Bytes,
        carried: ChunkTokens,
    ) -> Option<Result<Bytes, BodyAborted>> {
        let last = self.stage == Stage::Over;
        let bytes = match &mut self.gzip {
            // Compressing into memory cannot fail. If it did, the stream would be aborted.
            Some(gzip) => match gzip.chunk(&bytes, last) {
                Ok(pressed) => pressed,
                Err(_) => return Some(Err(BodyAborted)),
            },
            None => bytes,
        };
        self.last_chunk = clock::now();
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
