//! Compresses a body so that every chunk can be read when it arrives.

use bytes::Bytes;
use compression_codecs::flate::params::FlateEncoderParams;
use compression_codecs::{Encode, GzipEncoder};
use compression_core::Level;
use compression_core::util::PartialBuffer;
use std::io;

pub struct Gzip(GzipEncoder);

impl Gzip {
    pub fn new() -> Gzip {
        Gzip(GzipEncoder::new(FlateEncoderParams::from(Level::Default)))
    }

    pub fn chunk(&mut self, bytes: &[u8], last: bool) -> io::Result<Bytes> {
        let mut pressed = Vec::with_capacity(bytes.len() / 2 + 64);
        let mut input = PartialBuffer::new(bytes);
        while !input.unwritten().is_empty() {
            let mut output = PartialBuffer::new([0u8; 4096]);
            self.0.encode(&mut input, &mut output)?;
            pressed.extend_from_slice(output.written());
        }
        loop {
            let mut output = PartialBuffer::new([0u8; 4096]);
            let done = if last {
                self.0.finish(&mut output)?
            } else {
                self.0.flush(&mut output)?
            };
            pressed.extend_from_slice(output.written());
            if done {
                return Ok(pressed.into());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use compression_codecs::{Decode, GzipDecoder};

    fn decoded(decoder: &mut GzipDecoder, bytes: &[u8]) -> Vec<u8> {
        let mut input = PartialBuffer::new(bytes);
        let mut output = PartialBuffer::new([0u8; 8192]);
        while !input.unwritten().is_empty() {
            decoder.decode(&mut input, &mut output).expect("gzip");
        }
        output.written().to_vec()
    }

    #[test]
    fn each_chunk_can_be_read_without_the_next() {
        let (mut encoder, mut decoder) = (Gzip::new(), GzipDecoder::new());
        for n in 0..50u32 {
            let chunk = format!("data: {{\"n\":{n}}}\n\n").repeat(n as usize + 1);
            let pressed = encoder.chunk(chunk.as_bytes(), n == 49).expect("in memory");
            assert_eq!(
                decoded(&mut decoder, &pressed),
                chunk.as_bytes(),
                "chunk {n}"
            );
        }
    }
}
