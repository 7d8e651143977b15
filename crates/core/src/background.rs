//! Threads with a lower priority than the threads of traffic, for when all cores are busy.

use std::io;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

/// The kind of work of a background thread, which decides its priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackgroundWork {
    /// A little work per call that must keep up with traffic, or a response that somebody waits
    /// for.
    Steady,
    /// Work that is expensive and may be late, such as large bodies.
    Bursts,
    /// Work that can wait until traffic leaves a core idle without losing data, such as a sink that
    /// reads the ledger.
    WheneverIdle,
}

#[cfg(target_os = "linux")]
impl BackgroundWork {
    /// How much is added to the nice value of the process. A thread at 5 or 10 gets about a quarter
    /// or a tenth of a core that it shares with traffic. `WheneverIdle` also has a [scheduling
    /// policy](set_idle_policy).
    fn niceness(self) -> i32 {
        match self {
            BackgroundWork::Steady => 5,
            BackgroundWork::Bursts => 10,
            BackgroundWork::WheneverIdle => 19,
        }
    }
}

/// Starts a thread with the priority for `work`.
///
/// # Errors
/// Returns an error if the system cannot start a thread.
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

/// Lets waiting threads run on this core. Call it about every tenth of a millisecond in long work,
/// because a scheduler lets even a thread with a high nice value run for milliseconds.
pub fn yield_now() {
    std::thread::yield_now();
}

/// Yields every quarter of a millisecond in work that has many short parts. Yielding after each
/// part would be too expensive.
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
    /// Yields if the last yield was long enough ago. Call it after each part.
    pub fn between(&mut self) {
        const AFTER: Duration = Duration::from_micros(250);
        if self.since.elapsed() >= AFTER {
            yield_now();
            self.since = Instant::now();
        }
    }
}

/// Lowers the priority of the current thread, for pools that do not start their threads with
/// [`spawn`]. Linux only: elsewhere a priority applies to the whole process, so nothing is changed.
#[cfg_attr(not(target_os = "linux"), expect(unused_variables))]
pub fn lower_priority(work: BackgroundWork) {
    #[cfg(target_os = "linux")]
    {
        if work == BackgroundWork::WheneverIdle && !set_idle_policy() {
            tracing::debug!(
                "cannot set SCHED_IDLE for a background thread; the thread runs at the lowest nice value instead"
            );
        }
        if let Err(error) = set_niceness(work.niceness()) {
            tracing::debug!(%error, "cannot lower the priority of a background thread; the thread runs with the priority of traffic");
        }
    }
}

/// Sets the policy `SCHED_IDLE` for the current thread and returns whether it is active. Traffic
/// preempts such a thread at once, but may wait milliseconds for a thread with a high nice value.
#[cfg(target_os = "linux")]
fn set_idle_policy() -> bool {
    use thread_priority::{NormalThreadSchedulePolicy, ThreadPriority, ThreadSchedulePolicy};
    use thread_priority::{set_thread_priority_and_policy, thread_native_id};
    let idle = ThreadSchedulePolicy::Normal(NormalThreadSchedulePolicy::Idle);
    // The call may fail in its second step, which sets the nice value. The policy is already set
    // then.
    let _ = set_thread_priority_and_policy(thread_native_id(), ThreadPriority::Min, idle);
    thread_priority::thread_schedule_policy().is_ok_and(|policy| policy == idle)
}

#[cfg(target_os = "linux")]
fn set_niceness(more: i32) -> rustix::io::Result<()> {
    // The threads of traffic inherit the nice value of the first thread of the process.
    use rustix::process::{getpid, getpriority_process, setpriority_process};
    let traffic = getpriority_process(Some(getpid()))?;
    setpriority_process(None, (traffic + more).min(19))
}

/// Queues a marker and waits until the reader has received it. Waits at most `patience` for room in
/// the queue, and again as long for the reader. `queue` returns whether there was room. Returns
/// whether the marker was received.
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
