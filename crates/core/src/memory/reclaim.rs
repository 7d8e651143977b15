//! Gives back to the system what was freed.
//!
//! The allocator keeps freed pages for a second, and then until a thread asks it for more
//! or ends: a process that has become idle would keep them. Here a thread ends.

use super::Memory;
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::Builder;
use std::time::Duration;

/// Watches for calls that end.
pub struct Reclaim {
    memory: Arc<Memory>,
    /// Calls ended before the last tick, so that the allocator has kept their pages for long
    /// enough.
    due: bool,
}

impl Reclaim {
    /// How long the allocator must have kept pages before they are given back.
    pub const EVERY: Duration = Duration::from_secs(2);

    /// Gives pages back that `memory` does not need.
    pub fn new(memory: &Arc<Memory>) -> Reclaim {
        Reclaim {
            memory: Arc::clone(memory),
            due: false,
        }
    }

    /// To be called when there was nothing to do for [`Reclaim::EVERY`].
    pub fn tick(&mut self) {
        if self.due {
            give_back();
        }
        self.due = self.memory.freed.swap(false, Ordering::Relaxed);
    }
}

/// Ends a thread that has allocated something, which makes the allocator look through its
/// free pages. Where the system gives no thread, they are given back another time.
fn give_back() {
    let ended = Builder::new()
        .name("reclaim".to_owned())
        .spawn(|| drop(black_box(Box::new(0_u64))));
    if let Ok(thread) = ended {
        let _ = thread.join();
    }
}
