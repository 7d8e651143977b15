use super::abort_body::BodyAbort;
use super::body_error::BodyError;
use super::send_timeout::SendState;
use super::tap::{Relay, StreamingBody};
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

#[derive(Debug)]
pub(super) struct Body(BodyKind);

#[derive(Debug)]
enum BodyKind {
    Empty,
    Whole(Bytes),
    // Boxed, because hyper reserves space for a body in every HTTP/2 connection.
    Streaming {
        streaming: Box<StreamingBody>,
        http2: Option<Arc<SendState>>,
    },
    /// The upstream's body broke off. Data that was sent before is flushed first.
    Aborting(Box<BodyAbort>),
}

impl Body {
    pub fn empty() -> Body {
        Body(BodyKind::Empty)
    }

    /// Creates a body that streams to the agent. `http2` is the connection of an HTTP/2 agent, because an HTTP/2 server
    /// discards unwritten data when the body fails.
    pub(super) fn streaming(streaming: StreamingBody, http2: Option<Arc<SendState>>) -> Body {
        Body(BodyKind::Streaming {
            streaming: Box::new(streaming),
            http2,
        })
    }

    /// Returns the body as a relay if its chunks can be forwarded unchanged.
    pub fn take_relay(&mut self) -> Option<Box<Relay>> {
        match &mut self.0 {
            BodyKind::Streaming { streaming, .. } => streaming.take_relay(),
            BodyKind::Empty | BodyKind::Whole(_) | BodyKind::Aborting(_) => None,
        }
    }
}

impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Body {
        if bytes.is_empty() {
            Body::empty()
        } else {
            Body(BodyKind::Whole(bytes))
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
            BodyKind::Empty => Poll::Ready(None),
            BodyKind::Whole(bytes) => {
                let bytes = std::mem::take(bytes);
                self.0 = BodyKind::Empty;
                Poll::Ready(Some(Ok(Frame::data(bytes))))
            }
            BodyKind::Streaming { streaming, http2 } => match ready!(streaming.poll_frame(cx)) {
                Some(Err(error)) => match http2.take() {
                    Some(connection) => {
                        self.0 = BodyKind::Aborting(Box::new(BodyAbort::new(error, connection)));
                        self.poll_frame(cx)
                    }
                    None => Poll::Ready(Some(Err(error))),
                },
                frame => Poll::Ready(frame),
            },
            BodyKind::Aborting(abort) => {
                let error = ready!(abort.poll(cx));
                self.0 = BodyKind::Empty;
                Poll::Ready(Some(Err(error)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            BodyKind::Empty => true,
            BodyKind::Whole(_) | BodyKind::Aborting(_) => false,
            BodyKind::Streaming { streaming, .. } => streaming.is_over(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            BodyKind::Empty => SizeHint::with_exact(0),
            BodyKind::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            BodyKind::Streaming { streaming, .. } => streaming.size_hint(),
            BodyKind::Aborting(_) => SizeHint::default(),
        }
    }
}
