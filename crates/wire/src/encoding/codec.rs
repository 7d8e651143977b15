//! The decoders of content codings. Each one reserves memory before it allocates.

use super::DecodeError;
use compression_codecs::DecodeV2;
use compression_core::util::{PartialBuffer, WriteBuffer};
use std::sync::Arc;
use tokengauge_core::memory::{Memory, Share};
use zstd_safe::{DCtx, DParameter, InBuffer, OutBuffer};

/// The maximum window of `zstd` as a content encoding is 8 MB (RFC 8878, RFC 9659).
const ZSTD_WINDOW_LOG: u32 = 23;
/// The minimum window of a frame is 1 KB.
const ZSTD_MIN_WINDOW_LOG: u32 = 10;
/// Memory of a Zstandard decoder without its window: the decoder, and two blocks of 128 KB.
const ZSTD_BYTES: usize = 512 * 1024;
/// A window of 32 KiB and the code tables.
const DEFLATE_BYTES: usize = 48 * 1024;

pub(super) trait Codec: Send {
    /// Prepares for another member or frame.
    ///
    /// # Errors
    /// Fails as [`Codec::decode`] does.
    fn reinit(&mut self) -> Result<(), DecodeError>;

    /// Decodes as much input as is available and as fits into the output. Returns whether a member
    /// or frame ended.
    ///
    /// # Errors
    /// The bytes do not match the coding, or there is no memory to decode them.
    fn decode(
        &mut self,
        input: &mut PartialBuffer<&[u8]>,
        output: &mut WriteBuffer<'_>,
    ) -> Result<bool, DecodeError>;
}

pub(super) struct Deflate<D> {
    decoder: D,
    share: Share,
}

impl<D: DecodeV2 + Send> Deflate<D> {
    pub(super) fn new(decoder: D, memory: &Arc<Memory>) -> Deflate<D> {
        Deflate {
            decoder,
            share: Share::empty(memory),
        }
    }
}

impl<D: DecodeV2 + Send> Codec for Deflate<D> {
    fn reinit(&mut self) -> Result<(), DecodeError> {
        self.decoder.reinit().map_err(|_| DecodeError::Encoding)
    }

    fn decode(
        &mut self,
        input: &mut PartialBuffer<&[u8]>,
        output: &mut WriteBuffer<'_>,
    ) -> Result<bool, DecodeError> {
        if !self.share.resize(DEFLATE_BYTES) {
            return Err(DecodeError::Memory);
        }
        let decoded = self.decoder.decode(input, output);
        decoded.map_err(|_| DecodeError::Encoding)
    }
}

/// Zstandard. Each frame declares the window that it needs.
pub(super) struct Zstd {
    context: DCtx<'static>,
    share: Share,
    /// Whether memory for the window of this frame is reserved.
    reserved: bool,
    /// Memory of the decoder before it has a window, in bytes.
    empty_bytes: usize,
    /// Whether memory for the largest window was not available, so that a frame may be refused.
    short: bool,
}

impl Zstd {
    pub(super) fn new(memory: &Arc<Memory>) -> Result<Zstd, DecodeError> {
        let context = DCtx::try_create().ok_or(DecodeError::Memory)?;
        Ok(Zstd {
            reserved: false,
            empty_bytes: context.sizeof(),
            context,
            share: Share::empty(memory),
            short: false,
        })
    }

    /// Reserves memory for the largest window that fits, before a frame declares its window. Frames
    /// that need a larger window are refused.
    fn reserve_window(&mut self) -> Result<(), DecodeError> {
        let mut logs = (ZSTD_MIN_WINDOW_LOG..=ZSTD_WINDOW_LOG).rev();
        let log = logs.find(|log| self.share.resize(ZSTD_BYTES + (1 << log)));
        let log = log.ok_or(DecodeError::Memory)?;
        self.short = log < ZSTD_WINDOW_LOG;
        let set = self.context.set_parameter(DParameter::WindowLogMax(log));
        set.map(|_| ()).map_err(|_| DecodeError::Encoding)
    }
}

impl Codec for Zstd {
    fn reinit(&mut self) -> Result<(), DecodeError> {
        self.context = DCtx::try_create().ok_or(DecodeError::Memory)?;
        self.reserved = false;
        Ok(())
    }

    fn decode(
        &mut self,
        input: &mut PartialBuffer<&[u8]>,
        output: &mut WriteBuffer<'_>,
    ) -> Result<bool, DecodeError> {
        if !self.reserved {
            self.reserve_window()?;
            self.reserved = true;
        }
        let mut from = InBuffer::around(input.unwritten());
        let mut to = OutBuffer::around(output.initialize_unwritten());
        let expected = self.context.decompress_stream(&mut to, &mut from);
        let (read, written) = (from.pos(), to.pos());
        input.advance(read);
        output.advance(written);
        let expected = expected.map_err(|_| {
            if self.short {
                DecodeError::Memory
            } else {
                DecodeError::Encoding
            }
        })?;
        // The window is allocated now, and is not larger than the reservation.
        let bytes = self.context.sizeof();
        if bytes > self.empty_bytes {
            let _ = self.share.resize(bytes);
        }
        Ok(expected == 0)
    }
}
