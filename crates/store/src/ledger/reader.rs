//! Queries of the API, reports and exports. There are few connections, all read-only, and each
//! query has a time limit, so that queries delay neither the writer nor traffic. Queries block, so
//! they must not run on the threads of traffic.

mod cache_breaks;
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
mod prompt_tools;
mod scan;
mod scored;
mod sessions;
mod throughput;

pub(crate) use calls::ID_TOLERANCE;

use super::condition::Condition;
use super::scores;
use super::undelivered::{self, SinkProgress, UndeliveredCall};
use crate::columns::{CallRow, Value, values_of_row};
use crate::query::{
    CacheBreaks, CallUnitQuery, CallUnits, CapacityRow, CostQuery, Costs, Coverage, DailySums,
    Dimension, DistributionSelector, DistributionSeries, Distributions, ExperimentUnits, Filter,
    GroupRow, Mark, MarkQuery, Page, Paging, PromptToolUse, ScoreQuery, ScoredUnit, SeriesMetric,
    SessionDetail, SessionQuery, SessionRow, Timeseries, UnitQuery,
};
use crate::warehouse::WarehouseError;
use connections::Connections;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use tokengauge_core::call::CallRecord;
use tokengauge_core::score::{Score, ScoreTarget};
use uuid::Uuid;

/// Time limit of a query, by the clock of its [`Reader`].
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
    /// Too many queries are running.
    #[error("too many queries at once; ask again")]
    Busy,
    #[error(transparent)]
    Sqlite(#[from] rusqlite::Error),
    /// The warehouse does not respond.
    #[error(transparent)]
    Warehouse(#[from] WarehouseError),
}

impl QueryError {
    pub(crate) fn cursor() -> QueryError {
        let rule = "cursor must be the next_cursor of a previous response to this query";
        QueryError::Wrong(rule.to_owned())
    }

    pub(crate) fn step() -> QueryError {
        QueryError::Wrong("step must be a whole number of seconds, from 1s to 400d".to_owned())
    }
}

#[derive(Debug)]
pub struct Reader {
    connections: Connections,
    /// The condition of the file, if this process writes it.
    condition: Option<Arc<Condition>>,
}

impl Reader {
    /// A reader of the ledger at `path`, which may not exist yet. `clock` measures the time of a
    /// query: the monotonic clock, or one of processor time.
    pub fn new(path: &Path, clock: fn() -> Instant) -> Arc<Reader> {
        Reader::within(path, clock, TIME_LIMIT)
    }

    /// Like [`Reader::new`], but with its own time limit per query.
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

    /// Why this process cannot write the file, as a label of
    /// [`WriteError::REASONS`](super::WriteError::REASONS), or `starting`. `None` while it can, or
    /// if another process writes the file.
    pub fn unwritable(&self) -> Option<&'static str> {
        self.condition.as_ref()?.unwritable()
    }

    /// Number of times that the ledger has opened its file. Data that was read before the number
    /// increased may be from another file.
    pub fn opened(&self) -> u64 {
        let condition = self.condition.as_ref();
        condition.map_or(0, |condition| condition.opened())
    }

    /// Number of calls since the process began that this sink never gets, because they were in
    /// files that are lost.
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
    /// See [`QueryError`].
    pub fn sessions(&self, query: &SessionQuery) -> Result<Page<SessionRow>, QueryError> {
        let ask = |connection: &_| sessions::sessions(connection, query);
        self.ask(ask)
    }

    /// Durations in seconds of the sessions that a filter selects and whose last call ended
    /// before its `until`.
    ///
    /// # Errors
    /// See [`QueryError`].
    pub fn task_seconds(&self, filter: &Filter) -> Result<Vec<f64>, QueryError> {
        self.ask(|connection| sessions::task_seconds(connection, filter))
    }

    /// When the oldest stored call began or, with `sums`, when the oldest of these sums began;
    /// `None` without calls.
    ///
    /// # Errors
    /// See [`QueryError`].
    pub fn oldest(&self, sums: Option<DailySums>) -> Result<Option<SystemTime>, QueryError> {
        self.ask(|connection| groups::oldest(connection, sums))
    }

    /// One session and a page of its calls; `None` if the session is unknown.
    ///
    /// # Errors
    /// See [`QueryError`].
    pub fn session(&self, id: &str, page: &Paging) -> Result<Option<SessionDetail>, QueryError> {
        self.ask(|connection| sessions::session(connection, id, page))
    }

    /// Calls grouped by dimensions, largest number of calls first.
    ///
    /// # Errors
    /// See [`QueryError`].
    pub fn groups(
        &self,
        filter: &Filter,
        by: &[Dimension],
        page: &Paging,
    ) -> Result<Page<GroupRow>, QueryError> {
        self.ask(|connection| groups::groups(connection, filter, by, page))
    }

    /// Calls grouped by model, largest number of calls first.
    ///
    /// # Errors
    /// See [`QueryError`].
    pub fn models(&self, filter: &Filter, page: &Paging) -> Result<Page<GroupRow>, QueryError> {
        self.groups(filter, &[Dimension::Model], page)
    }

    /// Calls grouped by workload, largest number of calls first.
    ///
    /// # Errors
    /// See [`QueryError`].
    pub fn workloads(&self, filter: &Filter, page: &Paging) -> Result<Page<GroupRow>, QueryError> {
        self.groups(filter, &[Dimension::Workload], page)
    }

    /// The costs of calls over time, in steps of whole seconds on multiples of the step since 1970.
    ///
    /// # Errors
    /// See [`QueryError`].
    pub fn costs(&self, query: &CostQuery) -> Result<Costs, QueryError> {
        self.ask(|connection| costs::costs(connection, query))
    }

    /// The prompt-cache misses of the calls that match, by their cause.
    ///
    /// # Errors
    /// See [`QueryError`].
    pub fn cache_breaks(&self, filter: &Filter) -> Result<Vec<CacheBreaks>, QueryError> {
        self.ask(|connection| cache_breaks::cache_breaks(connection, filter))
    }

    /// Sums of each tool over the prompts of the matching calls: tokens of definitions and results, calls, failures and waiting
    /// time.
    ///
    /// # Errors
    /// See [`QueryError`].
    pub fn prompt_tools(&self, filter: &Filter) -> Result<Vec<PromptToolUse>, QueryError> {
        self.ask(|connection| prompt_tools::prompt_tools(connection, filter))
    }

    /// How many calls have a cost and a speed, and why the others have none.
    ///
    /// # Errors
    /// See [`QueryError`].
    pub fn coverage(&self, filter: &Filter) -> Result<Coverage, QueryError> {
        self.ask(|connection| coverage::coverage(connection, filter))
    }

    /// Percentiles over time, in steps of whole seconds on multiples of `step` since 1970; at most
    /// the newest 1000.
    ///
    /// # Errors
    /// See [`QueryError`].
    pub fn timeseries(
        &self,
        filter: &Filter,
        metric: SeriesMetric,
        step: Duration,
    ) -> Result<Timeseries, QueryError> {
        self.ask(|connection| groups::timeseries(connection, filter, metric, step))
    }

    /// The calls of [`Reader::calls`], each as the values of [`crate::columns::COLUMNS`].
    ///
    /// # Errors
    /// See [`QueryError`].
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
    /// Returns a [`QueryError`] if the store cannot answer.
    pub fn in_order(&self, filter: &Filter, page: &Paging) -> Result<Page<CallRow>, QueryError> {
        self.ask(|connection| calls::in_order(connection, filter, page))
    }

    /// The calls that match, newest first. A page may have fewer rows than the limit although it is
    /// not the last: only `next_cursor` shows whether there are more.
    ///
    /// # Errors
    /// See [`QueryError`].
    pub fn calls(&self, filter: &Filter, page: &Paging) -> Result<Page<CallRecord>, QueryError> {
        self.ask(|connection| {
            let mut page = calls::calls(connection, filter, page, calls::record)?;
            scores::join(connection, page.rows.iter_mut())?;
            Ok(page)
        })
    }

    /// The call with this id; `None` if it is unknown.
    ///
    /// # Errors
    /// See [`QueryError`].
    pub fn call(&self, id: Uuid) -> Result<Option<CallRecord>, QueryError> {
        self.ask(|connection| {
            let mut call = calls::by_id(connection, id)?;
            scores::join(connection, call.iter_mut())?;
            Ok(call)
        })
    }

    /// The throughput of each upstream by concurrency. The filter's times and upstream are used;
    /// its other parts are ignored.
    ///
    /// # Errors
    /// See [`QueryError`].
    pub fn capacity(&self, filter: &Filter) -> Result<Vec<CapacityRow>, QueryError> {
        self.ask(|connection| capacity::capacity(connection, filter))
    }

    /// The marks that match, newest first.
    ///
    /// # Errors
    /// See [`QueryError`].
    pub fn marks(&self, query: &MarkQuery) -> Result<Vec<Mark>, QueryError> {
        self.ask(|connection| super::marks::marks(connection, query))
    }

    /// The scores of a session itself.
    ///
    /// # Errors
    /// See [`QueryError`].
    pub fn session_scores(&self, session: &str) -> Result<Vec<Score>, QueryError> {
        self.ask(|connection| {
            Ok(scores::of_target(
                connection,
                ScoreTarget::Session,
                session,
            )?)
        })
    }

    /// The scores of the newest 300,000 calls that match, by group and unit.
    ///
    /// # Errors
    /// See [`QueryError`].
    pub fn scored_units(&self, query: &ScoreQuery) -> Result<Vec<ScoredUnit>, QueryError> {
        self.ask(|connection| scored::scored_units(connection, query))
    }

    /// The calls that match, summed by unit.
    ///
    /// # Errors
    /// See [`QueryError`].
    pub fn call_units(&self, query: &CallUnitQuery) -> Result<CallUnits, QueryError> {
        self.ask(|connection| call_units::call_units(connection, query))
    }

    /// The units of an experiment.
    ///
    /// # Errors
    /// See [`QueryError`].
    pub fn experiment_units(&self, query: &UnitQuery) -> Result<ExperimentUnits, QueryError> {
        self.ask(|connection| experiment_units::experiment_units(connection, query))
    }

    /// The progress of a sink; `None` if the ledger does not know the sink.
    ///
    /// # Errors
    /// See [`QueryError`].
    pub fn sink(&self, name: &str) -> Result<Option<SinkProgress>, QueryError> {
        self.ask(|connection| undelivered::progress(connection, name))
    }

    /// The sinks that the ledger knows.
    ///
    /// # Errors
    /// See [`QueryError`].
    pub fn sink_names(&self) -> Result<Vec<String>, QueryError> {
        self.ask(undelivered::names)
    }

    /// The number of the last of the next `limit` calls after number `after`; `None` if there are
    /// no more.
    ///
    /// # Errors
    /// See [`QueryError`].
    pub fn undelivered_end(&self, after: i64, limit: usize) -> Result<Option<i64>, QueryError> {
        self.ask(|connection| undelivered::end(connection, after, limit))
    }

    /// Calls that were written after number `after`, up to number `upto`, at most `limit`.
    ///
    /// # Errors
    /// See [`QueryError`].
    pub fn undelivered(
        &self,
        after: i64,
        upto: i64,
        limit: usize,
    ) -> Result<Vec<UndeliveredCall>, QueryError> {
        self.ask(|connection| undelivered::calls(connection, after, upto, limit))
    }

    /// The distributions by model, route and workload of calls that began in whole hours: from the
    /// hour of `since` to the hour of `until`.
    ///
    /// # Errors
    /// See [`QueryError`].
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

    /// The distributions of each hour of one series, by the start of the hour.
    ///
    /// # Errors
    /// See [`QueryError`].
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
        // A selector without a name matches all names, so the series itself must be compared.
        self.hours(&selector, since, until, |found| found == series)
    }

    /// The distributions of each hour, by its start, over all calls that match.
    ///
    /// # Errors
    /// See [`QueryError`].
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
