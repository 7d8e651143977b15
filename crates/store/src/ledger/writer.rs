//! The ledger's thread: takes finished calls from a bounded queue and writes them in batches. Calls
//! that cannot be written are counted and dropped. Traffic never waits for it.

use super::Shared;
use super::backlog::COMMIT_WITHIN;
use super::database::{BatchResult, LedgerDatabase};
use super::file::{FileContents, Identity, Place, summed_calls};
use super::ledger_call::LedgerCall;
use super::retention::Limits;
use super::retention_clock::Now;
use super::row::milliseconds;
use super::sinks::SinkUpdate;
use super::undelivered::Cursors;
use super::write_error::WriteError;
use crate::pending_mark::PendingMark;
use crate::pending_scores::PendingScores;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::time::{Duration, Instant, SystemTime};
use tokengauge_core::cells::{Counter, Gauge};
use tokengauge_core::log_interval::LogInterval;
use tokengauge_core::throughput::ThroughputTick;
use tokengauge_meter::FinishedCall;

/// A batch with this number of records is written at once.
const BATCH: usize = 1_000;
/// A batch is written this long after the end of its oldest call.
const BATCH_AFTER: Duration = Duration::from_millis(COMMIT_WITHIN.as_millis() as u64 / 2);
/// Maximum time for adding calls to one transaction. The next transaction takes the remaining
/// calls.
const TRANSACTION: Duration = Duration::from_millis(COMMIT_WITHIN.as_millis() as u64 / 4);
/// How long to wait after a failure before the file is opened again.
const RETRY_AFTER: Duration = Duration::from_secs(1);
const TIDY_EVERY: Duration = Duration::from_secs(5);
const TIDY_AGAIN: Duration = Duration::from_millis(50);
/// Minimum interval between complete checks of a file that seems damaged, because they read all of
/// it.
const CHECK_EVERY: Duration = Duration::from_secs(600);

/// The reason for which a file is checked for damage.
const DAMAGED: &str = "damaged";

pub(super) enum Message {
    Finished(Arc<FinishedCall>),
    Throughput(ThroughputTick),
    Mark(PendingMark),
    Scores(PendingScores),
    Flush(SyncSender<()>),
    /// The progress of a sink. The response is whether it was saved.
    Sink(SinkUpdate, SyncSender<bool>),
}

#[derive(Clone)]
pub struct LedgerMetrics {
    pub written: Counter,
    /// Seconds from the end of the oldest call of the last batch until the commit.
    pub delay: Gauge,
    /// Records lost, by reason; see [`WriteError::REASONS`].
    pub lost: HashMap<&'static str, Counter>,
    pub collapsed: Counter,
    pub bytes: Gauge,
    /// 1 while the file is open for writing, otherwise 0.
    pub writable: Gauge,
}

impl LedgerMetrics {
    pub fn new(
        (written, delay): (Counter, Gauge),
        lost: impl Fn(&'static str) -> Counter,
        collapsed: Counter,
        bytes: Gauge,
        writable: Gauge,
    ) -> LedgerMetrics {
        let lost = WriteError::REASONS.map(|reason| (reason, lost(reason)));
        LedgerMetrics {
            written,
            delay,
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

#[derive(Clone, Debug)]
pub struct Settings {
    pub path: PathBuf,
    pub limits: Limits,
    /// The sinks that get every call.
    pub sinks: Vec<String>,
    /// The monotonic clock, for pauses.
    pub clock: fn() -> Instant,
    /// The wall clock, for ages.
    pub wall: fn() -> SystemTime,
}

pub(super) struct Writer {
    shared: Arc<Shared>,
    ledger: Option<LedgerDatabase>,
    file: Option<KnownFile>,
    /// The file is not opened again before this instant.
    retry_at: Option<Instant>,
    reason: &'static str,
    /// Whether to check the file for damage when it is opened.
    suspect: bool,
    checked_at: Option<Instant>,
    failure_log: LogInterval,
    tidy_at: Instant,
}

/// What is known about a file without reading it.
struct KnownFile {
    identity: Option<Identity>,
    calls: u64,
    cursors: Cursors,
}

#[derive(Default)]
struct Batch {
    finished_calls: Vec<Arc<FinishedCall>>,
    tick: ThroughputTick,
    marks: Vec<PendingMark>,
    scores: Vec<PendingScores>,
    waiting: Option<SyncSender<()>>,
    over: bool,
}

impl Writer {
    pub(super) fn new(shared: Arc<Shared>) -> Writer {
        Writer {
            tidy_at: (shared.settings.clock)(),
            shared,
            ledger: None,
            file: None,
            retry_at: None,
            reason: "failed",
            suspect: false,
            checked_at: None,
            failure_log: LogInterval::default(),
        }
    }

    pub(super) fn run(&mut self, messages: &Receiver<Message>) {
        self.open();
        loop {
            let mut batch = self.collect(messages);
            self.write(&batch);
            self.mark(std::mem::take(&mut batch.marks));
            self.score(std::mem::take(&mut batch.scores));
            if let Some(waiting) = batch.waiting {
                let _ = waiting.send(());
            }
            if batch.over {
                return;
            }
            self.tidy();
            self.shared.backlog.rest();
        }
    }

    fn now(&self) -> Instant {
        (self.shared.settings.clock)()
    }

    /// Waits for the next batch, or until retention is due.
    fn collect(&mut self, messages: &Receiver<Message>) -> Batch {
        let mut batch = Batch::default();
        let mut due = None;
        let awaited = |batch: &Batch| {
            let mark = batch.marks.last().is_some_and(PendingMark::is_awaited);
            mark || !batch.scores.is_empty() || batch.waiting.is_some()
        };
        while batch.finished_calls.len() < BATCH && !awaited(&batch) {
            let now = self.now();
            let until = due.unwrap_or(self.tidy_at);
            let mut since = now;
            match messages.recv_timeout(until.saturating_duration_since(now)) {
                Ok(Message::Finished(finished_call)) => {
                    self.shared.backlog.remove();
                    since = finished_call.ended;
                    batch.finished_calls.push(finished_call);
                }
                Ok(Message::Throughput(tick)) => {
                    batch.tick.deltas.extend(tick.deltas);
                    batch.tick.busy.extend(tick.busy);
                }
                Ok(Message::Mark(mark)) => batch.marks.push(mark),
                Ok(Message::Scores(scores)) => batch.scores.push(scores),
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
            let first = due.map_or(since, |due| since.min(due - BATCH_AFTER));
            due = Some(first + BATCH_AFTER);
        }
        batch
    }

    fn write(&mut self, batch: &Batch) {
        let (calls, mut tick) = (&batch.finished_calls, &batch.tick);
        let none = ThroughputTick::default();
        if calls.is_empty() && *tick == none {
            return;
        }
        let stored: Vec<_> = calls
            .iter()
            .map(|call| LedgerCall::of_finished(call))
            .collect();
        let mut done = 0;
        loop {
            let oldest = calls[done..].iter().map(|call| call.ended).min();
            if let Some(oldest) = oldest {
                self.shared.backlog.work(oldest);
            }
            match self.commit(&stored[done..], tick) {
                Ok(written) => {
                    let figures = &self.shared.figures;
                    figures.written.increment(written.records);
                    figures.collapsed.increment(written.collapsed);
                    if let Some(oldest) = oldest {
                        let delay = self.now().saturating_duration_since(oldest);
                        figures.delay.set(delay.as_secs_f64());
                    }
                    done += written.records as usize;
                    tick = &none;
                }
                Err(reason) => {
                    self.shared.lose(reason, &calls[done..]);
                    done = calls.len();
                }
            }
            if done >= calls.len() {
                break;
            }
        }
        self.weigh();
    }

    /// Writes the first of these calls in one transaction.
    fn commit(
        &mut self,
        calls: &[LedgerCall<'_>],
        tick: &ThroughputTick,
    ) -> Result<BatchResult, &'static str> {
        // If the file was removed or replaced meanwhile, the calls are written again to the file at
        // the path.
        for _ in 0..2 {
            self.open();
            let clock = self.shared.settings.clock;
            let begun = clock();
            let is_late = || clock().saturating_duration_since(begun) >= TRANSACTION;
            let Some(ledger) = &mut self.ledger else {
                return Err(self.reason);
            };
            match ledger.write_all(calls, tick, &is_late) {
                Ok(written) if ledger.is_in_place() => {
                    if let Some(file) = &mut self.file {
                        file.calls += written.records;
                    }
                    self.works();
                    return Ok(written);
                }
                Ok(written) => self.look(written.records),
                Err(error) => {
                    self.fail(&error);
                    return Err(error.reason());
                }
            }
        }
        Err(WriteError::Removed.reason())
    }

    fn mark(&mut self, marks: Vec<PendingMark>) {
        for pending in marks {
            self.open();
            let Some(ledger) = &mut self.ledger else {
                pending.settle(Err(self.reason));
                continue;
            };
            match ledger.mark(&pending.mark) {
                Ok(id) => pending.settle(Ok(id)),
                Err(error) => {
                    pending.settle(Err(error.reason()));
                    self.fail(&error);
                }
            }
        }
    }

    fn score(&mut self, scores: Vec<PendingScores>) {
        for pending in scores {
            self.open();
            let Some(ledger) = &mut self.ledger else {
                pending.settle(Err(self.reason));
                continue;
            };
            match ledger.score(&pending.scores) {
                Ok(()) => pending.settle(Ok(())),
                Err(error) => {
                    pending.settle(Err(error.reason()));
                    self.fail(&error);
                }
            }
        }
    }

    /// Closes a file that is no longer at its path. Its calls are lost, except the `newest`, which
    /// are written again.
    fn look(&mut self, newest: u64) {
        let Some(ledger) = &self.ledger else {
            return;
        };
        match ledger.opened.place() {
            Place::Same => {}
            Place::WithoutLog => {
                ledger.opened.fold();
                drop(self.close());
            }
            Place::Gone => {
                let contents = self.close().map(|ledger| ledger.opened.leave());
                let contents = contents.unwrap_or_default().without(newest);
                self.lose_file(&WriteError::Removed, &contents);
            }
        }
    }

    fn close(&mut self) -> Option<LedgerDatabase> {
        let mut ledger = self.ledger.take()?;
        if let Some(file) = &mut self.file {
            file.cursors = std::mem::take(&mut ledger.cursors);
        }
        Some(ledger)
    }

    /// Counts the calls of a lost file.
    fn lose_file(&mut self, why: &WriteError, contents: &FileContents) {
        let known = self.file.take();
        // If the number is unknown, at least one call was lost.
        let about = || known.as_ref().map_or(0, |known| known.calls).max(1);
        let calls = contents.calls.unwrap_or_else(about);
        let waiting = || known.as_ref().map(|known| known.cursors.waiting());
        let undelivered = contents.undelivered.clone().or_else(waiting);
        self.shared.figures.lose(why.reason(), calls);
        self.shared.condition.lose(undelivered.unwrap_or_default());
        let file = self.shared.settings.path.display();
        tracing::error!(%file, calls, "the ledger lost the calls of its file and continues with another file: {why}");
    }

    /// Opens the file if necessary, unless opening has just failed.
    fn open(&mut self) {
        self.look(0);
        let now = self.now();
        if self.ledger.is_some() || self.retry_at.is_some_and(|at| now < at) {
            return;
        }
        let settings = &self.shared.settings;
        let suspect = self.suspect || self.reason == DAMAGED;
        let opened = LedgerDatabase::open_file(&settings.path, suspect).and_then(|mut ledger| {
            ledger.deliver_to(&settings.sinks)?;
            ledger.pause_for_traffic(&self.shared)?;
            Ok(ledger)
        });
        match opened {
            Ok(mut ledger) => {
                if suspect {
                    self.checked_at = Some(now);
                }
                self.suspect = false;
                self.reason = "failed";
                self.retry_at = None;
                let (identity, is_new) = (ledger.opened.identity, ledger.opened.is_new);
                let is_other = |known: &KnownFile| is_new || known.identity != identity;
                if let Some(contents) = ledger.opened.put_aside.take() {
                    let why = WriteError::Damaged("it was renamed".to_owned());
                    self.lose_file(&why, &contents);
                } else if self.file.as_ref().is_some_and(is_other) {
                    // The file was removed or emptied while it was closed.
                    self.lose_file(&WriteError::Removed, &FileContents::default());
                }
                self.file.get_or_insert_with(|| KnownFile {
                    identity,
                    calls: summed_calls(ledger.connection()).unwrap_or(0),
                    cursors: Cursors::default(),
                });
                self.ledger = Some(ledger);
                self.shared.condition.has_opened();
                self.weigh();
            }
            Err(error) => self.fail(&error),
        }
    }

    fn works(&mut self) {
        if self.shared.condition.set_unwritable(None) {
            self.shared.figures.writable.set(1.0);
        }
        if self.failure_log.recovered() {
            let file = self.shared.settings.path.display();
            tracing::info!(%file, "the ledger can be written to again");
        }
    }

    /// Closes the file for a moment, and logs why at most once a minute.
    fn fail(&mut self, error: &WriteError) {
        let now = self.now();
        drop(self.close());
        self.reason = error.reason();
        self.shared.condition.set_unwritable(Some(self.reason));
        self.shared.figures.writable.set(0.0);
        self.retry_at = Some(now + RETRY_AFTER);
        if self.failure_log.should_log(now) {
            let file = self.shared.settings.path.display();
            tracing::error!(%file, "the ledger loses records, traffic continues: {error}");
        }
    }

    /// Saves the progress of a sink. The batch that is being collected is not in the file yet.
    fn save_progress(&mut self, update: &SinkUpdate) -> bool {
        self.open();
        // Numbers of another file refer to other calls.
        if update.opened != self.shared.condition.opened() {
            return false;
        }
        let Some(ledger) = &mut self.ledger else {
            return false;
        };
        match ledger.save_progress(update) {
            Ok(known) => known,
            Err(error) => {
                self.fail(&error);
                false
            }
        }
    }

    fn tidy(&mut self) {
        let now = self.now();
        if now < self.tidy_at {
            return;
        }
        self.shared.backlog.work(now);
        self.tidy_at = now + TIDY_EVERY;
        self.check(now);
        // Without calls, only this opens the file again after a failure.
        self.open();
        let Some(ledger) = &mut self.ledger else {
            return;
        };
        let settings = &self.shared.settings;
        let wall_ms = milliseconds((settings.wall)());
        let now = Now {
            monotonic: now,
            wall_ms,
        };
        match ledger.tidy(now, &settings.limits) {
            Ok(more) => {
                if more {
                    self.tidy_at = now.monotonic + TIDY_AGAIN;
                }
                self.works();
            }
            Err(error) => self.fail(&error),
        }
        self.weigh();
    }

    /// Closes a file that seems damaged, so that it is checked when it is opened again.
    fn check(&mut self, now: Instant) {
        if self.checked_at.is_some_and(|at| now < at + CHECK_EVERY) {
            return;
        }
        let seems_damaged = |ledger: &LedgerDatabase| ledger.opened.seems_damaged();
        let found = self.shared.condition.take_suspicion();
        if found || self.ledger.as_ref().is_some_and(seems_damaged) {
            drop(self.close());
            self.suspect = true;
        }
    }

    fn weigh(&self) {
        let size = |ending: &str| {
            let file = tokengauge_files::private::with_ending(&self.shared.settings.path, ending);
            std::fs::metadata(file).map_or(0, |file| file.len())
        };
        let bytes = size("") + size("-wal");
        self.shared.figures.bytes.set(bytes as f64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::Ledger;
    use crate::ledger::backlog::Backlog;
    use crate::ledger::reader::Reader;
    use std::path::Path;
    use tokengauge_core::observer::{CallStart, End, Observer};
    use tokengauge_meter::settings::Measure;
    use tokengauge_meter::{Meter, RecentCalls, Subscriber};

    const TIMEOUT: Duration = Duration::from_secs(20);

    fn figures() -> LedgerMetrics {
        LedgerMetrics::new(
            (Counter::default(), Gauge::default()),
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
        writer_with(settings(path), figures, Vec::new())
    }

    fn writer_with(
        settings: Settings,
        figures: &LedgerMetrics,
        unwritten: Vec<Arc<dyn Subscriber>>,
    ) -> Writer {
        Writer::new(Arc::new(Shared {
            backlog: Backlog::new(BATCH, settings.clock),
            settings,
            figures: figures.clone(),
            unwritten,
            condition: Arc::default(),
        }))
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
        let ledger = writer.ledger.as_ref().expect("open");
        let pages = "PRAGMA max_page_count = 1";
        // SQLite does not accept a smaller bound than the present size.
        ledger
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
        drop(LedgerDatabase::open(&path).expect("opens"));
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

    fn counted(connection: &rusqlite::Connection) -> i64 {
        let count = connection.query_row("SELECT count(*) FROM calls", [], |row| row.get(0));
        count.expect("a count")
    }

    fn calls_in(path: &Path) -> i64 {
        counted(&rusqlite::Connection::open(path).expect("opens"))
    }

    #[test]
    fn a_log_that_is_removed_costs_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("l.sqlite");
        let figures = figures();
        let mut writer = writer(&path, &figures);
        let calls = finished_calls(7);
        writer.write(&batch(&calls[..3]));
        for ending in ["-wal", "-shm"] {
            let log = tokengauge_files::private::with_ending(&path, ending);
            std::fs::remove_file(log).expect("removed");
        }
        writer.write(&batch(&calls[3..]));
        assert_eq!(figures.written.value(), 7);
        assert_eq!(lost(&figures, "removed"), 0);
        drop(writer);
        assert_eq!(calls_in(&path), 7);
    }

    #[test]
    fn a_file_that_is_renamed_is_whole_and_a_new_one_has_what_comes_then() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("l.sqlite");
        let figures = figures();
        let mut writer = writer(&path, &figures);
        let calls = finished_calls(7);
        writer.write(&batch(&calls[..3]));
        let elsewhere = folder.path().join("elsewhere.sqlite");
        std::fs::rename(&path, &elsewhere).expect("renamed");
        writer.write(&batch(&calls[3..]));
        assert_eq!((figures.written.value(), lost(&figures, "removed")), (7, 3));
        drop(writer);
        assert_eq!((calls_in(&elsewhere), calls_in(&path)), (3, 4));
    }

    #[test]
    fn calls_that_are_written_while_the_file_is_removed_are_written_again_and_not_lost() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("l.sqlite");
        let settings = Settings {
            clock: clock::now,
            sinks: vec!["store".to_owned()],
            ..settings(&path)
        };
        let figures = figures();
        let mut writer = writer_with(settings, &figures, Vec::new());
        let calls = finished_calls(9);
        writer.write(&batch(&calls[..3]));
        let others = calls[3..].iter();
        let others: Vec<_> = others.map(|call| LedgerCall::of_finished(call)).collect();
        clock::removes(&path);
        let written = writer.commit(&others, &ThroughputTick::default());
        assert_eq!(written.expect("written").records, 6);
        assert_eq!(lost(&figures, "removed"), 3);
        assert_eq!(writer.shared.condition.lost("store"), 3);
        drop(writer);
        assert_eq!(calls_in(&path), 6);
    }

    #[test]
    fn a_log_that_is_removed_while_somebody_reads_costs_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("l.sqlite");
        let figures = figures();
        let mut writer = writer(&path, &figures);
        let calls = finished_calls(7);
        writer.write(&batch(&calls[..3]));
        let reader = Reader::new(&path, Instant::now);
        let seen = || reader.ask(|connection| Ok(counted(connection)));
        assert_eq!(seen().expect("an answer"), 3);
        for ending in ["-wal", "-shm"] {
            let log = tokengauge_files::private::with_ending(&path, ending);
            std::fs::remove_file(log).expect("removed");
        }
        writer.write(&batch(&calls[3..]));
        assert_eq!((figures.written.value(), lost(&figures, "removed")), (7, 0));
        assert_eq!(seen().expect("an answer"), 7);
        drop(reader);
        drop(writer);
        assert_eq!(calls_in(&path), 7);
    }

    #[test]
    fn a_file_that_is_emptied_while_somebody_reads_is_begun_anew() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("l.sqlite");
        let figures = figures();
        let mut writer = writer(&path, &figures);
        let calls = finished_calls(7);
        writer.write(&batch(&calls[..3]));
        let reader = rusqlite::Connection::open(&path).expect("opens");
        assert_eq!(counted(&reader), 3);
        let file = std::fs::File::options().write(true).open(&path);
        file.expect("opens").set_len(0).expect("emptied");
        writer.fail(&WriteError::Damaged("it is empty".to_owned()));
        writer.retry_at = None;
        writer.write(&batch(&calls[3..]));
        assert_eq!((figures.written.value(), lost(&figures, "removed")), (7, 3));
        drop(reader);
        drop(writer);
        assert_eq!(calls_in(&path), 4);
    }

    #[test]
    fn a_file_that_went_while_it_could_not_be_written_is_counted_when_another_is_there() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("l.sqlite");
        let figures = figures();
        let mut writer = writer(&path, &figures);
        let calls = finished_calls(5);
        writer.write(&batch(&calls[..3]));
        writer.fail(&WriteError::Failed("no disk".to_owned()));
        let other = folder.path().join("other.sqlite");
        drop(LedgerDatabase::open(&other).expect("opens"));
        std::fs::rename(other, &path).expect("replaced");
        writer.retry_at = None;
        writer.write(&batch(&calls[3..]));
        assert_eq!((figures.written.value(), lost(&figures, "removed")), (5, 3));
    }

    /// A clock for tests that moves only when the test says so.
    mod clock {
        use std::cell::{Cell, RefCell};
        use std::path::{Path, PathBuf};
        use std::time::{Duration, Instant};

        thread_local! {
            static REMOVED: RefCell<Option<PathBuf>> = const { RefCell::new(None) };
            static LOOKS: Cell<u32> = const { Cell::new(0) };
            static NOW: Cell<Option<Instant>> = const { Cell::new(None) };
            static STEP: Cell<Duration> = const { Cell::new(Duration::ZERO) };
        }

        /// From now on every reading of the clock takes `step`.
        pub fn steps(step: Duration) {
            STEP.set(step);
        }

        /// A commit reads the clock when it opens the file, when its transaction begins, and after
        /// each call.
        const IN_A_TRANSACTION: u32 = 3;

        /// Removes the file during the transaction of the next commit.
        pub fn removes(path: &Path) {
            LOOKS.set(0);
            REMOVED.set(Some(path.to_owned()));
        }

        pub fn now() -> Instant {
            LOOKS.set(LOOKS.get() + 1);
            if LOOKS.get() == IN_A_TRANSACTION
                && let Some(path) = REMOVED.take()
            {
                std::fs::remove_file(path).expect("removed");
            }
            let now = NOW.get().unwrap_or_else(Instant::now) + STEP.get();
            NOW.set(Some(now));
            now
        }
    }

    fn ended_before(call: &Arc<FinishedCall>, now: Instant, ago: Duration) -> Message {
        let ended = now.checked_sub(ago).expect("an instant");
        Message::Finished(Arc::new(FinishedCall {
            ended,
            ..FinishedCall::clone(call)
        }))
    }

    #[test]
    fn a_batch_is_due_by_the_end_of_its_first_call_however_late_it_comes_and_others_follow() {
        let folder = tempfile::tempdir().expect("a folder");
        let settings = Settings {
            clock: clock::now,
            ..settings(&folder.path().join("l.sqlite"))
        };
        let mut writer = writer_with(settings, &figures(), Vec::new());
        let calls = finished_calls(3);
        let (queue, messages) = std::sync::mpsc::sync_channel(BATCH);
        let send = |message| {
            writer.shared.backlog.add();
            queue.send(message).expect("room");
        };
        let now = clock::now();
        // The calls waited until others were measured.
        send(ended_before(&calls[0], now, BATCH_AFTER / 2));
        send(ended_before(&calls[1], now, BATCH_AFTER));
        send(ended_before(&calls[2], now, Duration::ZERO));
        let begun = Instant::now();
        let batch = writer.collect(&messages);
        assert_eq!(batch.finished_calls.len(), 3, "what is there goes with it");
        assert!(begun.elapsed() < BATCH_AFTER / 2, "it does not wait");
        writer.write(&batch);
        let delay = writer.shared.figures.delay.value();
        assert_eq!(delay, BATCH_AFTER.as_secs_f64());
    }

    #[test]
    fn a_batch_that_takes_long_is_written_in_several_transactions() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("l.sqlite");
        let settings = Settings {
            clock: clock::now,
            ..settings(&path)
        };
        let figures = figures();
        let mut writer = writer_with(settings, &figures, Vec::new());
        let calls = finished_calls(40);
        writer.open();
        let changes = "PRAGMA data_version";
        let watcher = rusqlite::Connection::open(&path).expect("opens");
        let version = || -> i64 {
            let version = watcher.query_row(changes, [], |row| row.get(0));
            version.expect("a version")
        };
        clock::steps(TRANSACTION / 10);
        let before = version();
        let stored: Vec<_> = calls
            .iter()
            .map(|call| LedgerCall::of_finished(call))
            .collect();
        let first = writer.commit(&stored, &ThroughputTick::default());
        let first = first.expect("written").records;
        assert!((5..15).contains(&first), "{first} in the time of one");
        assert_ne!(version(), before, "they are in the file");
        writer.write(&batch(&calls));
        assert_eq!(figures.written.value(), 40, "the others follow");
    }

    #[test]
    fn a_call_that_is_not_written_is_handed_on() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("l.sqlite");
        let holder = LedgerDatabase::open(&path).expect("opens");
        let (figures, others) = (figures(), RecentCalls::new(10));
        let mut writer = writer_with(settings(&path), &figures, vec![others.clone()]);
        let calls = finished_calls(4);
        writer.write(&batch(&calls[..3]));
        assert_eq!((lost(&figures, "locked"), others.newest(10).len()), (3, 3));
        drop(holder);
        writer.retry_at = None;
        writer.write(&batch(&calls[3..]));
        assert_eq!((figures.written.value(), others.newest(10).len()), (1, 3));
    }

    #[test]
    fn records_behind_a_stuck_disk_are_counted_and_no_call_waits() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("l.sqlite");
        let figures = figures();
        let ledger =
            Ledger::with_queue(settings(&path), figures.clone(), Vec::new(), 2).expect("starts");
        let all = finished_calls(40);
        ledger.finished(&all[0]);
        ledger.flush();
        assert_eq!(figures.written.value(), 1);
        let other = rusqlite::Connection::open(&path).expect("opens");
        other.execute_batch("BEGIN IMMEDIATE").expect("locked");
        ledger.finished(&all[1]);
        // The batch is due, and waits for the lock.
        std::thread::sleep(BATCH_AFTER * 2);
        let begun = Instant::now();
        all[2..]
            .iter()
            .for_each(|finished_call| ledger.finished(finished_call));
        assert!(begun.elapsed() < Duration::from_secs(1), "nobody waits");
        // Two calls may wait, and the writer may have taken one more.
        let lost = lost(&figures, "queue");
        assert!((35..=37).contains(&lost), "{lost}");
        other.execute_batch("ROLLBACK").expect("free");
        ledger.flush();
        assert_eq!(figures.written.value(), 40 - lost);
        assert_eq!(ledger.shared.backlog.waiting(), 0);
    }
}
