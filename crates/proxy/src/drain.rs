//! Ending in order: what is open, who is informed, and when it is cut off.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::time::sleep;

/// How often it is looked, at the end, whether every call has been reported.
const LOOK: Duration = Duration::from_millis(5);

/// How far ending has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stage {
    Serving,
    Draining,
    Terminating,
}

/// Ends the proxy, and knows what it has open. Clones are the same handle.
#[derive(Clone, Debug)]
pub struct Shutdown {
    stage: Arc<watch::Sender<Stage>>,
    load: Arc<OpenCounts>,
}

impl Shutdown {
    /// A handle of a proxy that serves.
    pub fn new() -> Shutdown {
        let stage = Arc::new(watch::Sender::new(Stage::Serving));
        Shutdown {
            stage,
            load: Arc::default(),
        }
    }

    /// Lets what runs come to its end and takes nothing new. The first signal.
    pub fn begin(&self) {
        self.advance(Stage::Draining);
    }

    /// Cuts off whatever is left. The second signal, or the end of the drain timeout.
    pub fn now(&self) {
        self.advance(Stage::Terminating);
    }

    /// Whether the end has begun: not ready for more.
    pub fn is_draining(&self) -> bool {
        *self.stage.borrow() > Stage::Serving
    }

    /// Connections of agents that are open, tunnels included.
    pub fn connections(&self) -> usize {
        *self.load.connections.borrow()
    }

    /// Requests whose response is not over.
    pub fn requests(&self) -> usize {
        self.load.requests.load(Ordering::Relaxed)
    }

    /// Resolves when the end begins.
    pub async fn drain_started(&self) {
        self.drain().drain_started().await;
    }

    /// Resolves when whatever is left has to end.
    pub async fn terminated(&self) {
        self.drain().terminated().await;
    }

    /// For something that is not counted as open.
    pub(super) fn drain(&self) -> Drain {
        Drain {
            stage: self.stage.subscribe(),
            load: Arc::clone(&self.load),
            _lease: None,
        }
    }

    /// For a new connection, which is open until every clone of this is gone.
    pub(super) fn open(&self, permit: OwnedSemaphorePermit) -> Drain {
        self.load.connections.send_modify(|count| *count += 1);
        let lease = ConnectionGuard {
            load: Arc::clone(&self.load),
            _permit: permit,
        };
        Drain {
            stage: self.stage.subscribe(),
            load: Arc::clone(&self.load),
            _lease: Some(Arc::new(lease)),
        }
    }

    /// For a new request, which is under way until this is gone.
    pub(super) fn request(&self) -> RequestGuard {
        self.load.requests.fetch_add(1, Ordering::Relaxed);
        RequestGuard(Arc::clone(&self.load))
    }

    /// Resolves when no connection is open.
    pub(super) async fn all_closed(&self) {
        let mut connections = self.load.connections.subscribe();
        // The sender lives in `self`.
        let _ = connections.wait_for(|count| *count == 0).await;
    }

    /// Resolves when the end of every call has been reported, so that none is missing in what is
    /// recorded last.
    pub(super) async fn all_reported(&self) {
        while self.load.calls.load(Ordering::Relaxed) > 0 {
            sleep(LOOK).await;
        }
    }

    /// Connections that were open when the rest was cut off.
    pub(super) fn aborted_connections(&self) -> usize {
        self.load.aborted.load(Ordering::Relaxed)
    }

    fn advance(&self, to: Stage) {
        self.stage.send_if_modified(|stage| {
            let later = to > *stage;
            if later && to == Stage::Terminating {
                // Counted before any of them can know.
                self.load
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
}

impl Default for OpenCounts {
    fn default() -> Self {
        OpenCounts {
            connections: watch::Sender::new(0),
            requests: AtomicUsize::new(0),
            calls: AtomicUsize::new(0),
            aborted: AtomicUsize::new(0),
        }
    }
}

/// Tells a connection how far ending has come. The connection counts as open, and takes
/// its place within the limit, until every clone is gone: a tunnel keeps one.
#[derive(Clone, Debug)]
pub(super) struct Drain {
    stage: watch::Receiver<Stage>,
    load: Arc<OpenCounts>,
    _lease: Option<Arc<ConnectionGuard>>,
}

impl Drain {
    /// For a new call, whose end has not been reported until this is gone.
    pub fn call(&self) -> CallGuard {
        self.load.calls.fetch_add(1, Ordering::Relaxed);
        CallGuard(Arc::clone(&self.load))
    }

    /// Resolves when no more should be begun.
    pub async fn drain_started(&mut self) {
        self.reached(Stage::Draining).await;
    }

    /// Resolves when what is under way has to end.
    pub async fn terminated(&mut self) {
        self.reached(Stage::Terminating).await;
    }

    pub(super) async fn reached(&mut self, wanted: Stage) {
        // A handle that is gone can end nothing any more: the same as the end.
        let _ = self.stage.wait_for(|stage| *stage >= wanted).await;
    }
}

/// Counts a connection as open, and holds its permit, until it is dropped.
#[derive(Debug)]
struct ConnectionGuard {
    load: Arc<OpenCounts>,
    _permit: OwnedSemaphorePermit,
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        self.load.connections.send_modify(|count| *count -= 1);
    }
}

/// A request whose response is not over.
#[derive(Debug)]
pub(super) struct RequestGuard(Arc<OpenCounts>);

impl Drop for RequestGuard {
    fn drop(&mut self) {
        self.0.requests.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A call whose end has not been reported yet.
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
        Shutdown::new().drain().call()
    }
}
