//! Sources of a response body.

use crate::body::BodyError;
use crate::connection::{Http1, Io};
use crate::http1::{BodyReader, ResponseBodyError};
use crate::upstream::{Endpoint, InFlightGuard};
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use std::cell::RefCell;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

/// Bytes per read.
const READ_BYTES: usize = 32 * 1024;

thread_local! {
    /// One buffer per thread: a stream that waits for its next chunk holds none.
    static BUFFER: RefCell<Box<[u8]>> = RefCell::new(vec![0; READ_BYTES].into_boxed_slice());
}

/// Sources of a response body.
pub(crate) enum ResponseSource {
    /// HTTP/1: the connection is read here, and returned to its pool afterwards.
    Http1 {
        response: Box<BodyReader<Io>>,
        endpoint: Arc<Endpoint>,
    },
    /// HTTP/1 while the request is still being sent: the HTTP client drives both directions, and
    /// the connection is not reused.
    Duplex {
        incoming: Incoming,
        http1: Box<Http1>,
    },
    /// HTTP/2: the connection is driven by its own task.
    Http2 {
        incoming: Incoming,
        _stream: InFlightGuard,
    },
    /// The connection was lost between head and body.
    Lost,
    /// The source has ended.
    Ended,
}

/// Lends this thread's read buffer.
pub(super) fn with_buffer<T>(read: impl FnOnce(&mut [u8]) -> T) -> T {
    BUFFER.with_borrow_mut(|buffer| read(buffer))
}

pub(super) type Polled = Poll<Option<Result<Frame<Bytes>, BodyError>>>;

impl ResponseSource {
    pub fn poll_frame(&mut self, cx: &mut Context<'_>) -> Polled {
        match self {
            ResponseSource::Http1 { response, .. } => poll_response(response, cx),
            ResponseSource::Duplex { incoming, http1 } => poll_duplex(incoming, http1, cx),
            ResponseSource::Http2 { incoming, .. } => {
                let frame = ready!(Pin::new(incoming).poll_frame(cx));
                Poll::Ready(frame.map(|frame| frame.map_err(BodyError::from)))
            }
            ResponseSource::Lost => {
                Poll::Ready(Some(Err(ResponseBodyError::ConnectionLost.into())))
            }
            ResponseSource::Ended => Poll::Ready(None),
        }
    }

    pub fn is_end_stream(&self) -> bool {
        match self {
            ResponseSource::Http1 { response, .. } => response.is_complete(),
            ResponseSource::Duplex { incoming, .. } | ResponseSource::Http2 { incoming, .. } => {
                incoming.is_end_stream()
            }
            ResponseSource::Lost => false,
            ResponseSource::Ended => true,
        }
    }

    pub fn size_hint(&self) -> SizeHint {
        match self {
            ResponseSource::Http1 { response, .. } => response
                .length()
                .map_or_else(SizeHint::default, SizeHint::with_exact),
            ResponseSource::Duplex { incoming, .. } | ResponseSource::Http2 { incoming, .. } => {
                incoming.size_hint()
            }
            ResponseSource::Lost => SizeHint::default(),
            ResponseSource::Ended => SizeHint::with_exact(0),
        }
    }

    /// Whether chunks can be forwarded unchanged.
    pub fn is_chunked(&self) -> bool {
        matches!(self, ResponseSource::Http1 { response, .. } if response.is_chunked())
    }

    /// Whether the next byte is the start of a chunk.
    pub fn is_between_chunks(&self) -> bool {
        matches!(self, ResponseSource::Http1 { response, .. } if response.is_between_chunks())
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

/// Takes what has arrived, or else drives the connection and tries again. Only the connection fills
/// `incoming`, and it is polled here, so `incoming` needs no waker.
fn poll_duplex(incoming: &mut Incoming, http1: &mut Http1, cx: &mut Context<'_>) -> Polled {
    let mut noop = Context::from_waker(Waker::noop());
    let mut poll = |incoming: &mut Incoming| {
        let frame = ready!(Pin::new(incoming).poll_frame(&mut noop));
        Poll::Ready(frame.map(|frame| frame.map_err(BodyError::from)))
    };
    if let Poll::Ready(frame) = poll(incoming) {
        return Poll::Ready(frame);
    }
    if http1.poll(cx).is_ready() {
        // Dropping the connection delivers its end to `incoming`.
        http1.close();
    }
    poll(incoming)
}
