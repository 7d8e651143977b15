//! The operations of the API: what each is asked and what it answers.

use super::{Answer, Operation};
use crate::admin::Drifts;
use crate::admin::api::calls::{Call, Calls, OF_CALLS};
use crate::admin::api::capacity::Capacities;
use crate::admin::api::capsule::OF_CAPSULES;
use crate::admin::api::costs::{CostsOverTime, OF_COSTS};
use crate::admin::api::coverage::Coverage;
use crate::admin::api::experiments::Experiments;
use crate::admin::api::finished::{
    Groups, Models, OF_GROUPS, OF_SESSIONS, OF_TIMESERIES, Series, SessionAndCalls, Sessions,
    TasksOf, Workloads,
};
use crate::admin::api::fleet::AllPods;
use crate::admin::api::gates::{AllGates, OF_GATES};
use crate::admin::api::live::{OF_STREAMS, Slos, Streams};
use crate::admin::api::marks::{self, AllMarks, OF_MARKS};
use crate::admin::api::own_use::{self, OF_OWN_USE, OwnUse};
use crate::admin::api::query_params::{FILTERS, PAGING};
use crate::admin::api::runaways::Runaways;
use crate::admin::api::sessions::{OF_TRACES, SessionAnalysis};
use crate::admin::api::sinks::AllSinks;
use crate::admin::api::upstreams::Upstreams;
use crate::admin::process_info::Now;
use crate::gate::{Plan as GatePlan, Report as Gate};
use crate::query::Mark;
use crate::slo::BurnDown;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value};
use tokengauge_experiments::Report;

/// Every operation.
pub(super) fn operations() -> Vec<Operation> {
    [
        of_calls(),
        of_groups(),
        of_comparisons(),
        of_marks_and_sinks(),
        of_now(),
    ]
    .concat()
}

fn get<T: JsonSchema>(
    path: &'static str,
    id: &'static str,
    summary: &'static str,
    parameters: &'static [&'static [&'static str]],
) -> Operation {
    Operation {
        method: "get",
        path,
        id,
        summary,
        parameters,
        answer: Answer::Json(SchemaGenerator::subschema_for::<T>),
    }
}

fn post<T: JsonSchema>(
    path: &'static str,
    id: &'static str,
    summary: &'static str,
    parameters: &'static [&'static [&'static str]],
) -> Operation {
    Operation {
        method: "post",
        ..get::<T>(path, id, summary, parameters)
    }
}

fn of_calls() -> Vec<Operation> {
    vec![
        get::<Now<'_>>(
            "/api/v1/about",
            "about",
            "What the process is and where agents reach it.",
            &[],
        ),
        get::<Calls>(
            "/api/v1/calls",
            "calls",
            "Finished calls, the newest first.",
            &[&FILTERS, &OF_CALLS, &PAGING],
        ),
        Operation {
            method: "get",
            path: "/api/v1/calls.parquet",
            id: "calls_file",
            summary: "The newest 10,000 finished calls as a Parquet file, in the columns of `tokengauge export`.",
            parameters: &[&FILTERS, &OF_CALLS],
            answer: Answer::Parquet,
        },
        get::<Call>(
            "/api/v1/calls/{id}",
            "call",
            "One finished call and its phases.",
            &[],
        ),
        get::<Sessions>(
            "/api/v1/sessions",
            "sessions",
            "Sessions with a call that matches, summed up over all their calls.",
            &[&FILTERS, &OF_SESSIONS, &PAGING],
        ),
        get::<SessionAndCalls>(
            "/api/v1/sessions/{id}",
            "session",
            "One session and its calls as a waterfall.",
            &[&PAGING],
        ),
        get::<SessionAnalysis>(
            "/api/v1/sessions/{id}/analysis",
            "session_analysis",
            "What the length of a session is made of, and which of its prompts should have come from a cache.",
            &[],
        ),
        get::<Map<String, Value>>(
            "/api/v1/sessions/{id}/trace",
            "session_trace",
            "A session as a trace file, for Perfetto or in OTLP's JSON.",
            &[&OF_TRACES],
        ),
    ]
}

fn of_groups() -> Vec<Operation> {
    vec![
        get::<TasksOf>(
            "/api/v1/tasks",
            "tasks",
            "How long sessions took from their first call to their last, of those whose last call so far ended within the time.",
            &[&FILTERS],
        ),
        get::<Models>(
            "/api/v1/models",
            "models",
            "Calls by model, those with most calls first.",
            &[&FILTERS, &PAGING],
        ),
        get::<Workloads>(
            "/api/v1/workloads",
            "workloads",
            "Calls by workload, those with most calls first.",
            &[&FILTERS, &PAGING],
        ),
        get::<Groups>(
            "/api/v1/groups",
            "groups",
            "Calls by anything they have in common, those with most calls first.",
            &[&FILTERS, &OF_GROUPS, &PAGING],
        ),
        get::<OwnUse>(
            own_use::PATH,
            "own_use",
            "What was used with the key of the provider that the request carries: by model and day, and what is left of its \
             limits. Where `own_use` of [admin] is on; a key that is not known has used nothing.",
            &[&OF_OWN_USE],
        ),
        get::<Series>(
            "/api/v1/timeseries",
            "timeseries",
            "Percentiles over time, by when calls began; at most 1000 points.",
            &[&FILTERS, &OF_TIMESERIES],
        ),
        get::<CostsOverTime>(
            "/api/v1/costs",
            "costs",
            "What calls cost over time by something they have in common, by when they began; of a long time the newest 1000 steps.",
            &[&FILTERS, &OF_COSTS],
        ),
        get::<Coverage>(
            "/api/v1/coverage",
            "coverage",
            "How many generations and embeddings have a cost and a decode speed, and why the others have none.",
            &[&FILTERS],
        ),
        get::<Capacities>(
            "/api/v1/capacity",
            "capacity",
            "What each upstream gave at which number of calls at once; of the filters times and upstream count.",
            &[&FILTERS],
        ),
    ]
}

fn of_comparisons() -> Vec<Operation> {
    vec![
        get::<Experiments>(
            "/api/v1/experiments",
            "experiments",
            "How the configured experiments stand: each arm against the first, with intervals that hold at every look.",
            &[],
        ),
        get::<Report>(
            "/api/v1/experiments/{name}",
            "experiment",
            "How one experiment stands, a configured one or one that agents name.",
            &[],
        ),
        get::<Drifts>(
            "/api/v1/drift",
            "drift",
            "What has changed against the weeks before, since when and why: the last evaluation of every [[drift]].",
            &[],
        ),
        get::<AllGates>(
            "/api/v1/gates",
            "gates",
            "Whether rollouts may go on, by every gate of the configuration.",
            &[],
        ),
        get::<Gate>(
            "/api/v1/gates/{name}",
            "gate",
            "Whether a rollout may go on: pass, fail or inconclusive, and every check with its bounds.",
            &[&OF_GATES],
        ),
        get::<GatePlan>(
            "/api/v1/gates/{name}/plan",
            "gate_plan",
            "How long the gate takes with several shares of the traffic, by the baseline's calls of its window.",
            &[],
        ),
        post::<Gate>(
            "/api/v1/gates/{name}/confirm-promotion",
            "confirm_promotion",
            "Flagger's hook before a promotion: 200 where the gate passes.",
            &[&OF_GATES],
        ),
        post::<Gate>(
            "/api/v1/gates/{name}/rollback",
            "rollback",
            "Flagger's hook for a rollback: 200 where the gate fails.",
            &[&OF_GATES],
        ),
    ]
}

fn of_marks_and_sinks() -> Vec<Operation> {
    vec![
        Operation {
            method: "get",
            path: "/api/v1/capsule",
            id: "capsule",
            summary: "An incident as one HTML file: curves, cause, budget, the worst calls, marks, configuration and commands. \
                      It begins before now.",
            parameters: &[&OF_CAPSULES],
            answer: Answer::Html,
        },
        get::<AllMarks>(
            marks::PATH,
            "marks",
            "What happened beside calls, the newest first: deployments and other notes, reloads, prices, restarts and \
             warm-ups of upstreams, change points of drift, alerts.",
            &[&OF_MARKS],
        ),
        post::<Mark>(
            marks::PATH,
            "add_mark",
            "Adds a mark, such as of a deployment.",
            &[],
        ),
        get::<AllSinks>(
            "/api/v1/sinks",
            "sinks",
            "How the stores stand that get every finished call: what waits, what was stored, what failed.",
            &[],
        ),
    ]
}

fn of_now() -> Vec<Operation> {
    vec![
        get::<Runaways>(
            "/api/v1/runaways",
            "runaways",
            "Sessions that run away now: they spend more than `[runaway]` allows, or make the same tool call over and over.",
            &[],
        ),
        get::<Streams>(
            "/api/v1/streams",
            "streams",
            "Calls under way, the newest first.",
            &[&OF_STREAMS],
        ),
        get::<AllPods>(
            "/api/v1/pods",
            "pods",
            "The pods of a fleet and the store of their calls; a single process knows none.",
            &[],
        ),
        get::<Upstreams>(
            "/api/v1/upstreams",
            "upstreams",
            "The connections and endpoints of every upstream now, and what its engine reports.",
            &[],
        ),
        get::<Slos>(
            "/api/v1/slos",
            "slos",
            "How every objective stands, and, while its budget burns, why.",
            &[],
        ),
        get::<BurnDown>(
            "/api/v1/slos/{name}/budget",
            "budget",
            "How the error budget of an objective was spent over its period so far.",
            &[],
        ),
        Operation {
            answer: Answer::Events,
            ..get::<String>(
                "/api/v1/events",
                "events",
                "What happens, as it happens: events `streams` (as /api/v1/streams, at most one a second), `call` \
             (a finished call), `slos` (every 5 s), `lost` (how many events this listener was too slow for).",
                &[],
            )
        },
        get::<Map<String, Value>>("/api/v1/openapi.json", "openapi", "This document.", &[]),
    ]
}
