//! Sources of a response body.

use crate::body_error::BodyError;
use crate::connection::Io;
use crate::headers;
use crate::http1::{BodyReader, RequestWriter, SendError};
use crate::read_buffer::with_buffer;
use crate::upstream::{Endpoint, InFlightGuard};
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

/// Sources of a response body.
pub(crate) enum ResponseSource {
    /// HTTP/1: the connection is read here, and returned to its pool afterwards.
    Http1 {
        response: Box<BodyReader<Io>>,
        endpoint: Arc<Endpoint>,
    },
    /// HTTP/1 while the request is still being sent. The connection is not reused.
    Duplex {
        response: Box<BodyReader<Io>>,
        /// `None` when everything was sent.
        request: Option<Box<RequestWriter>>,
    },
    /// HTTP/2: the connection is driven by its own task.
    Http2 {
        incoming: Incoming,
        _stream: InFlightGuard,
    },
    /// The source has ended.
    Ended,
}

pub(super) type Polled = Poll<Option<Result<Frame<Bytes>, BodyError>>>;

impl ResponseSource {
    pub fn poll_frame(&mut self, cx: &mut Context<'_>) -> Polled {
        match self {
            ResponseSource::Http1 { response, .. } => poll_response(response, cx),
            ResponseSource::Duplex { response, request } => poll_duplex(response, request, cx),
            ResponseSource::Http2 { incoming, .. } => {
                let mut frame = ready!(Pin::new(incoming).poll_frame(cx));
                if let Some(Ok(frame)) = &mut frame {
                    frame.trailers_mut().map(headers::retain_response_trailers);
                }
                Poll::Ready(frame.map(|frame| frame.map_err(BodyError::from)))
            }
            ResponseSource::Ended => Poll::Ready(None),
        }
    }

    pub fn is_end_stream(&self) -> bool {
        match self {
            ResponseSource::Http1 { response, .. } | ResponseSource::Duplex { response, .. } => {
                response.is_complete()
            }
            ResponseSource::Http2 { incoming, .. } => incoming.is_end_stream(),
            ResponseSource::Ended => true,
        }
    }

    pub fn size_hint(&self) -> SizeHint {
        match self {
            ResponseSource::Http1 { response, .. } | ResponseSource::Duplex { response, .. } => {
                let length = response.length();
                length.map_or_else(SizeHint::default, SizeHint::with_exact)
            }
            ResponseSource::Http2 { incoming, .. } => incoming.size_hint(),
            ResponseSource::Ended => SizeHint::with_exact(0),
        }
    }

    /// Whether chunks can be forwarded unchanged.
    pub fn is_chunked(&self) -> bool {
        matches!(self, ResponseSource::Http1 { response, .. } if response.is_chunked())
    }

    /// Ends the source. A connection that was read to exactly the end of its response is returned
    /// to its pool.
    pub fn finish(&mut self) {
        if let ResponseSource::Http1 { response, endpoint } =
            std::mem::replace(self, ResponseSource::Ended)
            && let Some(io) = response.into_reusable()
        {
            endpoint.release(io);
        }
    }
}

fn poll_response(response: &mut BodyReader<Io>, cx: &mut Context<'_>) -> Polled {
    let piece = with_buffer(|buffer| {
        loop {
            match ready!(response.poll_piece(cx, buffer))? {
                // A piece of framing alone.
                Some(piece) if piece.payload.is_empty() => {}
                piece => return Poll::Ready(Ok::<_, BodyError>(piece)),
            }
        }
    });
    Poll::Ready(match ready!(piece) {
        Ok(Some(piece)) => Some(Ok(Frame::data(piece.payload))),
        Ok(None) => response.take_trailers().map(Frame::trailers).map(Ok),
        Err(error) => Some(Err(error)),
    })
}

/// Sends more of the request, and takes what has arrived. An upstream that takes no more of it may
/// respond all the same.
fn poll_duplex(
    response: &mut BodyReader<Io>,
    request: &mut Option<Box<RequestWriter>>,
    cx: &mut Context<'_>,
) -> Polled {
    if let Some(writer) = request
        && let Poll::Ready(sent) = writer.poll_send(response.io_mut(), cx)
    {
        *request = None;
        if matches!(sent, Err(SendError::Body)) {
            return Poll::Ready(Some(Err(BodyError::Agent)));
        }
    }
    poll_response(response, cx)
}
