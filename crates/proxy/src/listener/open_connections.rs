//! The open connections of agents: which ones are idle, and how many streams they have.

use super::connection_timeouts::ConnectionTimeouts;
use parking_lot::Mutex;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::time::Instant;

/// How many idle connections are collected at a time, so that not every new agent causes a scan of all connections.
const CANDIDATES: usize = 32;

#[derive(Default)]
pub(super) struct OpenConnections {
    registry: Mutex<Registry>,
    streams: AtomicUsize,
}

#[derive(Default)]
struct Registry {
    next_id: u64,
    open: HashMap<u64, Arc<ConnectionTimeouts>>,
    /// Connections that were idle at the last scan, and since when. The one idle for the longest time is last.
    candidates: Vec<(Instant, Arc<ConnectionTimeouts>)>,
}

impl OpenConnections {
    /// Registers a connection until the returned value is dropped.
    pub fn add(self: &Arc<Self>, timeouts: &Arc<ConnectionTimeouts>) -> OpenConnection {
        let mut registry = self.registry.lock();
        let id = registry.next_id;
        registry.next_id += 1;
        registry.open.insert(id, Arc::clone(timeouts));
        OpenConnection {
            all: Arc::clone(self),
            id,
        }
    }

    /// Closes the connection that has been idle for the longest time. Returns whether there was one.
    pub fn close_longest_idle(&self) -> bool {
        let mut registry = self.registry.lock();
        loop {
            if registry.candidates.is_empty() {
                registry.candidates = registry.longest_idle();
            }
            let Some((since, timeouts)) = registry.candidates.pop() else {
                return false;
            };
            if timeouts.evict(since) {
                return true;
            }
        }
    }

    /// Counts one more HTTP/2 stream until the returned value is dropped. `None` if `limit` is reached.
    pub fn open_stream(self: &Arc<Self>, limit: usize) -> Option<OpenStream> {
        let stream = OpenStream(Arc::clone(self));
        (self.streams.fetch_add(1, Ordering::Relaxed) < limit).then_some(stream)
    }
}

impl Registry {
    fn longest_idle(&self) -> Vec<(Instant, Arc<ConnectionTimeouts>)> {
        let idle = |timeouts: &Arc<ConnectionTimeouts>| {
            Some((timeouts.idle_since()?, Arc::clone(timeouts)))
        };
        let mut idle: Vec<_> = self.open.values().filter_map(idle).collect();
        idle.sort_unstable_by_key(|(since, _)| *since);
        idle.truncate(CANDIDATES);
        idle.sort_unstable_by_key(|(since, _)| Reverse(*since));
        idle
    }
}

pub(super) struct OpenConnection {
    all: Arc<OpenConnections>,
    id: u64,
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.all.registry.lock().open.remove(&self.id);
    }
}

pub(super) struct OpenStream(Arc<OpenConnections>);

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.0.streams.fetch_sub(1, Ordering::Relaxed);
    }
}
