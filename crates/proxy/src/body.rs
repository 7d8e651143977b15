//! The body of every response that leaves for an agent.

use super::abort_body::BodyAbort;
use super::agent_socket::SharedSocket;
use super::tap::StreamingBody;
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// A response body on its way to the agent.
#[derive(Debug)]
pub(super) struct Body(Kind);

#[derive(Debug)]
enum Kind {
    Empty,
    /// None, under a head that says how long one would be. A body that is known to be
    /// over would make an HTTP/1 server leave that out, or move it.
    Omitted {
        length: SizeHint,
    },
    Whole(Bytes),
    // Servers keep room for a body in every connection: it has to be small.
    Streaming {
        streaming: Box<StreamingBody>,
        agent: Option<SharedSocket>,
        /// The agent takes the end of the connection for that of the body.
        until_close: bool,
    },
    /// The upstream's body broke off; the agent gets what came before.
    Aborting(Box<BodyAbort>),
}

impl Body {
    /// The message has no body.
    pub fn empty() -> Body {
        Body(Kind::Empty)
    }

    /// No body, under a head with a `content-length` for an HTTP/1 agent.
    pub(super) fn omitted(length: Option<u64>) -> Body {
        let length = match length {
            Some(0) => SizeHint::with_exact(0),
            _ => SizeHint::default(),
        };
        Body(Kind::Omitted { length })
    }

    /// For an agent behind a socket. `old` ones speak HTTP/1.0.
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

/// Why a body breaks off. The agent sees a broken body, not this.
#[derive(Debug, thiserror::Error)]
pub(super) enum BodyError {
    /// The upstream's body broke off; over HTTP/2 the reason is passed on.
    #[error("the upstream's response broke off")]
    Upstream(#[from] hyper::Error),
    /// The upstream's HTTP/1 body broke off.
    #[error("the upstream's response broke off: {0}")]
    Http1(#[from] super::http1::ResponseBodyError),
    /// The agent reads no more.
    #[error("the agent left")]
    Agent,
    /// Nothing moved for too long.
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
