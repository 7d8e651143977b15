//! Queries of the API, reports and exports. Connections are read-only and few, and each query
//! has a time limit, so that none delays the writer or traffic. Queries block: not for the
//! threads of traffic.

mod call_units;
pub(super) mod calls;
mod capacity;
mod connections;
mod costs;
mod coverage;
mod distributions;
mod experiment_units;
mod groups;
mod matching;
mod scan;
mod sessions;
mod throughput;

pub(crate) use calls::ID_TOLERANCE;

use super::condition::Condition;
use super::undelivered::{self, SinkProgress, UndeliveredCall};
use crate::columns::{CallRow, Value, values_of_row};
use crate::query::{
    CallUnitQuery, CallUnits, CapacityRow, CostQuery, Costs, Coverage, DailySums, Dimension,
    DistributionSelector, DistributionSeries, Distributions, ExperimentUnits, Filter, GroupRow,
    Mark, MarkQuery, Page, Paging, SeriesMetric, SessionDetail, SessionQuery, SessionRow,
    Timeseries, UnitQuery,
};
use crate::warehouse::WarehouseError;
use connections::Connections;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use tokengauge_core::call::CallRecord;
use uuid::Uuid;

/// How long a query may take by the clock of its [`Reader`].
pub const TIME_LIMIT: Duration = Duration::from_secs(5);
/// The longest step of a time series.
pub(crate) const MAX_STEP: Duration = Duration::from_secs(400 * 86_400);

#[derive(Debug, thiserror::Error)]
pub enum QueryError {
    /// There is no ledger, or it cannot be opened.
    #[error("the ledger {path} cannot be read: {reason}", path = .path.display())]
    Unavailable { path: PathBuf, reason: String },
    #[error("the ledger {path} is damaged: {reason}", path = .path.display())]
    Damaged { path: PathBuf, reason: String },
    #[error("{0}")]
    Wrong(String),
    #[error("the query took longer than {0:?}; ask for a shorter time or filter by a session")]
    TimeLimit(Duration),
    /// Too many queries at once.
    #[error("too many queries at once; ask again")]
    Busy,
    #[error(transparent)]
    Sqlite(#[from] rusqlite::Error),
    /// The warehouse does not answer.
    #[error(transparent)]
    Warehouse(#[from] WarehouseError),
}

impl QueryError {
    pub(crate) fn cursor() -> QueryError {
        let rule = "cursor must be the next_cursor of an answer to the same question";
        QueryError::Wrong(rule.to_owned())
    }

    pub(crate) fn step() -> QueryError {
        QueryError::Wrong("a step is whole seconds, from 1s to 400d".to_owned())
    }
}

#[derive(Debug)]
pub struct Reader {
    connections: Connections,
    /// The condition of the file, if this process writes it.
    condition: Option<Arc<Condition>>,
}

impl Reader {
    /// A reader of the ledger in `path`, which need not be there yet. `clock` measures
    /// how long a query takes: the monotonic clock, or one of processor time.
    pub fn new(path: &Path, clock: fn() -> Instant) -> Arc<Reader> {
        Reader::within(path, clock, TIME_LIMIT)
    }

    /// The same with another time limit for each query.
    pub fn within(path: &Path, clock: fn() -> Instant, limit: Duration) -> Arc<Reader> {
        Reader::with(path, clock, limit, None)
    }

    pub(super) fn with(
        path: &Path,
        clock: fn() -> Instant,
        limit: Duration,
        condition: Option<Arc<Condition>>,
    ) -> Arc<Reader> {
        Arc::new(Reader {
            connections: Connections::new(path, clock, limit),
            condition,
        })
    }

    /// Why the ledger of this process cannot write its file, as a label of
    /// [`WriteError::REASONS`](super::WriteError::REASONS), or `starting`; `None` while it can, or where another process
    /// writes it.
    pub fn unwritable(&self) -> Option<&'static str> {
        self.condition.as_ref()?.unwritable()
    }

    /// How many times the ledger has opened its file. What was read before it rose may be of another file.
    pub fn opened(&self) -> u64 {
        let condition = self.condition.as_ref();
        condition.map_or(0, |condition| condition.opened())
    }

    /// Calls that this sink will never have because they were in files that are lost, since the process began.
    pub fn lost_with_files(&self, sink: &str) -> u64 {
        let condition = self.condition.as_ref();
        condition.map_or(0, |condition| condition.lost(sink))
    }

    pub(super) fn ask<T>(
        &self,
        ask: impl FnOnce(&rusqlite::Connection) -> Result<T, QueryError>,
    ) -> Result<T, QueryError> {
        let answer = self.connections.ask(ask);
        if let (Some(condition), Err(QueryError::Damaged { .. })) = (&self.condition, &answer) {
            condition.suspect();
        }
        answer
    }

    /// The sessions that match.
    ///
    /// # Errors
    /// As with every query: see [`QueryError`].
    pub fn sessions(&self, query: &SessionQuery) -> Result<Page<SessionRow>, QueryError> {
        let ask = |connection: &_| sessions::sessions(connection, query);
        self.ask(ask)
    }

    /// The durations, in seconds, of the sessions that a filter selects and whose last call ended
    /// before its end.
    ///
    /// # Errors
    /// As with every query: see [`QueryError`].
    pub fn task_seconds(&self, filter: &Filter) -> Result<Vec<f64>, QueryError> {
        self.ask(|connection| sessions::task_seconds(connection, filter))
    }

    /// When the oldest stored call began or, with `sums`, the oldest of these; `None` without calls.
    ///
    /// # Errors
    /// As with every query: see [`QueryError`].
    pub fn oldest(&self, sums: Option<DailySums>) -> Result<Option<SystemTime>, QueryError> {
        self.ask(|connection| groups::oldest(connection, sums))
    }

    /// One session and a page of its calls; `None` where it is not known.
    ///
    /// # Errors
    /// As with every query: see [`QueryError`].
    pub fn session(&self, id: &str, page: &Paging) -> Result<Option<SessionDetail>, QueryError> {
        self.ask(|connection| sessions::session(connection, id, page))
    }

    /// Calls by what they have in common, those with most calls first.
    ///
    /// # Errors
    /// As with every query: see [`QueryError`].
    pub fn groups(
        &self,
        filter: &Filter,
        by: &[Dimension],
        page: &Paging,
    ) -> Result<Page<GroupRow>, QueryError> {
        self.ask(|connection| groups::groups(connection, filter, by, page))
    }

    /// Calls by model, those with most calls first.
    ///
    /// # Errors
    /// As with every query: see [`QueryError`].
    pub fn models(&self, filter: &Filter, page: &Paging) -> Result<Page<GroupRow>, QueryError> {
        self.groups(filter, &[Dimension::Model], page)
    }

    /// Calls by workload, those with most calls first.
    ///
    /// # Errors
    /// As with every query: see [`QueryError`].
    pub fn workloads(&self, filter: &Filter, page: &Paging) -> Result<Page<GroupRow>, QueryError> {
        self.groups(filter, &[Dimension::Workload], page)
    }

    /// What calls cost over time, in steps of whole seconds on multiples of the step since 1970.
    ///
    /// # Errors
    /// As with every query: see [`QueryError`].
    pub fn costs(&self, query: &CostQuery) -> Result<Costs, QueryError> {
        self.ask(|connection| costs::costs(connection, query))
    }

    /// How many calls have a cost and a speed, and why the others have none.
    ///
    /// # Errors
    /// As with every query: see [`QueryError`].
    pub fn coverage(&self, filter: &Filter) -> Result<Coverage, QueryError> {
        self.ask(|connection| coverage::coverage(connection, filter))
    }

    /// Percentiles over time, in steps of whole seconds on multiples of `step` since 1970;
    /// of more than 1000 the newest.
    ///
    /// # Errors
    /// As with every query: see [`QueryError`].
    pub fn timeseries(
        &self,
        filter: &Filter,
        metric: SeriesMetric,
        step: Duration,
    ) -> Result<Timeseries, QueryError> {
        self.ask(|connection| groups::timeseries(connection, filter, metric, step))
    }

    /// The same calls as [`Reader::calls`], each as the values of [`crate::columns::COLUMNS`].
    ///
    /// # Errors
    /// As with every query: see [`QueryError`].
    pub fn call_rows(
        &self,
        filter: &Filter,
        page: &Paging,
    ) -> Result<Page<Vec<Value>>, QueryError> {
        self.ask(|connection| calls::calls(connection, filter, page, values_of_row))
    }

    /// The calls that began within the filter's time, in the order of their start. The rest of the filter does not count.
    ///
    /// # Errors
    /// As with every query: see [`QueryError`].
    pub fn in_order(&self, filter: &Filter, page: &Paging) -> Result<Page<CallRow>, QueryError> {
        self.ask(|connection| calls::in_order(connection, filter, page))
    }

    /// The calls that match, the newest first. A page may have fewer rows than the limit
    /// and still not be the last: only `next_cursor` says so.
    ///
    /// # Errors
    /// As with every query: see [`QueryError`].
    pub fn calls(&self, filter: &Filter, page: &Paging) -> Result<Page<CallRecord>, QueryError> {
        self.ask(|connection| calls::calls(connection, filter, page, calls::record))
    }

    /// The call with this id; `None` where it is not known.
    ///
    /// # Errors
    /// As with every query: see [`QueryError`].
    pub fn call(&self, id: Uuid) -> Result<Option<CallRecord>, QueryError> {
        self.ask(|connection| calls::by_id(connection, id))
    }

    /// The throughput of each upstream by concurrency. Of the filter only times and the upstream
    /// count.
    ///
    /// # Errors
    /// As with every query: see [`QueryError`].
    pub fn capacity(&self, filter: &Filter) -> Result<Vec<CapacityRow>, QueryError> {
        self.ask(|connection| capacity::capacity(connection, filter))
    }

    /// The marks that match, the newest first.
    ///
    /// # Errors
    /// As with every query: see [`QueryError`].
    pub fn marks(&self, query: &MarkQuery) -> Result<Vec<Mark>, QueryError> {
        self.ask(|connection| super::marks::marks(connection, query))
    }

    /// The calls that match, summed by unit.
    ///
    /// # Errors
    /// As with every query: see [`QueryError`].
    pub fn call_units(&self, query: &CallUnitQuery) -> Result<CallUnits, QueryError> {
        self.ask(|connection| call_units::call_units(connection, query))
    }

    /// The units of an experiment.
    ///
    /// # Errors
    /// As with every query: see [`QueryError`].
    pub fn experiment_units(&self, query: &UnitQuery) -> Result<ExperimentUnits, QueryError> {
        self.ask(|connection| experiment_units::experiment_units(connection, query))
    }

    /// How far a sink is; `None` where the ledger does not know it.
    ///
    /// # Errors
    /// As with every query: see [`QueryError`].
    pub fn sink(&self, name: &str) -> Result<Option<SinkProgress>, QueryError> {
        self.ask(|connection| undelivered::progress(connection, name))
    }

    /// The sinks that the ledger knows.
    ///
    /// # Errors
    /// As with every query: see [`QueryError`].
    pub fn sink_names(&self) -> Result<Vec<String>, QueryError> {
        self.ask(undelivered::names)
    }

    /// The number of the last of the next `limit` calls behind number `after`; `None` where there are none.
    ///
    /// # Errors
    /// As with every query: see [`QueryError`].
    pub fn undelivered_end(&self, after: i64, limit: usize) -> Result<Option<i64>, QueryError> {
        self.ask(|connection| undelivered::end(connection, after, limit))
    }

    /// Calls that were written behind number `after`, up to number `upto`, and at most `limit`.
    ///
    /// # Errors
    /// As with every query: see [`QueryError`].
    pub fn undelivered(
        &self,
        after: i64,
        upto: i64,
        limit: usize,
    ) -> Result<Vec<UndeliveredCall>, QueryError> {
        self.ask(|connection| undelivered::calls(connection, after, upto, limit))
    }

    /// The distributions by model, route and workload of calls that began in whole hours: from the one
    /// that `since` is in to the one that `until` is in.
    ///
    /// # Errors
    /// As with every query: see [`QueryError`].
    pub fn distributions(
        &self,
        selector: &DistributionSelector,
        since: Option<SystemTime>,
        until: Option<SystemTime>,
    ) -> Result<BTreeMap<DistributionSeries, Distributions>, QueryError> {
        let mut found: BTreeMap<DistributionSeries, Distributions> = BTreeMap::new();
        self.ask(|connection| {
            distributions::visit(connection, selector, since, until, |series, _, more| {
                found.entry(series.clone()).or_default().merge(&more);
            })
        })?;
        Ok(found)
    }

    /// The distributions of each hour of one series, by its beginning.
    ///
    /// # Errors
    /// As with every query: see [`QueryError`].
    pub fn hours_of_series(
        &self,
        series: &DistributionSeries,
        since: Option<SystemTime>,
        until: Option<SystemTime>,
    ) -> Result<BTreeMap<SystemTime, Distributions>, QueryError> {
        let selector = DistributionSelector {
            model: series.model.clone(),
            route: series.route.clone(),
            workload: series.workload.clone(),
        };
        // An absent name selects all, so that it takes this one series out of several.
        self.hours(&selector, since, until, |found| found == series)
    }

    /// The distributions of each hour, by its beginning, of all that match together.
    ///
    /// # Errors
    /// As with every query: see [`QueryError`].
    pub fn hourly_distributions(
        &self,
        selector: &DistributionSelector,
        since: Option<SystemTime>,
        until: Option<SystemTime>,
    ) -> Result<BTreeMap<SystemTime, Distributions>, QueryError> {
        self.hours(selector, since, until, |_| true)
    }

    fn hours(
        &self,
        selector: &DistributionSelector,
        since: Option<SystemTime>,
        until: Option<SystemTime>,
        counts: impl Fn(&DistributionSeries) -> bool,
    ) -> Result<BTreeMap<SystemTime, Distributions>, QueryError> {
        let mut found: BTreeMap<SystemTime, Distributions> = BTreeMap::new();
        self.ask(|connection| {
            distributions::visit(connection, selector, since, until, |series, hour, more| {
                if !counts(series) {
                    return;
                }
                let hour = Duration::from_secs(u64::try_from(hour).unwrap_or(0));
                let hour = SystemTime::UNIX_EPOCH + hour;
                found.entry(hour).or_default().merge(&more);
            })
        })?;
        Ok(found)
    }
}
