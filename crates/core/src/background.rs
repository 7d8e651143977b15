//! Threads with a lower priority than traffic, so that traffic does not wait for them when all
//! cores are busy.

use std::io;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

/// The kind of work of such a thread, which decides its priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackgroundWork {
    /// A little work for every call, which has to keep up with traffic, or an answer that somebody waits for.
    Steady,
    /// Much work at a time, which may be late: big bodies.
    Bursts,
    /// Work that may wait for as long as traffic wants the cores, since nothing is lost meanwhile: a sink that reads a ledger.
    WheneverIdle,
}

#[cfg(target_os = "linux")]
impl BackgroundWork {
    /// By how much its nice value is above that of traffic: when both compete for a core, it
    /// gets a quarter of it or a tenth; the last kind has a [policy](set_idle_policy) besides. Added to the nice value of the process.
    fn niceness(self) -> i32 {
        match self {
            BackgroundWork::Steady => 5,
            BackgroundWork::Bursts => 10,
            BackgroundWork::WheneverIdle => 19,
        }
    }
}

/// Starts a thread of that kind.
///
/// # Errors
/// If the system cannot start a thread.
pub fn spawn<T: Send + 'static>(
    name: impl Into<String>,
    work: BackgroundWork,
    run: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    Builder::new().name(name.into()).spawn(move || {
        lower_priority(work);
        run()
    })
}

/// To be called by a thread with long work every tenth of a millisecond or so, to let threads
/// that wait for its core run first: a scheduler lets even a nice thread run for milliseconds.
pub fn yield_now() {
    std::thread::yield_now();
}

/// Lets other threads run every quarter of a millisecond of long work that has many short parts. To yield costs a thread
/// its turn, so it is not done after each part.
#[derive(Debug)]
pub struct Pauses {
    since: Instant,
}

impl Default for Pauses {
    fn default() -> Pauses {
        Pauses {
            since: Instant::now(),
        }
    }
}

impl Pauses {
    /// Yields where the last time is long enough ago. To be called after each part.
    pub fn between(&mut self) {
        const AFTER: Duration = Duration::from_micros(250);
        if self.since.elapsed() >= AFTER {
            yield_now();
            self.since = Instant::now();
        }
    }
}

/// Lowers the priority of this thread, for a pool whose threads are not [spawned](spawn) here. On Linux a priority is
/// a thread's, elsewhere the process's, which keeps it.
#[cfg_attr(not(target_os = "linux"), expect(unused_variables))]
pub fn lower_priority(work: BackgroundWork) {
    #[cfg(target_os = "linux")]
    {
        if work == BackgroundWork::WheneverIdle && !set_idle_policy() {
            tracing::debug!("a thread that may wait has the lowest nice value only");
        }
        if let Err(error) = set_niceness(work.niceness()) {
            tracing::debug!(%error, "a thread in the background keeps the priority of traffic");
        }
    }
}

/// Gives this thread the policy `SCHED_IDLE`, and says whether it has it. Traffic that wakes takes the core from such a
/// thread at once; for one with a high nice value it may have to wait for milliseconds.
#[cfg(target_os = "linux")]
fn set_idle_policy() -> bool {
    use thread_priority::{NormalThreadSchedulePolicy, ThreadPriority, ThreadSchedulePolicy};
    use thread_priority::{set_thread_priority_and_policy, thread_native_id};
    let idle = ThreadSchedulePolicy::Normal(NormalThreadSchedulePolicy::Idle);
    // It sets a nice value of 0 after the policy, which may be refused: the policy stays all the same.
    let _ = set_thread_priority_and_policy(thread_native_id(), ThreadPriority::Min, idle);
    thread_priority::thread_schedule_policy().is_ok_and(|policy| policy == idle)
}

/// Sets the nice value of this thread to `more` above that of the process's first thread, from
/// which the threads of traffic inherit theirs. The maximum is 19.
#[cfg(target_os = "linux")]
fn set_niceness(more: i32) -> rustix::io::Result<()> {
    use rustix::process::{getpid, getpriority_process, setpriority_process};
    let traffic = getpriority_process(Some(getpid()))?;
    setpriority_process(None, (traffic + more).min(19))
}

/// Puts a marker into a queue and waits until the reader has taken it out: at most `patience`
/// for room in the queue, and as long for the reader. `queue` says whether there was room.
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
