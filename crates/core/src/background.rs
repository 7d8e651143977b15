//! Threads for what has time: on a machine, or in a container, whose cores are all wanted,
//! traffic is not to wait for them.

use std::io;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

/// What such a thread does, which tells how far it steps back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackgroundWork {
    /// A little for every call: it has to keep up with traffic.
    Steady,
    /// Much at a time, and only for big bodies.
    Bursts,
}

#[cfg(target_os = "linux")]
impl BackgroundWork {
    /// How much nicer it is than traffic: where both want one core, it gets a quarter of
    /// it or a tenth. Added to what the process was started with.
    fn niceness(self) -> i32 {
        match self {
            BackgroundWork::Steady => 5,
            BackgroundWork::Bursts => 10,
        }
    }
}

/// Starts a thread of that kind.
///
/// # Errors
/// Where the system gives none.
pub fn spawn<T: Send + 'static>(
    name: impl Into<String>,
    work: BackgroundWork,
    run: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    Builder::new().name(name.into()).spawn(move || {
        step_back(work);
        run()
    })
}

/// Called by a thread with long work, every tenth of a millisecond or so: who waits for
/// its core goes first. A scheduler lets even a nice thread have a turn of milliseconds.
pub fn yield_now() {
    std::thread::yield_now();
}

/// On Linux a priority is a thread's, elsewhere the process's.
#[cfg_attr(not(target_os = "linux"), expect(unused_variables))]
fn step_back(work: BackgroundWork) {
    #[cfg(target_os = "linux")]
    if let Err(error) = set_niceness(work.niceness()) {
        tracing::debug!(%error, "a thread in the background keeps the priority of traffic");
    }
}

/// Makes this thread so much nicer than the process's first one, which traffic's threads are
/// started from. 19 is the most there is.
#[cfg(target_os = "linux")]
fn set_niceness(more: i32) -> rustix::io::Result<()> {
    use rustix::process::{getpid, getpriority_process, setpriority_process};
    let traffic = getpriority_process(Some(getpid()))?;
    setpriority_process(None, (traffic + more).min(19))
}

/// Puts a marker into a queue and waits, at most `patience` for each, until there is room for
/// it and until it has come out at the other end. `queue` says whether there was room.
pub fn wait_behind(queue: impl Fn(SyncSender<()>) -> bool, patience: Duration) -> bool {
    const PAUSE: Duration = Duration::from_millis(2);
    let (done, over) = sync_channel(1);
    let mut waited = Duration::ZERO;
    while !queue(done.clone()) {
        if waited >= patience {
            return false;
        }
        std::thread::sleep(PAUSE);
        waited += PAUSE;
    }
    over.recv_timeout(patience).is_ok()
}
