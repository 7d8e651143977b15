//! The decoders of content codings, and what each holds.

use super::DecodeError;
use compression_codecs::DecodeV2;
use compression_core::util::{PartialBuffer, WriteBuffer};
use std::io;
use zstd_safe::{DCtx, DParameter, InBuffer, OutBuffer, ResetDirective};

/// RFC 8878 and RFC 9659: a decoder of `zstd` as a content encoding needs 8 MB.
const ZSTD_WINDOW_LOG: u32 = 23;
/// A window of 32 KiB, and the tables of codes.
const DEFLATE_BYTES: usize = 48 * 1024;

/// Undoes one content coding.
pub(super) trait Codec: Send {
    /// Makes ready for another member or frame.
    ///
    /// # Errors
    /// Those of the library.
    fn reinit(&mut self) -> io::Result<()>;

    /// Decodes as much as there is and as fits; whether a member or frame is over.
    ///
    /// # Errors
    /// The bytes are not of this coding.
    fn decode(
        &mut self,
        input: &mut PartialBuffer<&[u8]>,
        output: &mut WriteBuffer<'_>,
    ) -> io::Result<bool>;

    /// Bytes of memory that it holds: its window and its tables.
    fn held(&self) -> usize;
}

/// Deflate in whatever wrapping.
pub(super) struct Deflate<D>(pub(super) D);

impl<D: DecodeV2 + Send> Codec for Deflate<D> {
    fn reinit(&mut self) -> io::Result<()> {
        self.0.reinit()
    }

    fn decode(
        &mut self,
        input: &mut PartialBuffer<&[u8]>,
        output: &mut WriteBuffer<'_>,
    ) -> io::Result<bool> {
        self.0.decode(input, output)
    }

    fn held(&self) -> usize {
        DEFLATE_BYTES
    }
}

/// Zstandard, whose frames say how large a window they need.
pub(super) struct Zstd(DCtx<'static>);

impl Zstd {
    pub(super) fn new() -> Result<Zstd, DecodeError> {
        let mut context = DCtx::try_create().ok_or(DecodeError::Memory)?;
        let window = DParameter::WindowLogMax(ZSTD_WINDOW_LOG);
        context
            .set_parameter(window)
            .map_err(|_| DecodeError::Encoding)?;
        Ok(Zstd(context))
    }
}

impl Codec for Zstd {
    fn reinit(&mut self) -> io::Result<()> {
        let reset = self.0.reset(ResetDirective::SessionOnly);
        reset.map(|_| ()).map_err(failed)
    }

    fn decode(
        &mut self,
        input: &mut PartialBuffer<&[u8]>,
        output: &mut WriteBuffer<'_>,
    ) -> io::Result<bool> {
        let mut from = InBuffer::around(input.unwritten());
        let mut to = OutBuffer::around(output.initialize_unwritten());
        let expected = self.0.decompress_stream(&mut to, &mut from);
        let (read, written) = (from.pos(), to.pos());
        input.advance(read);
        output.advance(written);
        Ok(expected.map_err(failed)? == 0)
    }

    fn held(&self) -> usize {
        self.0.sizeof()
    }
}

fn failed(code: zstd_safe::ErrorCode) -> io::Error {
    io::Error::other(zstd_safe::get_error_name(code))
}
