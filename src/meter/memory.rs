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
        let missing = bytes.saturating_sub(self.bytes);
        if missing > 0 && !self.memory.take(missing) {
            return false;
        }
        self.bytes += missing;
        true
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.memory.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// A growing copy of a body, bounded by its own limit and by the memory of all.
#[derive(Debug)]
pub(crate) struct Copy {
    bytes: Vec<u8>,
    share: Share,
    limit: usize,
}

impl Copy {
    pub(crate) fn new(memory: &Arc<Memory>, limit: usize) -> Copy {
        Copy {
            bytes: Vec::new(),
            share: Share::empty(memory),
            limit,
        }
    }

    /// Adds `bytes`; `false` where a bound does not allow it.
    #[must_use]
    pub(crate) fn extend(&mut self, bytes: &[u8]) -> bool {
        let length = self.bytes.len() + bytes.len();
        if length > self.limit {
            return false;
        }
        if length > self.bytes.capacity() {
            let room = length.next_power_of_two().min(self.limit);
            if !self.share.grow_to(room) {
                return false;
            }
            self.bytes.reserve_exact(room - self.bytes.len());
        }
        self.bytes.extend_from_slice(bytes);
        true
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
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
        assert_eq!(copy.bytes().len(), 100);
        assert_eq!(memory.used(), 100, "no more than the limit is reserved");
    }
}
