//! Queries about the present: calls in progress, objectives.

use super::finished::reply;
use super::problem::Problem;
use super::query_params::{DEFAULT_LIMIT, QueryParams};
use crate::admin::Admin;
use crate::fleet::{FleetStreams, ObjectiveSource};
use crate::meter::StreamNow;
use crate::slo::Status;
use crate::throughput::{RateFilter, Rates};
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, RawQuery, State};
use axum::http::StatusCode;
use axum::response::Response;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use tokengauge_core::pod::PodName;

/// The parameters of streams.
pub(super) const OF_STREAMS: [&str; 10] = [
    "model",
    "workload",
    "route",
    "upstream",
    "agent",
    "session",
    "cluster",
    "namespace",
    "pod",
    "limit",
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
    /// In the order of the configuration; of a fleet's pods those with the least budget first.
    #[schemars(with = "Vec<Status>")]
    slos: SloList,
    /// Where they come from, of a fleet.
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<ObjectiveSource>,
    /// How many there are, those that are not listed included; of a fleet.
    #[serde(skip_serializing_if = "Option::is_none")]
    total: Option<usize>,
}

/// Objectives of this process, or of others as they have them.
#[derive(Serialize)]
#[serde(untagged)]
enum SloList {
    Own(Vec<Status>),
    Others(Vec<Value>),
}

/// The calls in progress, newest first.
pub(super) async fn streams(State(admin): State<Admin>, RawQuery(query): RawQuery) -> Response {
    reply(async { streams_of(&admin, query.as_deref()) }).await
}

/// The newest calls that are in progress now.
pub(in crate::admin) fn streams_now(admin: &Admin) -> Streams {
    if let Some(fleet) = &admin.fleet {
        return fleet.streams(true, DEFAULT_LIMIT, |_| true).into();
    }
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
    let pods = PodFilter::of(&asked)?;
    let meant = |stream: &StreamNow| {
        is(&model, stream.model.as_deref())
            && is(&workload, stream.workload.as_deref())
            && is(&route, Some(&stream.route))
            && is(&upstream, Some(&stream.upstream))
            && is(&agent, stream.agent.as_deref())
            && is(&session, stream.session.as_deref())
            && pods.matches(stream.pod.as_deref())
    };
    if let Some(fleet) = &admin.fleet {
        let all = OF_STREAMS
            .iter()
            .all(|name| *name == "limit" || asked.text(name).is_none());
        return Ok(fleet.streams(all, limit, meant).into());
    }
    let mut streams = admin.meter.streams((admin.clock)(), usize::MAX);
    streams.retain(meant);
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

/// Which pods.
struct PodFilter(PodName);

impl PodFilter {
    fn of(asked: &QueryParams) -> Result<PodFilter, Problem> {
        Ok(PodFilter(PodName {
            cluster: asked.name("cluster")?,
            namespace: asked.name("namespace")?,
            name: asked.name("pod")?,
        }))
    }

    fn matches(&self, pod: Option<&PodName>) -> bool {
        let is = |part: fn(&PodName) -> &Option<String>| {
            let wanted = part(&self.0);
            wanted.is_none() || pod.is_some_and(|pod| part(pod) == wanted)
        };
        is(|pod| &pod.cluster) && is(|pod| &pod.namespace) && is(|pod| &pod.name)
    }
}

impl From<FleetStreams> for Streams {
    fn from(found: FleetStreams) -> Streams {
        Streams {
            total: found.total,
            tokens_per_second: found.rates,
            streams: found.streams,
        }
    }
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
    let Some(fleet) = &admin.fleet else {
        return Slos {
            slos: SloList::Own(admin.slos.status((admin.clock)())),
            source: None,
            total: None,
        };
    };
    let (objectives, total) = fleet.objectives();
    Slos {
        slos: SloList::Others(objectives.slos),
        source: Some(fleet.objective_source()),
        total: Some(total),
    }
}
