//! Decodes the content encodings of a copy of the body, incrementally, with a fixed buffer and a
//! limit. The forwarded bytes stay compressed.

mod brotli;
mod codec;

use super::{DecodeError, Limits};
use brotli::Brotli;
use codec::{Codec, Deflate, Zstd};
use compression_codecs::{DeflateDecoder, GzipDecoder, ZlibDecoder};
use compression_core::util::{PartialBuffer, WriteBuffer};
use std::sync::Arc;
use tokengauge_core::memory::{Memory, Share};

const OUTPUT_BYTES: usize = 16 * 1024;
/// Maximum compression ratio. Event streams compress 5 to 50 times, so a body above this ratio is a
/// decompression bomb. Checked once it is longer than `FREE_BYTES`.
const MAX_RATIO: u64 = 250;
/// The number of decompressed bytes up to which the ratio is not checked.
const FREE_BYTES: u64 = 4 << 20;
const MAX_STAGES: usize = 3;

pub(super) type Output<'a> = &'a mut dyn FnMut(&[u8]) -> Result<(), DecodeError>;

/// The decoders of one encoded body, outermost encoding first.
pub(super) struct Encoding {
    stages: Vec<Stage>,
    input: u64,
    output: u64,
    limit: u64,
}

impl Encoding {
    /// The decoders for a `content-encoding`. `None` if the body is not encoded.
    pub(super) fn new(
        names: Option<&str>,
        limits: &Limits,
        memory: &Arc<Memory>,
    ) -> Result<Option<Self>, DecodeError> {
        let mut stages = Vec::new();
        for name in names.unwrap_or_default().split(',').rev() {
            stages.extend(Stage::new(name.trim(), memory)?);
        }
        if stages.len() > MAX_STAGES {
            return Err(DecodeError::Encoding);
        }
        Ok((!stages.is_empty()).then_some(Encoding {
            stages,
            input: 0,
            output: 0,
            limit: limits.decoded_bytes,
        }))
    }

    pub(super) fn push(&mut self, bytes: &[u8], out: Output<'_>) -> Result<(), DecodeError> {
        self.input += bytes.len() as u64;
        let allowed = self
            .limit
            .min(FREE_BYTES + MAX_RATIO.saturating_mul(self.input));
        let output = &mut self.output;
        run(
            &mut self.stages,
            bytes,
            &mut |decoded| {
                *output = output.saturating_add(decoded as u64);
                if *output > allowed {
                    return Err(DecodeError::TooLarge);
                }
                Ok(())
            },
            out,
        )
    }
}

/// Passes bytes through all stages, outermost first. Calls `count` with the number of bytes that
/// each stage returned.
fn run(
    stages: &mut [Stage],
    bytes: &[u8],
    count: &mut dyn FnMut(usize) -> Result<(), DecodeError>,
    out: Output<'_>,
) -> Result<(), DecodeError> {
    match stages.split_first_mut() {
        None => out(bytes),
        Some((outer, inner)) => outer.push(bytes, &mut |decoded| {
            count(decoded.len())?;
            run(inner, decoded, count, out)
        }),
    }
}

pub(super) struct Stage {
    codec: Coding,
    buffer: Box<[u8]>,
    memory: Arc<Memory>,
    share: Share,
    ended: bool,
    /// Whether a complete body was decoded. Further bytes may be padding, which is ignored.
    whole: bool,
    trailing: bool,
}

enum Coding {
    Ready(Box<dyn Codec>),
    /// `deflate`: zlib by the standard, but raw from some servers. The first two bytes decide.
    Deflate(Option<u8>),
}

impl Stage {
    fn new(name: &str, memory: &Arc<Memory>) -> Result<Option<Self>, DecodeError> {
        let codec: Box<dyn Codec> = match name.to_ascii_lowercase().as_str() {
            "" | "identity" => return Ok(None),
            "deflate" => return Ok(Some(Stage::with(Coding::Deflate(None), memory))),
            "gzip" | "x-gzip" => Box::new(Deflate::new(GzipDecoder::new(), memory)),
            "br" => Box::new(Brotli::new(memory)),
            "zstd" => Box::new(Zstd::new(memory)?),
            _ => return Err(DecodeError::Encoding),
        };
        Ok(Some(Stage::with(Coding::Ready(codec), memory)))
    }

    /// A decoder of raw deflate, as WebSocket's `permessage-deflate` uses it.
    pub(super) fn raw_deflate(memory: &Arc<Memory>) -> Self {
        let codec = Box::new(Deflate::new(DeflateDecoder::new(), memory));
        Stage::with(Coding::Ready(codec), memory)
    }

    fn with(codec: Coding, memory: &Arc<Memory>) -> Self {
        Stage {
            codec,
            buffer: Box::default(),
            memory: Arc::clone(memory),
            share: Share::empty(memory),
            ended: false,
            whole: false,
            trailing: false,
        }
    }

    /// Decodes the next bytes. Bytes after a complete body are another member or frame, or padding,
    /// which is ignored.
    pub(super) fn push(&mut self, bytes: &[u8], out: Output<'_>) -> Result<(), DecodeError> {
        if self.trailing || bytes.is_empty() {
            return Ok(());
        }
        if self.buffer.is_empty() {
            if !self.share.resize(OUTPUT_BYTES) {
                return Err(DecodeError::Memory);
            }
            self.buffer = vec![0; OUTPUT_BYTES].into_boxed_slice();
        }
        let Coding::Deflate(held) = &mut self.codec else {
            return self.decode(bytes, out);
        };
        let first = held.take();
        match first.map_or(bytes, |_| &bytes[..1]) {
            [second] | [_, second, ..] => {
                let first_byte = first.unwrap_or(bytes[0]);
                if first.is_none() && bytes.len() == 1 {
                    *held = Some(first_byte);
                    return Ok(());
                }
                self.codec = Coding::Ready(deflate(first_byte, *second, &self.memory));
                if first.is_some() {
                    self.decode(&[first_byte], out)?;
                }
                self.decode(bytes, out)
            }
            [] => Ok(()),
        }
    }

    fn decode(&mut self, bytes: &[u8], out: Output<'_>) -> Result<(), DecodeError> {
        let Coding::Ready(codec) = &mut self.codec else {
            return Err(DecodeError::Encoding);
        };
        let mut input = PartialBuffer::new(bytes);
        loop {
            if self.ended {
                if input.unwritten().is_empty() {
                    return Ok(());
                }
                codec.reinit()?;
            }
            let mut output = WriteBuffer::new_initialized(&mut self.buffer);
            let drained = input.unwritten().is_empty();
            let done = match codec.decode(&mut input, &mut output) {
                Ok(done) => done,
                Err(DecodeError::Memory) => return Err(DecodeError::Memory),
                // Without input, an error only means that nothing is left to return.
                Err(_) if drained => return Ok(()),
                Err(_) if self.whole => {
                    self.trailing = true;
                    return Ok(());
                }
                Err(error) => return Err(error),
            };
            let (full, written) = (output.has_no_spare_space(), output.written_len());
            self.ended = done;
            self.whole |= done;
            out(&self.buffer[..written])?;
            if !done && !full && input.unwritten().is_empty() {
                return Ok(());
            }
        }
    }
}

/// Chooses between zlib and raw deflate. By RFC 1950, the low four bits of the first byte are 8,
/// and both bytes as a number are divisible by 31. About one in a thousand raw deflate bodies
/// begins like that.
fn deflate(first: u8, second: u8, memory: &Arc<Memory>) -> Box<dyn Codec> {
    let header = u16::from(first) << 8 | u16::from(second);
    if first & 0x0f == 8 && first >> 4 <= 7 && header % 31 == 0 {
        Box::new(Deflate::new(ZlibDecoder::new(), memory))
    } else {
        Box::new(Deflate::new(DeflateDecoder::new(), memory))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Raw deflate: one stored block, the last one, with the content `hi`.
    const BODY: &[u8] = b"\x01\x02\0\xfd\xffhi";

    fn decoded(body: &[u8], cut: usize) -> Result<Vec<u8>, DecodeError> {
        let mut encoding =
            Encoding::new(Some("deflate"), &Limits::default(), &Memory::unbounded())?
                .expect("decoders");
        let mut all = Vec::new();
        for piece in body.chunks(cut) {
            encoding.push(piece, &mut |bytes| {
                all.extend_from_slice(bytes);
                Ok(())
            })?;
        }
        Ok(all)
    }

    #[test]
    fn what_follows_a_whole_body_and_is_no_other_is_left_alone_however_it_is_cut() {
        // The first byte of the padding could begin another body.
        let trailed = [BODY, b"\0\x01\x02\x03\x04 no deflate"].concat();
        for cut in 1..trailed.len() {
            assert_eq!(decoded(&trailed, cut), Ok(b"hi".to_vec()), "cut by {cut}");
        }
        for cut in 1..BODY.len() {
            assert_eq!(
                decoded(&[BODY, BODY].concat(), cut),
                Ok(b"hihi".to_vec()),
                "cut by {cut}"
            );
        }
        assert_eq!(
            decoded(b"\0\x01\x02\x03\x04", 1),
            Err(DecodeError::Encoding)
        );
    }
}
