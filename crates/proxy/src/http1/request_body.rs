use super::ResponseBodyError;
use super::chunked::ChunkedDecoder;
use super::head::BodyLength;
use bytes::{Buf, Bytes};
use http::HeaderMap;
use http_body::Frame;

/// Shorter chunks that arrived together are joined, so that a body in one-byte chunks costs little more than any other
/// body.
const JOINED_BELOW: usize = 1024;

/// Decodes the body of a request into frames. A frame is a chunk, the part of a chunk that has arrived, or several
/// short chunks.
#[derive(Debug)]
pub(crate) struct RequestDecoder {
    framing: Framing,
    trailers: Option<HeaderMap>,
}

#[derive(Debug)]
enum Framing {
    Length(u64),
    Chunked(ChunkedDecoder),
}

impl RequestDecoder {
    pub fn new(length: BodyLength) -> RequestDecoder {
        RequestDecoder {
            framing: match length {
                BodyLength::Known(length) => Framing::Length(length),
                BodyLength::Chunked => Framing::Chunked(ChunkedDecoder::of_request()),
                BodyLength::UntilClose => Framing::Length(0),
            },
            trailers: None,
        }
    }

    pub fn is_complete(&self) -> bool {
        matches!(self.framing, Framing::Length(0)) && self.trailers.is_none()
    }

    /// Remaining bytes of content, if known.
    pub fn length(&self) -> Option<u64> {
        match self.framing {
            Framing::Length(length) => Some(length),
            Framing::Chunked(_) => None,
        }
    }

    /// Takes the next frame from `arrived`. `None` if more bytes must arrive or the body is complete.
    ///
    /// # Errors
    ///
    /// Returns an error if the chunked coding is invalid. Nothing after the error can be decoded.
    pub fn next_frame(
        &mut self,
        arrived: &mut Bytes,
    ) -> Result<Option<Frame<Bytes>>, ResponseBodyError> {
        match &mut self.framing {
            Framing::Length(0) => Ok(self.trailers.take().map(Frame::trailers)),
            Framing::Length(remaining) => {
                let available = usize::try_from(*remaining).unwrap_or(usize::MAX);
                let content = arrived.split_to(available.min(arrived.len()));
                *remaining -= content.len() as u64;
                Ok((!content.is_empty()).then(|| Frame::data(content)))
            }
            Framing::Chunked(chunked) => {
                let next = chunked.next_chunk(arrived)?;
                let mut content = arrived.slice(next.payload);
                let mut trailers = next.trailers;
                arrived.advance(next.consumed);
                let more = trailers.is_none() && !arrived.is_empty();
                if more && (1..JOINED_BELOW).contains(&content.len()) {
                    // An error is returned again with the next frame.
                    let (rest, _) = chunked.read_partial(arrived);
                    content = [content, rest.payload].concat().into();
                    trailers = rest.trailers;
                    arrived.advance(rest.consumed);
                }
                if let Some(trailers) = trailers {
                    self.framing = Framing::Length(0);
                    self.trailers = Some(trailers).filter(|trailers| !trailers.is_empty());
                }
                if content.is_empty() {
                    Ok(self.trailers.take().map(Frame::trailers))
                } else {
                    Ok(Some(Frame::data(content)))
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(length: BodyLength, body: &[u8], size: usize) -> (Vec<u8>, Option<HeaderMap>, Bytes) {
        let mut decoder = RequestDecoder::new(length);
        let (mut content, mut trailers, mut arrived) = (Vec::new(), None, Bytes::new());
        for piece in body.chunks(size) {
            arrived = [&arrived[..], piece].concat().into();
            while let Some(frame) = decoder.next_frame(&mut arrived).expect("good") {
                match frame.into_data() {
                    Ok(data) => content.extend_from_slice(&data),
                    Err(frame) => trailers = frame.into_trailers().ok(),
                }
            }
        }
        assert!(decoder.is_complete());
        (content, trailers, arrived)
    }

    #[test]
    fn short_chunks_that_arrived_together_are_one_frame_and_an_error_comes_behind_them() {
        let mut arrived = Bytes::from_static(b"1\r\na\r\n2\r\nbc\r\n1\r\nd\r\nx\r\n");
        let mut decoder = RequestDecoder::new(BodyLength::Chunked);
        let frame = decoder.next_frame(&mut arrived).expect("good");
        let content = frame.and_then(|frame| frame.into_data().ok());
        assert_eq!(content.as_deref(), Some(&b"abcd"[..]));
        for _ in 0..2 {
            assert!(decoder.next_frame(&mut arrived).is_err());
        }
    }

    #[test]
    fn bodies_are_the_same_however_they_are_cut() {
        const CHUNKED: &[u8] = b"5\r\nhello\r\n6;a=b\r\n world\r\n0\r\nx-sum: 7\r\n\r\nGET";
        for size in 1..=CHUNKED.len() {
            let (content, trailers, rest) = read(BodyLength::Chunked, CHUNKED, size);
            assert_eq!(content, b"hello world", "{size}");
            assert_eq!(trailers.expect("trailers")["x-sum"], "7", "{size}");
            assert_eq!(rest, &b"GET"[..], "{size}");
            let (content, _, rest) = read(BodyLength::Known(11), b"hello worldGET", size);
            assert_eq!(
                (&content[..], &rest[..]),
                (&b"hello world"[..], &b"GET"[..])
            );
        }
    }
}
