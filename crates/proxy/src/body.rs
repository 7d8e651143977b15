//! The body type of every response to an agent.

use super::abort_body::BodyAbort;
use super::agent_socket::SharedSocket;
use super::tap::StreamingBody;
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// A response body for an agent.
#[derive(Debug)]
pub(super) struct Body(Kind);

#[derive(Debug)]
enum Kind {
    Empty,
    /// No body, though the head may have a `content-length`, as for HEAD. For a body that reports
    /// its end at once, hyper's HTTP/1 server would drop that header or move it.
    Omitted {
        length: SizeHint,
    },
    Whole(Bytes),
    // hyper reserves room for a body in every connection, so it has to be small.
    Streaming {
        streaming: Box<StreamingBody>,
        agent: Option<SharedSocket>,
        /// Whether the body ends when the connection closes.
        until_close: bool,
    },
    /// The upstream's body broke off: what was sent before is flushed first.
    Aborting(Box<BodyAbort>),
}

impl Body {
    /// A message without a body.
    pub fn empty() -> Body {
        Body(Kind::Empty)
    }

    /// No body, for an HTTP/1 agent, under a head with this `content-length`.
    pub(super) fn omitted(length: Option<u64>) -> Body {
        let length = match length {
            Some(0) => SizeHint::with_exact(0),
            _ => SizeHint::default(),
        };
        Body(Kind::Omitted { length })
    }

    /// A body that streams to the agent behind `agent`; `http10` says that it speaks HTTP/1.0.
    pub(super) fn streaming(
        streaming: StreamingBody,
        agent: Option<SharedSocket>,
        http10: bool,
    ) -> Body {
        let until_close = http10 && streaming.size_hint().exact().is_none();
        Body(Kind::Streaming {
            streaming: Box::new(streaming),
            agent,
            until_close,
        })
    }
}

impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Body {
        if bytes.is_empty() {
            Body::empty()
        } else {
            Body(Kind::Whole(bytes))
        }
    }
}

/// Why a response body was aborted. The agent sees an incomplete body, not this message.
#[derive(Debug, thiserror::Error)]
pub(super) enum BodyError {
    /// The upstream's body broke off. For an HTTP/2 agent hyper passes the reason on.
    #[error("the upstream's response broke off")]
    Upstream(#[from] hyper::Error),
    /// The upstream's HTTP/1 body broke off.
    #[error("the upstream's response broke off: {0}")]
    Http1(#[from] super::http1::ResponseBodyError),
    /// The agent closed the connection.
    #[error("the agent left")]
    Agent,
    /// No byte arrived within the idle timeout.
    #[error("the upstream sent nothing for too long")]
    Idle,
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match &mut self.0 {
            Kind::Empty => Poll::Ready(None),
            Kind::Omitted { .. } => {
                self.0 = Kind::Empty;
                Poll::Ready(None)
            }
            Kind::Whole(bytes) => {
                let bytes = std::mem::take(bytes);
                self.0 = Kind::Empty;
                Poll::Ready(Some(Ok(Frame::data(bytes))))
            }
            Kind::Streaming {
                streaming,
                agent,
                until_close,
            } => match ready!(streaming.poll_frame(cx)) {
                Some(Err(error)) => {
                    let abort = BodyAbort::new(error, agent.take(), *until_close);
                    self.0 = Kind::Aborting(Box::new(abort));
                    self.poll_frame(cx)
                }
                frame => Poll::Ready(frame),
            },
            Kind::Aborting(abort) => {
                let error = ready!(abort.poll(cx));
                self.0 = Kind::Empty;
                Poll::Ready(Some(Err(error)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Kind::Empty => true,
            Kind::Omitted { .. } | Kind::Whole(_) | Kind::Aborting(_) => false,
            Kind::Streaming { streaming, .. } => streaming.is_over(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Kind::Empty => SizeHint::with_exact(0),
            Kind::Omitted { length } => *length,
            Kind::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Kind::Streaming { streaming, .. } => streaming.size_hint(),
            Kind::Aborting(_) => SizeHint::default(),
        }
    }
}
