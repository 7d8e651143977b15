//! Brotli with an allocator that counts memory. A few bytes of Brotli may request a window of 16 MB
//! and megabytes of tables.

use super::DecodeError;
use super::codec::Codec;
use brotli_decompressor::{
    Allocator, BrotliDecompressStream, BrotliResult, BrotliState, SliceWrapper, SliceWrapperMut,
};
use compression_core::util::{PartialBuffer, WriteBuffer};
use parking_lot::Mutex;
use std::sync::Arc;
use tokengauge_core::memory::{Memory, Share};

struct Allocated {
    share: Share,
    bytes: usize,
    refused: bool,
}

/// Allocates for a decoder. A refused allocation is empty.
#[derive(Clone)]
struct CountingAllocator(Arc<Mutex<Allocated>>);

impl CountingAllocator {
    fn new(memory: &Arc<Memory>) -> CountingAllocator {
        CountingAllocator(Arc::new(Mutex::new(Allocated {
            share: Share::empty(memory),
            bytes: 0,
            refused: false,
        })))
    }

    fn resize(&self, change: impl FnOnce(usize) -> usize) -> bool {
        let mut allocated = self.0.lock();
        let bytes = change(allocated.bytes);
        if !allocated.share.resize(bytes) {
            allocated.refused = true;
            return false;
        }
        allocated.bytes = bytes;
        true
    }
}

#[derive(Default)]
struct Cells<T>(Vec<T>);

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
        let bytes = length * size_of::<T>();
        if self.resize(|allocated| allocated + bytes) {
            Cells(vec![T::default(); length])
        } else {
            Cells::default()
        }
    }

    fn free_cell(&mut self, cells: Cells<T>) {
        let bytes = size_of_val(&*cells.0);
        drop(cells);
        self.resize(|allocated| allocated - bytes);
    }
}

type State = BrotliState<CountingAllocator, CountingAllocator, CountingAllocator>;

pub(super) struct Brotli {
    state: Box<State>,
    allocator: CountingAllocator,
    memory: Arc<Memory>,
}

impl Brotli {
    pub(super) fn new(memory: &Arc<Memory>) -> Brotli {
        let allocator = CountingAllocator::new(memory);
        let (bytes, words, codes) = (allocator.clone(), allocator.clone(), allocator.clone());
        Brotli {
            // RFC 7932 limits the window to 16 MB.
            state: Box::new(BrotliState::new_strict(bytes, words, codes)),
            allocator,
            memory: Arc::clone(memory),
        }
    }
}

impl Codec for Brotli {
    fn reinit(&mut self) -> Result<(), DecodeError> {
        *self = Brotli::new(&self.memory);
        Ok(())
    }

    fn decode(
        &mut self,
        input: &mut PartialBuffer<&[u8]>,
        output: &mut WriteBuffer<'_>,
    ) -> Result<bool, DecodeError> {
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
            _ if self.allocator.0.lock().refused => Err(DecodeError::Memory),
            BrotliResult::ResultSuccess => Ok(true),
            BrotliResult::NeedsMoreInput | BrotliResult::NeedsMoreOutput => Ok(false),
            BrotliResult::ResultFailure => Err(DecodeError::Encoding),
        }
    }
}
