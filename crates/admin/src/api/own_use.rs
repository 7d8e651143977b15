//! `/api/v1/me`: the usage of the provider key in the request, which replaces the token. It needs `own_use` in `[admin]`.

use super::call_source::{CallSource, CallSourceName, ask};
use super::problem::{JsonResponse, Problem};
use super::query_params::QueryParams;
use crate::Services;
use axum::Json;
use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, StatusCode, Uri};
use schemars::JsonSchema;
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};
use tokengauge_accounting::keys::own_key;
use tokengauge_accounting::quota::LeftOfQuota;
use tokengauge_core::time::Timestamp;
use tokengauge_store::query::{CostQuery, CostSums, Dimension, Filter};
use tokio::sync::Semaphore;

pub(crate) const PATH: &str = "/api/v1/me";
pub(super) const OF_OWN_USE: [&str; 2] = ["since", "until"];
/// The largest number of models in the response: those with most cost.
const MAX_MODELS: usize = 100;
const DAY: Duration = Duration::from_secs(86_400);
/// The length of the time without `since`.
const DEFAULT_TIME: Duration = Duration::from_secs(30 * 86_400);
const MAX_DAYS: u32 = 31;

static ONE_AT_A_TIME: Semaphore = Semaphore::const_new(1);

/// The usage of one key.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "OwnUse")]
pub(super) struct OwnUse {
    /// The store that answered.
    store: CallSourceName,
    /// The start of the time: calls that began at or after it count.
    since: Timestamp,
    /// The end of the time: calls that began before it count.
    until: Timestamp,
    /// The sums over all calls.
    #[serde(flatten)]
    all: CostSums,
    /// Usage by the model that answered (if unknown, the requested model), those with most calls first.
    models: Vec<UseOfModel>,
    /// Usage by day in UTC. Days without calls are left out.
    days: Vec<UseOfDay>,
    /// The limits of the key, and how much of each remains in this process, or in all processes that share the quota.
    limits: Vec<LimitsOfQuota>,
}

#[derive(JsonSchema, Serialize)]
struct UseOfModel {
    /// The model; null where no call named one.
    model: Option<String>,
    #[serde(flatten)]
    used: CostSums,
}

#[derive(JsonSchema, Serialize)]
struct UseOfDay {
    /// The day, such as `2026-11-26`.
    #[schemars(extend("format" = "date"))]
    day: String,
    #[serde(flatten)]
    used: CostSums,
}

/// The limits of one quota.
#[derive(JsonSchema, Serialize)]
struct LimitsOfQuota {
    /// The name of the quota.
    quota: String,
    /// The limits of the quota.
    limits: Vec<Limit>,
}

#[derive(JsonSchema, Serialize)]
struct Limit {
    /// The limited resource: requests or tokens per minute, or concurrent calls.
    #[schemars(extend("enum" = ["requests", "tokens", "concurrent"]))]
    resource: &'static str,
    /// The limit.
    limit: u64,
    /// The remaining amount.
    remaining: u64,
}

impl From<LeftOfQuota> for LimitsOfQuota {
    fn from(found: LeftOfQuota) -> LimitsOfQuota {
        let limits = found.left.into_iter().map(|left| Limit {
            resource: left.resource.as_str(),
            limit: left.limit,
            remaining: left.remaining,
        });
        LimitsOfQuota {
            quota: found.quota.to_string(),
            limits: limits.collect(),
        }
    }
}

pub(super) async fn own_use(
    State(services): State<Services>,
    headers: HeaderMap,
    RawQuery(query): RawQuery,
) -> JsonResponse<OwnUse> {
    let asked = QueryParams::of(query.as_deref(), &[&OF_OWN_USE])?;
    let filter = filter(&asked, &headers, (services.wall)())?;
    let key = filter
        .names
        .get(Dimension::KeyHash)
        .unwrap_or_default()
        .to_owned();
    // Operators share the ledger's connections, and must not wait for clients that ask with a key.
    let _one = ONE_AT_A_TIME.acquire().await;
    let mut response = ask(&services, move |source| of_source(source, &filter)).await?;
    // Quotas are shown only to a client that has made a call.
    if response.all.calls > 0 {
        let limits = services.live.left_to_key(&key);
        response.limits = limits.into_iter().map(LimitsOfQuota::from).collect();
    }
    Ok(Json(response))
}

fn filter(asked: &QueryParams, headers: &HeaderMap, now: SystemTime) -> Result<Filter, Problem> {
    // A key in the URL would be logged by proxies, so it is not accepted there.
    let key = own_key(headers, &Uri::from_static("/")).ok_or_else(|| {
        let message = "send the provider key as in calls: `authorization: Bearer …`, `x-api-key`, `api-key` or \
            `x-goog-api-key`. Keys of fewer than 16 characters, passwords and AWS signatures have no usage";
        Problem::new(StatusCode::UNAUTHORIZED, message)
    })?;
    let (since, until) = asked.times(now)?;
    let until = until.unwrap_or(now);
    let since = since
        .or(until.checked_sub(DEFAULT_TIME))
        .map_or(SystemTime::UNIX_EPOCH, |since| {
            since.max(SystemTime::UNIX_EPOCH)
        });
    let length = until.duration_since(since).unwrap_or_default();
    if length > DAY * MAX_DAYS {
        return Err(Problem::of("since", "must be at most 31 days before until"));
    }
    Ok(Filter {
        since: Some(since),
        until: Some(until),
        names: [(Dimension::KeyHash, Some(key))].into(),
        operation_classes: Filter::counted(),
        ..Filter::default()
    })
}

fn of_source(source: &CallSource, filter: &Filter) -> Result<OwnUse, Problem> {
    let query = CostQuery {
        filter: filter.clone(),
        by: Dimension::Model,
        step: DAY,
        most: MAX_MODELS,
    };
    let costs = source.costs(&query)?;
    let (mut all, mut by_day) = (CostSums::default(), BTreeMap::<Timestamp, CostSums>::new());
    for series in costs.series.iter().chain(&costs.others) {
        all.merge(&series.sums);
        for point in &series.points {
            by_day.entry(point.at).or_default().merge(&point.sums);
        }
    }
    let models = costs.series.into_iter().map(|series| UseOfModel {
        model: series.name,
        used: series.sums,
    });
    let mut models: Vec<_> = models.collect();
    models.sort_by_key(|model| (Reverse(model.used.calls), model.model.clone()));
    let days = by_day.into_iter().map(|(at, used)| {
        let mut day = at.to_string();
        day.truncate("2026-11-26".len());
        UseOfDay { day, used }
    });
    Ok(OwnUse {
        store: source.name(),
        since: filter.since.map(Timestamp::from).unwrap_or_default(),
        until: filter.until.map(Timestamp::from).unwrap_or_default(),
        all,
        models,
        days: days.collect(),
        limits: Vec::new(),
    })
}
