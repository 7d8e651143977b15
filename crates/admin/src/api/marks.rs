//! `/api/v1/marks`: events at an instant, which charts show next to the figures.

use super::call_source::{CallSourceName, blocking, problem};
use super::problem::{JsonResponse, Problem};
use super::query_params::{MAX_NAME, QueryParams};
use crate::Services;
use axum::Json;
use axum::body::{Body, to_bytes};
use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokengauge_fleet::PodsAsked;
use tokengauge_store::history::instant;
use tokengauge_store::marks::MarkError;
use tokengauge_store::query::{Mark, MarkKind, MarkQuery, MarkSubject, NewMark};

pub const PATH: &str = "/api/v1/marks";
pub(super) const OF_MARKS: [&str; 8] = [
    "from", "to", "kind", "model", "upstream", "route", "workload", "limit",
];
pub(super) const MAX_TEXT: usize = 1_000;
pub(super) const MAX_TAGS: usize = 10;
pub(super) const MAX_TAG: usize = 100;
/// The largest body in bytes: all fields at their longest, with every character escaped.
const MAX_BYTES: usize = 64 * 1024;

#[derive(JsonSchema, Serialize)]
#[schemars(rename = "Marks")]
pub(super) struct AllMarks {
    /// The store that keeps the marks.
    store: CallSourceName,
    /// The marks, newest first.
    marks: Vec<Mark>,
    /// Which pods of a fleet are included. Equal marks of several pods within a minute are one mark.
    #[serde(skip_serializing_if = "Option::is_none")]
    pods: Option<PodsAsked>,
}

/// The marks of one pod.
#[derive(Deserialize)]
struct OfPod {
    marks: Vec<Mark>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Posted {
    text: String,
    time: Option<Time>,
    #[serde(default)]
    tags: Vec<String>,
    model: Option<String>,
    upstream: Option<String>,
    route: Option<String>,
    workload: Option<String>,
}

/// An instant: RFC 3339, or milliseconds since 1970.
#[derive(Deserialize)]
#[serde(untagged)]
enum Time {
    Milliseconds(u64),
    /// JSON does not distinguish 5.0 from the integer 5.
    WithFraction(f64),
    Text(String),
}

pub(super) async fn marks(
    State(services): State<Services>,
    RawQuery(asked_for): RawQuery,
) -> JsonResponse<AllMarks> {
    let asked = QueryParams::of(asked_for.as_deref(), &[&OF_MARKS])?;
    let now = (services.wall)();
    let query = MarkQuery {
        from: moment(&asked, "from", now)?,
        to: moment(&asked, "to", now)?,
        kind: asked.word("kind", &kinds())?,
        subject: MarkSubject {
            model: asked.name("model")?,
            upstream: asked.name("upstream")?,
            route: asked.name("route")?,
            workload: asked.name("workload")?,
        },
        limit: asked.limit()?,
    };
    let store = services.call_source.name();
    if let Some(fleet) = services.live.fleet() {
        let path = format!("{PATH}?{}", asked_for.as_deref().unwrap_or_default());
        let (of_pods, pods): (Vec<OfPod>, _) = fleet.ask(&path).await;
        let marks = of_pods.into_iter().flat_map(|pod| pod.marks);
        return Ok(Json(AllMarks {
            store,
            marks: together(marks.collect(), query.limit),
            pods: Some(pods),
        }));
    }
    let all = Arc::clone(&services.marks);
    let marks = blocking(move || all.find(&query).map_err(problem)).await?;
    Ok(Json(AllMarks {
        store,
        marks,
        pods: None,
    }))
}

/// The marks of several pods, the newest first. What all pods report at about the same time, such as an alert, is there once.
fn together(mut marks: Vec<Mark>, limit: usize) -> Vec<Mark> {
    let minute =
        |mark: &Mark| tokengauge_core::time::duration_since_1970(mark.time.time()).as_secs() / 60;
    marks.sort_by_key(|mark| std::cmp::Reverse(mark.time.time()));
    let mut seen = HashSet::new();
    marks.retain(|mark| seen.insert((mark.kind, mark.text.clone(), minute(mark))));
    marks.truncate(limit);
    marks
}

pub(super) async fn add(
    State(services): State<Services>,
    body: Body,
) -> Result<(StatusCode, Json<Mark>), Problem> {
    let body = to_bytes(body, MAX_BYTES).await.map_err(|_| {
        let message = "a mark may have at most 64 KiB";
        Problem::new(StatusCode::PAYLOAD_TOO_LARGE, message)
    })?;
    let posted: Posted = serde_json::from_slice(&body).map_err(|error| {
        let message = format!(
            "the body must be JSON such as {{\"text\": \"deployed v2\", \"model\": \"m\"}}: {error}"
        );
        Problem::new(StatusCode::BAD_REQUEST, message)
    })?;
    let mark = checked(posted, (services.wall)())?;
    let all = Arc::clone(&services.marks);
    let kept = move || all.add_and_wait(mark).map_err(|error| not_kept(&error));
    Ok((StatusCode::CREATED, Json(blocking(kept).await?)))
}

fn not_kept(error: &MarkError) -> Problem {
    Problem::new(
        StatusCode::SERVICE_UNAVAILABLE,
        format!("the mark was not added: {error}"),
    )
}

fn checked(posted: Posted, now: SystemTime) -> Result<NewMark, Problem> {
    let within = |text: &str, most: usize| (1..=most).contains(&text.chars().count());
    if !within(&posted.text, MAX_TEXT) || posted.text.trim().is_empty() {
        let rule = "must have 1 to 1000 characters, not only blanks";
        return Err(Problem::of("text", rule));
    }
    let tags = &posted.tags;
    if tags.len() > MAX_TAGS || !tags.iter().all(|tag| within(tag, MAX_TAG)) {
        let rule = "must be at most 10 strings of 1 to 100 characters";
        return Err(Problem::of("tags", rule));
    }
    let named = |name, value: Option<String>| match value {
        Some(value) if !within(&value, MAX_NAME) => {
            Err(Problem::of(name, "must have 1 to 200 characters"))
        }
        value => Ok(value),
    };
    Ok(NewMark {
        at: match posted.time {
            None => now,
            Some(time) => time.instant().ok_or_else(|| Problem::of("time", TIME))?,
        },
        kind: MarkKind::Note,
        text: posted.text,
        tags: posted.tags,
        subject: MarkSubject {
            model: named("model", posted.model)?,
            upstream: named("upstream", posted.upstream)?,
            route: named("route", posted.route)?,
            workload: named("workload", posted.workload)?,
        },
    })
}

const TIME: &str = "must be an instant such as 2026-01-31T09:30:00Z, or milliseconds since 1970 such as 1769851800000";

/// Milliseconds up to the year 2286.
pub(super) const MAX_MS: u64 = 9_999_999_999_999;

impl Time {
    fn instant(&self) -> Option<SystemTime> {
        match self {
            Time::Milliseconds(ms) => since_1970(*ms),
            Time::WithFraction(ms) if ms.fract() == 0.0 && *ms >= 0.0 => since_1970(*ms as u64),
            Time::WithFraction(_) => None,
            // A body may not contain a duration before now.
            Time::Text(text) if text.contains('T') => instant(text, SystemTime::UNIX_EPOCH),
            Time::Text(_) => None,
        }
    }
}

fn since_1970(ms: u64) -> Option<SystemTime> {
    (ms <= MAX_MS).then(|| SystemTime::UNIX_EPOCH + Duration::from_millis(ms))
}

fn moment(
    asked: &QueryParams,
    name: &'static str,
    now: SystemTime,
) -> Result<Option<SystemTime>, Problem> {
    let digits = asked.text(name).and_then(|text| text.parse().ok());
    match digits.and_then(since_1970) {
        Some(at) => Ok(Some(at)),
        None => asked.instant(name, now),
    }
}

pub(super) fn kinds() -> Vec<(&'static str, MarkKind)> {
    use strum::VariantArray;
    let all = MarkKind::VARIANTS.iter();
    all.map(|kind| (kind.as_str(), *kind)).collect()
}
