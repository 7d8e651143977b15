//! Decides when a batch is due, what is retried, and what is given up.

use crate::sink::{Row, SendError, SendErrorKind, Sink};
use crate::source::{Batch, Source, SourceError, Waiting};
use crate::status::{LEDGER, SharedStatus, SinkMetrics};
use crate::table::id;
use backon::Retryable;
use std::time::{Duration, SystemTime};
use tokengauge_core::backoff;
use tokengauge_core::log_interval::LogInterval;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

const SHORTEST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(500);
/// How often the status is updated while nothing is sent.
const REPORT: Duration = Duration::from_secs(1);
/// Longest pause while calls cannot be read from the ledger.
const LONGEST_LEDGER_PAUSE: Duration = Duration::from_secs(5);
/// If a warehouse refuses this many calls one by one and accepts none, the fault is probably not in
/// the calls, so they are kept and retried.
const ALL_REFUSED: usize = 16;
/// Maximum number of refused calls per batch that the log names.
const NAMED: usize = 10;
/// Number of attempts for each batch of a replay.
const TRIES: usize = 6;

pub(crate) struct Delivery<S> {
    pub(crate) name: String,
    pub(crate) sink: S,
    pub(crate) source: Box<dyn Source>,
    pub(crate) batch_rows: usize,
    pub(crate) batch_wait: Duration,
    pub(crate) metrics: SinkMetrics,
    pub(crate) status: SharedStatus,
    pub(crate) number: usize,
    /// Deadline for the last batches; `None` until the process ends.
    pub(crate) end: watch::Receiver<Option<Instant>>,
    pub(crate) wall: fn() -> SystemTime,
    pub(crate) progress: Progress,
}

/// What a delivery remembers between batches.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// When calls of a batch that is not full were first seen.
    first_seen: Option<Instant>,
    failures: u32,
    /// Lost calls that have been counted; `None` before the first check.
    lost: Option<u64>,
    lost_with_files: u64,
    log: LogInterval,
}

enum Next {
    Now,
    After(Duration),
    End,
}

impl<S: Sink> Delivery<S> {
    pub(crate) async fn run(mut self) {
        loop {
            match self.step().await {
                // During a backlog, batches follow each other without a pause.
                Next::Now => {}
                Next::After(pause) => self.pause(pause).await,
                Next::End => break,
            }
        }
        self.end();
    }

    async fn step(&mut self) -> Next {
        let ending = *self.end.borrow();
        // The sender is gone, so no deadline can arrive any more.
        if self.end.has_changed().is_err() {
            return Next::End;
        }
        if ending.is_some_and(|deadline| Instant::now() >= deadline) {
            return Next::End;
        }
        let waiting = match self.source.waiting() {
            Ok(waiting) => waiting,
            Err(error) => return self.no_calls(&error, ending.is_some()),
        };
        self.report(&waiting);
        if !self.due(&waiting, ending.is_some()) {
            return match ending {
                Some(_) => Next::End,
                None => Next::After(POLL.min(self.batch_wait)),
            };
        }
        match self.source.begin(self.batch_rows) {
            Ok(batch) => self.deliver(&batch).await,
            Err(error) => self.no_calls(&error, ending.is_some()),
        }
    }

    fn due(&mut self, waiting: &Waiting, ending: bool) -> bool {
        if waiting.rows == 0 && !waiting.resumes {
            self.progress.first_seen = None;
            return false;
        }
        let first_seen = *self.progress.first_seen.get_or_insert_with(Instant::now);
        ending
            || waiting.resumes
            || waiting.rows >= self.batch_rows as u64
            || first_seen.elapsed() >= self.batch_wait
    }

    async fn deliver(&mut self, batch: &Batch) -> Next {
        let mut end = self.end.clone();
        let sent = tokio::select! {
            biased;
            sent = send(&self.sink, &batch.rows) => sent,
            () = deadline(&mut end) => return Next::End,
        };
        match sent {
            Ok(refused) => self.delivered(batch, &refused),
            Err(error) => self.failed(&error),
        }
    }

    fn delivered(&mut self, batch: &Batch, refused: &[Refusal]) -> Next {
        for refusal in refused.iter().take(NAMED) {
            let (sink, id, reason) = (&self.name, &refusal.id, &refusal.reason);
            tracing::error!(
                sink,
                id,
                reason,
                "the store refuses this call; the call is skipped"
            );
        }
        let lost = refused.len() as u64;
        if let Err(error) = self.source.done(batch, lost) {
            // The batch is sent again, and the warehouse recognizes the duplicate. This also holds
            // at the end, until the deadline: otherwise the next process would send calls that the
            // warehouse already has.
            return self.no_calls(&error, false);
        }
        let stored = batch.rows.len() as u64 - lost;
        self.metrics.batches.increment(1);
        self.metrics.rows.increment(stored);
        self.metrics.lose("refused", lost);
        self.progress.failures = 0;
        self.progress.first_seen = None;
        if self.progress.log.recovered() {
            tracing::info!(sink = self.name, "the store accepts calls again");
        }
        let mut status = self.status.of(self.number);
        status.rows += stored;
        status.batches += 1;
        status.lost += lost;
        status.failing = 0;
        status.error = None;
        status.stored_at = Some((self.wall)().into());
        Next::Now
    }

    fn failed(&mut self, error: &SendError) -> Next {
        self.metrics.fail(error.kind.as_str());
        if error.kind == SendErrorKind::Refused
            && let Err(error) = self.source.widen()
        {
            tracing::debug!(sink = self.name, %error, "the unfinished batch will be sent again \
                unchanged");
        }
        let pause = self.again_after(&error.to_string(), error.retry_after);
        // Calls in the ledger are sent when the process runs again.
        if self.end.borrow().is_some() && self.status.of(self.number).durable {
            Next::End
        } else {
            Next::After(pause)
        }
    }

    fn no_calls(&mut self, error: &SourceError, ending: bool) -> Next {
        // A separate thread opens the ledger's file and may be slightly late.
        if self.progress.failures > 0 {
            self.metrics.fail(LEDGER);
        }
        let pause = self.again_after(&error.to_string(), None);
        let pause = pause.min(LONGEST_LEDGER_PAUSE);
        if ending {
            Next::End
        } else {
            Next::After(pause)
        }
    }

    /// Records a failure, and returns the pause until the next attempt.
    fn again_after(&mut self, reason: &str, retry_after: Option<Duration>) -> Duration {
        let pause = backoff::delay(self.progress.failures, SHORTEST_PAUSE, LONGEST_PAUSE);
        self.progress.failures = self.progress.failures.saturating_add(1);
        let now = std::time::Instant::now();
        let mut status = self.status.of(self.number);
        // A new reason is logged at once, regardless of the log's rate limit.
        let is_new = status.error.as_deref() != Some(reason);
        if self.progress.failures > 1 && (self.progress.log.should_log(now) || is_new) {
            let waiting = status.waiting;
            tracing::warn!(
                sink = self.name,
                waiting,
                "calls wait for the store: {reason}"
            );
        }
        status.failing = u64::from(self.progress.failures);
        status.error = Some(reason.to_owned());
        drop(status);
        retry_after.map_or(pause, |asked| asked.clamp(pause, LONGEST_PAUSE))
    }

    fn report(&mut self, waiting: &Waiting) {
        let mut status = self.status.of(self.number);
        // The ledger counts from when it first knew the sink, a queue from the start of the
        // process.
        let counted = self
            .progress
            .lost
            .unwrap_or(if status.durable { waiting.lost } else { 0 });
        let lost = waiting.lost.saturating_sub(counted);
        self.progress.lost = Some(waiting.lost);
        let reason = if status.durable { "retention" } else { "queue" };
        self.metrics.lose(reason, lost);
        let with_files = waiting.lost_with_files - self.progress.lost_with_files;
        self.progress.lost_with_files = waiting.lost_with_files;
        self.metrics.lose(LEDGER, with_files);
        status.lost += lost + with_files;
        status.waiting = waiting.rows;
        status.in_memory = if status.durable { 0 } else { waiting.rows };
        status.lag_seconds = match waiting.rows {
            0 => 0.0,
            _ => waiting.seconds,
        };
        drop(status);
        let all = self.status.all();
        self.metrics.waiting.set(all.waiting as f64);
        self.metrics.in_memory.set(all.in_memory as f64);
        self.metrics.lag.set(all.lag_seconds);
    }

    /// Sleeps for `pause`, and keeps the status of waiting calls fresh meanwhile.
    async fn pause(&mut self, pause: Duration) {
        let until = Instant::now() + pause;
        loop {
            let ending = *self.end.borrow_and_update();
            let until = ending.map_or(until, |deadline| until.min(deadline));
            let now = Instant::now();
            if now >= until {
                return;
            }
            tokio::select! {
                () = sleep_until(until.min(now + REPORT)) => {}
                // The deadline was set, or the sender is gone.
                _ = self.end.changed() => return,
            }
            if let Ok(waiting) = self.source.waiting() {
                self.report(&waiting);
            }
        }
    }

    /// Counts calls as lost that are still in memory when the process ends.
    fn end(&mut self) {
        let Ok(waiting) = self.source.waiting() else {
            return;
        };
        self.report(&waiting);
        if waiting.rows == 0 {
            return;
        }
        let (sink, waiting) = (&self.name, waiting.rows);
        if self.status.of(self.number).durable {
            tracing::info!(
                sink,
                waiting,
                "calls wait in the ledger until the next start"
            );
        } else {
            self.metrics.lose("ended", waiting);
            tracing::warn!(
                sink,
                waiting,
                "calls are lost because the process ends and no ledger keeps them"
            );
        }
    }
}

/// Returns when the deadline has passed.
async fn deadline(end: &mut watch::Receiver<Option<Instant>>) {
    loop {
        let until = *end.borrow_and_update();
        match until {
            Some(until) => return sleep_until(until).await,
            // The sender is gone, so no deadline can arrive any more.
            None if end.changed().await.is_err() => std::future::pending().await,
            None => {}
        }
    }
}

pub(crate) struct Refusal {
    id: String,
    reason: String,
}

/// Sends a batch. If the warehouse refuses it, the batch is split in halves until the refused calls
/// are found.
///
/// # Errors
/// Returns an error if the batch is not stored. A warehouse that accepts no call of the batch is an
/// error, because the fault is not in single calls.
async fn send(sink: &impl Sink, rows: &[Row]) -> Result<Vec<Refusal>, SendError> {
    let (mut parts, mut refused, mut taken) = (vec![rows], Vec::new(), 0);
    while let Some(part) = parts.pop() {
        match sink.send(part).await {
            Ok(()) => taken += part.len(),
            Err(error) if error.kind != SendErrorKind::Refused => return Err(error),
            Err(_) if part.len() > 1 => {
                let (left, right) = part.split_at(part.len() / 2);
                parts.extend([right, left]);
            }
            Err(error) => {
                refused.extend(part.first().map(|row| Refusal {
                    id: id(row).to_owned(),
                    reason: error.message.clone(),
                }));
                if taken == 0 && (refused.len() >= ALL_REFUSED || parts.is_empty()) {
                    return Err(error);
                }
            }
        }
    }
    Ok(refused)
}

#[derive(Clone, Copy, Debug, Default)]
pub struct Replayed {
    /// Calls that were sent. A warehouse that recognizes each call may have had some of them.
    pub sent: u64,
    /// Calls that were not sent because the warehouse has them.
    pub known: u64,
    pub refused: u64,
}

impl std::ops::AddAssign for Replayed {
    fn add_assign(&mut self, other: Replayed) {
        self.sent += other.sent;
        self.known += other.known;
        self.refused += other.refused;
    }
}

/// Sends calls again that a warehouse had or should have.
///
/// # Errors
/// Returns an error if the calls are not stored after several attempts.
pub async fn replay(sink: &impl Sink, rows: Vec<Row>) -> Result<Replayed, SendError> {
    let all = rows.len() as u64;
    let missing = tried(|| sink.missing(rows.clone())).await?;
    let refused = tried(|| send(sink, &missing)).await?.len() as u64;
    let missing = missing.len() as u64;
    Ok(Replayed {
        sent: missing - refused,
        known: all - missing,
        refused,
    })
}

/// Retries `attempt` with a backoff, [`TRIES`] times in all.
async fn tried<T, F>(attempt: impl Fn() -> F) -> Result<T, SendError>
where
    F: Future<Output = Result<T, SendError>>,
{
    let delays = backoff::delays(SHORTEST_PAUSE, LONGEST_PAUSE).with_max_times(TRIES - 1);
    attempt
        .retry(delays)
        .sleep(sleep)
        .adjust(|error, delay| delay.map(|delay| error.retry_after.unwrap_or(delay)))
        .await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::SinkStatus;
    use parking_lot::Mutex;
    use std::sync::Arc;
    use tokengauge_core::cells::{Counter, Gauge};
    use tokengauge_store::columns::{COLUMNS, Value};

    /// Accepts every call except those with these ids.
    struct Picky {
        refuses: fn(&str) -> bool,
        taken: Mutex<Vec<String>>,
    }

    impl Sink for Picky {
        async fn send(&self, rows: &[Row]) -> Result<(), SendError> {
            if rows.iter().any(|row| (self.refuses)(id(row))) {
                return Err(SendError::new(SendErrorKind::Refused, "no"));
            }
            self.taken
                .lock()
                .extend(rows.iter().map(|row| id(row).to_owned()));
            Ok(())
        }
    }

    fn rows(count: usize) -> Vec<Row> {
        let row = |number: usize| {
            let mut row = vec![Value::Null; COLUMNS.len()];
            row[0] = Value::text(number.to_string());
            row
        };
        (0..count).map(row).collect()
    }

    #[tokio::test]
    async fn a_refused_call_is_found_and_all_others_are_stored_in_order() {
        let sink = Picky {
            refuses: |id| id == "0" || id == "700",
            taken: Mutex::default(),
        };
        let refused = send(&sink, &rows(1_000))
            .await
            .expect("the others are stored");
        let ids: Vec<_> = refused.iter().map(|refusal| refusal.id.as_str()).collect();
        assert_eq!(ids, ["0", "700"]);
        let expected: Vec<_> = (0..1_000)
            .filter(|id| ![0, 700].contains(id))
            .map(|id| id.to_string())
            .collect();
        assert_eq!(*sink.taken.lock(), expected);
    }

    #[tokio::test]
    async fn a_store_that_refuses_everything_costs_no_call() {
        let sink = Picky {
            refuses: |_| true,
            taken: Mutex::default(),
        };
        for count in [1, 5, 1_000] {
            let error = send(&sink, &rows(count))
                .await
                .err()
                .expect("nothing was taken");
            assert_eq!(error.kind, SendErrorKind::Refused);
        }
    }

    /// A source of calls that keeps them until they are recorded as delivered. The first `fails`
    /// recordings fail.
    struct Busy {
        rows: usize,
        fails: usize,
        noted: Arc<Mutex<usize>>,
    }

    impl Source for Busy {
        fn waiting(&mut self) -> Result<Waiting, SourceError> {
            Ok(Waiting {
                rows: self.rows as u64,
                ..Waiting::default()
            })
        }

        fn begin(&mut self, limit: usize) -> Result<Batch, SourceError> {
            let mut batch = Batch::default();
            batch.rows = rows(self.rows.min(limit));
            Ok(batch)
        }

        fn done(&mut self, batch: &Batch, _: u64) -> Result<(), SourceError> {
            if self.fails > 0 {
                self.fails -= 1;
                return Err(SourceError::Unwritable);
            }
            self.rows -= batch.rows.len();
            *self.noted.lock() += batch.rows.len();
            Ok(())
        }

        fn widen(&mut self) -> Result<(), SourceError> {
            Ok(())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_delivered_is_noted_at_the_end_although_the_ledger_is_busy() {
        let noted = Arc::default();
        let (end, ends) = watch::channel(Some(Instant::now() + Duration::from_secs(60)));
        let status = SinkStatus {
            durable: true,
            ..SinkStatus::default()
        };
        let gauges = (Gauge::default(), Gauge::default(), Gauge::default());
        let counters = (Counter::default(), Counter::default());
        let delivery = Delivery {
            name: "store".into(),
            sink: Picky {
                refuses: |_| false,
                taken: Mutex::default(),
            },
            source: Box::new(Busy {
                rows: 1,
                fails: 3,
                noted: Arc::clone(&noted),
            }),
            batch_rows: 10,
            batch_wait: Duration::from_secs(1),
            metrics: SinkMetrics::new(
                gauges,
                counters,
                |_| Counter::default(),
                |_| Counter::default(),
            ),
            status: SharedStatus::new(vec![status]),
            number: 0,
            end: ends,
            wall: SystemTime::now,
            progress: Progress::default(),
        };
        delivery.run().await;
        assert_eq!(*noted.lock(), 1, "the next process would send it again");
        drop(end);
    }
}
