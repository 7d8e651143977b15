//! `/api/v1/me`: what whoever has a key of the provider has used with it. It is there where `[admin] own_use` is on, and
//! needs the key in place of the token.

use super::finished::reply;
use super::problem::Problem;
use super::query_params::QueryParams;
use super::store::{Store, StoreName, ask};
use crate::admin::Admin;
use crate::query::{Dimension, Filter, GroupRow, Paging, TokenSums};
use crate::quota::{LeftOfQuota, own_key};
use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::Response;
use schemars::JsonSchema;
use serde::Serialize;
use std::time::{Duration, SystemTime};
use tokengauge_core::time::duration_since_1970;
use tokio::sync::Semaphore;

/// Its path.
pub(crate) const PATH: &str = "/api/v1/me";
/// The parameters.
pub(super) const OF_OWN_USE: [&str; 2] = ["since", "until"];
/// Models that are listed at most.
const MAX_MODELS: usize = 100;
const DAY: Duration = Duration::from_secs(86_400);
/// The time that is answered for where none is asked for, and the longest.
const DEFAULT_TIME: Duration = Duration::from_secs(30 * 86_400);
const MAX_DAYS: u32 = 31;

/// Only one question is answered at a time.
static ONE_AT_A_TIME: Semaphore = Semaphore::const_new(1);

/// What was used with one key.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "OwnUse")]
pub(super) struct OwnUse {
    /// Which store answered.
    store: StoreName,
    /// Calls that began from then on.
    #[schemars(extend("format" = "date-time"))]
    since: String,
    /// Calls that began before.
    #[schemars(extend("format" = "date-time"))]
    until: String,
    /// All of it.
    #[serde(flatten)]
    all: Use,
    /// By the model that answered, else the one asked for; those with most calls first.
    models: Vec<UseOfModel>,
    /// By day of UTC, those without calls left out.
    days: Vec<UseOfDay>,
    /// The limits of the key, and what is left of them in this process, or in all that share them.
    limits: Vec<LimitsOfQuota>,
}

/// What some calls used.
#[derive(Default, JsonSchema, Serialize)]
struct Use {
    /// Calls that have ended.
    calls: u64,
    /// Those that did not end well.
    errors: u64,
    /// Tokens.
    tokens: TokenSums,
    /// What the calls with a known price cost, in US dollars; null without any.
    cost_usd: Option<f64>,
    /// Calls with tokens but without a known price.
    unpriced_calls: u64,
}

#[derive(JsonSchema, Serialize)]
struct UseOfModel {
    /// The model; null where no call named one.
    model: Option<String>,
    #[serde(flatten)]
    used: Use,
}

#[derive(JsonSchema, Serialize)]
struct UseOfDay {
    /// The day, such as `2026-11-26`.
    #[schemars(extend("format" = "date"))]
    day: String,
    #[serde(flatten)]
    used: Use,
}

/// What is left of a quota.
#[derive(JsonSchema, Serialize)]
struct LimitsOfQuota {
    /// The quota's name.
    quota: String,
    /// By what is limited.
    limits: Vec<Limit>,
}

#[derive(JsonSchema, Serialize)]
struct Limit {
    /// Requests or tokens a minute, or calls at once.
    #[schemars(extend("enum" = ["requests", "tokens", "concurrent"]))]
    resource: &'static str,
    /// The limit.
    limit: u64,
    /// What is left of it now.
    remaining: u64,
}

impl From<GroupRow> for Use {
    fn from(row: GroupRow) -> Use {
        Use {
            calls: row.calls,
            errors: row.errors,
            tokens: row.tokens,
            cost_usd: row.cost_usd,
            unpriced_calls: row.unpriced_calls,
        }
    }
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

/// What was used with the key of the request.
pub(super) async fn own_use(
    State(admin): State<Admin>,
    headers: HeaderMap,
    RawQuery(query): RawQuery,
) -> Response {
    reply(async {
        let asked = QueryParams::of(query.as_deref(), &[&OF_OWN_USE])?;
        let filter = filter(&asked, &headers, (admin.wall)())?;
        let key = filter.key_hash.clone().unwrap_or_default();
        // Operators share the ledger's connections, and are not to wait for whoever has a key.
        let _one = ONE_AT_A_TIME.acquire().await;
        let mut answer = ask(&admin, move |store| of_store(store, &filter)).await?;
        // Whoever has made no call is told of no quota either.
        if answer.all.calls > 0 {
            let limits = admin.meter.accounting().quotas.left_to_key(&key);
            answer.limits = limits.into_iter().map(LimitsOfQuota::from).collect();
        }
        Ok(answer)
    })
    .await
}

/// The calls of the key in the time that is asked for.
fn filter(asked: &QueryParams, headers: &HeaderMap, now: SystemTime) -> Result<Filter, Problem> {
    // Keys in a URL end in the logs of proxies: it has none here.
    let key = own_key(headers, &Uri::from_static("/")).ok_or_else(|| {
        let message = "send the provider's key as calls carry it: `authorization: Bearer …`, `x-api-key`, `api-key` or \
                       `x-goog-api-key`; one of fewer than 16 characters, a password and an AWS signature have no use of \
                       their own";
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
        key_hash: Some(key),
        operation_classes: Filter::counted(),
        ..Filter::default()
    })
}

fn of_store(store: &Store, filter: &Filter) -> Result<OwnUse, Problem> {
    let paging = Paging {
        limit: MAX_MODELS,
        cursor: None,
    };
    let models = store.groups(filter, &[Dimension::Model], &paging)?.rows;
    let models = models.into_iter().map(|row| UseOfModel {
        model: row.name.clone(),
        used: row.into(),
    });
    let (since, until) = (filter.since, filter.until);
    let (since, until) = since
        .zip(until)
        .unwrap_or((SystemTime::UNIX_EPOCH, SystemTime::UNIX_EPOCH));
    let mut days = Vec::new();
    let mut begin = since;
    while begin < until {
        let end = next_day(begin).min(until);
        let of_day = Filter {
            since: Some(begin),
            until: Some(end),
            ..filter.clone()
        };
        if let Some(used) = used(store, &of_day)? {
            let mut day = humantime::format_rfc3339_seconds(begin).to_string();
            day.truncate(10);
            days.push(UseOfDay { day, used });
        }
        begin = end;
    }
    let written = |at| humantime::format_rfc3339_millis(at).to_string();
    Ok(OwnUse {
        store: store.name(),
        since: written(since),
        until: written(until),
        all: used(store, filter)?.unwrap_or_default(),
        models: models.collect(),
        days,
        limits: Vec::new(),
    })
}

/// All calls together; `None` without any.
fn used(store: &Store, filter: &Filter) -> Result<Option<Use>, Problem> {
    let paging = Paging {
        limit: 1,
        cursor: None,
    };
    let rows = store.groups(filter, &[], &paging)?.rows;
    Ok(rows.into_iter().next().map(Use::from))
}

/// When the day after that of `at` begins, in UTC.
fn next_day(at: SystemTime) -> SystemTime {
    let days = duration_since_1970(at).as_secs() / DAY.as_secs() + 1;
    SystemTime::UNIX_EPOCH + Duration::from_secs(days * DAY.as_secs())
}
