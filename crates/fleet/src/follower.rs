//! Follows a warehouse into a ledger. Calls arrive late and in the order of their end, so that no place in the table
//! divides what is known from what is new: the numbers of calls by their start are compared, and intervals that differ
//! are read.

use super::Fleet;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use tokengauge_core::backoff;
use tokengauge_core::time::duration_since_1970;
use tokengauge_net::client::NoClient;
use tokengauge_sink::{ReadError, Span, WarehouseReader, WarehouseRow, WarehouseUrl};
use tokengauge_store::ledger::{LedgerCall, LedgerDatabase, Limits, Now, WriteError};
use tokio::time::sleep;

/// The length of an interval, in milliseconds.
const INTERVAL: i64 = 10_000;
/// Intervals that are read at once at most: an hour.
const INTERVALS_AT_ONCE: i64 = 360;
/// The pause between two looks, and how many times as long as a look took it is at least.
const PAUSE: Duration = Duration::from_secs(2);
const PAUSE_FACTOR: u32 = 2;
/// What every look is at; now and then a look is at everything.
const RECENT: Duration = Duration::from_secs(15 * 60);
const WHOLE_EVERY: Duration = Duration::from_secs(60);
/// The longest pause while the warehouse is away.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// A clock of another host may be ahead by so much.
const AHEAD: Duration = Duration::from_secs(86_400);
/// Calls that are written in one transaction.
const BATCH: usize = 1_000;
/// Steps of retention after a look.
const TIDY_STEPS: usize = 100;

#[derive(Clone, Debug)]
pub struct FollowerSettings {
    pub url: WarehouseUrl,
    pub ledger: PathBuf,
    pub limits: Limits,
    /// How far back calls are read.
    pub since: Duration,
}

pub struct Follower {
    settings: FollowerSettings,
    fleet: Arc<Fleet>,
    reader: WarehouseReader,
    /// `None` after an error, until it is opened again.
    ledger: Option<LedgerDatabase>,
    /// It is checked for damage when it is opened again.
    suspect: bool,
    /// Rows that the warehouse had of each interval when it was last read.
    known: BTreeMap<i64, u64>,
    /// Calls from before are not read again: the ledger had no room for them.
    floor: i64,
}

#[derive(Debug, thiserror::Error)]
pub enum FollowerError {
    /// The URL, or a file of TLS, cannot be used.
    #[error("the store: {0}")]
    Warehouse(#[from] NoClient),
    #[error("the ledger: {0}")]
    Ledger(#[from] WriteError),
}

#[derive(Debug, thiserror::Error)]
enum LookError {
    #[error(transparent)]
    Warehouse(#[from] ReadError<WriteError>),
    #[error(transparent)]
    Counts(#[from] ReadError<std::convert::Infallible>),
    #[error("the ledger here: {0}")]
    Ledger(#[from] WriteError),
}

impl Follower {
    /// Opens the ledger.
    ///
    /// # Errors
    /// Where it cannot be written to, or the warehouse's URL cannot be used.
    pub fn new(settings: FollowerSettings, fleet: &Arc<Fleet>) -> Result<Follower, FollowerError> {
        let ledger = LedgerDatabase::open(&settings.ledger)?.of_pods();
        // Written again, calls that were deleted for want of room would count twice in the sums of their day.
        let floor = if ledger.has_forgotten()? {
            floor_of(&ledger)?
        } else {
            0
        };
        Ok(Follower {
            reader: WarehouseReader::new(&settings.url)?,
            fleet: Arc::clone(fleet),
            settings,
            ledger: Some(ledger),
            suspect: false,
            known: BTreeMap::new(),
            floor,
        })
    }

    /// Follows for as long as it is polled. It writes to disk: not for threads that must not block.
    pub async fn run(mut self) {
        let (mut whole_at, mut failures) = (None, 0);
        loop {
            let began = Instant::now();
            let whole = whole_at.is_none_or(|at: Instant| at.elapsed() >= WHOLE_EVERY);
            let since = if whole { self.settings.since } else { RECENT };
            match self.look(since.min(self.settings.since)).await {
                Ok(()) => {
                    failures = 0;
                    if whole {
                        whole_at = Some(Instant::now());
                    }
                    sleep(PAUSE.max(began.elapsed() * PAUSE_FACTOR)).await;
                }
                Err(error) => {
                    self.failed(&error);
                    // What came meanwhile may be from any time.
                    whole_at = None;
                    sleep(backoff::delay(failures, PAUSE, LONGEST_PAUSE)).await;
                    failures = failures.saturating_add(1);
                }
            }
        }
    }

    fn failed(&mut self, error: &LookError) {
        if let LookError::Ledger(error) | LookError::Warehouse(ReadError::Taken(error)) = error {
            // Its caches may have what was not committed.
            self.ledger = None;
            self.suspect = matches!(error, WriteError::Damaged(_));
        }
        let mut new = false;
        let error = error.to_string();
        self.fleet
            .warehouse_is(|warehouse| new = warehouse.failed(error.clone(), SystemTime::now()));
        if new {
            tracing::warn!(
                error,
                "the store is away: what it has is read when it answers"
            );
        }
    }

    /// Reads what the warehouse has and is not here.
    async fn look(&mut self, since: Duration) -> Result<(), LookError> {
        let open = self.ledger.take();
        let was_open = open.is_some();
        let mut ledger = match open.and_then(LedgerDatabase::in_place) {
            Some(ledger) => ledger,
            None => {
                if was_open || self.suspect {
                    // Its calls are gone with its file, and are read again.
                    self.known.clear();
                    self.floor = 0;
                }
                LedgerDatabase::open_file(&self.settings.ledger, self.suspect)?.of_pods()
            }
        };
        self.suspect = false;
        let looked = self.look_into(&mut ledger, since).await;
        self.ledger = Some(ledger);
        looked?;
        let mut back = false;
        self.fleet
            .warehouse_is(|warehouse| back = warehouse.caught_up(SystemTime::now()));
        if back {
            tracing::info!("the store answers again, and everything that it has is here");
        }
        Ok(())
    }

    async fn look_into(
        &mut self,
        ledger: &mut LedgerDatabase,
        since: Duration,
    ) -> Result<(), LookError> {
        let now = SystemTime::now();
        let kept = since.min(self.settings.limits.age);
        let from = milliseconds(now.checked_sub(kept).unwrap_or(SystemTime::UNIX_EPOCH));
        // Whole intervals, whose numbers can be compared.
        let from = from.max(self.floor).div_euclid(INTERVAL) * INTERVAL;
        let span = (from, milliseconds(now + AHEAD));
        let counts = self.reader.counts(span, INTERVAL).await?;
        let oldest = milliseconds(
            now.checked_sub(self.settings.since)
                .unwrap_or(SystemTime::UNIX_EPOCH),
        );
        self.known = self.known.split_off(&oldest.div_euclid(INTERVAL));
        for intervals in changed(&self.known, &counts) {
            if (intervals.1 + 1) * INTERVAL <= self.floor {
                break;
            }
            self.read(ledger, intervals).await?;
            self.tidy(ledger, now)?;
        }
        self.tidy(ledger, now)
    }

    /// Reads some intervals, from the first to the last, and writes what is not here.
    async fn read(
        &mut self,
        ledger: &mut LedgerDatabase,
        (first, last): (i64, i64),
    ) -> Result<(), LookError> {
        let span: Span = (first * INTERVAL, (last + 1) * INTERVAL);
        let mut rows_of: BTreeMap<i64, u64> = BTreeMap::new();
        let fleet = &self.fleet;
        let take = |rows: &[WarehouseRow]| {
            for batch in rows.chunks(BATCH) {
                for row in batch {
                    let interval = row.started_ms().div_euclid(INTERVAL);
                    *rows_of.entry(interval).or_default() += 1;
                }
                let records: Vec<_> = batch.iter().map(WarehouseRow::record).collect();
                let mut new = Vec::new();
                for (record, concurrency) in &records {
                    let call = LedgerCall::of_record(record, *concurrency);
                    if let Some(call) = call
                        && !ledger.has(&call)?
                    {
                        new.push(call);
                    }
                }
                ledger.write(&new)?;
                fleet.warehouse_is(|warehouse| warehouse.calls += new.len() as u64);
            }
            Ok::<_, WriteError>(())
        };
        self.reader.read(span, take).await?;
        self.known.extend(rows_of);
        Ok(())
    }

    /// Keeps the ledger within its bounds.
    fn tidy(&mut self, ledger: &mut LedgerDatabase, now: SystemTime) -> Result<(), LookError> {
        for _ in 0..TIDY_STEPS {
            let now = Now {
                monotonic: Instant::now(),
                wall_ms: milliseconds(now),
            };
            if !ledger.tidy(now, &self.settings.limits)? {
                break;
            }
        }
        if ledger.was_full() {
            self.floor = self.floor.max(floor_of(ledger)?);
        }
        Ok(())
    }
}

/// From when on calls may be written to a ledger that has no room for older ones.
fn floor_of(ledger: &LedgerDatabase) -> Result<i64, WriteError> {
    let oldest = ledger.oldest_ms()?;
    Ok(oldest.map_or(0, |oldest| oldest + INTERVAL))
}

fn milliseconds(at: SystemTime) -> i64 {
    i64::try_from(duration_since_1970(at).as_millis()).unwrap_or(i64::MAX)
}

/// The intervals whose number of calls is another one, next to each other put together, the newest first.
fn changed(known: &BTreeMap<i64, u64>, counts: &BTreeMap<i64, u64>) -> Vec<(i64, i64)> {
    let mut found: Vec<(i64, i64)> = Vec::new();
    let differ = counts
        .iter()
        .filter(|(interval, calls)| known.get(interval) != Some(calls));
    for (interval, _) in differ {
        match found.last_mut() {
            Some((first, last))
                if *interval == *last + 1 && *interval - *first < INTERVALS_AT_ONCE =>
            {
                *last = *interval;
            }
            _ => found.push((*interval, *interval)),
        }
    }
    found.reverse();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_that_differ_are_read_together_the_newest_first() {
        let known = BTreeMap::from([(1, 5), (2, 5), (3, 5), (900, 1)]);
        let counts = BTreeMap::from([(1, 5), (2, 6), (3, 7), (5, 1), (900, 1)]);
        assert_eq!(changed(&known, &counts), [(5, 5), (2, 3)]);
        assert_eq!(changed(&counts, &counts), []);
        let many: BTreeMap<_, _> = (0..INTERVALS_AT_ONCE + 1)
            .map(|interval| (interval, 1))
            .collect();
        let last = INTERVALS_AT_ONCE;
        assert_eq!(
            changed(&BTreeMap::new(), &many),
            [(last, last), (0, last - 1)]
        );
    }
}
