//! The body type of every response to an agent.

use super::abort_body::BodyAbort;
use super::body_error::BodyError;
use super::send_timeout::SendState;
use super::tap::{Relay, StreamingBody};
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

/// A response body for an agent.
#[derive(Debug)]
pub(super) struct Body(Kind);

#[derive(Debug)]
enum Kind {
    Empty,
    Whole(Bytes),
    // hyper reserves room for a body in every HTTP/2 connection, so it has to be small.
    Streaming {
        streaming: Box<StreamingBody>,
        /// The connection of an HTTP/2 agent.
        http2: Option<Arc<SendState>>,
    },
    /// The upstream's body broke off: what was sent before is flushed first.
    Aborting(Box<BodyAbort>),
}

impl Body {
    pub fn empty() -> Body {
        Body(Kind::Empty)
    }

    /// A body that streams to the agent. An HTTP/2 server discards what it has not written when
    /// the body breaks off: `http2` is its connection.
    pub(super) fn streaming(streaming: StreamingBody, http2: Option<Arc<SendState>>) -> Body {
        Body(Kind::Streaming {
            streaming: Box::new(streaming),
            http2,
        })
    }

    /// The body as a relay, if its chunks can be forwarded unchanged.
    pub fn take_relay(&mut self) -> Option<Box<Relay>> {
        match &mut self.0 {
            Kind::Streaming { streaming, .. } => streaming.take_relay(),
            Kind::Empty | Kind::Whole(_) | Kind::Aborting(_) => None,
        }
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

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match &mut self.0 {
            Kind::Empty => Poll::Ready(None),
            Kind::Whole(bytes) => {
                let bytes = std::mem::take(bytes);
                self.0 = Kind::Empty;
                Poll::Ready(Some(Ok(Frame::data(bytes))))
            }
            Kind::Streaming { streaming, http2 } => match ready!(streaming.poll_frame(cx)) {
                Some(Err(error)) => match http2.take() {
                    Some(connection) => {
                        self.0 = Kind::Aborting(Box::new(BodyAbort::new(error, connection)));
                        self.poll_frame(cx)
                    }
                    None => Poll::Ready(Some(Err(error))),
                },
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
            Kind::Whole(_) | Kind::Aborting(_) => false,
            Kind::Streaming { streaming, .. } => streaming.is_over(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Kind::Empty => SizeHint::with_exact(0),
            Kind::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Kind::Streaming { streaming, .. } => streaming.size_hint(),
            Kind::Aborting(_) => SizeHint::default(),
        }
    }
}
