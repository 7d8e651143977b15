//! A runtime for the admin address on a separate thread, so that it answers even if the traffic threads are busy. Long
//! responses, such as a scrape, are made on other threads with a lower priority.

use std::io;
use std::thread;
use tokengauge_core::background::{self, BackgroundWork};
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

/// Blocking threads for responses and ledger queries. Further work waits.
pub(super) const BLOCKING: usize = 8;

/// A single-threaded runtime that ends when this is dropped.
pub struct AdminRuntime {
    handle: Handle,
    _end: oneshot::Sender<()>,
}

impl AdminRuntime {
    /// # Errors
    /// Fails if the thread cannot be started.
    pub fn start() -> io::Result<AdminRuntime> {
        let runtime = Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(BLOCKING)
            .thread_name("admin-work")
            .on_thread_start(|| background::lower_priority(BackgroundWork::Steady))
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

    pub fn handle(&self) -> &Handle {
        &self.handle
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    /// The nice value of this thread, field 19 of proc(5)'s `stat`.
    fn niceness() -> i32 {
        let stat = std::fs::read_to_string("/proc/thread-self/stat").expect("Linux has it");
        let (_, fields) = stat.rsplit_once(") ").expect("a name in brackets");
        let nice = fields.split(' ').nth(16).expect("the 19th field");
        nice.parse().expect("a number")
    }

    #[tokio::test]
    async fn what_takes_long_has_a_lower_priority_than_probes_and_traffic() {
        let traffic = niceness();
        let admin = AdminRuntime::start().expect("starts");
        let probes = admin.handle().spawn(async { niceness() });
        let work = admin.handle().spawn_blocking(niceness);
        assert_eq!(probes.await.expect("runs"), traffic);
        assert_eq!(work.await.expect("runs"), (traffic + 5).min(19));
    }
}
