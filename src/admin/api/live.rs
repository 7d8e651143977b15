//! Queries about the present: calls in progress, objectives.

use super::finished::reply;
use super::problem::Problem;
use super::query_params::{DEFAULT_LIMIT, QueryParams};
use crate::admin::Admin;
use crate::meter::StreamNow;
use crate::slo::Status;
use crate::throughput::{RateFilter, Rates};
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, RawQuery, State};
use axum::http::StatusCode;
use axum::response::Response;
use schemars::JsonSchema;
use serde::Serialize;

/// The parameters of streams.
pub(super) const OF_STREAMS: [&str; 7] = [
    "model", "workload", "route", "upstream", "agent", "session", "limit",
];

/// The calls in progress.
#[derive(JsonSchema, Serialize)]
pub(in crate::admin) struct Streams {
    /// How many match, those beyond the limit included.
    total: usize,
    /// The output of all that match, however many are listed.
    tokens_per_second: Rates,
    /// The newest of them.
    streams: Vec<StreamNow>,
}

/// The status of every objective.
#[derive(JsonSchema, Serialize)]
pub(in crate::admin) struct Slos {
    /// In the order of the configuration.
    slos: Vec<Status>,
}

/// The calls in progress, newest first.
pub(super) async fn streams(State(admin): State<Admin>, RawQuery(query): RawQuery) -> Response {
    reply(async { streams_of(&admin, query.as_deref()) }).await
}

/// The newest calls that are in progress now.
pub(in crate::admin) fn streams_now(admin: &Admin) -> Streams {
    let streams = admin.meter.streams((admin.clock)(), DEFAULT_LIMIT);
    let figures = admin.meter.in_flight();
    let throughput = admin.meter.throughput();
    let counted = figures
        .in_flight
        .iter()
        .map(|(.., streams)| *streams as usize);
    Streams {
        total: streams.len().max(counted.sum()),
        tokens_per_second: throughput.rates((admin.clock)(), &RateFilter::default()),
        streams,
    }
}

/// The calls in progress that `query` selects.
pub(super) fn streams_of(admin: &Admin, query: Option<&str>) -> Result<Streams, Problem> {
    let asked = QueryParams::of(query, &[&OF_STREAMS])?;
    let limit = asked.limit()?;
    let (model, workload) = (asked.name("model")?, asked.name("workload")?);
    let (route, upstream) = (asked.name("route")?, asked.name("upstream")?);
    let (agent, session) = (asked.name("agent")?, asked.name("session")?);
    let is = |wanted: &Option<String>, value: Option<&str>| {
        wanted.as_deref().is_none_or(|wanted| value == Some(wanted))
    };
    let mut streams = admin.meter.streams((admin.clock)(), usize::MAX);
    streams.retain(|stream| {
        is(&model, stream.model.as_deref())
            && is(&workload, stream.workload.as_deref())
            && is(&route, Some(&stream.route))
            && is(&upstream, Some(&stream.upstream))
            && is(&agent, stream.agent.as_deref())
            && is(&session, stream.session.as_deref())
    });
    let total = streams.len();
    let tokens_per_second = match agent.or(session) {
        // Throughput per second is not counted by agent.
        Some(_) => Rates {
            // A sum of nothing would be -0.
            now: streams
                .iter()
                .filter_map(|stream| stream.tps)
                .fold(0.0, |sum, tps| sum + tps),
            ..Rates::default()
        },
        None => {
            let filter = RateFilter {
                route,
                upstream,
                model,
                workload,
            };
            admin.meter.throughput().rates((admin.clock)(), &filter)
        }
    };
    streams.truncate(limit);
    Ok(Streams {
        total,
        tokens_per_second,
        streams,
    })
}

/// The status of every objective.
pub(super) async fn slos(State(admin): State<Admin>, RawQuery(query): RawQuery) -> Response {
    reply(async {
        QueryParams::of(query.as_deref(), &[])?;
        Ok(slos_now(&admin))
    })
    .await
}

/// How the budget of an objective was spent.
pub(super) async fn budget(
    State(admin): State<Admin>,
    path: Result<Path<String>, PathRejection>,
    RawQuery(query): RawQuery,
) -> Response {
    reply(async {
        QueryParams::of(query.as_deref(), &[])?;
        let Path(name) = path.map_err(|_| Problem::of("name", "must be UTF-8, percent-encoded"))?;
        let unknown = "no [[slo]] has this name; /api/v1/slos lists them";
        let told = admin.slos.burn_down(&name, (admin.clock)());
        told.ok_or_else(|| Problem::new(StatusCode::NOT_FOUND, unknown))
    })
    .await
}

/// The status of every objective now.
pub(in crate::admin) fn slos_now(admin: &Admin) -> Slos {
    Slos {
        slos: admin.slos.status((admin.clock)()),
    }
}
