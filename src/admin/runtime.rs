//! A runtime for the admin address on a thread of its own, so that it answers however busy
//! the threads of traffic are.

use std::io;
use std::thread;
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

/// Blocking threads for answers and queries to the ledger; further work waits.
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
    /// Where the thread cannot be started.
    pub fn start() -> io::Result<AdminRuntime> {
        let runtime = Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(BLOCKING)
            .build()?;
        let handle = runtime.handle().clone();
        let (end, ended) = oneshot::channel();
        let thread = thread::Builder::new().name("admin".into());
        thread.spawn(move || {
            // Dropping the sender ends the runtime.
            let _ = runtime.block_on(ended);
            runtime.shutdown_background();
        })?;
        Ok(AdminRuntime { handle, _end: end })
    }

    /// The handle with which tasks are spawned on it.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }
}
