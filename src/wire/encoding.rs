//! Undoes content encodings on the copy: incrementally, in a fixed buffer, and
//! only up to a bound. The traffic keeps its compressed bytes.

use super::{Broken, Limits};
use compression_codecs::zstd::params::DParameter;
use compression_codecs::{
    BrotliDecoder, DecodeV2, DeflateDecoder, GzipDecoder, ZlibDecoder, ZstdDecoder,
};
use compression_core::util::{PartialBuffer, WriteBuffer};

/// What one call of a decompressor may give at most.
const OUTPUT_BYTES: usize = 16 * 1024;
/// RFC 8878 and RFC 9659: a decoder of `zstd` as a content encoding needs 8 MB.
const ZSTD_WINDOW_LOG: u32 = 23;
/// Event streams shrink 5 to 50 times. A body over this ratio is a bomb, once it
/// is over `FREE_BYTES`.
const MAX_RATIO: u64 = 250;
/// What may come out whatever went in.
const FREE_BYTES: u64 = 4 << 20;
/// More encodings on top of each other than this are refused.
const MAX_STAGES: usize = 3;

/// Takes decoded bytes as they come.
pub(super) type Output<'a> = &'a mut dyn FnMut(&[u8]) -> Result<(), Broken>;

/// The decoders of one body that is encoded, outermost encoding first.
pub(super) struct Encoding {
    stages: Vec<Stage>,
    input: u64,
    output: u64,
    limit: u64,
}

impl Encoding {
    /// The decoders for a `content-encoding` as sent; `None` where bytes pass as they are.
    pub(super) fn new(names: Option<&str>, limits: &Limits) -> Result<Option<Self>, Broken> {
        let mut stages = Vec::new();
        for name in names.unwrap_or_default().split(',').rev() {
            stages.extend(Stage::new(name.trim())?);
        }
        if stages.len() > MAX_STAGES {
            return Err(Broken::Encoding);
        }
        Ok((!stages.is_empty()).then_some(Encoding {
            stages,
            input: 0,
            output: 0,
            limit: limits.decoded_bytes,
        }))
    }

    /// Decodes the next bytes.
    pub(super) fn push(&mut self, bytes: &[u8], out: Output<'_>) -> Result<(), Broken> {
        self.input += bytes.len() as u64;
        let allowed = self
            .limit
            .min(FREE_BYTES + MAX_RATIO.saturating_mul(self.input));
        let output = &mut self.output;
        run(&mut self.stages, bytes, &mut |decoded| {
            *output += decoded.len() as u64;
            if *output > allowed {
                return Err(Broken::TooLarge);
            }
            out(decoded)
        })
    }
}

fn run(stages: &mut [Stage], bytes: &[u8], out: Output<'_>) -> Result<(), Broken> {
    match stages.split_first_mut() {
        None => out(bytes),
        Some((outer, inner)) => outer.push(bytes, &mut |decoded| run(inner, decoded, out)),
    }
}

/// One decoder.
pub(super) struct Stage {
    codec: Codec,
    buffer: Box<[u8]>,
    ended: bool,
    /// A whole body has come: what follows may be no other, and then it is left alone.
    whole: bool,
    trailing: bool,
}

enum Codec {
    Ready(Box<dyn DecodeV2 + Send>),
    /// `deflate`: zlib by the standard, raw by some; the first two bytes tell.
    Deflate(Option<u8>),
}

impl Stage {
    fn new(name: &str) -> Result<Option<Self>, Broken> {
        let codec: Box<dyn DecodeV2 + Send> = match name.to_ascii_lowercase().as_str() {
            "" | "identity" => return Ok(None),
            "deflate" => return Ok(Some(Stage::with(Codec::Deflate(None)))),
            "gzip" | "x-gzip" => Box::new(GzipDecoder::new()),
            "br" => Box::new(BrotliDecoder::new()),
            "zstd" => {
                let window = DParameter::window_log_max(ZSTD_WINDOW_LOG);
                Box::new(ZstdDecoder::new_with_params(&[window]))
            }
            _ => return Err(Broken::Encoding),
        };
        Ok(Some(Stage::with(Codec::Ready(codec))))
    }

    /// A decoder of raw deflate, as WebSocket's `permessage-deflate` uses it.
    pub(super) fn raw_deflate() -> Self {
        Stage::with(Codec::Ready(Box::new(DeflateDecoder::new())))
    }

    fn with(codec: Codec) -> Self {
        Stage {
            codec,
            buffer: Box::default(),
            ended: false,
            whole: false,
            trailing: false,
        }
    }

    /// Decodes the next bytes. What follows a whole body is either another member
    /// or frame, or padding that is left alone.
    pub(super) fn push(&mut self, bytes: &[u8], out: Output<'_>) -> Result<(), Broken> {
        if self.trailing || bytes.is_empty() {
            return Ok(());
        }
        if self.buffer.is_empty() {
            self.buffer = vec![0; OUTPUT_BYTES].into_boxed_slice();
        }
        let Codec::Deflate(held) = &mut self.codec else {
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
                self.codec = Codec::Ready(deflate(first_byte, *second));
                if first.is_some() {
                    self.decode(&[first_byte], out)?;
                }
                self.decode(bytes, out)
            }
            [] => Ok(()),
        }
    }

    fn decode(&mut self, bytes: &[u8], out: Output<'_>) -> Result<(), Broken> {
        let Codec::Ready(codec) = &mut self.codec else {
            return Err(Broken::Encoding);
        };
        let mut input = PartialBuffer::new(bytes);
        loop {
            if self.ended {
                if input.unwritten().is_empty() {
                    return Ok(());
                }
                codec.reinit().map_err(|_| Broken::Encoding)?;
            }
            let mut output = WriteBuffer::new_initialized(&mut self.buffer);
            let drained = input.unwritten().is_empty();
            let done = match codec.decode(&mut input, &mut output) {
                Ok(done) => done,
                // Asked once too often whether anything is left to give.
                Err(_) if drained => return Ok(()),
                Err(_) if self.whole => {
                    self.trailing = true;
                    return Ok(());
                }
                Err(_) => return Err(Broken::Encoding),
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

/// RFC 1950: the low four bits of the first byte are 8 and both bytes, as a number,
/// divide by 31. Raw deflate that begins like that is about one in a thousand.
fn deflate(first: u8, second: u8) -> Box<dyn DecodeV2 + Send> {
    let header = u16::from(first) << 8 | u16::from(second);
    if first & 0x0f == 8 && first >> 4 <= 7 && header % 31 == 0 {
        Box::new(ZlibDecoder::new())
    } else {
        Box::new(DeflateDecoder::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Raw deflate: a stored block with `hi`, the last one.
    const BODY: &[u8] = b"\x01\x02\0\xfd\xffhi";

    fn decoded(body: &[u8], cut: usize) -> Result<Vec<u8>, Broken> {
        let mut encoding = Encoding::new(Some("deflate"), &Limits::default())?.expect("decoders");
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
        // Its first byte could begin another body.
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
        assert_eq!(decoded(b"\0\x01\x02\x03\x04", 1), Err(Broken::Encoding));
    }
}
