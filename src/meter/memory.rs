//! One bound, in bytes, on everything that measuring holds at a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The bytes that all calls together may hold for measuring.
#[derive(Debug)]
pub(crate) struct Memory {
    limit: AtomicUsize,
    used: AtomicUsize,
}

impl Memory {
    pub(crate) fn new(limit: usize) -> Arc<Memory> {
        Arc::new(Memory {
            limit: AtomicUsize::new(limit),
            used: AtomicUsize::new(0),
        })
    }

    /// Bytes held now.
    pub(crate) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Moves the bound. What is held above it goes as it would have gone.
    pub(crate) fn resize(&self, limit: usize) {
        self.limit.store(limit, Ordering::Relaxed);
    }

    fn take(&self, bytes: usize) -> bool {
        let limit = self.limit.load(Ordering::Relaxed);
        let more = |used: usize| used.checked_add(bytes).filter(|used| *used <= limit);
        self.used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more)
            .is_ok()
    }
}

/// A share of the memory, given back when dropped.
#[derive(Debug)]
pub(crate) struct Share {
    memory: Arc<Memory>,
    bytes: usize,
}

impl Share {
    pub(crate) fn empty(memory: &Arc<Memory>) -> Share {
        Share {
            memory: Arc::clone(memory),
            bytes: 0,
        }
    }

    /// Grows to `bytes`; `false` where that is over the bound.
    pub(crate) fn grow_to(&mut self, bytes: usize) -> bool {
        self.grow_by(bytes.saturating_sub(self.bytes))
    }

    /// Takes so many more; `false` where that is over the bound.
    fn grow_by(&mut self, bytes: usize) -> bool {
        let taken = bytes == 0 || self.memory.take(bytes);
        if taken {
            self.bytes += bytes;
        }
        taken
    }

    fn shrink_to(&mut self, bytes: usize) {
        let more = self.bytes.saturating_sub(bytes);
        self.memory.used.fetch_sub(more, Ordering::Relaxed);
        self.bytes -= more;
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.memory.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// What lies together while a copy grows: to move more, or to touch more new memory at
/// once, would be felt by traffic.
const BLOCK: usize = 64 * 1024;

/// A growing copy of a body, bounded by its own limit and by the memory of all.
#[derive(Debug)]
pub(crate) struct Copy {
    /// Each but the last holds [`BLOCK`] bytes or more.
    blocks: Vec<Vec<u8>>,
    length: usize,
    share: Share,
    limit: usize,
}

impl Copy {
    pub(crate) fn new(memory: &Arc<Memory>, limit: usize) -> Copy {
        Copy {
            blocks: Vec::new(),
            length: 0,
            share: Share::empty(memory),
            limit,
        }
    }

    pub(crate) fn length(&self) -> usize {
        self.length
    }

    /// Adds `bytes`; `false` where a bound does not allow it.
    #[must_use]
    pub(crate) fn extend(&mut self, mut bytes: &[u8]) -> bool {
        if bytes.len() > self.limit - self.length {
            return false;
        }
        while !bytes.is_empty() {
            let Some(room) = self.room_for(bytes.len()) else {
                return false;
            };
            let (here, rest) = bytes.split_at(room.min(bytes.len()));
            self.blocks
                .last_mut()
                .expect("there is room")
                .extend_from_slice(here);
            self.length += here.len();
            bytes = rest;
        }
        true
    }

    /// How many of so many bytes the last block takes; `None` where memory does not allow it.
    fn room_for(&mut self, bytes: usize) -> Option<usize> {
        if self.blocks.last().is_none_or(|last| last.len() >= BLOCK) {
            self.blocks.push(Vec::new());
        }
        let first = self.blocks.len() == 1;
        let last = self.blocks.last_mut()?;
        let others = self.length - last.len();
        let wanted = (last.len() + bytes).min(BLOCK);
        if wanted > last.capacity() {
            let room = if first {
                wanted.next_power_of_two()
            } else {
                BLOCK
            };
            let room = room.min(self.limit - others);
            if !self.share.grow_by(room - last.capacity()) {
                return None;
            }
            last.reserve_exact(room - last.len());
        }
        Some(wanted - last.len())
    }

    /// All of it, laid together: that takes its time where it is long.
    pub(crate) fn joined(&mut self) -> &[u8] {
        if self.blocks.len() > 1 {
            let mut whole = Vec::with_capacity(self.length);
            for block in self.blocks.drain(..) {
                whole.extend_from_slice(&block);
            }
            self.blocks.push(whole);
            self.share.shrink_to(self.length);
        }
        self.blocks.first().map_or(&[], Vec::as_slice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_bounded_over_all_copies_and_given_back() {
        let memory = Memory::new(1000);
        let mut one = Copy::new(&memory, 4096);
        let mut other = Copy::new(&memory, 4096);
        assert!(one.extend(&[0; 500]));
        assert_eq!(memory.used(), 512);
        assert!(!other.extend(&[0; 500]), "512 + 512 is over 1000");
        drop(one);
        assert_eq!(memory.used(), 0);
        assert!(other.extend(&[0; 500]));
    }

    #[test]
    fn one_copy_is_bounded_by_its_own_limit() {
        let memory = Memory::new(1 << 20);
        let mut copy = Copy::new(&memory, 100);
        assert!(copy.extend(&[1; 100]));
        assert!(!copy.extend(&[1]));
        assert_eq!(copy.joined().len(), 100);
        assert_eq!(memory.used(), 100, "no more than the limit is reserved");
    }

    #[test]
    fn a_long_copy_is_whole_again_when_it_is_joined_and_may_grow_on() {
        let memory = Memory::new(4 * BLOCK);
        let mut copy = Copy::new(&memory, 3 * BLOCK + 10);
        let text: Vec<u8> = (0..=u8::MAX).cycle().take(3 * BLOCK + 10).collect();
        let (before, behind) = text.split_at(2 * BLOCK + 7);
        for piece in before.chunks(BLOCK - 1) {
            assert!(copy.extend(piece));
        }
        assert_eq!(copy.joined(), before);
        assert!(copy.extend(behind));
        assert_eq!(copy.length(), text.len());
        assert_eq!(copy.joined(), text);
        assert_eq!(memory.used(), text.len(), "as far as its limit");
        assert!(!copy.extend(b"x"));
        drop(copy);
        assert_eq!(memory.used(), 0);
    }
}
