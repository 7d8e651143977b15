//! A response body, read from the connection itself.

use super::ResponseBodyError;
use super::chunked::ChunkedDecoder;
use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use std::ops::Range;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, ReadBuf};

/// A response whose head was read: the connection, and where its body ends.
#[derive(Debug)]
pub(crate) struct BodyReader<I> {
    io: I,
    /// What came and is not read yet: after the head, or part of a line.
    read_ahead: BytesMut,
    /// Nothing of `ahead` was looked at yet.
    unparsed: bool,
    framing: Framing,
    trailers: Option<HeaderMap>,
    /// What is wrong after all that was read.
    error: Option<ResponseBodyError>,
    reusable: bool,
}

#[derive(Debug)]
enum Framing {
    Length(u64),
    Chunked(ChunkedDecoder),
    UntilClose,
    Complete,
}

/// What one look at the connection gave.
#[derive(Debug, Default)]
pub(crate) struct Piece {
    /// The content, framing removed.
    pub payload: Bytes,
    /// Where in the buffer that was read into lies what may leave as it came, framing
    /// included. Only the end of the body is missing there.
    pub raw: Range<usize>,
    /// The piece begins between two chunks.
    pub starts_at_chunk: bool,
    /// The body ends with it.
    pub is_last: bool,
}

impl<I: AsyncRead + Unpin> BodyReader<I> {
    /// `length` where the head tells it; else chunked, or until the connection closes.
    pub fn new(io: I, read_ahead: BytesMut, length: Option<u64>, chunked: bool) -> BodyReader<I> {
        let framing = match length {
            Some(0) => Framing::Complete,
            Some(length) => Framing::Length(length),
            None if chunked => Framing::Chunked(ChunkedDecoder::default()),
            None => Framing::UntilClose,
        };
        BodyReader {
            unparsed: !read_ahead.is_empty(),
            io,
            read_ahead,
            framing,
            trailers: None,
            error: None,
            reusable: true,
        }
    }

    /// The connection is not to be used again.
    pub fn not_reusable(mut self) -> Self {
        self.reusable = false;
        self
    }

    /// Whether chunks leave as they came when the agent gets them chunked, too.
    pub fn is_chunked(&self) -> bool {
        matches!(self.framing, Framing::Chunked(_))
    }

    /// Whether what comes next is the beginning of a chunk.
    pub fn is_between_chunks(&self) -> bool {
        matches!(&self.framing, Framing::Chunked(chunked) if chunked.is_between_chunks())
    }

    /// Whether all of the content was read.
    pub fn is_complete(&self) -> bool {
        matches!(self.framing, Framing::Complete) && self.trailers.is_none()
    }

    /// How much content there is to come, where that is known.
    pub fn length(&self) -> Option<u64> {
        match self.framing {
            Framing::Length(length) => Some(length),
            Framing::Complete => Some(0),
            Framing::Chunked(_) | Framing::UntilClose => None,
        }
    }

    /// The trailers of a body that is over.
    pub fn take_trailers(&mut self) -> Option<HeaderMap> {
        self.trailers.take()
    }

    /// The socket, if it can serve another request.
    pub fn into_reusable(self) -> Option<I> {
        let over = matches!(self.framing, Framing::Complete);
        (over && self.reusable && self.read_ahead.is_empty()).then_some(self.io)
    }

    /// Reads what has come, through `buffer`. `None` when the body is over.
    pub fn poll_piece(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<Result<Option<Piece>, ResponseBodyError>> {
        loop {
            if let Some(error) = self.error {
                return Poll::Ready(Err(error));
            }
            if matches!(self.framing, Framing::Complete) {
                return Poll::Ready(Ok(None));
            }
            let Some(filled) = ready!(self.poll_fill(cx, buffer))? else {
                return Poll::Ready(Ok(None));
            };
            let piece = self.decode(&buffer[..filled]);
            // Even the end of a chunk alone has to leave.
            if !piece.payload.is_empty() || !piece.raw.is_empty() {
                return Poll::Ready(Ok(Some(piece)));
            }
        }
    }

    /// Fills the buffer with what is ahead and what comes; tells how far.
    fn poll_fill(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<Result<Option<usize>, ResponseBodyError>> {
        let read_ahead = self.read_ahead.len().min(buffer.len());
        buffer[..read_ahead].copy_from_slice(&self.read_ahead[..read_ahead]);
        if self.unparsed || read_ahead == buffer.len() {
            drop(self.read_ahead.split_to(read_ahead));
            self.unparsed = !self.read_ahead.is_empty();
            return Poll::Ready(Ok(Some(read_ahead)));
        }
        let mut read = ReadBuf::new(&mut buffer[read_ahead..]);
        let polled = Pin::new(&mut self.io).poll_read(cx, &mut read);
        ready!(polled).map_err(|_| ResponseBodyError::ConnectionLost)?;
        let length = read.filled().len();
        if length == 0 {
            return Poll::Ready(self.on_close().map(|()| None));
        }
        self.read_ahead = BytesMut::new();
        Poll::Ready(Ok(Some(read_ahead + length)))
    }

    fn on_close(&mut self) -> Result<(), ResponseBodyError> {
        self.reusable = false;
        match std::mem::replace(&mut self.framing, Framing::Complete) {
            Framing::UntilClose | Framing::Complete => Ok(()),
            Framing::Length(_) | Framing::Chunked(_) => Err(ResponseBodyError::UnexpectedEof),
        }
    }

    fn decode(&mut self, raw: &[u8]) -> Piece {
        match &mut self.framing {
            Framing::Chunked(chunked) => {
                let starts_at_chunk = chunked.is_between_chunks();
                let (read, error) = chunked.read_partial(raw);
                self.error = error;
                if read.trailers.is_some() {
                    self.trailers = read.trailers.filter(|trailers| !trailers.is_empty());
                    self.framing = Framing::Complete;
                }
                self.put_back(&raw[read.consumed..]);
                Piece {
                    payload: read.payload,
                    raw: 0..read.forwardable,
                    starts_at_chunk,
                    is_last: matches!(self.framing, Framing::Complete),
                }
            }
            Framing::Length(left) => {
                let available = raw.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                *left -= available as u64;
                if *left == 0 {
                    self.framing = Framing::Complete;
                    self.put_back(&raw[available..]);
                }
                plain_piece(&raw[..available])
            }
            Framing::UntilClose => plain_piece(raw),
            Framing::Complete => Piece::default(),
        }
    }

    /// Keeps what is not read yet before what is still ahead.
    fn put_back(&mut self, unread: &[u8]) {
        if unread.is_empty() {
            return;
        }
        let mut read_ahead = BytesMut::with_capacity(unread.len() + self.read_ahead.len());
        read_ahead.extend_from_slice(unread);
        read_ahead.extend_from_slice(&self.read_ahead);
        self.read_ahead = read_ahead;
    }
}

fn plain_piece(raw: &[u8]) -> Piece {
    Piece {
        payload: Bytes::copy_from_slice(raw),
        raw: 0..0,
        starts_at_chunk: true,
        is_last: false,
    }
}
