//! Decodes the chunked coding (RFC 9112 §7.1) strictly, so that decoded bytes may be forwarded unchanged.

use super::ResponseBodyError;
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue};
use std::ops::Range;

/// Maximum bytes of a size line, including extensions.
const MAX_LINE_BYTES: usize = 4 * 1024;
const MAX_TRAILER_BYTES: usize = 16 * 1024;
/// Maximum total bytes of chunk extensions in a request body, as with hyper. Extensions cost work and carry no content.
const MAX_EXTENSION_BYTES: usize = 16 * 1024;
const MAX_SIZE_DIGITS: usize = 16;
const PLAIN_LINE_BYTES: usize = MAX_SIZE_DIGITS + 2;
/// Maximum number of trailer fields, equal to the limit in a head.
const MAX_TRAILERS: usize = 100;

#[derive(Debug, Default)]
pub struct ChunkedDecoder {
    position: Position,
    /// Remaining bytes for extensions. `None` for no limit.
    extensions_left: Option<usize>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Position {
    #[default]
    Size,
    /// Inside a chunk: remaining bytes, without the line end.
    Data(u64),
    /// In the line end after a chunk: remaining bytes of the line end.
    LineEnd(u8),
    Trailers,
}

#[derive(Debug, Default)]
pub(crate) struct NextChunk {
    pub payload: Range<usize>,
    /// Decoded bytes. The rest must be passed again with the bytes that follow.
    pub consumed: usize,
    pub trailers: Option<HeaderMap>,
}

#[derive(Debug, Default)]
pub struct DecodedChunks {
    pub payload: Bytes,
    pub consumed: usize,
    /// Bytes before the last size line, which may be forwarded unchanged.
    pub forwardable: usize,
    pub trailers: Option<HeaderMap>,
}

impl ChunkedDecoder {
    /// Decodes a request body and limits its extensions.
    pub(crate) fn of_request() -> ChunkedDecoder {
        ChunkedDecoder {
            position: Position::default(),
            extensions_left: Some(MAX_EXTENSION_BYTES),
        }
    }

    /// Decodes one chunk, or the part of it that has arrived, and the end of the body if it follows immediately.
    pub(crate) fn next_chunk(&mut self, raw: &[u8]) -> Result<NextChunk, ResponseBodyError> {
        let mut read = DecodedChunks::default();
        let mut payload = Payload::new(raw);
        let mut at = 0;
        while self.step(raw, &mut at, &mut read, &mut payload)? {
            if !payload.first.is_empty() && self.is_before_next_chunk(&raw[at..]) {
                break;
            }
        }
        Ok(NextChunk {
            payload: payload.first,
            consumed: at,
            trailers: read.trailers,
        })
    }

    fn is_before_next_chunk(&self, raw: &[u8]) -> bool {
        let last = || matches!(size_line(raw), Ok(Some((0, _))));
        self.is_between_chunks() && !last()
    }

    pub fn is_between_chunks(&self) -> bool {
        self.position == Position::Size
    }

    /// Decodes the bytes that have arrived, except an incomplete size line or trailer section.
    ///
    /// # Errors
    ///
    /// Returns an error if the coding is invalid. Nothing after the error can be decoded.
    pub fn read(&mut self, raw: &[u8]) -> Result<DecodedChunks, ResponseBodyError> {
        let (read, error) = self.read_partial(raw);
        error.map_or(Ok(read), Err)
    }

    /// Like [`ChunkedDecoder::read`], but also returns the data before an error.
    pub(super) fn read_partial(
        &mut self,
        raw: &[u8],
    ) -> (DecodedChunks, Option<ResponseBodyError>) {
        let mut read = DecodedChunks::default();
        let mut payload = Payload::new(raw);
        let mut at = 0;
        let error = loop {
            match self.step(raw, &mut at, &mut read, &mut payload) {
                Ok(true) => {}
                Ok(false) => break None,
                Err(error) => break Some(error),
            }
        };
        if self.position != Position::Trailers {
            read.forwardable = at;
        }
        read.consumed = at;
        read.payload = payload.bytes();
        (read, error)
    }

    fn spend_on_extensions(&mut self, line: usize) -> Result<(), ResponseBodyError> {
        if let Some(left) = &mut self.extensions_left {
            let more = line.saturating_sub(PLAIN_LINE_BYTES);
            *left = left
                .checked_sub(more)
                .ok_or(ResponseBodyError::InvalidChunk)?;
        }
        Ok(())
    }

    /// Decodes one element at `at`. Returns `false` if nothing more can be decoded.
    fn step(
        &mut self,
        raw: &[u8],
        at: &mut usize,
        read: &mut DecodedChunks,
        payload: &mut Payload<'_>,
    ) -> Result<bool, ResponseBodyError> {
        let Some(next) = raw.get(*at) else {
            return Ok(false);
        };
        match self.position {
            Position::Size => {
                let Some((size, length)) = size_line(&raw[*at..])? else {
                    return Ok(false);
                };
                self.spend_on_extensions(length)?;
                self.position = if size == 0 {
                    read.forwardable = *at;
                    Position::Trailers
                } else {
                    Position::Data(size)
                };
                *at += length;
            }
            Position::Data(remaining) => {
                let available =
                    (raw.len() - *at).min(usize::try_from(remaining).unwrap_or(usize::MAX));
                payload.add(*at..*at + available);
                *at += available;
                let remaining = remaining - available as u64;
                self.position = if remaining > 0 {
                    Position::Data(remaining)
                } else if raw[*at..].starts_with(b"\r\n") {
                    *at += 2;
                    Position::Size
                } else {
                    Position::LineEnd(2)
                };
            }
            Position::LineEnd(remaining) => {
                let expected = if remaining == 2 { b'\r' } else { b'\n' };
                if *next != expected {
                    return Err(ResponseBodyError::InvalidChunk);
                }
                *at += 1;
                self.position = if remaining == 2 {
                    Position::LineEnd(1)
                } else {
                    Position::Size
                };
            }
            Position::Trailers => {
                if let Some((trailers, length)) = trailers(&raw[*at..])? {
                    *at += length;
                    read.trailers = Some(trailers);
                }
                return Ok(false);
            }
        }
        Ok(true)
    }
}

struct Payload<'a> {
    raw: &'a [u8],
    first: Range<usize>,
    joined: BytesMut,
}

impl<'a> Payload<'a> {
    fn new(raw: &'a [u8]) -> Payload<'a> {
        Payload {
            raw,
            first: 0..0,
            joined: BytesMut::new(),
        }
    }

    fn add(&mut self, run: Range<usize>) {
        if self.first.is_empty() {
            self.first = run;
            return;
        }
        if self.joined.is_empty() {
            self.joined.reserve(self.raw.len() - self.first.start);
            self.joined.extend_from_slice(&self.raw[self.first.clone()]);
        }
        self.joined.extend_from_slice(&self.raw[run]);
    }

    fn bytes(self) -> Bytes {
        if self.joined.is_empty() {
            Bytes::copy_from_slice(&self.raw[self.first])
        } else {
            self.joined.freeze()
        }
    }
}

/// Returns the chunk size and the length of the size line. `None` if the line is incomplete.
fn size_line(raw: &[u8]) -> Result<Option<(u64, usize)>, ResponseBodyError> {
    let plain = plain_size_line(raw);
    if plain.is_some() {
        return Ok(plain);
    }
    let Some(end) = memchr::memchr(b'\n', raw) else {
        return if raw.len() > MAX_LINE_BYTES + 1 {
            Err(ResponseBodyError::InvalidChunk)
        } else {
            Ok(None)
        };
    };
    let line = raw[..end]
        .strip_suffix(b"\r")
        .ok_or(ResponseBodyError::InvalidChunk)?;
    if line.len() > MAX_LINE_BYTES {
        return Err(ResponseBodyError::InvalidChunk);
    }
    let (size, digits) = hexadecimal(line);
    if digits == 0 {
        return Err(ResponseBodyError::InvalidChunk);
    }
    // Whitespace means spaces and tabs here, not carriage returns.
    let blank = |byte: &&u8| matches!(byte, b' ' | b'\t');
    let extension = &line[digits + line[digits..].iter().take_while(blank).count()..];
    let valid = extension.is_empty() || extension[0] == b';';
    if !valid || extension.iter().any(|byte| *byte < b' ' && *byte != b'\t') {
        return Err(ResponseBodyError::InvalidChunk);
    }
    Ok(Some((size, end + 1)))
}

/// A fast path for a size line without extensions. `None` for any other line.
fn plain_size_line(raw: &[u8]) -> Option<(u64, usize)> {
    let (size, digits) = hexadecimal(raw);
    (digits > 0 && raw[digits..].starts_with(b"\r\n")).then_some((size, digits + 2))
}

/// Parses up to [`MAX_SIZE_DIGITS`] leading digits. Returns the number and how many digits it has.
fn hexadecimal(text: &[u8]) -> (u64, usize) {
    let digits = text.iter().take(MAX_SIZE_DIGITS);
    let digits = digits.map_while(|digit| char::from(*digit).to_digit(16));
    digits.fold((0, 0), |(size, digits), digit| {
        (size << 4 | u64::from(digit), digits + 1)
    })
}

/// Returns the trailer section and its length. `None` if it is incomplete.
fn trailers(raw: &[u8]) -> Result<Option<(HeaderMap, usize)>, ResponseBodyError> {
    if raw.starts_with(b"\r\n") {
        return Ok(Some((HeaderMap::new(), 2)));
    }
    let mut fields = [httparse::EMPTY_HEADER; MAX_TRAILERS];
    match httparse::parse_headers(raw, &mut fields)
        .map_err(|_| ResponseBodyError::InvalidTrailers)?
    {
        httparse::Status::Partial if raw.len() > MAX_TRAILER_BYTES => {
            Err(ResponseBodyError::InvalidTrailers)
        }
        httparse::Status::Partial => Ok(None),
        httparse::Status::Complete((length, _)) if length > MAX_TRAILER_BYTES => {
            Err(ResponseBodyError::InvalidTrailers)
        }
        httparse::Status::Complete((length, _)) if has_bare_line_feed(&raw[..length]) => {
            Err(ResponseBodyError::InvalidTrailers)
        }
        httparse::Status::Complete((length, fields)) => {
            let mut map = HeaderMap::with_capacity(fields.len());
            for field in fields {
                let name = HeaderName::from_bytes(field.name.as_bytes());
                let value = HeaderValue::from_bytes(field.value);
                let (Ok(name), Ok(value)) = (name, value) else {
                    return Err(ResponseBodyError::InvalidTrailers);
                };
                map.append(name, value);
            }
            Ok(Some((map, length)))
        }
    }
}

/// Whether a line ends in a bare line feed, which not every parser accepts as a line end.
fn has_bare_line_feed(raw: &[u8]) -> bool {
    memchr::memchr_iter(b'\n', raw).any(|at| at == 0 || raw[at - 1] != b'\r')
}

#[cfg(test)]
mod tests;
