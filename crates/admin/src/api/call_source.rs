//! The source of finished calls that answers queries: the ledger if there is one, otherwise the calls in memory. Queries
//! run on blocking threads with a timeout.

use super::problem::Problem;
use crate::Services;
use axum::http::StatusCode;
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokengauge_core::call::CallRecord;
use tokengauge_core::score::Score;
use tokengauge_meter::{FinishedCall, RecentCalls};
use tokengauge_store::columns::{Value, values};
use tokengauge_store::history::{self, ThroughputHistory, TimedCall};
use tokengauge_store::ledger::{LedgerCall, QueryError, Reader};
use tokengauge_store::query::{
    CacheBreaks, CallUnitQuery, CallUnits, CapacityRow, CostQuery, Costs, Coverage, DailySums,
    Dimension, ExperimentUnits, Filter, GroupRow, Page, Paging, PromptToolUse, ScoreQuery,
    ScoredUnit, SeriesMetric, SessionDetail, SessionQuery, SessionRow, Timeseries, UnitQuery,
};
use tokengauge_store::scores::Scores;
use tokengauge_store::stored_calls::StoredCalls;

/// The timeout of a query. The ledger has its own shorter timeout.
const TIMEOUT: Duration = Duration::from_secs(20);

#[derive(Clone)]
pub enum CallSource {
    /// The most recent finished calls, throughput since the process started, and the newest scores.
    Memory(Arc<RecentCalls>, Arc<ThroughputHistory>, Arc<Scores>),
    /// All finished calls, in a ledger or a warehouse.
    Stored(StoredCalls),
}

/// A time span with calls. Its end is after its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) since: SystemTime,
    pub(super) until: SystemTime,
}

impl Span {
    pub(super) fn length(&self) -> Option<Duration> {
        self.until.duration_since(self.since).ok()
    }
}

pub(super) type QueryResult<T> = Result<T, Problem>;

pub(super) async fn ask<T: Send + 'static>(
    services: &Services,
    question: impl FnOnce(&CallSource) -> QueryResult<T> + Send + 'static,
) -> QueryResult<T> {
    let source = services.call_source.clone();
    blocking(move || question(&source)).await
}

pub(super) async fn blocking<T: Send + 'static>(
    question: impl FnOnce() -> QueryResult<T> + Send + 'static,
) -> QueryResult<T> {
    let result = tokio::task::spawn_blocking(question);
    match tokio::time::timeout(TIMEOUT, result).await {
        Ok(Ok(result)) => result,
        Ok(Err(_)) => Err(Problem::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "an internal error occurred; the log of tokengauge may say more",
        )),
        Err(_) => Err(Problem::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "the query took too long; ask for a shorter time with since and until",
        )),
    }
}

/// The store that answers.
#[derive(Clone, Copy, JsonSchema, Serialize)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "Store")]
pub(super) enum CallSourceName {
    /// The most recent finished calls, in memory.
    Memory,
    /// The ledger.
    Ledger,
    /// The warehouse of a fleet.
    Warehouse,
}

impl CallSource {
    pub fn new(
        ledger: Option<Arc<Reader>>,
        recent: &Arc<RecentCalls>,
        scores: &Arc<Scores>,
    ) -> CallSource {
        let (recent, scores) = (Arc::clone(recent), Arc::clone(scores));
        let memory = || CallSource::Memory(recent, ThroughputHistory::new(), scores);
        ledger.map_or_else(memory, |reader| CallSource::Stored(reader.into()))
    }

    pub fn stored(&self) -> Option<&StoredCalls> {
        match self {
            CallSource::Memory(..) => None,
            CallSource::Stored(calls) => Some(calls),
        }
    }

    pub fn ledger(&self) -> Option<&Arc<Reader>> {
        self.stored()?.ledger()
    }

    pub(super) fn name(&self) -> CallSourceName {
        match self {
            CallSource::Memory(..) => CallSourceName::Memory,
            CallSource::Stored(StoredCalls::Ledger(_)) => CallSourceName::Ledger,
            CallSource::Stored(StoredCalls::Warehouse(_)) => CallSourceName::Warehouse,
        }
    }

    /// The error for a session without a finished call. In memory, its calls may already have been dropped.
    pub(super) fn unknown_session(&self) -> Problem {
        let message = match self {
            CallSource::Stored(_) => "no finished call has this session".to_owned(),
            CallSource::Memory(recent, ..) => format!(
                "no finished call in memory has this session: memory has at most the last {} calls; a ledger keeps all",
                recent.capacity()
            ),
        };
        let message = format!("{message}; /api/v1/sessions lists the known sessions");
        Problem::new(StatusCode::NOT_FOUND, message)
    }

    pub(super) fn calls(&self, filter: &Filter, paging: &Paging) -> QueryResult<Page<CallRecord>> {
        match self {
            CallSource::Stored(calls) => calls.calls(filter, paging).map_err(problem),
            CallSource::Memory(recent, _, scores) => {
                let mut page = calls_in(recent, filter, paging, |call| call.record.clone())?;
                join(scores, page.rows.iter_mut());
                Ok(page)
            }
        }
    }

    /// Like `calls`, with each call as the values of the export columns.
    pub(super) fn call_rows(
        &self,
        filter: &Filter,
        paging: &Paging,
    ) -> QueryResult<Page<Vec<Value>>> {
        match self {
            CallSource::Stored(calls) => calls.call_rows(filter, paging).map_err(problem),
            CallSource::Memory(recent, ..) => calls_in(recent, filter, paging, |call| {
                values(&LedgerCall::of_finished(call))
            }),
        }
    }

    pub(super) fn costs(&self, query: &CostQuery) -> QueryResult<Costs> {
        match self {
            CallSource::Stored(calls) => calls.costs(query).map_err(problem),
            CallSource::Memory(recent, ..) => {
                let finished_calls = recent.newest(usize::MAX);
                let calls =
                    all(&finished_calls).filter(|past| history::matches(&query.filter, past));
                Ok(history::costs(calls, query))
            }
        }
    }

    pub(super) fn coverage(&self, filter: &Filter) -> QueryResult<Coverage> {
        match self {
            CallSource::Stored(calls) => calls.coverage(filter).map_err(problem),
            CallSource::Memory(recent, ..) => {
                let finished_calls = recent.newest(usize::MAX);
                Ok(history::coverage(all(&finished_calls), filter))
            }
        }
    }

    pub(super) fn call(&self, id: uuid::Uuid) -> QueryResult<Option<CallRecord>> {
        match self {
            CallSource::Stored(calls) => calls.call(id).map_err(problem),
            CallSource::Memory(recent, _, scores) => {
                let id = id.to_string();
                let finished_calls = recent.newest(usize::MAX);
                let mut calls = finished_calls.iter().map(|finished| &finished.record);
                let mut call = calls.find(|call| call.id == id).cloned();
                join(scores, call.iter_mut());
                Ok(call)
            }
        }
    }

    pub(super) fn sessions(&self, query: &SessionQuery) -> QueryResult<Page<SessionRow>> {
        match self {
            CallSource::Stored(calls) => calls.sessions(query).map_err(problem),
            CallSource::Memory(recent, ..) => {
                let finished_calls = recent.newest(usize::MAX);
                let all = history::sessions(all(&finished_calls), query);
                part_of(all, &query.page)
            }
        }
    }

    /// The part of the requested time, up to `now`, for which the source has calls or the ledger's `sums`. `None` if
    /// there is no such part.
    pub(super) fn span(
        &self,
        filter: &Filter,
        sums: Option<DailySums>,
        now: SystemTime,
    ) -> QueryResult<Option<Span>> {
        let oldest = match self {
            CallSource::Stored(calls) => calls.oldest(sums).map_err(problem)?,
            CallSource::Memory(recent, ..) => {
                let finished_calls = recent.newest(usize::MAX);
                all(&finished_calls).map(|past| past.started).min()
            }
        };
        let span = |oldest: SystemTime| Span {
            since: filter.since.map_or(oldest, |since| since.max(oldest)),
            until: filter.until.map_or(now, |until| until.min(now)),
        };
        Ok(oldest.map(span).filter(|span| span.since < span.until))
    }

    /// The durations in seconds of the sessions whose last call ended within the time.
    pub(super) fn task_seconds(&self, filter: &Filter) -> QueryResult<Vec<f64>> {
        match self {
            CallSource::Stored(calls) => calls.task_seconds(filter).map_err(problem),
            CallSource::Memory(recent, ..) => {
                let finished_calls = recent.newest(usize::MAX);
                let query = SessionQuery {
                    filter: filter.clone(),
                    ..SessionQuery::default()
                };
                Ok(history::task_seconds(all(&finished_calls), &query))
            }
        }
    }

    pub(super) fn session(&self, id: &str, paging: &Paging) -> QueryResult<Option<SessionDetail>> {
        let recent = match self {
            CallSource::Stored(calls) => return calls.session(id, paging).map_err(problem),
            CallSource::Memory(recent, ..) => recent,
        };
        let finished_calls = recent.newest(usize::MAX);
        let calls = all(&finished_calls).filter(|past| past.record.session.as_deref() == Some(id));
        let Some((session, calls)) = history::waterfall(calls) else {
            return Ok(None);
        };
        let page = part_of(calls, paging)?;
        Ok(Some(SessionDetail {
            session,
            calls: page.rows,
            next_cursor: page.next_cursor,
        }))
    }

    pub(super) fn groups(
        &self,
        filter: &Filter,
        by: &[Dimension],
        paging: &Paging,
    ) -> QueryResult<Page<GroupRow>> {
        match self {
            CallSource::Stored(calls) => calls.groups(filter, by, paging).map_err(problem),
            CallSource::Memory(recent, ..) => {
                let finished_calls = recent.newest(usize::MAX);
                let calls = all(&finished_calls).filter(|past| history::matches(filter, past));
                part_of(history::groups(calls, by), paging)
            }
        }
    }

    pub(super) fn cache_breaks(&self, filter: &Filter) -> QueryResult<Vec<CacheBreaks>> {
        match self {
            CallSource::Stored(calls) => calls.cache_breaks(filter).map_err(problem),
            CallSource::Memory(recent, ..) => {
                let finished_calls = recent.newest(usize::MAX);
                let calls = all(&finished_calls).filter(|past| history::matches(filter, past));
                Ok(history::cache_breaks(calls))
            }
        }
    }

    pub(super) fn prompt_tools(&self, filter: &Filter) -> QueryResult<Vec<PromptToolUse>> {
        match self {
            CallSource::Stored(calls) => calls.prompt_tools(filter).map_err(problem),
            CallSource::Memory(recent, _, _) => {
                let finished_calls = recent.newest(usize::MAX);
                let calls = all(&finished_calls).filter(|past| history::matches(filter, past));
                Ok(history::prompt_tools(calls))
            }
        }
    }

    /// The scores of a session itself, without the scores of its calls.
    pub(super) fn session_scores(&self, session: &str) -> QueryResult<Vec<Score>> {
        match self {
            CallSource::Stored(calls) => calls.session_scores(session).map_err(problem),
            CallSource::Memory(_, _, scores) => Ok(scores.index().of_session(session)),
        }
    }

    /// The scores of the calls that match, by group and unit.
    pub(super) fn scored_units(&self, query: &ScoreQuery) -> QueryResult<Vec<ScoredUnit>> {
        match self {
            CallSource::Stored(calls) => calls.scored_units(query).map_err(problem),
            CallSource::Memory(recent, _, scores) => {
                let index = scores.index();
                if index.is_empty() {
                    return Ok(Vec::new());
                }
                let finished_calls = recent.newest(usize::MAX);
                Ok(history::scored_units(all(&finished_calls), &index, query))
            }
        }
    }

    /// The number of these calls that are not stored.
    pub(super) fn unknown_calls(&self, ids: &[uuid::Uuid]) -> QueryResult<usize> {
        match self {
            CallSource::Stored(calls) => {
                let mut unknown = 0;
                for id in ids {
                    unknown += usize::from(calls.call(*id).map_err(problem)?.is_none());
                }
                Ok(unknown)
            }
            CallSource::Memory(recent, ..) => {
                let finished_calls = recent.newest(usize::MAX);
                let known = finished_calls.iter().map(|call| call.record.id.as_str());
                let known: HashSet<&str> = known.collect();
                let is_unknown = |id: &&uuid::Uuid| !known.contains(id.to_string().as_str());
                Ok(ids.iter().filter(is_unknown).count())
            }
        }
    }

    pub(super) fn call_units(&self, query: &CallUnitQuery) -> QueryResult<CallUnits> {
        match self {
            CallSource::Stored(calls) => calls.call_units(query).map_err(problem),
            CallSource::Memory(recent, ..) => {
                let finished_calls = recent.newest(usize::MAX);
                Ok(history::call_units(all(&finished_calls), query))
            }
        }
    }

    pub(super) fn experiment_units(&self, query: &UnitQuery) -> QueryResult<ExperimentUnits> {
        match self {
            CallSource::Stored(calls) => calls.experiment_units(query).map_err(problem),
            CallSource::Memory(recent, ..) => {
                let finished_calls = recent.newest(usize::MAX);
                Ok(history::experiment_units(all(&finished_calls), query))
            }
        }
    }

    /// The throughput of upstreams by concurrency. Without a ledger it covers the whole time since the process started,
    /// regardless of the filter's times.
    pub(super) fn capacity(&self, filter: &Filter) -> QueryResult<Vec<CapacityRow>> {
        match self {
            CallSource::Stored(calls) => calls.capacity(filter).map_err(problem),
            CallSource::Memory(_, seen, _) => Ok(seen.rows(filter.names.get(Dimension::Upstream))),
        }
    }

    pub(super) fn timeseries(
        &self,
        filter: &Filter,
        metric: SeriesMetric,
        step: Duration,
    ) -> QueryResult<Timeseries> {
        match self {
            CallSource::Stored(calls) => calls.timeseries(filter, metric, step).map_err(problem),
            CallSource::Memory(recent, seen, _) => {
                let finished_calls = recent.newest(usize::MAX);
                let calls = all(&finished_calls).filter(|past| history::matches(filter, past));
                let seconds = filter.throughput().map(|which| seen.seconds(&which));
                let seconds = seconds.map(|seconds| within(seconds, filter));
                Ok(history::timeseries(calls, metric, step, seconds.as_deref()))
            }
        }
    }
}

fn within(mut seconds: Vec<(u64, f64, f64)>, filter: &Filter) -> Vec<(u64, f64, f64)> {
    let second = |at: std::time::SystemTime| tokengauge_core::time::since_1970(at) as u64;
    let (since, until) = (filter.since.map(second), filter.until.map(second));
    seconds.retain(|(at, ..)| {
        since.is_none_or(|since| *at >= since) && until.is_none_or(|until| *at < until)
    });
    seconds
}

/// Adds the scores in memory to records.
fn join<'a>(scores: &Scores, records: impl Iterator<Item = &'a mut CallRecord>) {
    let index = scores.index();
    if index.is_empty() {
        return;
    }
    for record in records {
        record.scores = index.of_record(record);
    }
}

fn all(finished_calls: &[Arc<FinishedCall>]) -> impl Iterator<Item = TimedCall<'_>> {
    finished_calls
        .iter()
        .map(|finished_call| TimedCall::of_finished(finished_call))
}

/// The newest calls first, each converted by `read`. Ids sort by start. A cursor is the id of the last call of the previous
/// page.
fn calls_in<T>(
    recent: &RecentCalls,
    filter: &Filter,
    paging: &Paging,
    read: impl Fn(&FinishedCall) -> T,
) -> QueryResult<Page<T>> {
    let before = paging.cursor.as_deref();
    let before = before.map(|text| uuid::Uuid::parse_str(text).map(|id| id.to_string()));
    let before = before.transpose().map_err(|_| not_a_cursor())?;
    let mut meant = recent.newest(usize::MAX);
    meant.retain(|call| {
        let earlier = |before: &String| call.record.id < *before;
        history::matches(filter, &TimedCall::of_finished(call))
            && before.as_ref().is_none_or(earlier)
    });
    meant.sort_by(|one, other| other.record.id.cmp(&one.record.id));
    let more = meant.len() > paging.limit;
    meant.truncate(paging.limit);
    let last = meant.last().filter(|_| more);
    Ok(Page {
        next_cursor: last.map(|call| call.record.id.clone()),
        rows: meant.iter().map(|call| read(call)).collect(),
    })
}

fn part_of<T>(rows: Vec<T>, paging: &Paging) -> QueryResult<Page<T>> {
    let from = paging.cursor.as_deref().map_or(Ok(0), str::parse);
    let from: usize = from.map_err(|_| not_a_cursor())?;
    let end = from.saturating_add(paging.limit);
    let next_cursor = (end < rows.len()).then(|| end.to_string());
    let rows = rows.into_iter().skip(from).take(paging.limit);
    Ok(Page {
        rows: rows.collect(),
        next_cursor,
    })
}

fn not_a_cursor() -> Problem {
    let rule = "must be the next_cursor of a response to the same query";
    Problem::of("cursor", rule)
}

pub(super) fn problem(error: QueryError) -> Problem {
    match error {
        QueryError::Wrong(reason) => Problem::new(StatusCode::BAD_REQUEST, reason),
        QueryError::Warehouse(error) if error.too_much => Problem::new(
            StatusCode::SERVICE_UNAVAILABLE,
            format!("{error}; ask for a shorter time with since and until"),
        ),
        QueryError::TimeLimit(_)
        | QueryError::Busy
        | QueryError::Unavailable { .. }
        | QueryError::Damaged { .. }
        | QueryError::Sqlite(_)
        | QueryError::Warehouse(_) => {
            Problem::new(StatusCode::SERVICE_UNAVAILABLE, error.to_string())
        }
    }
}
