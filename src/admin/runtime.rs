//! A thread of its own: operators are answered however busy the threads of traffic are.

use std::io;
use std::thread;
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

/// Threads on which answers are worked out, questions to the ledger among them; more wait.
pub(super) const BLOCKING: usize = 8;

/// A runtime of one thread, which ends when this is dropped.
pub struct AdminRuntime {
    handle: Handle,
    _end: oneshot::Sender<()>,
}

impl AdminRuntime {
    /// Starts the thread.
    ///
    /// # Errors
    /// Where the system gives none.
    pub fn start() -> io::Result<AdminRuntime> {
        let runtime = Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(BLOCKING)
            .build()?;
        let handle = runtime.handle().clone();
        let (end, ended) = oneshot::channel();
        let thread = thread::Builder::new().name("admin".into());
        thread.spawn(move || {
            // Dropping the other end is the end.
            let _ = runtime.block_on(ended);
            runtime.shutdown_background();
        })?;
        Ok(AdminRuntime { handle, _end: end })
    }

    /// Where to spawn tasks for it.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }
}
