//! Hands finished calls to the subscribers, on a thread of their own.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::Duration;
use tokengauge_core::background::{self, Work, wait_behind};
use tokengauge_core::finished::FinishedCall;
use tokengauge_core::subscriber::{Stream, Subscriber, TokenObserver};

/// Finished calls that wait for the subscribers' thread; more are dropped and counted.
const QUEUE: usize = 8192;
/// After so many finished calls, or this long after the last one, subscribers tidy up.
const TIDY_EVERY: u32 = 256;
const TIDY_AFTER: Duration = Duration::from_secs(1);

enum Message {
    Finished(Arc<FinishedCall>),
    Flush(SyncSender<()>),
}

/// The subscribers and their thread.
pub(crate) struct Subscribers {
    all: Arc<[Arc<dyn Subscriber>]>,
    queue: SyncSender<Message>,
    dropped: AtomicU64,
}

impl Subscribers {
    pub(crate) fn new(all: Vec<Arc<dyn Subscriber>>) -> Subscribers {
        Subscribers::with_queue(all, QUEUE)
    }

    fn with_queue(all: Vec<Arc<dyn Subscriber>>, length: usize) -> Subscribers {
        let all: Arc<[Arc<dyn Subscriber>]> = all.into();
        let (queue, messages) = sync_channel(length);
        let subscribers = Arc::clone(&all);
        let run = move || deliver(&subscribers, &messages);
        if let Err(error) = background::spawn("findings", Work::Steady, run) {
            tracing::error!(%error, "no thread for finished calls: none will be recorded");
        }
        Subscribers {
            all,
            queue,
            dropped: AtomicU64::new(0),
        }
    }

    /// Everyone who wants to watch `stream`.
    pub(crate) fn watch(&self, stream: &Stream<'_>) -> Box<[Box<dyn TokenObserver>]> {
        let all = self.all.iter();
        all.filter_map(|subscriber| subscriber.watch(stream))
            .collect()
    }

    /// Hands a finished call over; drops and counts it where too many wait.
    pub(crate) fn finished(&self, finished_call: FinishedCall) {
        if let Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) = self
            .queue
            .try_send(Message::Finished(Arc::new(finished_call)))
        {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Finished calls that nobody got to see.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Waits until everything handed over has been taken and flushed, at most `patience`.
    pub(crate) fn flush(&self, patience: Duration) -> bool {
        wait_behind(&self.queue, Message::Flush, patience)
    }
}

fn deliver(all: &[Arc<dyn Subscriber>], messages: &Receiver<Message>) {
    let mut untidy = 0;
    loop {
        let message = if untidy == 0 {
            messages.recv().map_err(|_| RecvTimeoutError::Disconnected)
        } else {
            messages.recv_timeout(TIDY_AFTER)
        };
        match message {
            Ok(Message::Finished(finished_call)) => {
                each(all, |subscriber| subscriber.finished(&finished_call));
                untidy += 1;
            }
            Ok(Message::Flush(done)) => {
                each(all, |subscriber| subscriber.flush());
                let _ = done.send(());
            }
            Err(RecvTimeoutError::Timeout) => untidy = TIDY_EVERY,
            Err(RecvTimeoutError::Disconnected) => break,
        }
        if untidy >= TIDY_EVERY {
            each(all, |subscriber| subscriber.tidy());
            untidy = 0;
        }
    }
    each(all, |subscriber| subscriber.flush());
}

/// A subscriber that panics loses that one call and nobody else's.
fn each(all: &[Arc<dyn Subscriber>], act: impl Fn(&dyn Subscriber)) {
    for subscriber in all {
        let act = std::panic::AssertUnwindSafe(|| act(subscriber.as_ref()));
        if std::panic::catch_unwind(act).is_err() {
            tracing::error!("a subscriber of the meter panicked");
        }
    }
}
