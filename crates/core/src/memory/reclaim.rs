//! Returns freed memory to the system.
//!
//! The allocator keeps freed pages for a second, and then until some thread allocates or
//! exits: an idle process would keep them. So a short-lived thread is started and ended.

use super::Memory;
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::Builder;
use std::time::Duration;

/// Returns freed pages to the system once calls have ended.
pub struct Reclaim {
    memory: Arc<Memory>,
    /// Calls ended before the last tick, so that the allocator has kept their pages for long
    /// enough.
    due: bool,
}

impl Reclaim {
    /// How long the allocator must have kept pages before they are given back.
    pub const EVERY: Duration = Duration::from_secs(2);

    /// Watches the calls that are accounted against `memory`.
    pub fn new(memory: &Arc<Memory>) -> Reclaim {
        Reclaim {
            memory: Arc::clone(memory),
            due: false,
        }
    }

    /// To be called after every [`Reclaim::EVERY`] without work.
    pub fn tick(&mut self) {
        if self.due {
            give_back();
        }
        self.due = self.memory.freed.swap(false, Ordering::Relaxed);
    }
}

/// Starts and ends a thread that allocates something, which makes the allocator purge its
/// free pages. If no thread can be started, they are returned at the next tick.
fn give_back() {
    let ended = Builder::new()
        .name("reclaim".to_owned())
        .spawn(|| drop(black_box(Box::new(0_u64))));
    if let Ok(thread) = ended {
        let _ = thread.join();
    }
}
