use crate::agent_connection::Http1Body;
use crate::body_error::AgentBodyError;
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

pub(super) enum AgentBody {
    Empty,
    Http1(Http1Body),
    Http2(Incoming),
}

impl Body for AgentBody {
    type Data = Bytes;
    type Error = AgentBodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, AgentBodyError>>> {
        match self.get_mut() {
            AgentBody::Empty => Poll::Ready(None),
            AgentBody::Http1(body) => body.poll_frame(cx),
            AgentBody::Http2(incoming) => {
                let frame = ready!(Pin::new(incoming).poll_frame(cx));
                Poll::Ready(frame.map(|frame| frame.map_err(AgentBodyError::from)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            AgentBody::Empty => true,
            AgentBody::Http1(body) => body.is_end_stream(),
            AgentBody::Http2(incoming) => incoming.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            AgentBody::Empty => SizeHint::with_exact(0),
            AgentBody::Http1(body) => body.size_hint(),
            AgentBody::Http2(incoming) => incoming.size_hint(),
        }
    }
}
