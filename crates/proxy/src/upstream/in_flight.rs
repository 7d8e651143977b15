use super::limits::Connections;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A count of requests or streams in flight. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct InFlightCount {
    count: Arc<AtomicUsize>,
    /// Notified when a request ends, because other requests may wait for the capacity.
    connections: Option<Arc<Connections>>,
}

#[derive(Debug)]
pub(crate) struct InFlightGuard(InFlightCount);

impl InFlightCount {
    /// A count that wakes a waiting request when a counted one ends.
    pub fn waking(connections: &Arc<Connections>) -> InFlightCount {
        InFlightCount {
            count: Arc::default(),
            connections: Some(Arc::clone(connections)),
        }
    }

    pub fn acquire(&self) -> InFlightGuard {
        self.count.fetch_add(1, Ordering::Relaxed);
        InFlightGuard(self.clone())
    }

    pub fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }
}

impl Drop for InFlightGuard {
    fn drop(&mut self) {
        self.0.count.fetch_sub(1, Ordering::Relaxed);
        if let Some(connections) = &self.0.connections {
            connections.stream_released();
        }
    }
}
