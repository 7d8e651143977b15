//! One bound, in bytes, on everything that measuring holds at a time, and buffers that
//! keep to it.

mod buffer;
mod cgroup;
mod reclaim;

pub use buffer::{Buffer, Full};
pub(crate) use cgroup::{default_bytes, warn_of};
pub(crate) use reclaim::Reclaim;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// What measuring may hold, in bytes, where neither the operator nor a cgroup says less.
pub(crate) const DEFAULT_BYTES: usize = 256 << 20;

/// The bytes that all calls together may hold for measuring.
#[derive(Debug)]
pub struct Memory {
    limit: AtomicUsize,
    used: AtomicUsize,
    /// Whether a call has ended since this was asked last.
    freed: AtomicBool,
}

impl Memory {
    /// So many.
    pub fn new(limit: usize) -> Arc<Memory> {
        Arc::new(Memory {
            limit: AtomicUsize::new(limit),
            used: AtomicUsize::new(0),
            freed: AtomicBool::new(false),
        })
    }

    /// One without a bound, for decoding a single body.
    pub fn unbounded() -> Arc<Memory> {
        Memory::new(usize::MAX)
    }

    /// Bytes held now.
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Moves the bound. What is held above it goes as it would have gone.
    pub(crate) fn resize(&self, limit: usize) {
        self.limit.store(limit, Ordering::Relaxed);
    }

    /// A call is over: what it held, here or elsewhere, is free.
    pub(crate) fn freed(&self) {
        self.freed.store(true, Ordering::Relaxed);
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

    /// Becomes `bytes`, fewer or more; `false`, and as it was, where that is over the bound.
    #[must_use]
    pub(crate) fn resize(&mut self, bytes: usize) -> bool {
        if bytes > self.bytes && !self.memory.take(bytes - self.bytes) {
            return false;
        }
        if bytes < self.bytes {
            let fewer = self.bytes - bytes;
            self.memory.used.fetch_sub(fewer, Ordering::Relaxed);
        }
        self.bytes = bytes;
        true
    }

    /// Becomes `bytes` even over the bound, so that others get less: for the one thread
    /// that reads whole bodies, one at a time.
    pub(crate) fn resize_anyway(&mut self, bytes: usize) {
        if bytes > self.bytes {
            let more = bytes - self.bytes;
            self.memory.used.fetch_add(more, Ordering::Relaxed);
            self.bytes = bytes;
        }
    }

    /// Whether there can be so many at all.
    fn could_be(&self, bytes: usize) -> bool {
        bytes <= self.memory.limit.load(Ordering::Relaxed)
    }

    /// An empty one of the same memory.
    fn another(&self) -> Share {
        Share::empty(&self.memory)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.memory.used.fetch_sub(self.bytes, Ordering::Relaxed);
        }
    }
}
