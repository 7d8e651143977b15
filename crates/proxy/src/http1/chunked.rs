//! Decodes the chunked coding of a response (RFC 9112 §7.1), strictly, so that what was decoded may
//! be forwarded unchanged.

use super::ResponseBodyError;
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue};
use std::ops::Range;

/// The longest size line, extensions included.
const MAX_LINE_BYTES: usize = 4 * 1024;
/// The longest trailer section.
const MAX_TRAILER_BYTES: usize = 16 * 1024;
/// The most trailer fields, the same as in a head.
const MAX_TRAILERS: usize = 100;

/// Decodes a chunked body piece by piece.
#[derive(Debug, Default)]
pub struct ChunkedDecoder(Position);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Position {
    /// Before a size line.
    #[default]
    Size,
    /// Inside a chunk: the bytes that remain, without the line end.
    Data(u64),
    /// In the line end after a chunk: the bytes of it that remain.
    LineEnd(u8),
    /// After the last size line.
    Trailers,
}

/// The result of decoding one piece.
#[derive(Debug, Default)]
pub struct DecodedChunks {
    /// The content, without framing.
    pub payload: Bytes,
    /// Bytes that were decoded; the rest has to be passed again, together with what follows.
    pub consumed: usize,
    /// Bytes before the last size line, which may be forwarded unchanged.
    pub forwardable: usize,
    /// The trailers, once the body has ended.
    pub trailers: Option<HeaderMap>,
}

impl ChunkedDecoder {
    /// Whether the next byte is the start of a chunk.
    pub fn is_between_chunks(&self) -> bool {
        self.0 == Position::Size
    }

    /// Decodes what has arrived. An incomplete size line or trailer section is left unread.
    ///
    /// # Errors
    ///
    /// When the coding is invalid. Nothing after that place can be decoded.
    pub fn read(&mut self, raw: &[u8]) -> Result<DecodedChunks, ResponseBodyError> {
        let (read, error) = self.read_partial(raw);
        error.map_or(Ok(read), Err)
    }

    /// The same, but also returns what precedes an error.
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
        if self.0 != Position::Trailers {
            read.forwardable = at;
        }
        read.consumed = at;
        read.payload = payload.bytes();
        (read, error)
    }

    /// Decodes one element at `at`; `false` when there is nothing more to decode.
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
        match self.0 {
            Position::Size => {
                let Some((size, length)) = size_line(&raw[*at..])? else {
                    return Ok(false);
                };
                self.0 = if size == 0 {
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
                self.0 = match remaining - available as u64 {
                    0 => Position::LineEnd(2),
                    remaining => Position::Data(remaining),
                };
            }
            Position::LineEnd(remaining) => {
                let expected = if remaining == 2 { b'\r' } else { b'\n' };
                if *next != expected {
                    return Err(ResponseBodyError::InvalidChunk);
                }
                *at += 1;
                self.0 = if remaining == 2 {
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

/// Collects the content of a piece, which is usually one run of bytes.
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

/// The chunk size, and the length of the size line; `None` if the line is incomplete.
fn size_line(raw: &[u8]) -> Result<Option<(u64, usize)>, ResponseBodyError> {
    let Some(end) = memchr::memchr(b'\n', raw) else {
        return if raw.len() > MAX_LINE_BYTES {
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
    let digits = line
        .iter()
        .take_while(|byte| byte.is_ascii_hexdigit())
        .count();
    if digits == 0 || digits > 16 {
        return Err(ResponseBodyError::InvalidChunk);
    }
    let size = line[..digits].iter().fold(0u64, |size, digit| {
        size << 4 | u64::from((*digit as char).to_digit(16).unwrap_or_default())
    });
    // Here whitespace is spaces and tabs, not carriage returns.
    let blank = |byte: &&u8| matches!(byte, b' ' | b'\t');
    let extension = &line[digits + line[digits..].iter().take_while(blank).count()..];
    let valid = extension.is_empty() || extension[0] == b';';
    if !valid || extension.iter().any(|byte| *byte < b' ' && *byte != b'\t') {
        return Err(ResponseBodyError::InvalidChunk);
    }
    Ok(Some((size, end + 1)))
}

/// The trailer section and its length; `None` if it is incomplete.
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

/// Whether a line ends in a bare line feed, which not every parser takes for a line end.
fn has_bare_line_feed(raw: &[u8]) -> bool {
    memchr::memchr_iter(b'\n', raw).any(|at| at == 0 || raw[at - 1] != b'\r')
}

#[cfg(test)]
mod tests {
    use super::*;

    const BODY: &[u8] =
        b"5\r\nhello\r\n1;quality=\"high\"\r\n \r\n000A  \r\n0123456789\r\n00\r\nx-sum: 7\r\n\r\n";
    const CONTENT: &[u8] = b"hello 0123456789";

    #[derive(Default)]
    struct Decoded {
        payload: Vec<u8>,
        forwarded: Vec<u8>,
        trailers: Option<HeaderMap>,
    }

    /// Decodes a body that arrives in pieces; keeps what is left unread for the next piece.
    fn decode_pieces<'a>(
        pieces: impl Iterator<Item = &'a [u8]>,
    ) -> Result<Decoded, ResponseBodyError> {
        let (mut chunked, mut unread) = (ChunkedDecoder::default(), Vec::new());
        let mut decoded = Decoded::default();
        for piece in pieces {
            unread.extend_from_slice(piece);
            let read = chunked.read(&unread)?;
            decoded.payload.extend_from_slice(&read.payload);
            decoded
                .forwarded
                .extend_from_slice(&unread[..read.forwardable]);
            unread.drain(..read.consumed);
            decoded.trailers = decoded.trailers.or(read.trailers);
        }
        Ok(decoded)
    }

    #[test]
    fn a_body_cut_anywhere_decodes_the_same_and_is_forwarded_unchanged() {
        for cut in 0..=BODY.len() {
            let (one, other) = BODY.split_at(cut);
            let decoded = decode_pieces([one, other].into_iter()).expect("good");
            assert_eq!(decoded.payload, CONTENT, "{cut}");
            assert!(BODY.starts_with(&decoded.forwarded), "{cut}");
            assert!(decoded.forwarded.ends_with(b"0123456789\r\n"), "{cut}");
            assert_eq!(decoded.trailers.expect("over")["x-sum"], "7", "{cut}");
        }
        let decoded = decode_pieces(BODY.chunks(1)).expect("good");
        assert_eq!(decoded.payload, CONTENT);
    }

    #[test]
    fn ambiguous_codings_are_rejected() {
        for body in [
            &b"5\nhello\r\n"[..],
            b"\r\n5\r\nhello\r\n",
            b"+5\r\nhello\r\n",
            b"0x5\r\nhello\r\n",
            b"-1\r\n",
            b"5 5\r\nhello\r\n",
            b"5;a=\rb\r\nhello\r\n",
            b"5\r\r\nhello\r\n",
            b"5\x0c\r\nhello\r\n",
            b"5\r\nhelloX\n",
            b"5\r\nhello\n\n",
            b"11111111111111111\r\n",
            b"0\r\nno colon\r\n\r\n",
            b"0\r\nx: y\n\r\n",
            b"0\r\n\n",
        ] {
            assert!(
                decode_pieces([body].into_iter()).is_err(),
                "{:?}",
                String::from_utf8_lossy(body)
            );
        }
    }

    #[test]
    fn endless_lines_and_trailers_are_rejected() {
        let line = [b"5;".as_slice(), &[b'a'; MAX_LINE_BYTES]].concat();
        assert!(decode_pieces(line.chunks(100)).is_err());
        let trailers = [b"0\r\nx: ".as_slice(), &[b'a'; MAX_TRAILER_BYTES]].concat();
        assert!(decode_pieces(trailers.chunks(100)).is_err());
    }

    #[test]
    fn bytes_after_the_end_are_not_consumed() {
        let read = ChunkedDecoder::default()
            .read(b"1\r\na\r\n0\r\n\r\nHTTP/1.1")
            .expect("good");
        assert_eq!((read.consumed, read.forwardable), (11, 6));
        assert!(read.trailers.is_some());
    }
}
