//! Threads for what has time: on a machine, or in a container, whose cores are all wanted,
//! traffic is not to wait for them.

use std::io;
use std::thread::{Builder, JoinHandle};

/// How much nicer they are than traffic: where both want one core, they get a quarter of it.
#[cfg(target_os = "linux")]
const NICE: i32 = 5;

/// Starts a thread of that kind.
///
/// # Errors
/// Where the system gives none.
pub(crate) fn spawn<T: Send + 'static>(
    name: impl Into<String>,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    Builder::new().name(name.into()).spawn(move || {
        step_back();
        work()
    })
}

/// On Linux a priority is a thread's, elsewhere the process's.
fn step_back() {
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::process::setpriority_process(None, NICE) {
        tracing::debug!(%error, "a thread in the background keeps the priority of traffic");
    }
}
