//! The OpenAPI document, `/api/v1/openapi.json`: schemas are derived from the types of the
//! answers, their descriptions from the comments there.

mod parameters;
mod schemas;

use super::calls::{Call, Calls, OF_CALLS};
use super::capacity::Capacities;
use super::experiments::Experiments;
use super::finished::{
    Groups, Models, OF_GROUPS, OF_SESSIONS, OF_TIMESERIES, Series, SessionAndCalls, Sessions,
    TasksOf, Workloads, reply,
};
use super::gates::{AllGates, OF_GATES};
use super::live::{OF_STREAMS, Slos, Streams};
use super::marks::{self, AllMarks, OF_MARKS};
use super::problem::Body;
use super::query_params::{FILTERS, MAX_NAME, PAGING, QueryParams};
use super::sessions::{OF_TRACES, SessionAnalysis};
use super::sinks::AllSinks;
use super::upstreams::Upstreams;
use crate::admin::Drifts;
use crate::admin::process_info::Now;
use crate::gate::Report as Gate;
use crate::query::Mark;
use crate::slo::BurnDown;
use axum::extract::RawQuery;
use axum::response::Response;
use schemars::{Schema, SchemaGenerator};
use serde_json::{Map, Value, json};
use tokengauge_experiments::Report;

/// A path of the API and what it answers.
struct Operation {
    method: &'static str,
    path: &'static str,
    id: &'static str,
    summary: &'static str,
    parameters: &'static [&'static [&'static str]],
    answer: Answer,
}

/// What an operation answers.
enum Answer {
    /// JSON of this schema.
    Json(fn(&mut SchemaGenerator) -> Schema),
    /// A stream of server-sent events.
    Events,
}

/// The document.
pub(super) async fn openapi(RawQuery(query): RawQuery) -> Response {
    reply(async {
        QueryParams::of(query.as_deref(), &[])?;
        Ok(document())
    })
    .await
}

/// The document.
pub(super) fn document() -> Value {
    let mut schemas = schemas::generator();
    let mut paths: Map<String, Value> = Map::new();
    for operation in operations() {
        let (path, method) = (operation.path, operation.method);
        let path = paths.entry(path).or_insert_with(|| json!({}));
        path[method] = described(operation, &mut schemas);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "tokengauge",
            "version": env!("CARGO_PKG_VERSION"),
            "summary": "Tokens per second of live LLM traffic: calls, sessions, objectives, capacity.",
            "description": "Answers come from the ledger where one is kept, else from the last finished \
                            calls in memory: `store` says which. Unknown is null, never 0. Instants are \
                            RFC 3339 in UTC, durations seconds, costs US dollars.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "security": [{"bearer": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {"bearer": {
                "type": "http", "scheme": "bearer",
                "description": "The token of [admin]. Where none is configured, none is asked for.",
            }},
            "schemas": schemas.take_definitions(true),
        },
    })
}

fn described(operation: Operation, schemas: &mut SchemaGenerator) -> Value {
    let names = operation.parameters.iter().copied().flatten();
    let mut parameters: Vec<Value> = names.map(|name| parameters::query(name)).collect();
    let answer = match operation.answer {
        Answer::Json(schema) => in_json(schema(schemas)),
        Answer::Events => json!({"text/event-stream": {"schema": {"type": "string"}}}),
    };
    let mut problem = |description: &str| {
        let body = schemas.subschema_for::<Body<'_>>();
        json!({"description": description, "content": in_json(body)})
    };
    let mut responses = json!({
        "200": {"description": "The answer.", "content": answer},
        "400": problem("A parameter breaks a rule; the message names both."),
        "401": problem("The token of [admin] is missing or wrong."),
        "503": problem("The answer took too long, the ledger cannot be read, or too many ask."),
    });
    if operation.path == "/api/v1/calls/{id}" {
        parameters.insert(0, parameters::call_id());
        responses["404"] = problem("No finished call that is kept has this id.");
    } else if operation.path.contains("{id}") {
        parameters.insert(0, parameters::session_id());
        responses["404"] = problem("No finished call names this session.");
    }
    if operation.path.starts_with("/api/v1/gates/{name}") {
        parameters.insert(0, parameters::gate_name());
        responses["404"] = problem("No [[gate]] of the configuration has this name.");
    } else if operation.path.starts_with("/api/v1/slos/{name}") {
        parameters.insert(0, parameters::objective_name());
        responses["404"] = problem("No [[slo]] of the configuration has this name.");
    } else if operation.path.contains("{name}") {
        parameters.insert(0, parameters::experiment_name());
        responses["404"] = problem("No configuration and no finished call names this experiment.");
    }
    let mut described = json!({
        "operationId": operation.id,
        "summary": operation.summary,
        "parameters": parameters,
        "responses": responses,
    });
    if operation.method == "post" {
        described["responses"]["403"] = problem_of_hook(schemas);
    }
    if operation.method == "post" && operation.path == marks::PATH {
        let responses = &mut described["responses"];
        responses["201"] = responses["200"].take();
        responses.as_object_mut().map(|all| all.remove("200"));
        let body = schemas.subschema_for::<Body<'_>>();
        responses["413"] =
            json!({"description": "The body is too long.", "content": in_json(body)});
        described["requestBody"] = mark_body();
    } else if operation.method == "post" {
        described["requestBody"] = hook_body();
        described["responses"]["409"] = json!({
            "description": "Not so; the verdict and why.",
            "content": in_json(schemas.subschema_for::<Gate>()),
        });
    }
    described
}

/// What Flagger sends; the token alone is read.
fn hook_body() -> Value {
    let token =
        json!({"type": "string", "description": "The token of [admin], where no header has it."});
    let metadata = json!({"type": "object", "properties": {"token": token}});
    json!({
        "required": false,
        "content": {"application/json": {
            "schema": {"type": "object", "properties": {"metadata": metadata}},
        }},
    })
}

/// A mark that is to be added.
fn mark_body() -> Value {
    let text = |least: usize, most: usize| json!({"type": "string", "minLength": least, "maxLength": most});
    let name = |what: &str| {
        let mut name = text(1, MAX_NAME);
        name["description"] =
            format!("The {what} that it is about; all where it is absent.").into();
        name
    };
    let mut what = text(1, marks::MAX_TEXT);
    what["pattern"] = "\\S".into();
    what["description"] = "What happened.".into();
    let schema = json!({
        "type": "object", "required": ["text"], "additionalProperties": false,
        "properties": {
            "text": what,
            "time": parameters::mark_time(),
            "tags": {"type": "array", "maxItems": marks::MAX_TAGS, "items": text(1, marks::MAX_TAG)},
            "model": name("model"), "upstream": name("upstream"), "route": name("route"),
            "workload": name("workload"),
        },
    });
    json!({"required": true, "content": {"application/json": {"schema": schema}}})
}

fn problem_of_hook(schemas: &mut SchemaGenerator) -> Value {
    let body = schemas.subschema_for::<Body<'_>>();
    json!({"description": "No token is configured, and this needs one.", "content": in_json(body)})
}

fn in_json(schema: Schema) -> Value {
    json!({"application/json": {"schema": schema}})
}

fn operations() -> Vec<Operation> {
    let operation = |path, id, summary, parameters, answer| Operation {
        method: "get",
        path,
        id,
        summary,
        parameters,
        answer,
    };
    vec![
        operation(
            "/api/v1/about",
            "about",
            "What the process is and where agents reach it.",
            &[],
            Answer::Json(SchemaGenerator::subschema_for::<Now<'_>>),
        ),
        operation(
            "/api/v1/calls",
            "calls",
            "Finished calls, the newest first.",
            &[&FILTERS, &OF_CALLS, &PAGING],
            Answer::Json(SchemaGenerator::subschema_for::<Calls>),
        ),
        operation(
            "/api/v1/calls/{id}",
            "call",
            "One finished call and its phases.",
            &[],
            Answer::Json(SchemaGenerator::subschema_for::<Call>),
        ),
        operation(
            "/api/v1/sessions",
            "sessions",
            "Sessions with a call that matches, summed up over all their calls.",
            &[&FILTERS, &OF_SESSIONS, &PAGING],
            Answer::Json(SchemaGenerator::subschema_for::<Sessions>),
        ),
        operation(
            "/api/v1/sessions/{id}",
            "session",
            "One session and its calls as a waterfall.",
            &[&PAGING],
            Answer::Json(SchemaGenerator::subschema_for::<SessionAndCalls>),
        ),
        operation(
            "/api/v1/sessions/{id}/analysis",
            "session_analysis",
            "What the length of a session is made of, and which of its prompts should have come from a cache.",
            &[],
            Answer::Json(SchemaGenerator::subschema_for::<SessionAnalysis>),
        ),
        operation(
            "/api/v1/sessions/{id}/trace",
            "session_trace",
            "A session as a trace file, for Perfetto or in OTLP's JSON.",
            &[&OF_TRACES],
            Answer::Json(SchemaGenerator::subschema_for::<Map<String, Value>>),
        ),
        operation(
            "/api/v1/tasks",
            "tasks",
            "How long sessions took from their first call to their last, of those whose last call so far ended within the time.",
            &[&FILTERS],
            Answer::Json(SchemaGenerator::subschema_for::<TasksOf>),
        ),
        operation(
            "/api/v1/models",
            "models",
            "Calls by model, those with most calls first.",
            &[&FILTERS, &PAGING],
            Answer::Json(SchemaGenerator::subschema_for::<Models>),
        ),
        operation(
            "/api/v1/workloads",
            "workloads",
            "Calls by workload, those with most calls first.",
            &[&FILTERS, &PAGING],
            Answer::Json(SchemaGenerator::subschema_for::<Workloads>),
        ),
        operation(
            "/api/v1/groups",
            "groups",
            "Calls by anything they have in common, those with most calls first.",
            &[&FILTERS, &OF_GROUPS, &PAGING],
            Answer::Json(SchemaGenerator::subschema_for::<Groups>),
        ),
        operation(
            "/api/v1/timeseries",
            "timeseries",
            "Percentiles over time, by when calls began; at most 1000 points.",
            &[&FILTERS, &OF_TIMESERIES],
            Answer::Json(SchemaGenerator::subschema_for::<Series>),
        ),
        operation(
            "/api/v1/capacity",
            "capacity",
            "What each upstream gave at which number of calls at once; of the filters times and upstream count.",
            &[&FILTERS],
            Answer::Json(SchemaGenerator::subschema_for::<Capacities>),
        ),
        operation(
            "/api/v1/experiments",
            "experiments",
            "How the configured experiments stand: each arm against the first, with intervals that hold at every look.",
            &[],
            Answer::Json(SchemaGenerator::subschema_for::<Experiments>),
        ),
        operation(
            "/api/v1/experiments/{name}",
            "experiment",
            "How one experiment stands, a configured one or one that agents name.",
            &[],
            Answer::Json(SchemaGenerator::subschema_for::<Report>),
        ),
        operation(
            "/api/v1/drift",
            "drift",
            "What has changed against the weeks before, since when and why: the last evaluation of every [[drift]].",
            &[],
            Answer::Json(SchemaGenerator::subschema_for::<Drifts>),
        ),
        operation(
            "/api/v1/gates",
            "gates",
            "Whether rollouts may go on, by every gate of the configuration.",
            &[],
            Answer::Json(SchemaGenerator::subschema_for::<AllGates>),
        ),
        operation(
            "/api/v1/gates/{name}",
            "gate",
            "Whether a rollout may go on: pass, fail or inconclusive, and every check with its bounds.",
            &[&OF_GATES],
            Answer::Json(SchemaGenerator::subschema_for::<Gate>),
        ),
        Operation {
            method: "post",
            ..operation(
                "/api/v1/gates/{name}/confirm-promotion",
                "confirm_promotion",
                "Flagger's hook before a promotion: 200 where the gate passes.",
                &[&OF_GATES],
                Answer::Json(SchemaGenerator::subschema_for::<Gate>),
            )
        },
        Operation {
            method: "post",
            ..operation(
                "/api/v1/gates/{name}/rollback",
                "rollback",
                "Flagger's hook for a rollback: 200 where the gate fails.",
                &[&OF_GATES],
                Answer::Json(SchemaGenerator::subschema_for::<Gate>),
            )
        },
        operation(
            marks::PATH,
            "marks",
            "What happened beside calls, the newest first: deployments and other notes, reloads, prices, restarts and \
             warm-ups of upstreams, change points of drift, alerts.",
            &[&OF_MARKS],
            Answer::Json(SchemaGenerator::subschema_for::<AllMarks>),
        ),
        Operation {
            method: "post",
            ..operation(
                marks::PATH,
                "add_mark",
                "Adds a mark, such as of a deployment.",
                &[],
                Answer::Json(SchemaGenerator::subschema_for::<Mark>),
            )
        },
        operation(
            "/api/v1/sinks",
            "sinks",
            "How the stores stand that get every finished call: what waits, what was stored, what failed.",
            &[],
            Answer::Json(SchemaGenerator::subschema_for::<AllSinks>),
        ),
        operation(
            "/api/v1/streams",
            "streams",
            "Calls under way, the newest first.",
            &[&OF_STREAMS],
            Answer::Json(SchemaGenerator::subschema_for::<Streams>),
        ),
        operation(
            "/api/v1/upstreams",
            "upstreams",
            "The connections and endpoints of every upstream now, and what its engine reports.",
            &[],
            Answer::Json(SchemaGenerator::subschema_for::<Upstreams>),
        ),
        operation(
            "/api/v1/slos",
            "slos",
            "How every objective stands, and, while its budget burns, why.",
            &[],
            Answer::Json(SchemaGenerator::subschema_for::<Slos>),
        ),
        operation(
            "/api/v1/slos/{name}/budget",
            "budget",
            "How the error budget of an objective was spent over its period so far.",
            &[],
            Answer::Json(SchemaGenerator::subschema_for::<BurnDown>),
        ),
        operation(
            "/api/v1/events",
            "events",
            "What happens, as it happens: events `streams` (as /api/v1/streams, at most one a second), `call` \
             (a finished call), `slos` (every 5 s), `lost` (how many events this listener was too slow for).",
            &[],
            Answer::Events,
        ),
        operation(
            "/api/v1/openapi.json",
            "openapi",
            "This document.",
            &[],
            Answer::Json(SchemaGenerator::subschema_for::<Map<String, Value>>),
        ),
    ]
}
