//! Graceful shutdown: counts open connections and calls, tells connections to drain, and terminates the rest.

use crate::threads::ConnectionCount;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::time::sleep;

const POLL_INTERVAL: Duration = Duration::from_millis(5);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stage {
    Serving,
    Draining,
    Terminating,
}

/// Starts a graceful shutdown and counts open connections and calls. Clones share the state.
#[derive(Clone, Debug)]
pub struct Shutdown {
    stage: Arc<watch::Sender<Stage>>,
    open: Arc<OpenCounts>,
}

impl Shutdown {
    pub fn new() -> Shutdown {
        let stage = Arc::new(watch::Sender::new(Stage::Serving));
        Shutdown {
            stage,
            open: Arc::default(),
        }
    }

    /// Starts to drain: open requests may finish, and nothing new is accepted. The first signal calls this.
    pub fn begin(&self) {
        self.advance(Stage::Draining);
    }

    /// Terminates open connections. The second signal and the end of the drain timeout call this.
    pub fn now(&self) {
        self.advance(Stage::Terminating);
    }

    /// Whether draining has started. The proxy is then no longer ready.
    pub fn is_draining(&self) -> bool {
        *self.stage.borrow() > Stage::Serving
    }

    /// Open connections from agents, including tunnels.
    pub fn connections(&self) -> usize {
        *self.open.connections.borrow()
    }

    pub fn requests(&self) -> usize {
        self.open.requests.load(Ordering::Relaxed)
    }

    pub async fn drain_started(&self) {
        self.drain().drain_started().await;
    }

    /// Resolves when open connections must be terminated.
    pub async fn terminated(&self) {
        self.drain().terminated().await;
    }

    /// A subscription that does not count as an open connection.
    pub(super) fn drain(&self) -> Drain {
        Drain {
            stage: self.stage.subscribe(),
            open: Arc::clone(&self.open),
            _connection: None,
        }
    }

    /// A subscription for a new connection, which counts as open until every clone is dropped.
    pub(super) fn open_connection(
        &self,
        permit: OwnedSemaphorePermit,
        of_runtime: ConnectionCount,
    ) -> Drain {
        self.open.connections.send_modify(|count| *count += 1);
        let guard = ConnectionGuard {
            open: Arc::clone(&self.open),
            _permit: permit,
            _of_runtime: of_runtime,
        };
        Drain {
            stage: self.stage.subscribe(),
            open: Arc::clone(&self.open),
            _connection: Some(Arc::new(guard)),
        }
    }

    pub(super) fn request_guard(&self) -> RequestGuard {
        self.open.requests.fetch_add(1, Ordering::Relaxed);
        RequestGuard(Arc::clone(&self.open))
    }

    pub(super) async fn all_closed(&self) {
        let mut connections = self.open.connections.subscribe();
        // `wait_for` cannot fail, because `self` holds the sender.
        let _ = connections.wait_for(|count| *count == 0).await;
    }

    /// Resolves when the end of every call has been reported, so that the final records are complete.
    pub(super) async fn all_reported(&self) {
        while self.open.calls.load(Ordering::Relaxed) > 0 {
            sleep(POLL_INTERVAL).await;
        }
    }

    pub(super) fn record_idle_closed(&self) {
        self.open.idle_closed.fetch_add(1, Ordering::Relaxed);
    }

    pub fn idle_connections_closed(&self) -> u64 {
        self.open.idle_closed.load(Ordering::Relaxed)
    }

    pub(super) fn record_stream_refused(&self) {
        self.open.refused_streams.fetch_add(1, Ordering::Relaxed);
    }

    pub fn streams_refused(&self) -> u64 {
        self.open.refused_streams.load(Ordering::Relaxed)
    }

    pub(super) fn aborted_connections(&self) -> usize {
        self.open.aborted.load(Ordering::Relaxed)
    }

    fn advance(&self, to: Stage) {
        self.stage.send_if_modified(|stage| {
            let later = to > *stage;
            if later && to == Stage::Terminating {
                // Counted before any connection can see the new stage.
                self.open
                    .aborted
                    .store(self.connections(), Ordering::Relaxed);
            }
            *stage = to.max(*stage);
            later
        });
    }
}

impl Default for Shutdown {
    fn default() -> Self {
        Shutdown::new()
    }
}

#[derive(Debug)]
struct OpenCounts {
    connections: watch::Sender<usize>,
    requests: AtomicUsize,
    calls: AtomicUsize,
    aborted: AtomicUsize,
    idle_closed: AtomicU64,
    refused_streams: AtomicU64,
}

impl Default for OpenCounts {
    fn default() -> Self {
        OpenCounts {
            connections: watch::Sender::new(0),
            requests: AtomicUsize::new(0),
            calls: AtomicUsize::new(0),
            aborted: AtomicUsize::new(0),
            idle_closed: AtomicU64::new(0),
            refused_streams: AtomicU64::new(0),
        }
    }
}

/// A connection's view of the shutdown. The connection counts as open and keeps its permit until every clone is
/// dropped. A tunnel keeps a clone.
#[derive(Clone, Debug)]
pub(super) struct Drain {
    stage: watch::Receiver<Stage>,
    open: Arc<OpenCounts>,
    _connection: Option<Arc<ConnectionGuard>>,
}

impl Drain {
    pub fn call_guard(&self) -> CallGuard {
        self.open.calls.fetch_add(1, Ordering::Relaxed);
        CallGuard(Arc::clone(&self.open))
    }

    pub async fn drain_started(&mut self) {
        self.reached(Stage::Draining).await;
    }

    pub async fn terminated(&mut self) {
        self.reached(Stage::Terminating).await;
    }

    pub(super) async fn reached(&mut self, wanted: Stage) {
        // If every `Shutdown` was dropped, nothing can start the next stage. This counts as the end.
        let _ = self.stage.wait_for(|stage| *stage >= wanted).await;
    }
}

#[derive(Debug)]
struct ConnectionGuard {
    open: Arc<OpenCounts>,
    _permit: OwnedSemaphorePermit,
    _of_runtime: ConnectionCount,
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        self.open.connections.send_modify(|count| *count -= 1);
    }
}

#[derive(Debug)]
pub(super) struct RequestGuard(Arc<OpenCounts>);

impl Drop for RequestGuard {
    fn drop(&mut self) {
        self.0.requests.fetch_sub(1, Ordering::Relaxed);
    }
}

#[derive(Debug)]
pub(super) struct CallGuard(Arc<OpenCounts>);

impl Drop for CallGuard {
    fn drop(&mut self) {
        self.0.calls.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
impl Default for CallGuard {
    fn default() -> Self {
        Shutdown::new().drain().call_guard()
    }
}
