//! `/api/v1/openapi.json`: the API for programs. Written by hand beside the code, since
//! the domain's types shall not know it: a test holds its paths to the router's, another
//! its parameters and its schemas to what is answered.

mod parameters;
mod schemas;
mod words;

use super::finished::{OF_GROUPS, OF_SESSIONS, OF_TIMESERIES, reply};
use super::live::OF_STREAMS;
use super::query_params::{FILTERS, PAGING, QueryParams};
use axum::extract::RawQuery;
use axum::response::Response;
use serde_json::{Map, Value, json};
use words::{count, instant, list, maybe, number, object, of, text};

/// A path of the API and what it answers.
struct Operation {
    path: &'static str,
    id: &'static str,
    summary: &'static str,
    parameters: &'static [&'static [&'static str]],
    answer: Value,
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
    let paths = operations().into_iter().map(|operation| {
        let path = operation.path.to_owned();
        (path, json!({ "get": described(operation) }))
    });
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
        "paths": paths.collect::<Map<_, _>>(),
        "components": {
            "securitySchemes": {"bearer": {
                "type": "http", "scheme": "bearer",
                "description": "The token of [admin]. Where none is configured, none is asked for.",
            }},
            "schemas": schemas::all(),
        },
    })
}

fn described(operation: Operation) -> Value {
    let names = operation.parameters.iter().copied().flatten();
    let mut parameters: Vec<Value> = names.map(|name| parameters::query(name)).collect();
    let mut responses = json!({
        "200": {"description": "The answer.", "content": operation.answer},
        "400": problem("A parameter breaks a rule; the message names both."),
        "401": problem("The token of [admin] is missing or wrong."),
        "503": problem("The answer took too long, the ledger cannot be read, or too many ask."),
    });
    if operation.path.contains("{id}") {
        parameters.insert(0, parameters::session_id());
        responses["404"] = problem("No finished call names this session.");
    }
    json!({
        "operationId": operation.id,
        "summary": operation.summary,
        "parameters": parameters,
        "responses": responses,
    })
}

fn problem(description: &str) -> Value {
    json!({"description": description, "content": in_json(of("Problem"))})
}

fn in_json(schema: Value) -> Value {
    json!({"application/json": {"schema": schema}})
}

/// A page of rows under `name`.
fn page(name: &'static str, row: &str) -> Value {
    in_json(object(&[
        ("store", of("Store"), "Who answered."),
        (name, list(of(row)), "A page of rows."),
        (
            "next_cursor",
            maybe(text()),
            "Names the next page; null where this is the last.",
        ),
    ]))
}

/// The same for groups, with the time that they are of.
fn group_page(name: &'static str, row: &str) -> Value {
    in_json(object(&[
        ("store", of("Store"), "Who answered."),
        ("since", maybe(instant()), SINCE),
        ("until", maybe(instant()), UNTIL),
        (name, list(of(row)), "A page of rows."),
        (
            "next_cursor",
            maybe(text()),
            "Names the next page; null where this is the last.",
        ),
    ]))
}

const SINCE: &str = "From when on calls are in it: what was asked for, or when the oldest call that \
                     is kept began; null without calls.";
const UNTIL: &str = "Until when: what was asked for, or now; null without calls.";

fn operations() -> Vec<Operation> {
    let operation = |path, id, summary, parameters, answer| Operation {
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
            in_json(of("About")),
        ),
        operation(
            "/api/v1/calls",
            "calls",
            "Finished calls, the newest first.",
            &[&FILTERS, &PAGING],
            page("calls", "Call"),
        ),
        operation(
            "/api/v1/sessions",
            "sessions",
            "Sessions with a call that matches, summed up over all their calls.",
            &[&FILTERS, &OF_SESSIONS, &PAGING],
            page("sessions", "Session"),
        ),
        operation(
            "/api/v1/sessions/{id}",
            "session",
            "One session and its calls as a waterfall.",
            &[&PAGING],
            in_json(of("SessionDetail")),
        ),
        operation(
            "/api/v1/tasks",
            "tasks",
            "How long sessions took from their first call to their last, of those whose last call so far ended within the time.",
            &[&FILTERS],
            in_json(object(&[
                ("store", of("Store"), "Who answered."),
                ("since", maybe(instant()), SINCE),
                ("until", maybe(instant()), UNTIL),
                ("tasks", count(), "Such sessions."),
                ("per_minute", maybe(number()), "The same a minute."),
                (
                    "seconds",
                    object(&[
                        ("p50", maybe(number()), "The median."),
                        ("p95", maybe(number()), "5 % took longer."),
                        ("mean", maybe(number()), "The mean."),
                    ]),
                    "How long they took.",
                ),
            ])),
        ),
        operation(
            "/api/v1/models",
            "models",
            "Calls by model, those with most calls first.",
            &[&FILTERS, &PAGING],
            group_page("models", "Group"),
        ),
        operation(
            "/api/v1/workloads",
            "workloads",
            "Calls by workload, those with most calls first.",
            &[&FILTERS, &PAGING],
            group_page("workloads", "Group"),
        ),
        operation(
            "/api/v1/groups",
            "groups",
            "Calls by anything they have in common, those with most calls first.",
            &[&FILTERS, &OF_GROUPS, &PAGING],
            group_page("groups", "NamedGroup"),
        ),
        operation(
            "/api/v1/timeseries",
            "timeseries",
            "Percentiles over time, by when calls began; at most 1000 points.",
            &[&FILTERS, &OF_TIMESERIES],
            in_json(of("Timeseries")),
        ),
        operation(
            "/api/v1/capacity",
            "capacity",
            "What each upstream gave at which number of calls at once; of the filters times and upstream count.",
            &[&FILTERS],
            in_json(object(&[
                (
                    "store",
                    of("Store"),
                    "Who answered; memory knows the time since the process started.",
                ),
                ("upstreams", list(of("Capacity")), "By name."),
            ])),
        ),
        operation(
            "/api/v1/streams",
            "streams",
            "Calls under way, the newest first.",
            &[&OF_STREAMS],
            in_json(object(&[
                (
                    "total",
                    count(),
                    "How many there are, beyond the limit, too.",
                ),
                (
                    "tokens_per_second",
                    of("Throughput"),
                    "The output of all of them together, however many are listed.",
                ),
                ("streams", list(of("Stream")), "The newest of them."),
            ])),
        ),
        operation(
            "/api/v1/slos",
            "slos",
            "How every objective stands.",
            &[],
            in_json(object(&[(
                "slos",
                list(of("Slo")),
                "In the order of the configuration.",
            )])),
        ),
        operation(
            "/api/v1/events",
            "events",
            "What happens, as it happens: events `streams` (as /api/v1/streams, at most one a second), `call` \
             (a finished call), `slos` (every 5 s), `lost` (how many events this listener was too slow for).",
            &[],
            json!({"text/event-stream": {"schema": {"type": "string"}}}),
        ),
        operation(
            "/api/v1/openapi.json",
            "openapi",
            "This document.",
            &[],
            in_json(json!({"type": "object"})),
        ),
    ]
}
