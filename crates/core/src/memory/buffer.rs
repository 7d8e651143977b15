//! A buffer that grows within its own limit and within a shared memory limit.

use super::{Memory, Share};
use memmap2::{MmapMut, MmapOptions};
use std::collections::btree_map::Entry;
use std::sync::Arc;

/// The length in bytes above which a buffer is memory-mapped. A mapping grows without copying, and
/// its pages return to the system as soon as it is dropped on any thread.
const HEAP: usize = 64 * 1024;
const STEP: usize = 64 * 1024;

/// Why a buffer cannot grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BufferError {
    /// The buffer would exceed its own limit.
    Limit,
    /// The shared memory limit would be exceeded, or the system has no memory.
    Memory,
}

/// A growable byte buffer. Everything except its first `free` bytes counts towards the shared
/// memory limit.
#[derive(Debug)]
pub struct Buffer {
    bytes: BufferMemory,
    share: Share,
    limit: usize,
    free: usize,
    reserved: usize,
}

#[derive(Debug)]
enum BufferMemory {
    Heap(Vec<u8>),
    Pages(Box<Pages>),
}

/// An anonymous mapping with the length of the limit. The system provides only the pages that are
/// written to.
#[derive(Debug)]
struct Pages {
    map: MmapMut,
    length: usize,
}

impl Buffer {
    /// An empty buffer of at most `limit` bytes.
    pub fn new(memory: &Arc<Memory>, limit: usize) -> Buffer {
        Buffer::with_free(memory, limit, 0)
    }

    /// An empty buffer whose first `free` bytes do not count towards the shared limit, because many
    /// streams hold a few bytes each.
    pub fn with_free(memory: &Arc<Memory>, limit: usize, free: usize) -> Buffer {
        Buffer {
            bytes: BufferMemory::Heap(Vec::new()),
            share: Share::empty(memory),
            limit,
            free,
            reserved: 0,
        }
    }

    /// Reserves `bytes` in advance.
    ///
    /// # Errors
    /// [`BufferError::Limit`] if `bytes` exceeds a limit, [`BufferError::Memory`] if the memory is
    /// in use now.
    pub fn reserve(&mut self, bytes: usize) -> Result<(), BufferError> {
        if !self.could_hold(bytes) {
            return Err(BufferError::Limit);
        }
        let room = self.room(bytes);
        if !self.share.resize(room.max(self.share.bytes)) {
            return Err(BufferError::Memory);
        }
        self.reserved = room;
        Ok(())
    }

    /// Lowers the limit to `limit` bytes.
    pub fn lower_limit(&mut self, limit: usize) {
        self.limit = self.limit.min(limit);
    }

    /// Whether `bytes` could fit if no other buffer used memory.
    pub fn could_hold(&self, bytes: usize) -> bool {
        bytes <= self.limit && self.share.fits_limit(bytes)
    }

    /// Announces to other buffers of the same memory that a reservation of `bytes` is waiting,
    /// until the result is dropped.
    pub fn pending_reservation(&self, bytes: usize) -> PendingReservation {
        let memory = Arc::clone(&self.share.memory);
        *memory.pending().entry(bytes).or_default() += 1;
        PendingReservation { memory, bytes }
    }

    /// Whether a reservation of the same memory is waiting.
    pub fn has_pending_reservations(&self) -> bool {
        !self.share.memory.pending().is_empty()
    }

    /// Whether a reservation of the same memory for less than `bytes` is waiting.
    pub fn has_smaller_pending_reservation(&self, bytes: usize) -> bool {
        self.share.memory.pending().range(..bytes).next().is_some()
    }

    /// The number of bytes to count for a content of `length` bytes.
    fn room(&self, length: usize) -> usize {
        match &self.bytes {
            BufferMemory::Heap(_) if length <= HEAP => length.next_power_of_two().min(self.limit),
            _ => length.next_multiple_of(STEP).min(self.limit),
        }
    }

    /// An empty share of the same memory.
    pub fn empty_share(&self) -> Share {
        self.share.sibling()
    }

    /// The maximum number of bytes in the buffer.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// The number of bytes in the buffer.
    pub fn len(&self) -> usize {
        match &self.bytes {
            BufferMemory::Heap(bytes) => bytes.len(),
            BufferMemory::Pages(pages) => pages.length,
        }
    }

    /// Whether the buffer contains no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes in the buffer.
    pub fn as_slice(&self) -> &[u8] {
        match &self.bytes {
            BufferMemory::Heap(bytes) => bytes,
            BufferMemory::Pages(pages) => &pages.map[..pages.length],
        }
    }

    /// The bytes in the buffer, mutably.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        match &mut self.bytes {
            BufferMemory::Heap(bytes) => bytes,
            BufferMemory::Pages(pages) => &mut pages.map[..pages.length],
        }
    }

    /// Appends `bytes`.
    ///
    /// # Errors
    /// [`BufferError`] if a limit is exceeded. The buffer is unchanged then.
    pub fn extend(&mut self, bytes: &[u8]) -> Result<(), BufferError> {
        if let BufferMemory::Heap(heap) = &mut self.bytes
            && bytes.len() <= heap.capacity() - heap.len()
        {
            heap.extend_from_slice(bytes);
            return Ok(());
        }
        self.grow(bytes)
    }

    #[cold]
    fn grow(&mut self, bytes: &[u8]) -> Result<(), BufferError> {
        let length = self.len().checked_add(bytes.len());
        let Some(length) = length.filter(|length| *length <= self.limit) else {
            return Err(BufferError::Limit);
        };
        let room = self.room(length);
        let before = self.share.bytes;
        let share = room.saturating_sub(self.free).max(self.reserved);
        if !self.share.resize(share) {
            return Err(BufferError::Memory);
        }
        if let Err(full) = self.make_room(length, room) {
            let _ = self.share.resize(before);
            return Err(full);
        }
        match &mut self.bytes {
            BufferMemory::Heap(heap) => heap.extend_from_slice(bytes),
            BufferMemory::Pages(pages) => {
                pages.map[pages.length..length].copy_from_slice(bytes);
                pages.length = length;
            }
        }
        Ok(())
    }

    fn make_room(&mut self, length: usize, room: usize) -> Result<(), BufferError> {
        let BufferMemory::Heap(heap) = &mut self.bytes else {
            return Ok(());
        };
        if length <= HEAP {
            heap.reserve_exact(room - heap.len());
            return Ok(());
        }
        let mut pages = MmapOptions::new();
        // Most buffers never reach their limit, so no swap space is reserved for it.
        let pages = pages.len(self.limit).no_reserve_swap().map_anon();
        let mut map = pages.map_err(|_| BufferError::Memory)?;
        // A huge page would be much larger than most bodies.
        #[cfg(target_os = "linux")]
        let _ = map.advise(memmap2::Advice::NoHugePage);
        map[..heap.len()].copy_from_slice(heap);
        let length = heap.len();
        self.bytes = BufferMemory::Pages(Box::new(Pages { map, length }));
        Ok(())
    }

    /// Empties the buffer and returns its memory.
    pub fn clear(&mut self) {
        match &mut self.bytes {
            BufferMemory::Heap(heap) if heap.capacity() <= self.free => heap.clear(),
            _ => {
                self.bytes = BufferMemory::Heap(Vec::new());
                self.reserved = 0;
                let _ = self.share.resize(0);
            }
        }
    }

    /// Removes the first `count` bytes.
    pub fn drop_front(&mut self, count: usize) {
        if count >= self.len() {
            return self.clear();
        }
        match &mut self.bytes {
            BufferMemory::Heap(heap) => drop(heap.drain(..count)),
            BufferMemory::Pages(pages) => {
                pages.map.copy_within(count..pages.length, 0);
                pages.length -= count;
            }
        }
    }
}

/// Announces a waiting reservation to other buffers of the same memory. Dropping it withdraws the
/// announcement.
#[derive(Debug)]
pub struct PendingReservation {
    memory: Arc<Memory>,
    bytes: usize,
}

impl Drop for PendingReservation {
    fn drop(&mut self) {
        if let Entry::Occupied(mut waiting) = self.memory.pending().entry(self.bytes) {
            *waiting.get_mut() -= 1;
            if *waiting.get() == 0 {
                waiting.remove();
            }
        }
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        self.as_slice()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_bounded_over_all_buffers_and_given_back() {
        let memory = Memory::new(1000);
        let mut one = Buffer::new(&memory, 4096);
        let mut other = Buffer::new(&memory, 4096);
        assert_eq!(one.extend(&[0; 500]), Ok(()));
        assert_eq!(memory.used(), 512);
        assert_eq!(
            other.extend(&[0; 500]),
            Err(BufferError::Memory),
            "512 + 512"
        );
        assert!(other.is_empty());
        drop(one);
        assert_eq!(memory.used(), 0);
        assert_eq!(other.extend(&[0; 500]), Ok(()));
    }

    #[test]
    fn one_buffer_is_bounded_by_its_own_limit() {
        let memory = Memory::new(1 << 20);
        let mut buffer = Buffer::new(&memory, 100);
        assert_eq!(buffer.extend(&[1; 100]), Ok(()));
        assert_eq!(buffer.extend(&[1]), Err(BufferError::Limit));
        assert_eq!(buffer.len(), 100);
        assert_eq!(memory.used(), 100, "no more than the limit is reserved");
    }

    #[test]
    fn a_long_buffer_is_one_slice_and_is_accounted_as_far_as_it_goes() {
        let memory = Memory::new(16 * STEP);
        let limit = 3 * HEAP + 10;
        let mut buffer = Buffer::new(&memory, limit);
        let text: Vec<u8> = (0..=u8::MAX).cycle().take(limit).collect();
        for piece in text[..2 * HEAP + 7].chunks(HEAP - 1) {
            assert_eq!(buffer.extend(piece), Ok(()));
        }
        assert_eq!(memory.used(), 3 * STEP);
        assert_eq!(buffer.extend(&text[2 * HEAP + 7..]), Ok(()));
        assert_eq!(buffer.as_slice(), text);
        assert_eq!(memory.used(), limit, "as far as its limit");
        assert_eq!(buffer.extend(b"x"), Err(BufferError::Limit));
        buffer.drop_front(HEAP + 3);
        assert_eq!(buffer.as_slice(), &text[HEAP + 3..]);
        drop(buffer);
        assert_eq!(memory.used(), 0);
    }

    #[test]
    fn what_is_reserved_comes_whatever_others_take() {
        let memory = Memory::new(4 * STEP);
        let mut one = Buffer::new(&memory, 16 * STEP);
        let mut other = Buffer::new(&memory, 16 * STEP);
        assert_eq!(one.reserve(5 * STEP), Err(BufferError::Limit), "never");
        assert_eq!(one.reserve(3 * STEP - 7), Ok(()));
        assert_eq!(other.reserve(2 * STEP), Err(BufferError::Memory), "not now");
        assert_eq!(other.extend(&[0; STEP]), Ok(()));
        for piece in [0; 3 * STEP - 7].chunks(1000) {
            assert_eq!(one.extend(piece), Ok(()));
        }
        assert_eq!(memory.used(), 4 * STEP);
        drop((one, other));
        assert_eq!(memory.used(), 0);
    }

    #[test]
    fn a_limit_far_beyond_what_there_is_costs_nothing() {
        let memory = Memory::new(1 << 20);
        let mut buffer = Buffer::new(&memory, 1 << 38);
        assert_eq!(buffer.extend(&[7; 3 * STEP]), Ok(()));
        assert_eq!(
            (buffer.as_slice(), memory.used()),
            (&[7; 3 * STEP][..], 3 * STEP)
        );
    }

    #[test]
    fn what_is_free_stays_and_what_is_accounted_for_goes_when_it_is_emptied() {
        let memory = Memory::new(1 << 20);
        let mut buffer = Buffer::with_free(&memory, 1 << 20, 4096);
        assert_eq!(buffer.extend(&[0; 4096]), Ok(()));
        assert_eq!(memory.used(), 0);
        assert_eq!(buffer.extend(&[0; 1]), Ok(()));
        assert_eq!(memory.used(), 4096);
        buffer.drop_front(4097);
        assert_eq!((memory.used(), buffer.len()), (0, 0));
    }
}
