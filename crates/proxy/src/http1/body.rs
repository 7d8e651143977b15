use super::ResponseBodyError;
use super::chunked::ChunkedDecoder;
use super::head::BodyLength;
use crate::headers;
use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use std::ops::Range;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, ReadBuf};

/// Reads the body of a response whose head was already read.
#[derive(Debug)]
pub(crate) struct BodyReader<I> {
    io: I,
    /// Bytes that were received but not decoded: bytes after the head, or an incomplete line.
    read_ahead: Bytes,
    /// Whether `read_ahead` has never been decoded, so that it may hold more than an incomplete line.
    unparsed: bool,
    framing: Framing,
    trailers: Option<HeaderMap>,
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

#[derive(Debug, Default)]
pub(crate) struct Piece {
    /// The content, without framing.
    pub payload: Bytes,
    /// The range of the read buffer that may be forwarded unchanged, including framing: everything except the end of
    /// the body.
    pub raw: Range<usize>,
    pub starts_at_chunk: bool,
    pub is_last: bool,
}

impl<I: AsyncRead + Unpin> BodyReader<I> {
    pub fn new(io: I, read_ahead: Bytes, length: BodyLength) -> BodyReader<I> {
        let framing = match length {
            BodyLength::Known(0) => Framing::Complete,
            BodyLength::Known(length) => Framing::Length(length),
            BodyLength::Chunked => Framing::Chunked(ChunkedDecoder::default()),
            BodyLength::UntilClose => Framing::UntilClose,
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

    pub fn forbid_reuse(&mut self) {
        self.reusable = false;
    }

    pub fn io_mut(&mut self) -> &mut I {
        &mut self.io
    }

    /// Whether the body is chunked, so that chunks can be forwarded unchanged.
    pub fn is_chunked(&self) -> bool {
        matches!(self.framing, Framing::Chunked(_))
    }

    pub fn is_complete(&self) -> bool {
        matches!(self.framing, Framing::Complete) && self.trailers.is_none()
    }

    /// Remaining bytes of content, if known.
    pub fn length(&self) -> Option<u64> {
        match self.framing {
            Framing::Length(length) => Some(length),
            Framing::Complete => Some(0),
            Framing::Chunked(_) | Framing::UntilClose => None,
        }
    }

    pub fn take_trailers(&mut self) -> Option<HeaderMap> {
        let mut trailers = self.trailers.take();
        trailers.as_mut().map(headers::retain_response_trailers);
        trailers
    }

    /// The socket, if it can be used for another request.
    pub fn into_reusable(self) -> Option<I> {
        let over = matches!(self.framing, Framing::Complete);
        (over && self.reusable && self.read_ahead.is_empty()).then_some(self.io)
    }

    /// The socket and the bytes after the head, if it can be used for another protocol.
    pub fn into_upgraded(self) -> Option<(I, Bytes)> {
        self.reusable.then_some((self.io, self.read_ahead))
    }

    /// Reads the data that has arrived, through `buffer`. `None` at the end of the body.
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
            // A piece that is only framing must also be forwarded.
            if !piece.payload.is_empty() || !piece.raw.is_empty() {
                return Poll::Ready(Ok(Some(piece)));
            }
        }
    }

    /// Fills the buffer with read-ahead bytes and newly arrived bytes. Returns the filled length, or `None` at the end
    /// of the body.
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
        self.read_ahead = Bytes::new();
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
            Framing::Length(remaining) => {
                let available = raw
                    .len()
                    .min(usize::try_from(*remaining).unwrap_or(usize::MAX));
                *remaining -= available as u64;
                if *remaining == 0 {
                    self.framing = Framing::Complete;
                    self.put_back(&raw[available..]);
                }
                plain_piece(&raw[..available])
            }
            Framing::UntilClose => plain_piece(raw),
            Framing::Complete => Piece::default(),
        }
    }

    fn put_back(&mut self, unread: &[u8]) {
        if unread.is_empty() {
            return;
        }
        let mut read_ahead = BytesMut::with_capacity(unread.len() + self.read_ahead.len());
        read_ahead.extend_from_slice(unread);
        read_ahead.extend_from_slice(&self.read_ahead);
        self.read_ahead = read_ahead.freeze();
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
