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
    ahead: BytesMut,
    /// Nothing of `ahead` was looked at yet.
    fresh: bool,
    framing: Framing,
    trailers: Option<HeaderMap>,
    /// What is wrong after all that was read.
    broken: Option<ResponseBodyError>,
    reusable: bool,
}

#[derive(Debug)]
enum Framing {
    Length(u64),
    Chunked(ChunkedDecoder),
    UntilClose,
    Over,
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
    pub whole_chunks: bool,
    /// The body ends with it.
    pub last: bool,
}

impl<I: AsyncRead + Unpin> BodyReader<I> {
    /// `length` where the head tells it; else chunked, or until the connection closes.
    pub fn new(io: I, ahead: BytesMut, length: Option<u64>, chunked: bool) -> BodyReader<I> {
        let framing = match length {
            Some(0) => Framing::Over,
            Some(length) => Framing::Length(length),
            None if chunked => Framing::Chunked(ChunkedDecoder::default()),
            None => Framing::UntilClose,
        };
        BodyReader {
            fresh: !ahead.is_empty(),
            io,
            ahead,
            framing,
            trailers: None,
            broken: None,
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
    pub fn is_over(&self) -> bool {
        matches!(self.framing, Framing::Over) && self.trailers.is_none()
    }

    /// How much content there is to come, where that is known.
    pub fn length(&self) -> Option<u64> {
        match self.framing {
            Framing::Length(length) => Some(length),
            Framing::Over => Some(0),
            Framing::Chunked(_) | Framing::UntilClose => None,
        }
    }

    /// The trailers of a body that is over.
    pub fn take_trailers(&mut self) -> Option<HeaderMap> {
        self.trailers.take()
    }

    /// The socket, if it can serve another request.
    pub fn into_reusable(self) -> Option<I> {
        let over = matches!(self.framing, Framing::Over);
        (over && self.reusable && self.ahead.is_empty()).then_some(self.io)
    }

    /// Reads what has come, through `buffer`. `None` when the body is over.
    pub fn poll_piece(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<Result<Option<Piece>, ResponseBodyError>> {
        loop {
            if let Some(broken) = self.broken {
                return Poll::Ready(Err(broken));
            }
            if matches!(self.framing, Framing::Over) {
                return Poll::Ready(Ok(None));
            }
            let Some(filled) = ready!(self.poll_fill(cx, buffer))? else {
                return Poll::Ready(Ok(None));
            };
            let piece = self.take(&buffer[..filled]);
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
        let ahead = self.ahead.len().min(buffer.len());
        buffer[..ahead].copy_from_slice(&self.ahead[..ahead]);
        if self.fresh || ahead == buffer.len() {
            drop(self.ahead.split_to(ahead));
            self.fresh = !self.ahead.is_empty();
            return Poll::Ready(Ok(Some(ahead)));
        }
        let mut read = ReadBuf::new(&mut buffer[ahead..]);
        let polled = Pin::new(&mut self.io).poll_read(cx, &mut read);
        ready!(polled).map_err(|_| ResponseBodyError::ConnectionLost)?;
        let length = read.filled().len();
        if length == 0 {
            return Poll::Ready(self.closed().map(|()| None));
        }
        self.ahead = BytesMut::new();
        Poll::Ready(Ok(Some(ahead + length)))
    }

    fn closed(&mut self) -> Result<(), ResponseBodyError> {
        self.reusable = false;
        match std::mem::replace(&mut self.framing, Framing::Over) {
            Framing::UntilClose | Framing::Over => Ok(()),
            Framing::Length(_) | Framing::Chunked(_) => Err(ResponseBodyError::UnexpectedEof),
        }
    }

    fn take(&mut self, raw: &[u8]) -> Piece {
        match &mut self.framing {
            Framing::Chunked(chunked) => {
                let whole_chunks = chunked.is_between_chunks();
                let (read, broken) = chunked.read_until_broken(raw);
                self.broken = broken;
                if read.trailers.is_some() {
                    self.trailers = read.trailers.filter(|trailers| !trailers.is_empty());
                    self.framing = Framing::Over;
                }
                self.keep(&raw[read.whole..]);
                Piece {
                    payload: read.payload,
                    raw: 0..read.content,
                    whole_chunks,
                    last: matches!(self.framing, Framing::Over),
                }
            }
            Framing::Length(left) => {
                let here = raw.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                *left -= here as u64;
                if *left == 0 {
                    self.framing = Framing::Over;
                    self.keep(&raw[here..]);
                }
                content(&raw[..here])
            }
            Framing::UntilClose => content(raw),
            Framing::Over => Piece::default(),
        }
    }

    /// Keeps what is not read yet before what is still ahead.
    fn keep(&mut self, unread: &[u8]) {
        if unread.is_empty() {
            return;
        }
        let mut ahead = BytesMut::with_capacity(unread.len() + self.ahead.len());
        ahead.extend_from_slice(unread);
        ahead.extend_from_slice(&self.ahead);
        self.ahead = ahead;
    }
}

fn content(raw: &[u8]) -> Piece {
    Piece {
        payload: Bytes::copy_from_slice(raw),
        raw: 0..0,
        whole_chunks: true,
        last: false,
    }
}
