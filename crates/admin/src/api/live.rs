//! Queries about the present: calls in progress, objectives.

use super::finished::reply;
use super::problem::Problem;
use super::query_params::{DEFAULT_LIMIT, QueryParams};
use crate::Services;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, RawQuery, State};
use axum::http::StatusCode;
use axum::response::Response;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use tokengauge_core::throughput::{RateFilter, Rates};
use tokengauge_fleet::{FleetStreams, ObjectiveSource};
use tokengauge_meter::StreamNow;
use tokengauge_slo::Status;

/// The parameters of streams.
pub(super) const OF_STREAMS: [&str; 13] = [
    "model",
    "workload",
    "route",
    "upstream",
    "agent",
    "session",
    "cluster",
    "namespace",
    "pod",
    "team",
    "cost_center",
    "tenant",
    "limit",
];
/// Those of them by which tokens per second are counted, too.
const OF_RATES: [&str; 4] = ["model", "workload", "route", "upstream"];

/// The calls in progress.
#[derive(JsonSchema, Serialize)]
pub(crate) struct Streams {
    /// How many match, those beyond the limit included.
    total: usize,
    /// The output of all that match, however many are listed.
    tokens_per_second: Rates,
    /// The newest of them.
    streams: Vec<StreamNow>,
}

/// The status of every objective.
#[derive(JsonSchema, Serialize)]
pub(crate) struct Slos {
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
pub(super) async fn streams(
    State(services): State<Services>,
    RawQuery(query): RawQuery,
) -> Response {
    reply(async { streams_of(&services, query.as_deref()) }).await
}

/// The newest calls that are in progress now.
pub(crate) fn streams_now(services: &Services) -> Streams {
    if let Some(fleet) = &services.fleet {
        return fleet.streams(true, DEFAULT_LIMIT, |_| true).into();
    }
    let streams = services.meter.streams((services.clock)(), DEFAULT_LIMIT);
    let figures = services.meter.in_flight();
    let throughput = services.meter.throughput();
    let counted = figures
        .in_flight
        .iter()
        .map(|(.., streams)| *streams as usize);
    Streams {
        total: streams.len().max(counted.sum()),
        tokens_per_second: throughput.rates((services.clock)(), &RateFilter::default()),
        streams,
    }
}

/// The calls in progress that `query` selects.
pub(super) fn streams_of(services: &Services, query: Option<&str>) -> Result<Streams, Problem> {
    let asked = QueryParams::of(query, &[&OF_STREAMS])?;
    let limit = asked.limit()?;
    let filter = StreamFilter::of(&asked)?;
    let meant = |stream: &StreamNow| filter.matches(stream);
    if let Some(fleet) = &services.fleet {
        let all = OF_STREAMS
            .iter()
            .all(|name| *name == "limit" || asked.text(name).is_none());
        return Ok(fleet.streams(all, limit, meant).into());
    }
    let mut streams = services.meter.streams((services.clock)(), usize::MAX);
    streams.retain(meant);
    let total = streams.len();
    let tokens_per_second = match filter.rates() {
        // Throughput per second is not counted by agent and the like.
        None => Rates {
            // A sum of nothing would be -0.
            now: streams
                .iter()
                .filter_map(|stream| stream.tps)
                .fold(0.0, |sum, tps| sum + tps),
            ..Rates::default()
        },
        Some(filter) => services
            .meter
            .throughput()
            .rates((services.clock)(), &filter),
    };
    streams.truncate(limit);
    Ok(Streams {
        total,
        tokens_per_second,
        streams,
    })
}

/// What a stream has of a name.
type Part = fn(&StreamNow) -> Option<&str>;

/// The names by which streams are selected.
const PARTS: [(&str, Part); 12] = [
    ("model", |stream| stream.model.as_deref()),
    ("workload", |stream| stream.workload.as_deref()),
    ("route", |stream| Some(&stream.route)),
    ("upstream", |stream| Some(&stream.upstream)),
    ("agent", |stream| stream.agent.as_deref()),
    ("session", |stream| stream.session.as_deref()),
    ("cluster", |stream| stream.pod.as_ref()?.cluster.as_deref()),
    ("namespace", |stream| {
        stream.pod.as_ref()?.namespace.as_deref()
    }),
    ("pod", |stream| stream.pod.as_ref()?.name.as_deref()),
    ("team", |stream| stream.team.as_deref()),
    ("cost_center", |stream| stream.cost_center.as_deref()),
    ("tenant", |stream| stream.tenant.as_deref()),
];

/// Which streams: the names that they must have.
struct StreamFilter(Vec<(&'static str, String, Part)>);

impl StreamFilter {
    fn of(asked: &QueryParams) -> Result<StreamFilter, Problem> {
        let mut wanted = Vec::new();
        for (name, part) in PARTS {
            if let Some(value) = asked.name(name)? {
                wanted.push((name, value, part));
            }
        }
        Ok(StreamFilter(wanted))
    }

    fn matches(&self, stream: &StreamNow) -> bool {
        let mut wanted = self.0.iter();
        wanted.all(|(_, value, part)| part(stream) == Some(value))
    }

    /// The same for tokens by second; `None` where those are not counted by it.
    fn rates(&self) -> Option<RateFilter> {
        let of = |name: &str| {
            let mut wanted = self.0.iter();
            let found = wanted.find(|(known, ..)| *known == name);
            found.map(|(_, value, _)| value.clone())
        };
        let counted = self.0.iter().all(|(name, ..)| OF_RATES.contains(name));
        counted.then(|| RateFilter {
            model: of("model"),
            workload: of("workload"),
            route: of("route"),
            upstream: of("upstream"),
        })
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
pub(super) async fn slos(State(services): State<Services>, RawQuery(query): RawQuery) -> Response {
    reply(async {
        QueryParams::of(query.as_deref(), &[])?;
        Ok(slos_now(&services))
    })
    .await
}

/// How the budget of an objective was spent.
pub(super) async fn budget(
    State(services): State<Services>,
    path: Result<Path<String>, PathRejection>,
    RawQuery(query): RawQuery,
) -> Response {
    reply(async {
        QueryParams::of(query.as_deref(), &[])?;
        let Path(name) = path.map_err(|_| Problem::of("name", "must be UTF-8, percent-encoded"))?;
        let unknown = "no [[slo]] has this name; /api/v1/slos lists them";
        let told = services.slos.burn_down(&name, (services.clock)());
        told.ok_or_else(|| Problem::new(StatusCode::NOT_FOUND, unknown))
    })
    .await
}

/// The status of every objective now.
pub(crate) fn slos_now(services: &Services) -> Slos {
    let Some(fleet) = &services.fleet else {
        return Slos {
            slos: SloList::Own(services.slos.status((services.clock)())),
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
