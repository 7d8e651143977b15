//! How many finished calls wait to be written.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts the finished calls in the queue: a channel of the standard library does not say how many messages it holds.
#[derive(Debug)]
pub(super) struct Backlog {
    waiting: AtomicUsize,
    room: usize,
}

impl Backlog {
    /// The backlog of an empty queue with this much room.
    pub fn new(room: usize) -> Backlog {
        Backlog {
            waiting: AtomicUsize::new(0),
            room,
        }
    }

    /// A call is about to be queued. To be called before that, since the writer may take it at once.
    pub fn add(&self) {
        self.waiting.fetch_add(1, Ordering::Relaxed);
    }

    /// A call was taken from the queue, or there was no room for it.
    pub fn remove(&self) {
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }

    /// Whether the queue is more than half full, so that the writer has to hurry.
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
