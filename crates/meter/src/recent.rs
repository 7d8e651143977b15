//! The last finished calls, for the API.

use super::{FinishedCall, Subscriber};
use parking_lot::{Mutex, MutexGuard};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

#[derive(Debug)]
pub struct RecentCalls {
    capacity: AtomicUsize,
    calls: Mutex<VecDeque<Arc<FinishedCall>>>,
}

impl RecentCalls {
    pub fn new(capacity: usize) -> Arc<RecentCalls> {
        Arc::new(RecentCalls {
            capacity: AtomicUsize::new(capacity),
            calls: Mutex::default(),
        })
    }

    pub fn capacity(&self) -> usize {
        self.capacity.load(Ordering::Relaxed)
    }

    /// Changes the capacity. The oldest calls are dropped if there are too many.
    pub fn resize(&self, capacity: usize) {
        self.capacity.store(capacity, Ordering::Relaxed);
        let mut calls = self.calls();
        let surplus = calls.len().saturating_sub(capacity);
        calls.drain(..surplus);
    }

    pub fn newest(&self, limit: usize) -> Vec<Arc<FinishedCall>> {
        self.calls().iter().rev().take(limit).cloned().collect()
    }

    fn calls(&self) -> MutexGuard<'_, VecDeque<Arc<FinishedCall>>> {
        self.calls.lock()
    }
}

impl Subscriber for RecentCalls {
    fn finished(&self, finished_call: &Arc<FinishedCall>) {
        let mut calls = self.calls();
        let capacity = self.capacity();
        if capacity == 0 {
            return;
        }
        if calls.len() >= capacity {
            calls.pop_front();
        }
        calls.push_back(Arc::clone(finished_call));
    }
}
