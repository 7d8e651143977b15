//! Returns freed memory to the system.
//!
//! The allocator keeps freed pages for a second, and then until a thread allocates or exits. An
//! idle process would keep them forever, so a short-lived thread is started.

use super::Memory;
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::Builder;
use std::time::Duration;

/// Returns freed pages to the system after calls have ended.
pub struct Reclaim {
    memory: Arc<Memory>,
    /// Whether calls ended before the last tick, so that the allocator has kept their pages long
    /// enough.
    due: bool,
}

impl Reclaim {
    /// The interval between ticks. The allocator must have kept pages this long before they can be
    /// returned.
    pub const EVERY: Duration = Duration::from_secs(2);

    /// Watches the end of calls that use `memory`.
    pub fn new(memory: &Arc<Memory>) -> Reclaim {
        Reclaim {
            memory: Arc::clone(memory),
            due: false,
        }
    }

    /// Must be called after every [`Reclaim::EVERY`] without work.
    pub fn tick(&mut self) {
        if self.due {
            give_back();
        }
        self.due = self.memory.freed.swap(false, Ordering::Relaxed);
    }
}

/// Runs a thread that allocates, which makes the allocator purge its free pages. If no thread can
/// be started, the next tick tries again.
fn give_back() {
    let ended = Builder::new()
        .name("reclaim".to_owned())
        .spawn(|| drop(black_box(Box::new(0_u64))));
    if let Ok(thread) = ended {
        let _ = thread.join();
    }
}
