use super::body_error::BodyError;
use super::connection::Io;
use super::headers;
use super::http1::{BodyReader, RequestWriter, SendError};
use super::read_buffer::with_buffer;
use super::upstream::InFlightGuard;
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

pub(super) enum UpstreamBody {
    Http1 {
        body: Box<BodyReader<Io>>,
        /// The unsent part of the request. The connection is not reused.
        unsent: Option<Box<RequestWriter>>,
    },
    /// The connection is driven by a separate task.
    Http2 {
        incoming: Incoming,
        _stream: InFlightGuard,
    },
    Ended,
}

pub(super) type PolledFrame = Poll<Option<Result<Frame<Bytes>, BodyError>>>;

impl UpstreamBody {
    pub fn poll_frame(&mut self, cx: &mut Context<'_>) -> PolledFrame {
        match self {
            UpstreamBody::Http1 { body, unsent } => {
                if !send_more(body, unsent, cx) {
                    return Poll::Ready(Some(Err(BodyError::Agent)));
                }
                poll_http1(body, cx)
            }
            UpstreamBody::Http2 { incoming, .. } => {
                let mut frame = ready!(Pin::new(incoming).poll_frame(cx));
                if let Some(Ok(frame)) = &mut frame {
                    frame.trailers_mut().map(headers::retain_response_trailers);
                }
                Poll::Ready(frame.map(|frame| frame.map_err(BodyError::from)))
            }
            UpstreamBody::Ended => Poll::Ready(None),
        }
    }

    pub fn is_end_stream(&self) -> bool {
        match self {
            UpstreamBody::Http1 { body, .. } => body.is_complete(),
            UpstreamBody::Http2 { incoming, .. } => incoming.is_end_stream(),
            UpstreamBody::Ended => true,
        }
    }

    pub fn size_hint(&self) -> SizeHint {
        match self {
            UpstreamBody::Http1 { body, .. } => {
                let length = body.length();
                length.map_or_else(SizeHint::default, SizeHint::with_exact)
            }
            UpstreamBody::Http2 { incoming, .. } => incoming.size_hint(),
            UpstreamBody::Ended => SizeHint::with_exact(0),
        }
    }

    pub fn has_unsent(&self) -> bool {
        matches!(self, UpstreamBody::Http1 { unsent, .. } if unsent.is_some())
    }

    /// Takes the reader of a body whose chunks can be forwarded unchanged, and leaves an ended body.
    pub fn take_chunked(&mut self) -> Option<Box<BodyReader<Io>>> {
        match self {
            UpstreamBody::Http1 { body, unsent: None } if body.is_chunked() => {}
            _ => return None,
        }
        match std::mem::replace(self, UpstreamBody::Ended) {
            UpstreamBody::Http1 { body, .. } => Some(body),
            UpstreamBody::Http2 { .. } | UpstreamBody::Ended => None,
        }
    }

    /// Ends the body. Returns a connection that was read exactly to the end of its response.
    pub fn finish(&mut self) -> Option<Io> {
        match std::mem::replace(self, UpstreamBody::Ended) {
            UpstreamBody::Http1 { body, .. } => body.into_reusable(),
            UpstreamBody::Http2 { .. } | UpstreamBody::Ended => None,
        }
    }
}

fn poll_http1(body: &mut BodyReader<Io>, cx: &mut Context<'_>) -> PolledFrame {
    let piece = with_buffer(|buffer| {
        loop {
            match ready!(body.poll_piece(cx, buffer))? {
                Some(piece) if piece.payload.is_empty() => {}
                piece => return Poll::Ready(Ok::<_, BodyError>(piece)),
            }
        }
    });
    Poll::Ready(match ready!(piece) {
        Ok(Some(piece)) => Some(Ok(Frame::data(piece.payload))),
        Ok(None) => body.take_trailers().map(Frame::trailers).map(Ok),
        Err(error) => Some(Err(error)),
    })
}

/// Sends more of the request. Returns whether the agent sent the available data. An upstream that accepts no more of
/// the request may still respond.
fn send_more(
    body: &mut BodyReader<Io>,
    unsent: &mut Option<Box<RequestWriter>>,
    cx: &mut Context<'_>,
) -> bool {
    let Some(writer) = unsent else { return true };
    let Poll::Ready(sent) = writer.poll_send(body.io_mut(), cx) else {
        return true;
    };
    *unsent = None;
    !matches!(sent, Err(SendError::Body))
}
