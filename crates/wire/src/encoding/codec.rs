//! The decoders of content codings. Each accounts for what it allocates before it does so.

use super::DecodeError;
use compression_codecs::DecodeV2;
use compression_core::util::{PartialBuffer, WriteBuffer};
use std::sync::Arc;
use tokengauge_core::memory::{Memory, Share};
use zstd_safe::{DCtx, DParameter, InBuffer, OutBuffer};

/// RFC 8878 and RFC 9659: a decoder of `zstd` as a content encoding needs 8 MB.
const ZSTD_WINDOW_LOG: u32 = 23;
/// The smallest window of a frame is 1 KB.
const ZSTD_MIN_WINDOW_LOG: u32 = 10;
/// The memory of a decoder of Zstandard without its window: itself, and two blocks of 128 KB.
const ZSTD_BYTES: usize = 512 * 1024;
/// A window of 32 KiB, and the tables of codes.
const DEFLATE_BYTES: usize = 48 * 1024;

/// Undoes one content coding.
pub(super) trait Codec: Send {
    /// Makes ready for another member or frame.
    ///
    /// # Errors
    /// Those of [`Codec::decode`].
    fn reinit(&mut self) -> Result<(), DecodeError>;

    /// Decodes as much as there is and as fits; whether a member or frame is over.
    ///
    /// # Errors
    /// The bytes are not of this coding, or there is no memory to decode them.
    fn decode(
        &mut self,
        input: &mut PartialBuffer<&[u8]>,
        output: &mut WriteBuffer<'_>,
    ) -> Result<bool, DecodeError>;
}

/// Deflate in whatever wrapping.
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

/// Zstandard, whose frames say how large a window they need.
pub(super) struct Zstd {
    context: DCtx<'static>,
    share: Share,
    /// Whether memory for the window of this frame is accounted for.
    reserved: bool,
    /// The bytes that the decoder takes before it has a window.
    empty_bytes: usize,
    /// Whether a frame was refused because memory for the largest window was not to be had.
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

    /// Before a frame has told its window: accounts for the largest that there is memory for, and
    /// refuses frames that need more.
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
        // The window is known once it is allocated, and no larger than what was reserved.
        let bytes = self.context.sizeof();
        if bytes > self.empty_bytes {
            let _ = self.share.resize(bytes);
        }
        Ok(expected == 0)
    }
}
