//! How many finished calls wait to be written.

use std::sync::atomic::{AtomicUsize, Ordering};

/// The number of finished calls in the queue, which a channel does not tell.
#[derive(Debug)]
pub(super) struct Backlog {
    waiting: AtomicUsize,
    room: usize,
}

impl Backlog {
    /// None so far, of a queue with room for so many.
    pub fn new(room: usize) -> Backlog {
        Backlog {
            waiting: AtomicUsize::new(0),
            room,
        }
    }

    /// One is about to be queued. To be called before, as the writer may take it at once.
    pub fn add(&self) {
        self.waiting.fetch_add(1, Ordering::Relaxed);
    }

    /// One was taken, or there was no room for it.
    pub fn remove(&self) {
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }

    /// Whether more wait than half of what there is room for, so that the writer has to hurry.
    pub fn is_high(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > self.room / 2
    }

    /// How many wait.
    #[cfg(test)]
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_high_while_more_than_half_of_the_room_is_taken() {
        let backlog = Backlog::new(4);
        backlog.add();
        backlog.add();
        assert!(!backlog.is_high());
        backlog.add();
        assert!(backlog.is_high());
        backlog.remove();
        assert!(!backlog.is_high());
    }
}
