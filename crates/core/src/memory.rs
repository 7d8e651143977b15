//! One bound, in bytes, on everything that measuring holds at a time, and buffers that
//! keep to it.

mod buffer;
mod reclaim;

pub use buffer::{Buffer, BufferError, PendingReservation};
pub use reclaim::Reclaim;

use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// What measuring may hold, in bytes, where neither the operator nor a cgroup says less.
pub const DEFAULT_BYTES: usize = 256 << 20;

/// A body up to this is a small one, in bytes: a part of the memory for bodies that decide on
/// limits is for those, so that long ones do not hold them up.
pub const SMALL_BODY: usize = 256 * 1024;

/// The memory for bodies that decide whether their request may leave.
#[derive(Debug)]
pub struct AdmissionMemory {
    /// For small bodies alone, so that long ones do not hold them up.
    pub small: Arc<Memory>,
    /// For bodies of any length.
    pub large: Arc<Memory>,
}

impl AdmissionMemory {
    /// So many bytes in all, an eighth of them for small ones.
    pub fn new(bytes: usize) -> AdmissionMemory {
        AdmissionMemory {
            small: Memory::new(bytes / 8),
            large: Memory::new(bytes - bytes / 8),
        }
    }

    /// Changes the bound of both together, in bytes; what is held already stays.
    pub fn resize(&self, bytes: usize) {
        self.small.resize(bytes / 8);
        self.large.resize(bytes - bytes / 8);
    }

    /// Bytes held now.
    pub fn used(&self) -> usize {
        self.small.used() + self.large.used()
    }

    /// For a body of at most `limit` bytes.
    pub fn buffers(&self, limit: usize) -> AdmissionBuffers {
        AdmissionBuffers {
            small: Buffer::new(&self.small, SMALL_BODY.min(limit)),
            large: Buffer::new(&self.large, limit),
        }
    }
}

/// What a body is held in that decides whether its request may leave.
#[derive(Debug)]
pub struct AdmissionBuffers {
    /// While it is small.
    pub small: Buffer,
    /// Where it is not.
    pub large: Buffer,
}

/// The bytes that all calls together may hold for measuring.
#[derive(Debug)]
pub struct Memory {
    limit: AtomicUsize,
    used: AtomicUsize,
    /// Whether a call has ended since this was asked last.
    freed: AtomicBool,
    /// How many wait for how many bytes of it.
    pending: Mutex<BTreeMap<usize, usize>>,
}

impl Memory {
    fn pending(&self) -> MutexGuard<'_, BTreeMap<usize, usize>> {
        self.pending.lock()
    }

    /// A memory of `limit` bytes.
    pub fn new(limit: usize) -> Arc<Memory> {
        Arc::new(Memory {
            limit: AtomicUsize::new(limit),
            used: AtomicUsize::new(0),
            freed: AtomicBool::new(false),
            pending: Mutex::default(),
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
    pub fn resize(&self, limit: usize) {
        self.limit.store(limit, Ordering::Relaxed);
    }

    /// A call is over: what it held, here or elsewhere, is free.
    pub fn freed(&self) {
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
pub struct Share {
    memory: Arc<Memory>,
    bytes: usize,
}

impl Share {
    /// A share of no bytes yet.
    pub fn empty(memory: &Arc<Memory>) -> Share {
        Share {
            memory: Arc::clone(memory),
            bytes: 0,
        }
    }

    /// Becomes `bytes`, fewer or more; `false`, and as it was, where that is over the bound.
    #[must_use]
    pub fn resize(&mut self, bytes: usize) -> bool {
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
    pub fn resize_over_limit(&mut self, bytes: usize) {
        if bytes > self.bytes {
            let more = bytes - self.bytes;
            self.memory.used.fetch_add(more, Ordering::Relaxed);
            self.bytes = bytes;
        }
    }

    /// Whether there can be so many at all.
    fn fits_limit(&self, bytes: usize) -> bool {
        bytes <= self.memory.limit.load(Ordering::Relaxed)
    }

    /// An empty one of the same memory.
    fn sibling(&self) -> Share {
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
