//! The ledger's thread: takes finished calls from a bounded queue and writes them in batches.
//! What cannot be written is counted and dropped; traffic never waits for it.

use super::backlog::Backlog;
use super::retention::Limits;
use super::row::milliseconds;
use super::store::Store;
use super::stored_call::StoredCall;
use super::undelivered::SinkUpdate;
use super::write_error::WriteError;
use crate::marks::PendingMark;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::time::{Duration, Instant, SystemTime};
use tokengauge_core::cells::{Counter, Gauge};
use tokengauge_core::log_interval::LogInterval;
use tokengauge_core::throughput::ThroughputTick;
use tokengauge_meter::FinishedCall;

/// A batch is written when it has so many records,
const BATCH: usize = 1_000;
/// or when its first one has waited so long.
const BATCH_AFTER: Duration = Duration::from_millis(500);
/// How long to wait after a failure before the file is opened again.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// How often retention runs while there is nothing to delete.
const TIDY_EVERY: Duration = Duration::from_secs(5);

/// The reason after which a file is checked for damage.
const DAMAGED: &str = "damaged";

/// A message to the thread.
pub(super) enum Message {
    Finished(Arc<FinishedCall>),
    Throughput(ThroughputTick),
    Mark(PendingMark),
    Flush(SyncSender<()>),
    /// How far a sink is; answered with whether it is in the file.
    Sink(SinkUpdate, SyncSender<bool>),
}

/// The metrics of the ledger.
#[derive(Clone)]
pub struct LedgerMetrics {
    /// Records in committed batches.
    pub written: Counter,
    /// Records lost, by reason; see [`WriteError::REASONS`].
    pub lost: HashMap<&'static str, Counter>,
    /// Names that became `other`.
    pub collapsed: Counter,
    /// Size of the file and its log.
    pub bytes: Gauge,
    /// 1 while the file is open for writing, otherwise 0.
    pub writable: Gauge,
}

impl LedgerMetrics {
    /// With a cell for each reason.
    pub fn new(
        written: Counter,
        lost: impl Fn(&'static str) -> Counter,
        collapsed: Counter,
        bytes: Gauge,
        writable: Gauge,
    ) -> LedgerMetrics {
        let lost = WriteError::REASONS.map(|reason| (reason, lost(reason)));
        LedgerMetrics {
            written,
            lost: lost.into(),
            collapsed,
            bytes,
            writable,
        }
    }

    pub(super) fn lose(&self, reason: &str, records: u64) {
        if let Some(counter) = self.lost.get(reason) {
            counter.increment(records);
        }
    }
}

/// The settings of a ledger.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The file.
    pub path: PathBuf,
    /// How much is kept.
    pub limits: Limits,
    /// The sinks that want every call.
    pub sinks: Vec<String>,
    /// The monotonic clock, for pauses.
    pub clock: fn() -> Instant,
    /// The wall clock, for ages.
    pub wall: fn() -> SystemTime,
}

/// The writer, which runs on the thread.
pub(super) struct Writer {
    settings: Settings,
    figures: LedgerMetrics,
    backlog: Arc<Backlog>,
    store: Option<Store>,
    /// The file is not opened again before this instant.
    retry_at: Option<Instant>,
    /// Why it cannot be written to.
    reason: &'static str,
    failure_log: LogInterval,
    tidy_at: Instant,
}

#[derive(Default)]
struct Batch {
    finished_calls: Vec<Arc<FinishedCall>>,
    tick: ThroughputTick,
    marks: Vec<PendingMark>,
    waiting: Option<SyncSender<()>>,
    over: bool,
}

impl Writer {
    pub(super) fn new(settings: Settings, figures: LedgerMetrics, backlog: Arc<Backlog>) -> Writer {
        Writer {
            tidy_at: (settings.clock)(),
            settings,
            figures,
            backlog,
            store: None,
            retry_at: None,
            reason: "failed",
            failure_log: LogInterval::default(),
        }
    }

    pub(super) fn run(&mut self, messages: &Receiver<Message>) {
        self.open();
        loop {
            let mut batch = self.collect(messages);
            self.write(&batch);
            self.mark(std::mem::take(&mut batch.marks));
            if let Some(waiting) = batch.waiting {
                let _ = waiting.send(());
            }
            if batch.over {
                return;
            }
            self.tidy();
        }
    }

    /// Waits for the next batch, or until there is something to tidy up.
    fn collect(&mut self, messages: &Receiver<Message>) -> Batch {
        let mut batch = Batch::default();
        let mut due = None;
        let awaited = |batch: &Batch| {
            let mark = batch.marks.last().is_some_and(PendingMark::is_awaited);
            mark || batch.waiting.is_some()
        };
        while batch.finished_calls.len() < BATCH && !awaited(&batch) {
            let now = (self.settings.clock)();
            let until = due.unwrap_or(self.tidy_at);
            match messages.recv_timeout(until.saturating_duration_since(now)) {
                Ok(Message::Finished(finished_call)) => {
                    self.backlog.remove();
                    batch.finished_calls.push(finished_call);
                }
                Ok(Message::Throughput(tick)) => {
                    batch.tick.deltas.extend(tick.deltas);
                    batch.tick.busy.extend(tick.busy);
                }
                Ok(Message::Mark(mark)) => batch.marks.push(mark),
                Ok(Message::Flush(waiting)) => batch.waiting = Some(waiting),
                Ok(Message::Sink(update, done)) => {
                    let _ = done.send(self.save_progress(&update));
                    continue;
                }
                Err(RecvTimeoutError::Timeout) => break,
                Err(RecvTimeoutError::Disconnected) => {
                    batch.over = true;
                    break;
                }
            }
            due.get_or_insert(now + BATCH_AFTER);
        }
        batch
    }

    fn write(&mut self, batch: &Batch) {
        if batch.finished_calls.is_empty() && batch.tick == ThroughputTick::default() {
            return;
        }
        self.open();
        let finished_calls = batch.finished_calls.iter();
        let kept: Vec<_> = finished_calls
            .map(|call| StoredCall::of_finished(call))
            .collect();
        let Some(store) = &mut self.store else {
            self.figures.lose(self.reason, kept.len() as u64);
            return;
        };
        match store.write_all(&kept, &batch.tick) {
            Ok(written) => {
                self.figures.written.increment(written.records);
                self.figures.collapsed.increment(written.collapsed);
            }
            Err(error) => {
                self.figures.lose(error.reason(), kept.len() as u64);
                self.fail(&error);
            }
        }
        self.weigh();
    }

    fn mark(&mut self, marks: Vec<PendingMark>) {
        for pending in marks {
            self.open();
            let Some(store) = &mut self.store else {
                pending.settle(Err(self.reason));
                continue;
            };
            match store.mark(&pending.mark) {
                Ok(id) => pending.settle(Ok(id)),
                Err(error) => {
                    pending.settle(Err(error.reason()));
                    self.fail(&error);
                }
            }
        }
    }

    /// Opens the file where it is not open, unless that has just failed.
    fn open(&mut self) {
        let now = (self.settings.clock)();
        if self.store.is_some() || self.retry_at.is_some_and(|at| now < at) {
            return;
        }
        let suspect = self.reason == DAMAGED;
        let opened = Store::open_file(&self.settings.path, suspect);
        let opened = opened.and_then(|mut store| {
            store.deliver_to(&self.settings.sinks)?;
            store.pause_for_traffic(&self.backlog)?;
            Ok(store)
        });
        match opened {
            Ok(store) => {
                if self.failure_log.recovered() {
                    tracing::info!(file = %self.settings.path.display(), "the ledger is written to again");
                }
                self.store = Some(store);
                self.figures.writable.set(1.0);
                self.reason = "failed";
                self.weigh();
            }
            Err(error) => self.fail(&error),
        }
    }

    /// Closes the file for a moment, and logs why at most once a minute.
    fn fail(&mut self, error: &WriteError) {
        let now = (self.settings.clock)();
        self.store = None;
        self.figures.writable.set(0.0);
        self.reason = error.reason();
        self.retry_at = Some(now + RETRY_AFTER);
        if self.failure_log.should_log(now) {
            let file = self.settings.path.display();
            tracing::error!(%file, "the ledger loses records, calls go on: {error}");
        }
    }

    /// Sinks go on from here; nothing of the batch that is being collected is in the file yet.
    fn save_progress(&mut self, update: &SinkUpdate) -> bool {
        self.open();
        let Some(store) = &mut self.store else {
            return false;
        };
        match store.save_progress(update) {
            Ok(known) => known,
            Err(error) => {
                self.fail(&error);
                false
            }
        }
    }

    /// A step of retention, and soon another where there is more to do.
    fn tidy(&mut self) {
        let now = (self.settings.clock)();
        if now < self.tidy_at {
            return;
        }
        self.tidy_at = now + TIDY_EVERY;
        let wall = milliseconds((self.settings.wall)());
        // Without calls nothing else opens the file again after a failure.
        self.open();
        let Some(store) = &mut self.store else {
            return;
        };
        match store.tidy(wall, &self.settings.limits) {
            Ok(true) => self.tidy_at = now + BATCH_AFTER / 10,
            Ok(false) => {}
            Err(error) => self.fail(&error),
        }
        self.weigh();
    }

    fn weigh(&self) {
        let size = |ending: &str| {
            let file = tokengauge_files::private::with_ending(&self.settings.path, ending);
            std::fs::metadata(file).map_or(0, |file| file.len())
        };
        self.figures.bytes.set((size("") + size("-wal")) as f64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::Ledger;
    use std::path::Path;
    use tokengauge_core::observer::{CallStart, End, Observer};
    use tokengauge_meter::settings::Measure;
    use tokengauge_meter::{Meter, RecentCalls, Subscriber};

    const TIMEOUT: Duration = Duration::from_secs(20);

    fn figures() -> LedgerMetrics {
        LedgerMetrics::new(
            Counter::default(),
            |_| Counter::default(),
            Counter::default(),
            Gauge::default(),
            Gauge::default(),
        )
    }

    fn settings(path: &Path) -> Settings {
        Settings {
            path: path.to_owned(),
            limits: Limits {
                age: Duration::from_secs(30 * 86_400),
                bytes: 1 << 30,
            },
            sinks: Vec::new(),
            clock: Instant::now,
            wall: SystemTime::now,
        }
    }

    fn writer(path: &Path, figures: &LedgerMetrics) -> Writer {
        let backlog = Arc::new(Backlog::new(BATCH));
        Writer::new(settings(path), figures.clone(), backlog)
    }

    fn finished_calls(count: usize) -> Vec<Arc<FinishedCall>> {
        let recent = RecentCalls::new(count);
        let subscribers: Vec<Arc<dyn Subscriber>> = vec![recent.clone()];
        let meter = Meter::new(Measure::default(), subscribers);
        for _ in 0..count {
            let now = Instant::now();
            let call = meter.begin(CallStart {
                received: now,
                started_at: SystemTime::now(),
                method: &http::Method::GET,
                uri: &http::Uri::from_static("/v1/models"),
                headers: &http::HeaderMap::new(),
                peer: None,
                port: None,
                route: &"route".into(),
                upstream: &"upstream".into(),
                dialect: None,
                workload: None,
                inject_usage: false,
                variant: None,
            });
            call.ended(now, End::Complete);
        }
        assert!(meter.flush(TIMEOUT));
        recent.newest(count)
    }

    fn batch(finished_calls: &[Arc<FinishedCall>]) -> Batch {
        Batch {
            finished_calls: finished_calls.to_vec(),
            ..Batch::default()
        }
    }

    fn lost(figures: &LedgerMetrics, reason: &str) -> u64 {
        figures.lost[reason].value()
    }

    #[test]
    fn a_full_disk_costs_the_batch_and_the_next_one_is_written_when_there_is_room() {
        let folder = tempfile::tempdir().expect("a folder");
        let figures = figures();
        let mut writer = writer(&folder.path().join("l.sqlite"), &figures);
        writer.open();
        let store = writer.store.as_ref().expect("open");
        let pages = "PRAGMA max_page_count = 1";
        // SQLite takes the present size for the smallest bound.
        store
            .connection()
            .query_row(pages, [], |_| Ok(()))
            .expect("a bound");
        let finished_calls = finished_calls(500);
        writer.write(&batch(&finished_calls));
        assert_eq!(
            (figures.written.value(), lost(&figures, "disk_full")),
            (0, 500)
        );
        assert_eq!(figures.writable.value(), 0.0);
        writer.write(&batch(&finished_calls[..10]));
        assert_eq!(lost(&figures, "disk_full"), 510, "left alone for a moment");
        writer.retry_at = None;
        writer.tidy_at = Instant::now();
        writer.tidy();
        assert_eq!(figures.writable.value(), 1.0, "without a call");
        writer.write(&batch(&finished_calls));
        assert_eq!(
            (figures.written.value(), lost(&figures, "disk_full")),
            (500, 510)
        );
        assert!(figures.bytes.value() > 100_000.0);
    }

    #[test]
    fn a_folder_that_cannot_be_made_costs_records_until_it_can() {
        let folder = tempfile::tempdir().expect("a folder");
        let in_the_way = folder.path().join("state");
        std::fs::write(&in_the_way, "no folder").expect("a file");
        let figures = figures();
        let mut writer = writer(&in_the_way.join("l.sqlite"), &figures);
        let finished_calls = finished_calls(3);
        writer.write(&batch(&finished_calls));
        assert_eq!(
            (figures.written.value(), lost(&figures, "unwritable")),
            (0, 3)
        );
        std::fs::remove_file(&in_the_way).expect("removed");
        writer.retry_at = None;
        writer.write(&batch(&finished_calls));
        assert_eq!(
            (figures.written.value(), lost(&figures, "unwritable")),
            (3, 3)
        );
    }

    #[test]
    fn a_file_of_a_newer_version_is_left_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("l.sqlite");
        drop(Store::open(&path).expect("opens"));
        let newer = rusqlite::Connection::open(&path).expect("opens");
        newer.pragma_update(None, "user_version", 99).expect("set");
        let figures = figures();
        let mut writer = writer(&path, &figures);
        writer.write(&batch(&finished_calls(2)));
        assert_eq!(
            (figures.written.value(), lost(&figures, "newer_version")),
            (0, 2)
        );
    }

    #[test]
    fn records_behind_a_stuck_disk_are_counted_and_no_call_waits() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("l.sqlite");
        let figures = figures();
        let ledger = Ledger::with_queue(settings(&path), figures.clone(), 2).expect("starts");
        let all = finished_calls(40);
        ledger.finished(&all[0]);
        ledger.flush();
        assert_eq!(figures.written.value(), 1);
        let other = rusqlite::Connection::open(&path).expect("opens");
        other.execute_batch("BEGIN IMMEDIATE").expect("locked");
        ledger.finished(&all[1]);
        // Its batch is due, and waits for the lock.
        std::thread::sleep(BATCH_AFTER * 2);
        let begun = Instant::now();
        all[2..]
            .iter()
            .for_each(|finished_call| ledger.finished(finished_call));
        assert!(begun.elapsed() < Duration::from_secs(1), "nobody waits");
        // Two may wait, and the writer may have taken one more or not.
        let lost = lost(&figures, "queue");
        assert!((35..=37).contains(&lost), "{lost}");
        other.execute_batch("ROLLBACK").expect("free");
        ledger.flush();
        assert_eq!(figures.written.value(), 40 - lost);
        assert_eq!(ledger.backlog.waiting(), 0);
    }
}
