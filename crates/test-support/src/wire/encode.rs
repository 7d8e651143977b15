//! Applies content encodings.

use compression_codecs::brotli::params::EncoderParams;
use compression_codecs::flate::params::FlateEncoderParams;
use compression_codecs::{
    BrotliEncoder, DeflateEncoder, EncodeV2, GzipEncoder, ZlibEncoder, ZstdEncoder,
};
use compression_core::Level;
use compression_core::util::{PartialBuffer, WriteBuffer};

pub const CODINGS: [&str; 4] = ["gzip", "deflate", "br", "zstd"];

fn brotli() -> EncoderParams {
    EncoderParams::default().quality(Level::Precise(5))
}

/// An encoder of a content coding. `raw-deflate` is the format that some servers call `deflate`.
/// `br-16MB` is `br` with its largest window.
pub fn encoder(coding: &str) -> Box<dyn EncodeV2> {
    match coding {
        "gzip" => Box::new(GzipEncoder::new(FlateEncoderParams::from(Level::Default))),
        "deflate" => Box::new(ZlibEncoder::new(FlateEncoderParams::from(Level::Default))),
        "raw-deflate" => Box::new(DeflateEncoder::new(FlateEncoderParams::from(
            Level::Default,
        ))),
        "br" => Box::new(BrotliEncoder::new(brotli())),
        "br-16MB" => Box::new(BrotliEncoder::new(brotli().window_size(24))),
        "zstd" => Box::new(ZstdEncoder::new(3)),
        _ => panic!("no such coding: {coding}"),
    }
}

pub fn encode(coding: &str, body: &[u8]) -> Vec<u8> {
    let mut encoder = encoder(coding);
    let mut encoded = piece(&mut *encoder, body);
    drain(&mut encoded, |output| {
        encoder.finish(output).expect("finish")
    });
    encoded
}

/// Encodes one piece and flushes it, as servers do after every event.
pub fn piece(encoder: &mut dyn EncodeV2, body: &[u8]) -> Vec<u8> {
    let mut encoded = Vec::new();
    let mut input = PartialBuffer::new(body);
    drain(&mut encoded, |output| {
        encoder.encode(&mut input, output).expect("encode");
        input.unwritten().is_empty()
    });
    drain(&mut encoded, |output| encoder.flush(output).expect("flush"));
    encoded
}

fn drain(into: &mut Vec<u8>, mut step: impl FnMut(&mut WriteBuffer<'_>) -> bool) {
    loop {
        let mut buffer = [0; 4096];
        let mut output = WriteBuffer::new_initialized(&mut buffer);
        let done = step(&mut output);
        into.extend_from_slice(output.written());
        if done {
            return;
        }
    }
}
