//! Hands finished calls to the subscribers, on a separate thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::SyncSender;
use std::time::Duration;
use tokengauge_core::background::{self, BackgroundWork, wait_behind};
use tokengauge_core::batch_queue::{BatchQueue, TakeOutcome};
use tokengauge_core::finished::FinishedCall;
use tokengauge_core::subscriber::{Stream, Subscriber, TokenObserver};

/// The limit for finished calls that wait for the subscribers' thread. Further calls are dropped
/// and counted.
const QUEUE: usize = 8192;
/// How long finished calls are gathered into a batch. A batch ends earlier if it is large or one
/// call is urgent. Waking the thread for one call takes about as much processor time as two events
/// of a stream.
const GATHER_TIME: Duration = Duration::from_millis(50);
/// Subscribers do their housekeeping after this number of finished calls, or when [`TIDY_AFTER`]
/// has passed.
const TIDY_EVERY: u32 = 256;
const TIDY_AFTER: Duration = Duration::from_secs(1);

enum Message {
    Finished(Arc<FinishedCall>),
    Flush(SyncSender<()>),
}

pub(crate) struct Subscribers {
    all: Arc<[Arc<dyn Subscriber>]>,
    queue: Arc<BatchQueue<Message>>,
    dropped: AtomicU64,
}

impl Subscribers {
    pub(crate) fn new(all: Vec<Arc<dyn Subscriber>>) -> Subscribers {
        let all: Arc<[Arc<dyn Subscriber>]> = all.into();
        let queue = Arc::new(BatchQueue::new(QUEUE));
        let (subscribers, messages) = (Arc::clone(&all), Arc::clone(&queue));
        let run = move || deliver(&subscribers, &messages);
        if let Err(error) = background::spawn("subscribers", BackgroundWork::Steady, run) {
            tracing::error!(%error, "cannot start the thread for finished calls: no call will be recorded");
        }
        Subscribers {
            all,
            queue,
            dropped: AtomicU64::new(0),
        }
    }

    pub(crate) fn watch(&self, stream: &Stream<'_>) -> Box<[Box<dyn TokenObserver>]> {
        let all = self.all.iter();
        all.filter_map(|subscriber| subscriber.watch(stream))
            .collect()
    }

    /// Queues a finished call, or drops and counts it if the queue is full. A call that counts for
    /// a blocking budget is delivered at once, because the next call may depend on it.
    pub(crate) fn finished(&self, finished_call: FinishedCall) {
        let urgent = !finished_call.charges.is_empty();
        let message = Message::Finished(Arc::new(finished_call));
        let pushed = if urgent {
            self.queue.push_urgent(message)
        } else {
            self.queue.push(message)
        };
        if pushed.is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Waits at most `patience` until all queued calls have been taken and flushed.
    pub(crate) fn flush(&self, patience: Duration) -> bool {
        let queue = |done| self.queue.push_urgent(Message::Flush(done)).is_ok();
        wait_behind(queue, patience)
    }
}

impl Drop for Subscribers {
    fn drop(&mut self) {
        self.queue.close();
    }
}

fn deliver(all: &[Arc<dyn Subscriber>], messages: &BatchQueue<Message>) {
    let mut batch = Vec::new();
    let mut untidy = 0;
    loop {
        let patience = (untidy > 0).then_some(TIDY_AFTER);
        let taken = messages.take(&mut batch, patience);
        for message in batch.drain(..) {
            match message {
                Message::Finished(finished_call) => {
                    each(all, |subscriber| subscriber.finished(&finished_call));
                    untidy += 1;
                }
                Message::Flush(done) => {
                    each(all, |subscriber| subscriber.flush());
                    let _ = done.send(());
                }
            }
        }
        if untidy >= TIDY_EVERY || taken == TakeOutcome::TimedOut {
            each(all, |subscriber| subscriber.tidy());
            untidy = 0;
        }
        match taken {
            TakeOutcome::Closed => break,
            TakeOutcome::Batch => messages.gather(GATHER_TIME),
            TakeOutcome::TimedOut => {}
        }
    }
    each(all, |subscriber| subscriber.flush());
}

/// Calls each subscriber. A subscriber that panics loses this call; the others still get it.
fn each(all: &[Arc<dyn Subscriber>], act: impl Fn(&dyn Subscriber)) {
    for subscriber in all {
        let act = std::panic::AssertUnwindSafe(|| act(subscriber.as_ref()));
        if std::panic::catch_unwind(act).is_err() {
            tracing::error!(
                "a subscriber panicked and may have lost a finished call; other subscribers are not affected"
            );
        }
    }
}
