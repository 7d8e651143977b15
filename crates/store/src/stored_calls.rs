//! Finished calls that are stored outside this process's memory, whichever engine keeps them.

use crate::columns::{CallRow, Value};
use crate::ledger::{QueryError, Reader};
use crate::query::{
    CacheBreaks, CallUnitQuery, CallUnits, CapacityRow, CostQuery, Costs, Coverage, DailySums,
    Dimension, DistributionSelector, DistributionSeries, Distributions, ExperimentUnits, Filter,
    GroupRow, Mark, MarkQuery, Page, Paging, PromptToolUse, ScoreQuery, ScoredUnit, SeriesMetric,
    SessionDetail, SessionQuery, SessionRow, Timeseries, UnitQuery,
};
use crate::warehouse::Warehouse;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokengauge_core::call::CallRecord;
use tokengauge_core::score::Score;
use uuid::Uuid;

/// Stored calls. Every question has the same answer from either engine; the methods say what an engine does not know.
#[derive(Clone, Debug)]
pub enum StoredCalls {
    /// The calls of one process, in SQLite.
    Ledger(Arc<Reader>),
    /// The calls of many processes, in ClickHouse.
    Warehouse(Arc<Warehouse>),
}

/// Both engines have a method for a question.
macro_rules! questions {
    ($($(#[doc = $about:literal])+ $name:ident($($argument:ident: $kind:ty),*) -> $answer:ty;)*) => {
        impl StoredCalls {
            $($(#[doc = $about])+
            ///
            /// # Errors
            /// Returns a [`QueryError`] if the store cannot answer.
            pub fn $name(&self, $($argument: $kind),*) -> Result<$answer, QueryError> {
                match self {
                    StoredCalls::Ledger(reader) => reader.$name($($argument),*),
                    StoredCalls::Warehouse(warehouse) => warehouse.$name($($argument),*),
                }
            })*
        }
    };
}

questions! {
    /// The calls that match, the newest first. A page may have fewer rows than the limit and still not be the last: only
    /// `next_cursor` says so.
    calls(filter: &Filter, page: &Paging) -> Page<CallRecord>;
    /// The same calls as [`StoredCalls::calls`], each as the values of [`crate::columns::COLUMNS`].
    call_rows(filter: &Filter, page: &Paging) -> Page<Vec<Value>>;
    /// The calls that began within the filter's time, in the order of their start. The rest of the filter does not count.
    in_order(filter: &Filter, page: &Paging) -> Page<CallRow>;
    /// The call with this id; `None` if it is not known.
    call(id: Uuid) -> Option<CallRecord>;
    /// The sessions that match.
    sessions(query: &SessionQuery) -> Page<SessionRow>;
    /// The durations in seconds of the sessions that a filter selects and whose last call ended before its end.
    task_seconds(filter: &Filter) -> Vec<f64>;
    /// One session and a page of its calls; `None` if it is not known.
    session(id: &str, page: &Paging) -> Option<SessionDetail>;
    /// Groups of calls by dimensions, the groups with most calls first.
    groups(filter: &Filter, by: &[Dimension], page: &Paging) -> Page<GroupRow>;
    /// Percentiles over time, in steps of whole seconds on multiples of `step` since 1970; of more than 1,000 the newest.
    timeseries(filter: &Filter, metric: SeriesMetric, step: Duration) -> Timeseries;
    /// What calls cost over time, in steps of whole seconds on multiples of the step since 1970.
    costs(query: &CostQuery) -> Costs;
    /// The prompt-cache misses of the calls that match, by their cause.
    cache_breaks(filter: &Filter) -> Vec<CacheBreaks>;
    /// Sums of each tool over the prompts of the matching calls: tokens of definitions and results, calls, failures and waiting
    /// time.
    prompt_tools(filter: &Filter) -> Vec<PromptToolUse>;
    /// How many calls have a cost and a speed, and why the others have none.
    coverage(filter: &Filter) -> Coverage;
    /// The throughput of each upstream by concurrency. Only times and the upstream of the filter count. A ledger measured how many
    /// calls of one process were in flight. A warehouse computes it from the times of the calls of all processes.
    capacity(filter: &Filter) -> Vec<CapacityRow>;
    /// The calls that match, summed by unit.
    call_units(query: &CallUnitQuery) -> CallUnits;
    /// The units of an experiment.
    experiment_units(query: &UnitQuery) -> ExperimentUnits;
    /// The distributions by model, route and workload of calls that began in whole hours: from the one that `since` is in to
    /// the one that `until` is in.
    distributions(
        selector: &DistributionSelector, since: Option<SystemTime>, until: Option<SystemTime>
    ) -> BTreeMap<DistributionSeries, Distributions>;
    /// The distributions of each hour of one series, by its beginning.
    hours_of_series(
        series: &DistributionSeries, since: Option<SystemTime>, until: Option<SystemTime>
    ) -> BTreeMap<SystemTime, Distributions>;
    /// The distributions of each hour for all matching series together, by the beginning of the hour.
    hourly_distributions(
        selector: &DistributionSelector, since: Option<SystemTime>, until: Option<SystemTime>
    ) -> BTreeMap<SystemTime, Distributions>;
}

impl StoredCalls {
    /// When the oldest stored call began or, with `sums`, the oldest of the sums that a ledger keeps longer; `None` without
    /// calls.
    ///
    /// # Errors
    /// Returns a [`QueryError`] if the store cannot answer.
    pub fn oldest(&self, sums: Option<DailySums>) -> Result<Option<SystemTime>, QueryError> {
        match self {
            StoredCalls::Ledger(reader) => reader.oldest(sums),
            StoredCalls::Warehouse(warehouse) => warehouse.oldest(),
        }
    }

    /// The marks that match, the newest first. A warehouse has none.
    ///
    /// # Errors
    /// Returns a [`QueryError`] if the store cannot answer.
    pub fn marks(&self, query: &MarkQuery) -> Result<Vec<Mark>, QueryError> {
        match self {
            StoredCalls::Ledger(reader) => reader.marks(query),
            StoredCalls::Warehouse(_) => Ok(Vec::new()),
        }
    }

    /// The scores of a session itself. A warehouse has none.
    ///
    /// # Errors
    /// Returns a [`QueryError`] if the store cannot answer.
    pub fn session_scores(&self, session: &str) -> Result<Vec<Score>, QueryError> {
        match self {
            StoredCalls::Ledger(reader) => reader.session_scores(session),
            StoredCalls::Warehouse(_) => Ok(Vec::new()),
        }
    }

    /// The scores of calls that match, by group and unit. A warehouse has none.
    ///
    /// # Errors
    /// Returns a [`QueryError`] if the store cannot answer.
    pub fn scored_units(&self, query: &ScoreQuery) -> Result<Vec<ScoredUnit>, QueryError> {
        match self {
            StoredCalls::Ledger(reader) => reader.scored_units(query),
            StoredCalls::Warehouse(_) => Ok(Vec::new()),
        }
    }

    /// The ledger, if that is the engine.
    pub fn ledger(&self) -> Option<&Arc<Reader>> {
        match self {
            StoredCalls::Ledger(reader) => Some(reader),
            StoredCalls::Warehouse(_) => None,
        }
    }
}

impl From<Arc<Reader>> for StoredCalls {
    fn from(reader: Arc<Reader>) -> StoredCalls {
        StoredCalls::Ledger(reader)
    }
}
