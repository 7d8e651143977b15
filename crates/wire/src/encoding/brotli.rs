//! Brotli, with an allocator that counts: a few bytes of it may ask for a window of 16 MB
//! and for megabytes of tables.

use super::codec::Codec;
use brotli_decompressor::{
    Allocator, BrotliDecompressStream, BrotliResult, BrotliState, SliceWrapper, SliceWrapperMut,
};
use compression_core::util::{PartialBuffer, WriteBuffer};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Allocates for a decoder, and counts what it has allocated.
#[derive(Clone, Default)]
struct CountingAllocator(Arc<AtomicUsize>);

/// What was allocated.
#[derive(Default)]
struct Cells<T>(Vec<T>);

impl<T> Cells<T> {
    fn bytes(&self) -> usize {
        size_of_val(&*self.0)
    }
}

impl<T> SliceWrapper<T> for Cells<T> {
    fn slice(&self) -> &[T] {
        &self.0
    }
}

impl<T> SliceWrapperMut<T> for Cells<T> {
    fn slice_mut(&mut self) -> &mut [T] {
        &mut self.0
    }
}

impl<T: Clone + Default> Allocator<T> for CountingAllocator {
    type AllocatedMemory = Cells<T>;

    fn alloc_cell(&mut self, length: usize) -> Cells<T> {
        let cells = Cells(vec![T::default(); length]);
        self.0.fetch_add(cells.bytes(), Ordering::Relaxed);
        cells
    }

    fn free_cell(&mut self, cells: Cells<T>) {
        self.0.fetch_sub(cells.bytes(), Ordering::Relaxed);
    }
}

type State = BrotliState<CountingAllocator, CountingAllocator, CountingAllocator>;

/// A decoder of Brotli.
pub(super) struct Brotli {
    state: Box<State>,
    counted: CountingAllocator,
}

impl Default for Brotli {
    fn default() -> Self {
        let counted = CountingAllocator::default();
        let (bytes, words, codes) = (counted.clone(), counted.clone(), counted.clone());
        Brotli {
            state: Box::new(BrotliState::new(bytes, words, codes)),
            counted,
        }
    }
}

impl Codec for Brotli {
    fn reinit(&mut self) -> io::Result<()> {
        *self = Brotli::default();
        Ok(())
    }

    fn decode(
        &mut self,
        input: &mut PartialBuffer<&[u8]>,
        output: &mut WriteBuffer<'_>,
    ) -> io::Result<bool> {
        let from = input.unwritten();
        let to = output.initialize_unwritten();
        let (mut read, mut written) = (0, 0);
        let result = BrotliDecompressStream(
            &mut from.len(),
            &mut read,
            from,
            &mut to.len(),
            &mut written,
            to,
            &mut 0,
            &mut self.state,
        );
        input.advance(read);
        output.advance(written);
        match result {
            BrotliResult::ResultSuccess => Ok(true),
            BrotliResult::NeedsMoreInput | BrotliResult::NeedsMoreOutput => Ok(false),
            BrotliResult::ResultFailure => Err(io::Error::other("not Brotli")),
        }
    }

    fn held(&self) -> usize {
        size_of::<State>() + self.counted.0.load(Ordering::Relaxed)
    }
}
