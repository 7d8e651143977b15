//! The ledger: every call record and the sums of every session, in SQLite.
//!
//! One thread writes (`writer`). It gets finished calls through a bounded queue, and each batch is
//! one transaction (`database`). Queries use separate connections ([`Reader`]). The ledger never
//! delays traffic: calls that cannot be written are counted and dropped.

pub(crate) mod aggregates;
mod analyses;
mod backlog;
mod capacity;
mod condition;
mod daily_spending;
mod database;
mod dictionary;
mod distributions;
mod experiment_units;
mod file;
pub(crate) mod interval_union;
mod ledger_call;
mod ledger_figures;
mod marks;
mod names;
mod prompt_blob;
mod reader;
mod retention;
mod retention_clock;
mod rollups;
pub(crate) mod row;
mod scores;
mod sessions;
mod sinks;
mod throughput;
mod undelivered;
mod unsummed;
mod unsummed_marks;
mod write_error;
mod writer;

pub use backlog::COMMIT_WITHIN;
pub use database::{BatchResult, LedgerDatabase};
pub use ledger_call::LedgerCall;
pub use marks::MAX_MARKS;
pub use reader::*;
pub use retention::Limits;
pub use retention_clock::Now;
pub use scores::MAX_SCORES;
pub use sinks::SinkUpdate;
pub use undelivered::{SinkProgress, UndeliveredCall};
pub use write_error::WriteError;
pub use writer::{LedgerMetrics, Settings};

use crate::pending_mark::PendingMark;
use crate::pending_scores::PendingScores;
use backlog::Backlog;
use condition::Condition;
use std::io;
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use tokengauge_core::background::wait_behind;
use tokengauge_core::background::{self, BackgroundWork};
use tokengauge_core::throughput::ThroughputTick;
use tokengauge_meter::{FinishedCall, Meter, Subscriber};
use writer::{Message, Writer};

/// Maximum number of finished calls that wait to be written; further calls are dropped and counted.
const QUEUE: usize = 16_384;
const TIMEOUT: Duration = Duration::from_secs(5);
/// Pause before the next attempt to send to a full queue.
const PAUSE: Duration = Duration::from_millis(5);
/// Interval at which throughput is read from the meter.
const LOOK_EVERY: Duration = Duration::from_secs(1);

pub struct Ledger {
    queue: SyncSender<Message>,
    shared: Arc<Shared>,
}

pub(super) struct Shared {
    settings: Settings,
    figures: LedgerMetrics,
    unwritten: Vec<Arc<dyn Subscriber>>,
    backlog: Backlog,
    condition: Arc<Condition>,
}

impl Shared {
    /// Counts calls as lost, and passes them to the subscribers of unwritten calls.
    fn lose(&self, reason: &'static str, calls: &[Arc<FinishedCall>]) {
        self.figures.lose(reason, calls.len() as u64);
        for call in calls {
            let unwritten = self.unwritten.iter();
            unwritten.for_each(|subscriber| subscriber.finished(call));
        }
    }
}

impl Ledger {
    /// Starts the writer thread. Errors of the file are logged, counted and retried; they do not
    /// prevent the start. Calls that cannot be written are passed to `unwritten`.
    ///
    /// # Errors
    /// Returns an error if the thread cannot be started.
    pub fn start(
        settings: Settings,
        figures: LedgerMetrics,
        unwritten: Vec<Arc<dyn Subscriber>>,
    ) -> io::Result<Arc<Ledger>> {
        Ledger::with_queue(settings, figures, unwritten, QUEUE)
    }

    fn with_queue(
        settings: Settings,
        figures: LedgerMetrics,
        unwritten: Vec<Arc<dyn Subscriber>>,
        length: usize,
    ) -> io::Result<Arc<Ledger>> {
        let (queue, messages) = sync_channel(length);
        let shared = Arc::new(Shared {
            backlog: Backlog::new(length, settings.clock),
            settings,
            figures,
            unwritten,
            condition: Arc::default(),
        });
        let mut writer = Writer::new(Arc::clone(&shared));
        background::spawn("ledger", BackgroundWork::Steady, move || {
            writer.run(&messages)
        })?;
        Ok(Arc::new(Ledger { queue, shared }))
    }

    pub fn reader(&self, clock: fn() -> Instant, limit: Duration) -> Arc<Reader> {
        let condition = Some(Arc::clone(&self.shared.condition));
        Reader::with(&self.shared.settings.path, clock, limit, condition)
    }

    /// Starts to record throughput once a second, until the ledger ends.
    ///
    /// # Errors
    /// Returns an error if the thread cannot be started.
    pub fn look_at(self: &Arc<Self>, meter: &Arc<Meter>) -> io::Result<()> {
        let (ledger, meter) = (Arc::downgrade(self), Arc::downgrade(meter));
        background::spawn("ledger-look", BackgroundWork::Steady, move || {
            look(&ledger, &meter)
        })?;
        Ok(())
    }
}

impl Ledger {
    /// Adds a mark, or counts it as lost if the queue is full.
    pub(crate) fn mark(&self, mark: PendingMark) {
        use TrySendError::{Disconnected, Full};
        if let Err(Full(Message::Mark(mark)) | Disconnected(Message::Mark(mark))) =
            self.queue.try_send(Message::Mark(mark))
        {
            mark.settle(Err("queue"));
        }
    }

    /// Adds scores, or counts them as lost if the queue is full.
    pub(crate) fn add_scores(&self, scores: PendingScores) {
        use TrySendError::{Disconnected, Full};
        if let Err(Full(Message::Scores(scores)) | Disconnected(Message::Scores(scores))) =
            self.queue.try_send(Message::Scores(scores))
        {
            scores.settle(Err("queue"));
        }
    }

    /// Saves the progress of a sink. Returns `false` if the file cannot be written to or the writer
    /// does not respond in time. Blocks, so it must not be called on the threads of traffic.
    pub fn save_progress(&self, update: &SinkUpdate) -> bool {
        let (done, saved) = sync_channel(1);
        let mut message = Message::Sink(update.clone(), done);
        let mut waited = Duration::ZERO;
        while let Err(refused) = self.queue.try_send(message) {
            let TrySendError::Full(back) = refused else {
                return false;
            };
            if waited >= TIMEOUT {
                return false;
            }
            message = back;
            std::thread::sleep(PAUSE);
            waited += PAUSE;
        }
        saved.recv_timeout(TIMEOUT).unwrap_or(false)
    }

    fn take(&self, meter: &Meter) {
        let settings = &self.shared.settings;
        let tick = meter.tick((settings.clock)(), (settings.wall)());
        if tick != ThroughputTick::default() {
            let _ = self.queue.try_send(Message::Throughput(tick));
        }
    }
}

/// Records throughput once a second. The references are weak, so that the thread keeps neither
/// ledger nor meter alive.
fn look(ledger: &Weak<Ledger>, meter: &Weak<Meter>) {
    loop {
        std::thread::sleep(LOOK_EVERY);
        let (Some(ledger), Some(meter)) = (ledger.upgrade(), meter.upgrade()) else {
            return;
        };
        ledger.take(&meter);
    }
}

impl Subscriber for Ledger {
    fn finished(&self, finished_call: &Arc<FinishedCall>) {
        let message = Message::Finished(Arc::clone(finished_call));
        self.shared.backlog.add();
        if self.queue.try_send(message).is_err() {
            self.shared.backlog.remove();
            self.shared
                .lose("queue", std::slice::from_ref(finished_call));
        }
    }

    fn flush(&self) {
        wait_behind(
            |done| self.queue.try_send(Message::Flush(done)).is_ok(),
            TIMEOUT,
        );
    }
}
