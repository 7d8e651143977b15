//! Every endpoint of the API: its handler, its parameters, and its text in the OpenAPI document.

use super::cache_breaks::{self, BreaksByCause, OF_BREAKS};
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
use super::prompt_tools::{self, OF_TOOLS, ToolsOfPrompts};
use super::query_params::{FILTERS, PAGING, QueryParams};
use super::runaways::{self, Runaways};
use super::scores::{self, StoredScores};
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
            "Version, settings, listeners and routes of the process.",
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
            "Sessions with a matching call. Their sums include all of their calls.",
            finished::sessions,
        )
        .json::<Sessions>()
        .asks(&[&FILTERS, &OF_SESSIONS, &PAGING]),
        get(
            "/api/v1/sessions/{id}",
            "session",
            "One session and a page of its calls.",
            finished::session,
        )
        .json::<SessionAndCalls>()
        .asks(&[&PAGING])
        .names(&SESSION),
        get(
            "/api/v1/sessions/{id}/analysis",
            "session_analysis",
            "The critical path of a session, and its prompt cache misses.",
            sessions::analysis,
        )
        .json::<SessionAnalysis>()
        .names(&SESSION),
        get(
            "/api/v1/sessions/{id}/trace",
            "session_trace",
            "A session as a trace file for Perfetto, or as OTLP JSON.",
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
            "The durations of sessions from their first call to their last, for sessions whose last call ended within the time.",
            finished::tasks,
        )
        .json::<TasksOf>()
        .asks(&[&FILTERS]),
        get(
            "/api/v1/cache-breaks",
            "cache_breaks",
            "Why prompts missed the cache, by agent, cause and section of the prompt: calls, missed tokens and cost.",
            cache_breaks::cache_breaks,
        )
        .json::<BreaksByCause>()
        .asks(&[&FILTERS, &OF_BREAKS]),
        get(
            "/api/v1/prompt-tools",
            "prompt_tools",
            "For each tool, tokens of its definition and results in prompts, their cost, and its calls, failures and time.",
            prompt_tools::prompt_tools,
        )
        .json::<ToolsOfPrompts>()
        .asks(&[&FILTERS, &OF_TOOLS]),
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
            "Calls by any dimensions, those with most calls first.",
            finished::groups,
        )
        .json::<Groups>()
        .asks(&[&FILTERS, &OF_GROUPS, &PAGING]),
        get(
            own_use::PATH,
            "own_use",
            "The usage of the provider key in the request, by model and day, and its remaining limits. Works only with `own_use` \
             in [admin]. An unknown key has no usage.",
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
            "The cost of calls over time by a dimension, and by when calls began. A response has at most the \
             newest 1000 steps.",
            costs::costs,
        )
        .json::<CostsOverTime>()
        .asks(&[&FILTERS, &OF_COSTS]),
        get(
            "/api/v1/coverage",
            "coverage",
            "The numbers of generations and embeddings with a cost and with a decode speed, and why others have none.",
            coverage::coverage,
        )
        .json::<Coverage>()
        .asks(&[&FILTERS]),
        get(
            "/api/v1/capacity",
            "capacity",
            "The throughput of each upstream by concurrency. Only the filters of time and upstream apply.",
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
            "The state of the configured experiments: each arm compared with the first, with intervals that are valid at \
             every evaluation.",
            experiments::experiments,
        )
        .json::<Experiments>(),
        get(
            "/api/v1/experiments/{name}",
            "experiment",
            "The state of one experiment: a configured experiment, or one that agents name.",
            experiments::experiment,
        )
        .json::<Report>()
        .names(&EXPERIMENT),
        get(
            "/api/v1/drift",
            "drift",
            "What has changed since earlier weeks, when and why: the last evaluation of every [[drift]].",
            drift::drift,
        )
        .json::<Drifts>(),
        get(
            "/api/v1/gates",
            "gates",
            "Whether rollouts may continue, for every gate in the configuration.",
            gates::gates,
        )
        .json::<AllGates>(),
        get(
            "/api/v1/gates/{name}",
            "gate",
            "Whether a rollout may continue: pass, fail or inconclusive, and every check with its bounds.",
            gates::gate,
        )
        .json::<Gate>()
        .asks(&[&OF_GATES])
        .names(&GATE),
        get(
            "/api/v1/gates/{name}/plan",
            "gate_plan",
            "How long the gate takes with several shares of the traffic, computed from the baseline's calls in its window.",
            gates::plan,
        )
        .json::<GatePlan>()
        .names(&GATE),
        post(
            "/api/v1/gates/{name}/confirm-promotion",
            "confirm_promotion",
            "Flagger's hook before a promotion: 200 if the gate passes.",
            gates::confirm_promotion,
        )
        .json::<Gate>()
        .asks(&[&OF_GATES])
        .names(&GATE)
        .takes(RequestBody::Hook),
        post(
            "/api/v1/gates/{name}/rollback",
            "rollback",
            "Flagger's hook for a rollback: 200 if the gate fails.",
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
            "An incident as one HTML file: curves, cause, budget, the worst calls, marks, configuration and commands. The \
             start must be in the past.",
            capsule::capsule,
        )
        .responds(ResponseFormat::Html)
        .asks(&[&OF_CAPSULES])
        .problem("404", NO_OBJECTIVE),
        get(
            marks::PATH,
            "marks",
            "Marks, the newest first: deployments and other notes, reloads, prices, restarts and warm-ups of upstreams, \
             change points of drift, alerts.",
            marks::marks,
        )
        .json::<AllMarks>()
        .asks(&[&OF_MARKS]),
        post(
            marks::PATH,
            "add_mark",
            "Adds a mark, for example of a deployment.",
            marks::add,
        )
        .json::<Mark>()
        .takes(RequestBody::Mark)
        .problem("413", "The body is too long."),
        post(
            scores::PATH,
            "add_scores",
            "Stores scores of calls, sessions or traces: one, an array, or one per line; at most 1,000. A score may \
             arrive before its call.",
            scores::add,
        )
        .json::<StoredScores>()
        .takes(RequestBody::Scores)
        .problem("404", "The process is a fleet, which stores no scores.")
        .problem("413", "The body is too long, or has too many scores."),
        get(
            "/api/v1/sinks",
            "sinks",
            "The state of the stores that receive every finished call: queued, stored and failed calls.",
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
            "The sessions that are runaways now: they exceed a limit of `[runaway]`, or repeat the same tool call.",
            runaways::runaways,
        )
        .json::<Runaways>(),
        get(
            "/api/v1/streams",
            "streams",
            "Calls in flight, the newest first.",
            live::streams,
        )
        .json::<Streams>()
        .asks(&[&STREAM_NAMES, &["limit"]]),
        get(
            "/api/v1/pods",
            "pods",
            "The pods of a fleet and the store of their calls. A single process has none.",
            live::pods,
        )
        .json::<AllPods>()
        .problem("404", "The process is not a fleet."),
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
            "The state of every objective, and the cause while its budget burns.",
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
            "Live events: `streams` (as /api/v1/streams, at most one a second), `call` (a finished call), `slos` (every 5 \
             s). `lost` is the number of events that this listener lost because it is slow.",
            events::events,
        )
        .responds(ResponseFormat::Events),
        get(
            "/api/v1/openapi.json",
            "openapi",
            "The OpenAPI document.",
            document,
        )
        .json::<Map<String, Value>>(),
    ]
}

async fn document(RawQuery(query): RawQuery) -> JsonResponse<Value> {
    QueryParams::of(query.as_deref(), &[])?;
    Ok(Json(openapi::document(&endpoints())))
}
