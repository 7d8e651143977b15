//! The memory limit of all measuring, and buffers that count towards it.

mod buffer;
mod reclaim;

pub use buffer::{Buffer, BufferError, PendingReservation};
pub use reclaim::Reclaim;

use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// The default limit in bytes. A configured limit or the limit of a cgroup may be lower.
pub const DEFAULT_BYTES: usize = 256 << 20;

/// The maximum length in bytes of a body that may use the share of admission memory for small
/// bodies.
pub const SMALL_BODY: usize = 256 * 1024;

/// The memory for request bodies that must be read before the request is admitted.
#[derive(Debug)]
pub struct AdmissionMemory {
    /// Memory for small bodies only, so that long bodies do not delay them.
    pub small: Arc<Memory>,
    /// Memory for bodies of any length.
    pub large: Arc<Memory>,
}

impl AdmissionMemory {
    /// Divides `bytes`: an eighth is for small bodies only.
    pub fn new(bytes: usize) -> AdmissionMemory {
        AdmissionMemory {
            small: Memory::new(bytes / 8),
            large: Memory::new(bytes - bytes / 8),
        }
    }

    /// Changes the combined limit of small and large memory, in bytes. Memory in use is not affected.
    pub fn resize(&self, bytes: usize) {
        self.small.resize(bytes / 8);
        self.large.resize(bytes - bytes / 8);
    }

    /// Bytes in use.
    pub fn used(&self) -> usize {
        self.small.used() + self.large.used()
    }

    /// Empty buffers for one body of at most `limit` bytes.
    pub fn buffers(&self, limit: usize) -> AdmissionBuffers {
        AdmissionBuffers {
            small: Buffer::new(&self.small, SMALL_BODY.min(limit)),
            large: Buffer::new(&self.large, limit),
        }
    }
}

/// The buffers for one body that must be read before its request is admitted.
#[derive(Debug)]
pub struct AdmissionBuffers {
    /// Used while the body is small.
    pub small: Buffer,
    /// Used for a long body.
    pub large: Buffer,
}

/// A limit in bytes that all calls share.
#[derive(Debug)]
pub struct Memory {
    limit: AtomicUsize,
    used: AtomicUsize,
    /// Whether a call has ended since the last check.
    freed: AtomicBool,
    /// The number of pending reservations by size in bytes.
    pending: Mutex<BTreeMap<usize, usize>>,
}

impl Memory {
    fn pending(&self) -> MutexGuard<'_, BTreeMap<usize, usize>> {
        self.pending.lock()
    }

    /// A shared limit of `limit` bytes.
    pub fn new(limit: usize) -> Arc<Memory> {
        Arc::new(Memory {
            limit: AtomicUsize::new(limit),
            used: AtomicUsize::new(0),
            freed: AtomicBool::new(false),
            pending: Mutex::default(),
        })
    }

    /// No limit, for decoding a single body.
    pub fn unbounded() -> Arc<Memory> {
        Memory::new(usize::MAX)
    }

    /// Bytes in use.
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Whether more than half of the limit is in use, so that only what is needed should be kept.
    pub fn is_short(&self) -> bool {
        self.used() > self.limit.load(Ordering::Relaxed) / 2
    }

    /// Changes the limit. Memory in use above the limit is not revoked.
    pub fn resize(&self, limit: usize) {
        self.limit.store(limit, Ordering::Relaxed);
    }

    /// Records that a call has ended, so that the allocator may have pages to return to the system.
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

/// A number of bytes of a [`Memory`]. Dropping it returns them.
#[derive(Debug)]
pub struct Share {
    memory: Arc<Memory>,
    bytes: usize,
}

impl Share {
    /// A share of no bytes.
    pub fn empty(memory: &Arc<Memory>) -> Share {
        Share {
            memory: Arc::clone(memory),
            bytes: 0,
        }
    }

    /// The number of bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Grows or shrinks to `bytes`. Returns `false` and changes nothing if that exceeds the limit.
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

    /// Grows to `bytes` even if that exceeds the limit. Only for the single thread that reads whole
    /// bodies.
    pub fn resize_over_limit(&mut self, bytes: usize) {
        if bytes > self.bytes {
            let more = bytes - self.bytes;
            self.memory.used.fetch_add(more, Ordering::Relaxed);
            self.bytes = bytes;
        }
    }

    fn fits_limit(&self, bytes: usize) -> bool {
        bytes <= self.memory.limit.load(Ordering::Relaxed)
    }

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
