//! The one background thread for what is too big to be measured inline.

use super::guard::guarded;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::Duration;
use tokengauge_core::background::wait_behind;
use tokengauge_core::background::{self, BackgroundWork};
use tokengauge_core::memory::{Memory, Reclaim};

/// Jobs that can wait. What they hold is bounded by the memory of all calls.
const QUEUE: usize = 4096;

/// Something to do in the background.
pub(crate) type Job = Box<dyn FnOnce(Executor) + Send>;

/// Where a job runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Executor {
    /// On the background thread: it may take its time.
    Background,
    /// On a traffic thread, the background being full: only what costs nothing.
    Traffic,
}

enum Message {
    Job(Job),
    Flush(SyncSender<()>),
}

/// The sending end of the thread's queue.
#[derive(Debug)]
pub(crate) struct Worker {
    queue: SyncSender<Message>,
}

impl Worker {
    /// Also gives back to the system what calls have freed of `memory`.
    pub(crate) fn start(memory: &Arc<Memory>) -> Worker {
        Worker::with_queue(QUEUE, memory)
    }

    fn with_queue(length: usize, memory: &Arc<Memory>) -> Worker {
        let (queue, jobs) = sync_channel(length);
        let reclaim = Reclaim::new(memory);
        if let Err(error) = background::spawn("meter", BackgroundWork::Bursts, move || {
            work(&jobs, reclaim)
        }) {
            tracing::error!(%error, "no thread for measuring: big bodies will not be measured");
        }
        Worker { queue }
    }

    /// Queues a job after all others; gives it back where too many wait.
    pub(crate) fn queue(&self, job: Job) -> Result<(), Job> {
        match self.queue.try_send(Message::Job(job)) {
            Err(
                TrySendError::Full(Message::Job(job))
                | TrySendError::Disconnected(Message::Job(job)),
            ) => Err(job),
            _ => Ok(()),
        }
    }

    /// Waits until everything queued is done, at most `patience`.
    pub(crate) fn flush(&self, patience: Duration) -> bool {
        wait_behind(
            |done| self.queue.try_send(Message::Flush(done)).is_ok(),
            patience,
        )
    }
}

fn work(jobs: &Receiver<Message>, mut reclaim: Reclaim) {
    loop {
        match jobs.recv_timeout(Reclaim::EVERY) {
            Ok(Message::Job(job)) => {
                let _ = guarded(|| job(Executor::Background));
            }
            Ok(Message::Flush(done)) => {
                let _ = done.send(());
            }
            Err(RecvTimeoutError::Timeout) => reclaim.tick(),
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    const PATIENCE: Duration = Duration::from_secs(10);

    #[test]
    fn a_full_queue_gives_the_job_back_and_never_waits() {
        let worker = Worker::with_queue(1, &Memory::unbounded());
        let (release, held) = channel::<()>();
        let (begun, running) = channel();
        let hold = move |_| {
            let _ = begun.send(());
            let _ = held.recv();
        };
        assert!(worker.queue(Box::new(hold)).is_ok());
        running.recv_timeout(PATIENCE).expect("the first job runs");
        assert!(worker.queue(Box::new(|_| {})).is_ok(), "one may wait");
        assert!(worker.queue(Box::new(|_| {})).is_err(), "two may not");
        release.send(()).expect("the job waits for it");
        assert!(worker.flush(PATIENCE));
    }

    #[test]
    fn a_job_that_panics_does_not_take_the_thread_along() {
        let worker = Worker::with_queue(8, &Memory::unbounded());
        assert!(worker.queue(Box::new(|_| panic!("in a test"))).is_ok());
        let (done, seen) = channel();
        assert!(
            worker
                .queue(Box::new(move |_| done.send(()).expect("listening")))
                .is_ok()
        );
        seen.recv_timeout(PATIENCE).expect("the next job runs");
    }
}
