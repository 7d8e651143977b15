//! Collects bytes until a head is complete. A head usually arrives in one piece and is parsed in the thread's read
//! buffer. Only leftover bytes are stored.

use super::head::HeadError;
use bytes::{Bytes, BytesMut};

#[derive(Debug, Default)]
pub(crate) struct HeadBuffer {
    bytes: BytesMut,
    /// No head ends before this position.
    searched: usize,
}

impl HeadBuffer {
    pub fn new(bytes: &[u8]) -> HeadBuffer {
        HeadBuffer {
            bytes: BytesMut::from(bytes),
            searched: 0,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub fn take(&mut self) -> Bytes {
        self.searched = 0;
        std::mem::take(&mut self.bytes).freeze()
    }

    /// Adds received bytes and calls `parse`, which returns a complete head and its length. Bytes after the head are
    /// kept.
    ///
    /// # Errors
    /// Errors of `parse`, or [`HeadError::TooLarge`] if more than `max_bytes` hold no complete head.
    pub fn read<H>(
        &mut self,
        came: &[u8],
        max_bytes: usize,
        parse: impl FnOnce(&[u8]) -> Result<Option<(H, usize)>, HeadError>,
    ) -> Result<Option<H>, HeadError> {
        if self.bytes.is_empty() {
            if came.is_empty() {
                return Ok(None);
            }
            if let Some((head, length)) = parse(came)? {
                *self = HeadBuffer::new(&came[length..]);
                return Ok(Some(head));
            }
            *self = HeadBuffer::new(came);
        } else {
            self.bytes.extend_from_slice(came);
            // Parsing all bytes again for each piece would take quadratic time.
            if ends_head(&self.bytes[self.searched..])
                && let Some((head, length)) = parse(&self.bytes)?
            {
                *self = HeadBuffer::new(&self.bytes[length..]);
                return Ok(Some(head));
            }
        }
        if self.bytes.len() >= max_bytes {
            return Err(HeadError::TooLarge);
        }
        self.searched = self.bytes.len().saturating_sub(3);
        Ok(None)
    }
}

fn ends_head(bytes: &[u8]) -> bool {
    memchr::memchr_iter(b'\n', bytes).any(|end| {
        let rest = &bytes[end + 1..];
        rest.starts_with(b"\n") || rest.starts_with(b"\r\n")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(bytes: &[u8]) -> Result<Option<(Vec<u8>, usize)>, HeadError> {
        let end = bytes.windows(4).position(|four| four == b"\r\n\r\n");
        Ok(end.map(|end| (bytes[..end].to_vec(), end + 4)))
    }

    #[test]
    fn heads_are_found_however_they_are_cut_and_what_follows_is_kept() {
        const SENT: &[u8] = b"one\r\nx: y\r\n\r\nrest";
        for cut in 0..=SENT.len() {
            let mut buffer = HeadBuffer::default();
            let mut heads = Vec::new();
            for piece in [&SENT[..cut], &SENT[cut..]] {
                if heads.is_empty() {
                    heads.extend(buffer.read(piece, 100, line).expect("small"));
                } else {
                    buffer.bytes.extend_from_slice(piece);
                }
            }
            assert_eq!(heads, [b"one\r\nx: y"], "{cut}");
            assert_eq!(buffer.take(), &b"rest"[..], "{cut}");
        }
        let (mut buffer, mut heads) = (HeadBuffer::default(), Vec::new());
        for byte in SENT[..SENT.len() - 4].chunks(1) {
            heads.extend(buffer.read(byte, 100, line).expect("small"));
        }
        assert_eq!(heads, [b"one\r\nx: y"], "byte by byte");
    }

    #[test]
    fn a_head_without_end_is_refused() {
        let mut buffer = HeadBuffer::default();
        assert_eq!(buffer.read(&[b'a'; 60], 100, line), Ok(None));
        assert_eq!(
            buffer.read(&[b'a'; 60], 100, line),
            Err(HeadError::TooLarge)
        );
    }
}
