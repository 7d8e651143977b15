//! Every endpoint of the API: its handler, its parameters, and its text in the OpenAPI document.

use super::calls::{self, Call, Calls, OF_CALLS};
use super::calls_file;
use super::capacity::{self, Capacities};
use super::capsule::{self, OF_CAPSULES};
use super::costs::{self, CostsOverTime, OF_COSTS};
use super::coverage::{self, Coverage};
use super::drift;
use super::endpoint::{
    CALL, EXPERIMENT, Endpoint, GATE, NO_OBJECTIVE, OBJECTIVE, RequestBody, ResponseFormat,
    SESSION, get, post,
};
use super::events;
use super::experiments::{self, Experiments};
use super::finished::{
    self, Groups, Models, OF_GROUPS, OF_SESSIONS, OF_TIMESERIES, Series, SessionAndCalls, Sessions,
    TasksOf, Workloads,
};
use super::gates::{self, AllGates, OF_GATES};
use super::live;
use super::marks::{self, AllMarks, OF_MARKS};
use super::openapi;
use super::own_use::{self, OF_OWN_USE, OwnUse};
use super::problem::JsonResponse;
use super::query_params::{FILTERS, PAGING, QueryParams};
use super::runaways::{self, Runaways};
use super::sessions::{self, OF_TRACES, SessionAnalysis};
use super::sinks::{self, AllSinks};
use super::stream_filter::STREAM_NAMES;
use super::upstreams::{self, Upstreams};
use crate::Drifts;
use crate::live_view::{AllPods, Slos};
use crate::process_info::{self, Now};
use axum::Json;
use axum::extract::RawQuery;
use serde_json::{Map, Value};
use tokengauge_experiments::Report;
use tokengauge_fleet::Streams;
use tokengauge_gate::{Plan as GatePlan, Report as Gate};
use tokengauge_slo::BurnDown;
use tokengauge_store::query::Mark;

pub(super) fn endpoints() -> Vec<Endpoint> {
    let mut all = of_calls();
    all.extend(of_groups());
    all.extend(of_comparisons());
    all.extend(of_marks_and_sinks());
    all.extend(of_now());
    all
}

fn of_calls() -> Vec<Endpoint> {
    vec![
        get(
            "/api/v1/about",
            "about",
            "What the process is and where agents reach it.",
            process_info::about,
        )
        .json::<Now<'_>>(),
        get(
            "/api/v1/calls",
            "calls",
            "Finished calls, the newest first.",
            calls::calls,
        )
        .json::<Calls>()
        .asks(&[&FILTERS, &OF_CALLS, &PAGING])
        .problem("404", NO_OBJECTIVE),
        get(
            "/api/v1/calls.parquet",
            "calls_file",
            "The newest 10,000 finished calls as a Parquet file, in the columns of \
             `tokengauge export`.",
            calls_file::parquet,
        )
        .responds(ResponseFormat::Parquet)
        .asks(&[&FILTERS, &OF_CALLS])
        .problem("404", NO_OBJECTIVE),
        get(
            "/api/v1/calls/{id}",
            "call",
            "One finished call and its phases.",
            calls::call,
        )
        .json::<Call>()
        .names(&CALL),
        get(
            "/api/v1/sessions",
            "sessions",
            "Sessions with a call that matches, summed up over all their calls.",
            finished::sessions,
        )
        .json::<Sessions>()
        .asks(&[&FILTERS, &OF_SESSIONS, &PAGING]),
        get(
            "/api/v1/sessions/{id}",
            "session",
            "One session and its calls as a waterfall.",
            finished::session,
        )
        .json::<SessionAndCalls>()
        .asks(&[&PAGING])
        .names(&SESSION),
        get(
            "/api/v1/sessions/{id}/analysis",
            "session_analysis",
            "What the length of a session is made of, and which of its prompts should have \
             come from a cache.",
            sessions::analysis,
        )
        .json::<SessionAnalysis>()
        .names(&SESSION),
        get(
            "/api/v1/sessions/{id}/trace",
            "session_trace",
            "A session as a trace file, for Perfetto or in OTLP's JSON.",
            sessions::trace,
        )
        .json::<Map<String, Value>>()
        .asks(&[&OF_TRACES])
        .names(&SESSION),
    ]
}

fn of_groups() -> Vec<Endpoint> {
    vec![
        get(
            "/api/v1/tasks",
            "tasks",
            "How long sessions took from their first call to their last, of those whose last \
             call so far ended within the time.",
            finished::tasks,
        )
        .json::<TasksOf>()
        .asks(&[&FILTERS]),
        get(
            "/api/v1/models",
            "models",
            "Calls by model, those with most calls first.",
            finished::models,
        )
        .json::<Models>()
        .asks(&[&FILTERS, &PAGING]),
        get(
            "/api/v1/workloads",
            "workloads",
            "Calls by workload, those with most calls first.",
            finished::workloads,
        )
        .json::<Workloads>()
        .asks(&[&FILTERS, &PAGING]),
        get(
            "/api/v1/groups",
            "groups",
            "Calls by anything they have in common, those with most calls first.",
            finished::groups,
        )
        .json::<Groups>()
        .asks(&[&FILTERS, &OF_GROUPS, &PAGING]),
        get(
            own_use::PATH,
            "own_use",
            "What was used with the key of the provider that the request carries: by model \
             and day, and what is left of its limits. Where `own_use` of [admin] is on; a key \
             that is not known has used nothing.",
            own_use::own_use,
        )
        .json::<OwnUse>()
        .asks(&[&OF_OWN_USE])
        .for_keys(),
        get(
            "/api/v1/timeseries",
            "timeseries",
            "Percentiles over time, by when calls began; at most 1000 points.",
            finished::timeseries,
        )
        .json::<Series>()
        .asks(&[&FILTERS, &OF_TIMESERIES]),
        get(
            "/api/v1/costs",
            "costs",
            "What calls cost over time by something they have in common, by when they began; \
             of a long time the newest 1000 steps.",
            costs::costs,
        )
        .json::<CostsOverTime>()
        .asks(&[&FILTERS, &OF_COSTS]),
        get(
            "/api/v1/coverage",
            "coverage",
            "How many generations and embeddings have a cost and a decode speed, and why the \
             others have none.",
            coverage::coverage,
        )
        .json::<Coverage>()
        .asks(&[&FILTERS]),
        get(
            "/api/v1/capacity",
            "capacity",
            "What each upstream gave at which number of calls at once; of the filters times \
             and upstream count.",
            capacity::capacity,
        )
        .json::<Capacities>()
        .asks(&[&FILTERS]),
    ]
}

fn of_comparisons() -> Vec<Endpoint> {
    vec![
        get(
            "/api/v1/experiments",
            "experiments",
            "How the configured experiments stand: each arm against the first, with intervals \
             that hold at every look.",
            experiments::experiments,
        )
        .json::<Experiments>(),
        get(
            "/api/v1/experiments/{name}",
            "experiment",
            "How one experiment stands, a configured one or one that agents name.",
            experiments::experiment,
        )
        .json::<Report>()
        .names(&EXPERIMENT),
        get(
            "/api/v1/drift",
            "drift",
            "What has changed against the weeks before, since when and why: the last \
             evaluation of every [[drift]].",
            drift::drift,
        )
        .json::<Drifts>(),
        get(
            "/api/v1/gates",
            "gates",
            "Whether rollouts may go on, by every gate of the configuration.",
            gates::gates,
        )
        .json::<AllGates>(),
        get(
            "/api/v1/gates/{name}",
            "gate",
            "Whether a rollout may go on: pass, fail or inconclusive, and every check with \
             its bounds.",
            gates::gate,
        )
        .json::<Gate>()
        .asks(&[&OF_GATES])
        .names(&GATE),
        get(
            "/api/v1/gates/{name}/plan",
            "gate_plan",
            "How long the gate takes with several shares of the traffic, by the baseline's \
             calls of its window.",
            gates::plan,
        )
        .json::<GatePlan>()
        .names(&GATE),
        post(
            "/api/v1/gates/{name}/confirm-promotion",
            "confirm_promotion",
            "Flagger's hook before a promotion: 200 where the gate passes.",
            gates::confirm_promotion,
        )
        .json::<Gate>()
        .asks(&[&OF_GATES])
        .names(&GATE)
        .takes(RequestBody::Hook),
        post(
            "/api/v1/gates/{name}/rollback",
            "rollback",
            "Flagger's hook for a rollback: 200 where the gate fails.",
            gates::rollback,
        )
        .json::<Gate>()
        .asks(&[&OF_GATES])
        .names(&GATE)
        .takes(RequestBody::Hook),
    ]
}

fn of_marks_and_sinks() -> Vec<Endpoint> {
    vec![
        get(
            "/api/v1/capsule",
            "capsule",
            "An incident as one HTML file: curves, cause, budget, the worst calls, marks, \
             configuration and commands. It begins before now.",
            capsule::capsule,
        )
        .responds(ResponseFormat::Html)
        .asks(&[&OF_CAPSULES])
        .problem("404", NO_OBJECTIVE),
        get(
            marks::PATH,
            "marks",
            "What happened beside calls, the newest first: deployments and other notes, \
             reloads, prices, restarts and warm-ups of upstreams, change points of drift, \
             alerts.",
            marks::marks,
        )
        .json::<AllMarks>()
        .asks(&[&OF_MARKS]),
        post(
            marks::PATH,
            "add_mark",
            "Adds a mark, such as of a deployment.",
            marks::add,
        )
        .json::<Mark>()
        .takes(RequestBody::Mark)
        .problem("413", "The body is too long."),
        get(
            "/api/v1/sinks",
            "sinks",
            "How the stores stand that get every finished call: what waits, what was stored, \
             what failed.",
            sinks::sinks,
        )
        .json::<AllSinks>(),
    ]
}

fn of_now() -> Vec<Endpoint> {
    vec![
        get(
            "/api/v1/runaways",
            "runaways",
            "Sessions that run away now: they spend more than `[runaway]` allows, or make the \
             same tool call over and over.",
            runaways::runaways,
        )
        .json::<Runaways>(),
        get(
            "/api/v1/streams",
            "streams",
            "Calls under way, the newest first.",
            live::streams,
        )
        .json::<Streams>()
        .asks(&[&STREAM_NAMES, &["limit"]]),
        get(
            "/api/v1/pods",
            "pods",
            "The pods of a fleet and the store of their calls; a single process knows none.",
            live::pods,
        )
        .json::<AllPods>()
        .problem("404", "This is no fleet."),
        get(
            "/api/v1/upstreams",
            "upstreams",
            "The connections and endpoints of every upstream now, and what its engine \
             reports.",
            upstreams::upstreams,
        )
        .json::<Upstreams>(),
        get(
            "/api/v1/slos",
            "slos",
            "How every objective stands, and, while its budget burns, why.",
            live::slos,
        )
        .json::<Slos>(),
        get(
            "/api/v1/slos/{name}/budget",
            "budget",
            "How the error budget of an objective was spent over its period so far.",
            live::budget,
        )
        .json::<BurnDown>()
        .names(&OBJECTIVE),
        get(
            "/api/v1/events",
            "events",
            "What happens, as it happens: events `streams` (as /api/v1/streams, at most one a \
             second), `call` (a finished call), `slos` (every 5 s), `lost` (how many events \
             this listener was too slow for).",
            events::events,
        )
        .responds(ResponseFormat::Events),
        get(
            "/api/v1/openapi.json",
            "openapi",
            "This document.",
            document,
        )
        .json::<Map<String, Value>>(),
    ]
}

async fn document(RawQuery(query): RawQuery) -> JsonResponse<Value> {
    QueryParams::of(query.as_deref(), &[])?;
    Ok(Json(openapi::document(&endpoints())))
}
