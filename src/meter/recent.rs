//! The last finished calls, for the API.

use super::subscriber::{Finding, Subscriber};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A ring of the last finished calls.
#[derive(Debug)]
pub struct RecentCalls {
    capacity: usize,
    calls: Mutex<VecDeque<Arc<Finding>>>,
}

impl RecentCalls {
    /// A ring of at most `capacity` calls.
    pub fn new(capacity: usize) -> Arc<RecentCalls> {
        Arc::new(RecentCalls {
            capacity,
            calls: Mutex::default(),
        })
    }

    /// How many calls it can hold.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// The newest calls first, at most `limit`.
    pub fn newest(&self, limit: usize) -> Vec<Arc<Finding>> {
        self.calls().iter().rev().take(limit).cloned().collect()
    }

    fn calls(&self) -> MutexGuard<'_, VecDeque<Arc<Finding>>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Subscriber for RecentCalls {
    fn finished(&self, finding: &Arc<Finding>) {
        if self.capacity == 0 {
            return;
        }
        let mut calls = self.calls();
        if calls.len() >= self.capacity {
            calls.pop_front();
        }
        calls.push_back(Arc::clone(finding));
    }
}
