//! Frames message bodies that are written (RFC 9112 §6, §7).

use super::write_buffer::{CHUNK_END, COPY, WriteBuffer};
use crate::headers::is_response_trailer;
use bytes::Bytes;
use http::header::TRAILER;
use http::{HeaderMap, HeaderName};

#[derive(Debug)]
pub(crate) enum BodyEncoder {
    Length(u64),
    /// Chunked, with trailers of these names.
    Chunked(Vec<HeaderName>),
    /// Unframed. The close of the connection ends the body.
    UntilClose,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the body is shorter than its head says")]
pub(crate) struct BodyTooShort;

impl BodyEncoder {
    pub fn chunked(headers: &HeaderMap) -> BodyEncoder {
        let lines = headers.get_all(TRAILER).iter();
        let names = lines
            .filter_map(|line| line.to_str().ok())
            .flat_map(|line| line.split(','))
            .filter_map(|name| HeaderName::from_bytes(name.trim().as_bytes()).ok());
        BodyEncoder::Chunked(names.filter(is_response_trailer).collect())
    }

    pub fn is_chunked(&self) -> bool {
        matches!(self, BodyEncoder::Chunked(_))
    }

    pub fn is_until_close(&self) -> bool {
        matches!(self, BodyEncoder::UntilClose)
    }

    pub fn is_done(&self) -> bool {
        matches!(self, BodyEncoder::Length(0))
    }

    /// How many bytes of content will be copied after the head, if known.
    pub fn copied_bytes(&self) -> usize {
        match self {
            BodyEncoder::Length(length) => {
                usize::try_from(*length).map_or(0, |length| match length {
                    0..=COPY => length,
                    _ => 0,
                })
            }
            BodyEncoder::Chunked(_) | BodyEncoder::UntilClose => 0,
        }
    }

    /// Writes content. Bytes beyond the announced length are dropped.
    pub fn data(&mut self, mut content: Bytes, out: &mut WriteBuffer) {
        if content.is_empty() {
            return;
        }
        match self {
            BodyEncoder::Length(left) => {
                let here = usize::try_from(*left).unwrap_or(usize::MAX);
                content.truncate(here);
                *left -= content.len() as u64;
                out.push(content, b"");
            }
            BodyEncoder::Chunked(_) => {
                write_size(content.len(), out.text());
                out.push(content, CHUNK_END);
            }
            BodyEncoder::UntilClose => out.push(content, b""),
        }
    }

    /// Writes the end with the announced trailers.
    ///
    /// # Errors
    /// [`BodyTooShort`] if the body is shorter than announced.
    pub fn end(
        &mut self,
        trailers: Option<&HeaderMap>,
        out: &mut WriteBuffer,
    ) -> Result<(), BodyTooShort> {
        match std::mem::replace(self, BodyEncoder::Length(0)) {
            BodyEncoder::Length(0) | BodyEncoder::UntilClose => Ok(()),
            BodyEncoder::Length(_) => Err(BodyTooShort),
            BodyEncoder::Chunked(announced) => {
                let fields = trailers.into_iter().flatten();
                let fields = fields.filter(|(name, _)| announced.contains(name));
                let mut fields = fields.peekable();
                if fields.peek().is_none() {
                    out.push_last_chunk();
                    return Ok(());
                }
                let text = out.text();
                text.extend_from_slice(b"0\r\n");
                for (name, value) in fields {
                    text.extend_from_slice(name.as_str().as_bytes());
                    text.extend_from_slice(b": ");
                    text.extend_from_slice(value.as_bytes());
                    text.extend_from_slice(b"\r\n");
                }
                text.extend_from_slice(b"\r\n");
                Ok(())
            }
        }
    }
}

fn write_size(size: usize, text: &mut Vec<u8>) {
    let digits = size.checked_ilog(16).unwrap_or(0) + 1;
    for digit in (0..digits).rev() {
        text.push(b"0123456789ABCDEF"[(size >> (4 * digit)) & 0xf]);
    }
    text.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_of_a_chunk_is_hexadecimal() {
        for size in [0, 1, 9, 10, 15, 16, 255, 256, 4096, 0xDEAD_BEEF, usize::MAX] {
            let mut text = Vec::new();
            write_size(size, &mut text);
            assert_eq!(text, format!("{size:X}\r\n").into_bytes());
        }
    }
    use http::HeaderValue;

    fn written(out: &mut WriteBuffer) -> String {
        String::from_utf8(std::mem::take(out.text())).expect("text")
    }

    #[test]
    fn chunks_and_announced_trailers_are_written() {
        let mut headers = HeaderMap::new();
        headers.insert(TRAILER, HeaderValue::from_static("X-Sum, content-length"));
        let (mut encoder, mut out) = (BodyEncoder::chunked(&headers), WriteBuffer::default());
        encoder.data(Bytes::from_static(b"hello world"), &mut out);
        encoder.data(Bytes::new(), &mut out);
        let mut trailers = HeaderMap::new();
        for name in ["x-sum", "content-length", "x-other"] {
            trailers.insert(name, HeaderValue::from_static("7"));
        }
        encoder.end(Some(&trailers), &mut out).expect("whole");
        assert_eq!(
            written(&mut out),
            "B\r\nhello world\r\n0\r\nx-sum: 7\r\n\r\n"
        );
        assert!(encoder.is_done());
    }

    #[test]
    fn a_length_is_kept_to() {
        let (mut encoder, mut out) = (BodyEncoder::Length(4), WriteBuffer::default());
        encoder.data(Bytes::from_static(b"abc"), &mut out);
        assert!(!encoder.is_done());
        encoder.data(Bytes::from_static(b"defg"), &mut out);
        assert!(encoder.is_done());
        assert_eq!(written(&mut out), "abcd");
        let mut short = BodyEncoder::Length(4);
        assert_eq!(short.end(None, &mut out), Err(BodyTooShort));
    }
}
