//! The background thread for work that is too expensive to do inline.

use super::guard::guarded;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::time::Duration;
use tokengauge_core::background::{self, BackgroundWork, wait_behind};
use tokengauge_core::batch_queue::{BatchQueue, TakeOutcome};
use tokengauge_core::memory::{Memory, Reclaim};

/// The limit for queued jobs, without the batch that is running. The memory limit of all calls
/// bounds what they hold.
const QUEUE: usize = 4096;
/// How long jobs are gathered into a batch. A batch ends earlier if it is large or one job is
/// urgent.
const GATHER_TIME: Duration = Duration::from_millis(5);

pub(crate) type Job = Box<dyn FnOnce(Executor) + Send>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Executor {
    Background,
    /// On a thread of traffic, because the queue is full. Only cheap work is done there.
    Traffic,
}

enum Message {
    Job(Job),
    Flush(SyncSender<()>),
}

pub(crate) struct Worker {
    queue: Arc<BatchQueue<Message>>,
}

impl Worker {
    /// Starts the thread, which also returns freed pages of `memory` to the system.
    pub(crate) fn start(memory: &Arc<Memory>) -> Worker {
        Worker::with_queue(QUEUE, memory)
    }

    fn with_queue(length: usize, memory: &Arc<Memory>) -> Worker {
        let queue = Arc::new(BatchQueue::new(length));
        let (jobs, reclaim) = (Arc::clone(&queue), Reclaim::new(memory));
        if let Err(error) = background::spawn("meter", BackgroundWork::Bursts, move || {
            work(&jobs, reclaim)
        }) {
            tracing::error!(%error, "cannot start the measuring thread: large bodies will not be measured");
            queue.close();
        }
        Worker { queue }
    }

    /// Queues a job, or returns it if the queue is full. The job may wait for [`GATHER_TIME`] even
    /// if there are no others.
    pub(crate) fn queue(&self, job: Job) -> Result<(), Job> {
        self.queue.push(Message::Job(job)).map_err(job_of)
    }

    /// Queues a job whose result somebody waits for. It runs after all queued jobs, but does not
    /// wait for further ones.
    pub(crate) fn queue_urgent(&self, job: Job) -> Result<(), Job> {
        self.queue.push_urgent(Message::Job(job)).map_err(job_of)
    }

    /// Waits at most `patience` until all queued jobs are done.
    pub(crate) fn flush(&self, patience: Duration) -> bool {
        wait_behind(
            |done| self.queue.push_urgent(Message::Flush(done)).is_ok(),
            patience,
        )
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.queue.close();
    }
}

fn job_of(message: Message) -> Job {
    match message {
        Message::Job(job) => job,
        Message::Flush(_) => unreachable!("only jobs are given back"),
    }
}

fn work(queue: &BatchQueue<Message>, mut reclaim: Reclaim) {
    let mut batch = Vec::new();
    loop {
        match queue.take(&mut batch, Some(Reclaim::EVERY)) {
            TakeOutcome::Batch => {}
            TakeOutcome::TimedOut => {
                reclaim.tick();
                continue;
            }
            TakeOutcome::Closed => return,
        }
        for message in batch.drain(..) {
            match message {
                Message::Job(job) => {
                    let _ = guarded(|| job(Executor::Background));
                }
                Message::Flush(done) => {
                    let _ = done.send(());
                }
            }
        }
        queue.gather(GATHER_TIME);
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
        // This skips the panic hook, which takes seconds to print a backtrace on a busy machine.
        let panics = |_: Executor| std::panic::resume_unwind(Box::new("in a test"));
        assert!(worker.queue(Box::new(panics)).is_ok());
        let (done, seen) = channel();
        assert!(
            worker
                .queue(Box::new(move |_| done.send(()).expect("listening")))
                .is_ok()
        );
        seen.recv_timeout(PATIENCE).expect("the next job runs");
    }
}
