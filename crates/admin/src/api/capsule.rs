//! `/api/v1/capsule`: an incident as one HTML file.

use super::call_source::{CallSource, CallSourceName, blocking, problem};
use super::calls::{spent, unknown_objective};
use super::problem::Problem;
use super::query_params::{MAX_LIMIT, QueryParams};
use super::unsettled;
use crate::{ProcessServices, Services};
use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, header};
use axum::response::{Html, IntoResponse};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use tokengauge_core::call::CallRecord;
use tokengauge_core::time::rfc3339_seconds;
use tokengauge_html::capsule::{
    Capsule, Configuration, MEMORY, Objective, Process, Span, TABLES, worst,
};
use tokengauge_slo::{self as slo, Status};
use tokengauge_store::ledger::Reader;
use tokengauge_store::query::Dimension;
use tokengauge_store::query::{Filter, Mark, MarkKind, MarkQuery, Paging, SeriesMetric};

pub(super) const OF_CAPSULES: [&str; 3] = ["slo", "since", "until"];
/// The span if the query has none and no alert fires.
const SPAN: Duration = Duration::from_secs(3600);
/// The span of an alert is this many times its long window, so that it includes earlier calls.
const WINDOWS: u32 = 2;
const MAX_CALLS: usize = 2_000;
/// The number of rows in a table, and of marks.
const MAX_ROWS: usize = 30;
const MAX_MARKS: usize = 200;

pub(super) async fn capsule(
    process: Arc<ProcessServices>,
    State(services): State<Services>,
    headers: HeaderMap,
    RawQuery(query): RawQuery,
) -> Result<impl IntoResponse, Problem> {
    let asked = QueryParams::of(query.as_deref(), &[&OF_CAPSULES])?;
    let now = (services.wall)();
    let status = match asked.name("slo")? {
        Some(name) => Some(status_of(&process, &name, (services.clock)())?),
        None => None,
    };
    let (since, until) = (asked.instant("since", now)?, asked.instant("until", now)?);
    let span = span(since, until, status.as_ref(), now)?;
    let (about, url) = (Arc::clone(&services.about), asked_at(&services, &headers));
    let capsule = blocking(move || {
        let mut capsule = of_proxy(&services, &process, span, status, now, url)?;
        // Without a requested start, the span is the part for which calls are stored.
        if since.is_none() {
            capsule.span = capsule.kept.unwrap_or(span);
        }
        Ok(capsule)
    })
    .await?;
    let at = rfc3339_seconds(capsule.span.since).to_string();
    let slo = capsule.objective.as_ref();
    let slo = slo.map_or(String::new(), |slo| plain(&slo.status.name) + "-");
    let name = format!("incident-{slo}{}.html", at.replace(':', "-"));
    let saved = format!("attachment; filename=\"{name}\"");
    let head = [
        (header::CONTENT_DISPOSITION, saved),
        (header::CACHE_CONTROL, "no-store".to_owned()),
    ];
    Ok((head, Html(capsule.html(about.load().commit))))
}

fn plain(name: &str) -> String {
    let plain = |character: char| match character {
        'a'..='z' | 'A'..='Z' | '0'..='9' | '.' | '_' => character,
        _ => '-',
    };
    name.chars().map(plain).take(60).collect()
}

fn asked_at(services: &Services, headers: &HeaderMap) -> String {
    let host = headers
        .get(header::HOST)
        .and_then(|host| host.to_str().ok());
    // The host becomes a part of commands, so it must not contain characters that are special in a shell.
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b".:-_[]".contains(&byte);
    let host = host.filter(|host| !host.is_empty() && host.bytes().all(is_plain));
    let host = host.unwrap_or("ADDRESS");
    let forwarded = headers.get("x-forwarded-proto");
    let tls = services.about.load().admin_tls || forwarded.is_some_and(|scheme| scheme == "https");
    let scheme = if tls { "https" } else { "http" };
    format!("{scheme}://{host}")
}

fn status_of(process: &ProcessServices, name: &str, now: Instant) -> Result<Status, Problem> {
    let all = process.slos.status(now).into_iter();
    let mut named = all.filter(|status| *status.name == *name);
    named.next().ok_or_else(unknown_objective)
}

/// The requested span. By default it is the span of the firing alert, and some time before.
fn span(
    since: Option<SystemTime>,
    until: Option<SystemTime>,
    status: Option<&Status>,
    now: SystemTime,
) -> Result<Span, Problem> {
    let alerts = status.into_iter().flat_map(|status| &status.alerts);
    let mut firing = alerts.filter(|alert| alert.firing);
    let length = firing
        .next()
        .map_or(SPAN, |alert| alert.tier.long * WINDOWS);
    // There are no calls before 1970. If only an end is given and it is too early, the span begins in 1970.
    let first = SystemTime::UNIX_EPOCH;
    let until = match since {
        Some(_) => until.unwrap_or(now),
        None => until.map_or(now, |until| until.max(first + length)),
    };
    let until = until.min(now);
    let since = since.or_else(|| until.checked_sub(length));
    let since = since.map_or(first, |since| since.max(first));
    if since < until {
        Ok(Span { since, until })
    } else {
        Err(Problem::of(
            "since",
            "must be before until, and not later than now",
        ))
    }
}

fn of_proxy(
    services: &Services,
    process: &ProcessServices,
    span: Span,
    status: Option<Status>,
    now: SystemTime,
    url: String,
) -> Result<Capsule, Problem> {
    let mut capsule = of_source(&services.call_source, span, status.as_ref(), now)?;
    let filter = filter(span);
    for series in [&mut capsule.tps, &mut capsule.ttft] {
        unsettled::add_in_flight(services, &filter, series);
    }
    capsule.objective = status.and_then(|status| {
        let burn_down = process.slos.burn_down(&status.name, (services.clock)())?;
        Some(Objective { status, burn_down })
    });
    capsule.marks = marks(|query| services.marks.find(query).map_err(problem), span)?;
    capsule.runaways = process.session_watch.runaways((services.clock)());
    capsule.runaways.truncate(MAX_ROWS);
    let about = services.about.load();
    let system = rustix::system::uname();
    capsule.process = Some(Process {
        started_at: about.started_at,
        host: system.nodename().to_string_lossy().into_owned(),
        url,
    });
    let reloads = MarkQuery {
        kind: Some(MarkKind::Reload),
        limit: 1,
        ..MarkQuery::default()
    };
    capsule.configuration = Some(Configuration {
        text: Arc::clone(&about.configuration),
        digest: about.digest.clone(),
        origin: about.origin.clone(),
        last_change: services.marks.find(&reloads).map_err(problem)?.pop(),
    });
    Ok(capsule)
}

/// The incident file of a ledger, which has no objectives and no calls in flight.
///
/// # Errors
/// Fails if the ledger cannot be read.
pub fn of_ledger(reader: Arc<Reader>, span: Span, now: SystemTime) -> Result<Capsule, Problem> {
    let source = CallSource::Stored(Arc::clone(&reader).into());
    let mut capsule = of_source(&source, span, None, now)?;
    capsule.marks = marks(|query| reader.marks(query).map_err(problem), span)?;
    Ok(capsule)
}

fn of_source(
    source: &CallSource,
    span: Span,
    status: Option<&Status>,
    now: SystemTime,
) -> Result<Capsule, Problem> {
    let filter = filter(span);
    let kept = source.span(&filter, None, now)?.map(|kept| Span {
        since: kept.since,
        until: kept.until,
    });
    let step = kept.unwrap_or(span).step();
    let series = |metric| source.timeseries(&filter, metric, step);
    let rows = Paging {
        limit: MAX_ROWS,
        cursor: None,
    };
    let groups = TABLES.iter();
    let groups = groups.map(|(by, _)| Ok(source.groups(&filter, &[*by], &rows)?.rows));
    let objective = status.map(|status| &*status.definition);
    let calls = calls(source, &filter, objective)?;
    let cause = status.and_then(|status| status.cause.as_deref());
    Ok(Capsule {
        made: now,
        span,
        kept,
        source: match source.name() {
            CallSourceName::Ledger => "the ledger",
            CallSourceName::Warehouse => "the warehouse",
            CallSourceName::Memory => MEMORY,
        },
        process: None,
        objective: None,
        tps: series(SeriesMetric::Tps)?,
        ttft: series(SeriesMetric::Ttft)?,
        groups: groups.collect::<Result<_, Problem>>()?,
        looked_at: calls.len(),
        calls: worst(calls, cause),
        marks: Vec::new(),
        runaways: Vec::new(),
        configuration: None,
    })
}

fn filter(span: Span) -> Filter {
    Filter {
        since: Some(span.since),
        until: Some(span.until),
        operation_classes: Filter::counted(),
        ..Filter::default()
    }
}

/// The last calls of the span. With an objective, the calls that spent its budget.
fn calls(
    source: &CallSource,
    filter: &Filter,
    objective: Option<&slo::Objective>,
) -> Result<Vec<CallRecord>, Problem> {
    let mut filter = filter.clone();
    if let Some(objective) = objective {
        // The objective's own filter reduces the number of calls to judge.
        let select = &objective.judgement.select;
        filter.names = [
            (Dimension::Route, select.route.clone()),
            (Dimension::Upstream, select.upstream.clone()),
            (Dimension::Workload, select.workload.clone()),
            (Dimension::Team, select.team.clone()),
            (Dimension::CostCenter, select.cost_center.clone()),
            (Dimension::Tenant, select.tenant.clone()),
        ]
        .into();
    }
    let mut found = Vec::new();
    let mut cursor = None;
    for _ in 0..MAX_CALLS / MAX_LIMIT {
        let paging = Paging {
            limit: MAX_LIMIT,
            cursor: cursor.take(),
        };
        let page = match objective {
            Some(objective) => spent(source, objective, &filter, paging)?,
            None => source.calls(&filter, &paging)?,
        };
        found.extend(page.rows);
        cursor = page.next_cursor;
        if cursor.is_none() {
            break;
        }
    }
    Ok(found)
}

fn marks(
    find: impl Fn(&MarkQuery) -> Result<Vec<Mark>, Problem>,
    span: Span,
) -> Result<Vec<Mark>, Problem> {
    let query = MarkQuery {
        from: Some(span.since),
        to: Some(span.until),
        limit: MAX_MARKS,
        ..MarkQuery::default()
    };
    let mut found = find(&query)?;
    found.sort_by(|one, other| (&one.time, one.id).cmp(&(&other.time, other.id)));
    Ok(found)
}
