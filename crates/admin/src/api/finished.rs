//! Queries about finished calls: sessions, groups and time series.

use super::call_source::{CallSource, CallSourceName, Span, ask};
use super::problem::{JsonResponse, Problem};
use super::query_params::{FILTERS, PAGING, QueryParams};
use super::unsettled;
use crate::Services;
use axum::Json;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, RawQuery, State};
use axum::http::StatusCode;
use schemars::{JsonSchema, Schema};
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, SystemTime};
use tokengauge_core::score::Score;
use tokengauge_core::time::Timestamp;
use tokengauge_store::history;
use tokengauge_store::query::{
    DailySums, Dimension, Filter, GroupRow, Paging, ScoreQuery, SeriesMetric, SessionDetail,
    SessionQuery, SessionRow, SessionSort, Tasks, Timeseries, UnitKind, summaries,
};

const DEFAULT_STEP: Duration = Duration::from_secs(60);
pub(super) const SORTS: [(&str, SessionSort); 9] = [
    ("last_at", SessionSort::LastAt),
    ("started_at", SessionSort::StartedAt),
    ("cost", SessionSort::Cost),
    ("tokens", SessionSort::Tokens),
    ("calls", SessionSort::Calls),
    ("duration", SessionSort::Duration),
    ("errors", SessionSort::Errors),
    ("ttft", SessionSort::Ttft),
    ("tps", SessionSort::Tps),
];
pub(super) const ORDERS: [(&str, bool); 2] = [("asc", true), ("desc", false)];
pub(super) const METRICS: [(&str, SeriesMetric); 2] =
    [("tps", SeriesMetric::Tps), ("ttft", SeriesMetric::Ttft)];
pub(super) const OF_SESSIONS: [&str; 3] = ["q", "sort", "order"];
pub(super) const OF_GROUPS: [&str; 1] = ["by"];
pub(super) const OF_TIMESERIES: [&str; 3] = ["step", "metric", "counts"];
pub(super) const YES_OR_NO: [(&str, bool); 2] = [("true", true), ("false", false)];

#[derive(JsonSchema, Serialize)]
pub(super) struct Sessions {
    /// The store that answered.
    store: CallSourceName,
    /// A page of sessions.
    sessions: Vec<SessionRow>,
    /// The cursor of the next page; null on the last page.
    next_cursor: Option<String>,
}

pub(super) async fn sessions(
    State(services): State<Services>,
    RawQuery(query): RawQuery,
) -> JsonResponse<Sessions> {
    let asked = QueryParams::of(query.as_deref(), &[&FILTERS, &OF_SESSIONS, &PAGING])?;
    let query = SessionQuery {
        filter: asked.filter((services.wall)())?,
        search: asked.name("q")?,
        sort: asked.word("sort", &SORTS)?.unwrap_or_default(),
        ascending: asked.word("order", &ORDERS)?.unwrap_or_default(),
        page: asked.paging()?,
    };
    let question = move |source: &CallSource| Ok((source.name(), source.sessions(&query)?));
    let (store, page) = ask(&services, question).await?;
    let in_progress = in_progress(&services);
    let mut sessions = page.rows;
    for session in &mut sessions {
        session.in_flight = in_progress.get(&session.id).copied().unwrap_or(0);
    }
    Ok(Json(Sessions {
        store,
        sessions,
        next_cursor: page.next_cursor,
    }))
}

/// A session and a page of its calls.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "SessionDetail", transform = calls_are_a_list)]
pub(super) struct SessionAndCalls {
    #[serde(flatten)]
    detail: SessionDetail,
    /// The scores of the session itself. Its calls have their own.
    scores: Vec<Score>,
    /// The number of finished calls in the session.
    total_calls: u64,
    /// The store that answered.
    store: CallSourceName,
}

/// In a list of sessions `calls` is a number. In the response for one session `calls` is a list.
fn calls_are_a_list(schema: &mut Schema) {
    if let Some(properties) = schema.get_mut("properties") {
        properties["calls"] = json!({
            "type": "array",
            "items": {"$ref": "#/components/schemas/WaterfallCall"},
            "description": "A page of the session's calls, in the order of their starts.",
        });
    }
}

pub(super) async fn session(
    State(services): State<Services>,
    path: Result<Path<String>, PathRejection>,
    RawQuery(query): RawQuery,
) -> JsonResponse<Value> {
    let id = path.map_err(|_| Problem::of("id", "must be UTF-8, percent-encoded"))?;
    let id = id.0;
    let paging = QueryParams::of(query.as_deref(), &[&PAGING])?.paging()?;
    let name = id.clone();
    let question = move |source: &CallSource| match source.session(&name, &paging)? {
        Some(detail) => Ok((source.name(), detail, source.session_scores(&name)?)),
        None => Err(source.unknown_session()),
    };
    let (store, mut detail, scores) = ask(&services, question).await?;
    detail.session.in_flight = in_progress(&services).get(&id).copied().unwrap_or(0);
    let response = SessionAndCalls {
        total_calls: detail.session.calls,
        store,
        scores,
        detail,
    };
    // As a JSON value, in which the list of calls replaces the number of calls.
    serde_json::to_value(response)
        .map_err(|error| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))
        .map(Json)
}

fn in_progress(services: &Services) -> BTreeMap<String, u64> {
    let (now, wall) = ((services.clock)(), (services.wall)());
    let mut sessions = BTreeMap::new();
    services.live.visit_in_flight(now, wall, &mut |call| {
        if let Some(session) = call.session {
            *sessions.entry(session.to_owned()).or_default() += 1;
        }
    });
    sessions
}

#[derive(JsonSchema, Serialize)]
#[schemars(rename = "Tasks")]
pub(super) struct TasksOf {
    /// The store that answered.
    store: CallSourceName,
    #[serde(flatten)]
    span: Times,
    #[serde(flatten)]
    tasks: Tasks,
}

pub(super) async fn tasks(
    State(services): State<Services>,
    RawQuery(query): RawQuery,
) -> JsonResponse<TasksOf> {
    let asked = QueryParams::of(query.as_deref(), &[&FILTERS])?;
    let now = (services.wall)();
    let filter = asked.filter(now)?;
    let question = move |source: &CallSource| {
        let span = source.span(&filter, None, now)?;
        let seconds = source.task_seconds(&filter)?;
        Ok(TasksOf {
            store: source.name(),
            span: Times::of(span),
            tasks: history::tasks(seconds, span.and_then(|span| span.length())),
        })
    };
    ask(&services, question).await.map(Json)
}

/// The part of the requested time for which the store has calls.
#[derive(Clone, JsonSchema, Serialize)]
pub(super) struct Times {
    /// The start of the covered time: the requested start, or the start of the oldest stored call; null without calls.
    since: Option<Timestamp>,
    /// The end of the covered time: the requested end, or now; null without calls.
    until: Option<Timestamp>,
}

impl Times {
    pub(super) fn of(span: Option<Span>) -> Times {
        Times {
            since: span.map(|span| span.since.into()),
            until: span.map(|span| span.until.into()),
        }
    }
}

struct GroupPage {
    store: CallSourceName,
    span: Times,
    rows: Vec<GroupRow>,
    /// The cursor of the next page; null on the last page.
    next_cursor: Option<String>,
}

impl GroupPage {
    fn of(
        source: &CallSource,
        filter: &Filter,
        by: &[Dimension],
        paging: &Paging,
        now: SystemTime,
    ) -> Result<GroupPage, Problem> {
        let mut page = source.groups(filter, by, paging)?;
        add_scores(source, filter, by, &mut page.rows)?;
        let sums = filter.summed(by).then_some(DailySums::All);
        let span = source.span(filter, sums, now)?;
        let seconds = span.and_then(|span| span.length());
        for row in &mut page.rows {
            let calls = row.calls as f64;
            row.requests_per_second = seconds.map(|seconds| calls / seconds.as_secs_f64());
        }
        Ok(GroupPage {
            store: source.name(),
            span: Times::of(span),
            rows: page.rows,
            next_cursor: page.next_cursor,
        })
    }
}

/// Adds the scores of each group. A score counts in every group that has one of its calls.
fn add_scores(
    source: &CallSource,
    filter: &Filter,
    by: &[Dimension],
    rows: &mut [GroupRow],
) -> Result<(), Problem> {
    let units = source.scored_units(&ScoreQuery {
        filter: filter.clone(),
        variant: None,
        by: by.to_vec(),
        unit: UnitKind::Session,
    })?;
    let mut groups: HashMap<_, Vec<_>> = HashMap::new();
    for unit in &units {
        groups.entry(&unit.names).or_default().push(&unit.scores);
    }
    for row in rows {
        if let Some(scores) = groups.remove(&row.names) {
            row.scores = summaries(scores.into_iter());
        }
    }
    Ok(())
}

#[derive(JsonSchema, Serialize)]
pub(super) struct Models {
    /// The store that answered.
    store: CallSourceName,
    #[serde(flatten)]
    span: Times,
    /// A page of models, those with most calls first.
    models: Vec<GroupRow>,
    /// The cursor of the next page; null on the last page.
    next_cursor: Option<String>,
}

pub(super) async fn models(
    State(services): State<Services>,
    RawQuery(query): RawQuery,
) -> JsonResponse<Models> {
    let page = one_dimension(&services, query.as_deref(), Dimension::Model).await?;
    Ok(Json(Models {
        store: page.store,
        span: page.span,
        models: page.rows,
        next_cursor: page.next_cursor,
    }))
}

#[derive(JsonSchema, Serialize)]
pub(super) struct Workloads {
    /// The store that answered.
    store: CallSourceName,
    #[serde(flatten)]
    span: Times,
    /// A page of workloads, those with most calls first.
    workloads: Vec<GroupRow>,
    /// The cursor of the next page; null on the last page.
    next_cursor: Option<String>,
}

pub(super) async fn workloads(
    State(services): State<Services>,
    RawQuery(query): RawQuery,
) -> JsonResponse<Workloads> {
    let page = one_dimension(&services, query.as_deref(), Dimension::Workload).await?;
    Ok(Json(Workloads {
        store: page.store,
        span: page.span,
        workloads: page.rows,
        next_cursor: page.next_cursor,
    }))
}

#[derive(JsonSchema, Serialize)]
pub(super) struct Groups {
    /// The store that answered.
    store: CallSourceName,
    #[serde(flatten)]
    span: Times,
    /// A page of groups, those with most calls first.
    groups: Vec<NamedGroup>,
    /// The cursor of the next page; null on the last page.
    next_cursor: Option<String>,
}

/// The calls that have the same values of all dimensions in `by`.
#[derive(JsonSchema, Serialize)]
struct NamedGroup {
    /// The common values by dimension; null for calls without a value.
    by: BTreeMap<&'static str, Option<String>>,
    #[serde(flatten)]
    row: GroupRow,
}

pub(super) async fn groups(
    State(services): State<Services>,
    RawQuery(query): RawQuery,
) -> JsonResponse<Groups> {
    let asked = QueryParams::of(query.as_deref(), &[&FILTERS, &OF_GROUPS, &PAGING])?;
    let now = (services.wall)();
    let (filter, paging) = (asked.filter(now)?, asked.paging()?);
    // Without dimensions there is one group of all calls that the filters select.
    let by = asked.dimensions("by")?;
    let dimensions = by.clone();
    let question =
        move |source: &CallSource| GroupPage::of(source, &filter, &dimensions, &paging, now);
    let page = ask(&services, question).await?;
    let named = |row: GroupRow| NamedGroup {
        by: by
            .iter()
            .map(|by| by.name())
            .zip(row.names.clone())
            .collect(),
        row,
    };
    Ok(Json(Groups {
        store: page.store,
        span: page.span,
        groups: page.rows.into_iter().map(named).collect(),
        next_cursor: page.next_cursor,
    }))
}

async fn one_dimension(
    services: &Services,
    query: Option<&str>,
    by: Dimension,
) -> Result<GroupPage, Problem> {
    let asked = QueryParams::of(query, &[&FILTERS, &PAGING])?;
    let now = (services.wall)();
    let (filter, paging) = (asked.filter(now)?, asked.paging()?);
    let question = move |source: &CallSource| GroupPage::of(source, &filter, &[by], &paging, now);
    ask(services, question).await
}

#[derive(JsonSchema, Serialize)]
#[schemars(rename = "Timeseries")]
pub(super) struct Series {
    /// The store that answered.
    store: CallSourceName,
    /// The metric of the percentiles.
    #[schemars(extend("enum" = ["tps", "ttft"]))]
    metric: &'static str,
    #[serde(flatten)]
    timeseries: Timeseries,
}

pub(super) async fn timeseries(
    State(services): State<Services>,
    RawQuery(query): RawQuery,
) -> JsonResponse<Series> {
    let asked = QueryParams::of(query.as_deref(), &[&FILTERS, &OF_TIMESERIES])?;
    let filter = asked.filter((services.wall)())?;
    let metric = asked.word("metric", &METRICS)?.unwrap_or_default();
    let step = asked.duration("step")?.unwrap_or(DEFAULT_STEP);
    let counts = asked.word("counts", &YES_OR_NO)?.unwrap_or_default();
    let counted = filter.clone();
    let question = move |source: &CallSource| {
        let timeseries = source.timeseries(&filter, metric, step)?;
        Ok((source.name(), timeseries))
    };
    let (store, mut timeseries) = ask(&services, question).await?;
    unsettled::add_in_flight(&services, &counted, &mut timeseries);
    if !counts {
        timeseries.leave_out_counts();
    }
    Ok(Json(Series {
        store,
        metric: match metric {
            SeriesMetric::Tps => "tps",
            SeriesMetric::Ttft => "ttft",
        },
        timeseries,
    }))
}
