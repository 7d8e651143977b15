//! The OpenAPI document, `/api/v1/openapi.json`: schemas are derived from the types of the
//! answers, their descriptions from the comments there.

mod operations;
mod parameters;
mod schemas;

use super::calls_file::MEDIA_TYPE;
use super::finished::reply;
use super::marks;
use super::own_use;
use super::problem::Body;
use super::query_params::{MAX_NAME, QueryParams};
use crate::gate::Report as Gate;
use axum::extract::RawQuery;
use axum::response::Response;
use schemars::{Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

/// A path of the API and what it answers.
#[derive(Clone)]
struct Operation {
    method: &'static str,
    path: &'static str,
    id: &'static str,
    summary: &'static str,
    parameters: &'static [&'static [&'static str]],
    answer: Answer,
}

/// What an operation answers.
#[derive(Clone)]
enum Answer {
    /// JSON of this schema.
    Json(fn(&mut SchemaGenerator) -> Schema),
    /// A stream of server-sent events.
    Events,
    /// A file for browsers.
    Html,
    /// A file for analysis.
    Parquet,
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
    for operation in operations::operations() {
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
                            RFC 3339 in UTC, durations seconds, costs US dollars. `tokengauge fleet` answers the same for \
                            many processes, and 404 where a question is of one alone.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "security": [{"bearer": []}],
        "paths": paths,
        "components": {
            "securitySchemes": security_schemes(),
            "schemas": schemas.take_definitions(true),
        },
    })
}

fn security_schemes() -> Value {
    let key = |name: &str| {
        json!({
            "type": "apiKey", "in": "header", "name": name,
            "description": "The provider's key.",
        })
    };
    json!({
        "bearer": {
            "type": "http", "scheme": "bearer",
            "description": "The token of [admin]. Where none is configured, none is asked for.",
        },
        "provider_bearer": {
            "type": "http", "scheme": "bearer", "description": "The provider's key.",
        },
        "x-api-key": key("x-api-key"),
        "api-key": key("api-key"),
        "x-goog-api-key": key("x-goog-api-key"),
    })
}

fn described(operation: Operation, schemas: &mut SchemaGenerator) -> Value {
    let names = operation.parameters.iter().copied().flatten();
    let mut parameters: Vec<Value> = names.map(|name| parameters::query(name)).collect();
    let answer = match operation.answer {
        Answer::Json(schema) => in_json(schema(schemas)),
        Answer::Html => json!({"text/html": {"schema": {"type": "string"}}}),
        Answer::Parquet => json!({MEDIA_TYPE: {"schema": {"type": "string", "format": "binary"}}}),
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
    if operation.path == "/api/v1/pods" {
        responses["404"] = problem("This is no fleet.");
    } else if operation.path == own_use::PATH {
        responses["401"] = problem("There is no key of which the use could be told.");
        responses["404"] = problem("`own_use` of [admin] is off.");
        responses["429"] = problem("This was asked for too often.");
    } else if matches!(
        operation.path,
        "/api/v1/calls" | "/api/v1/calls.parquet" | "/api/v1/capsule"
    ) {
        responses["404"] = problem("No [[slo]] of the configuration has the name of `slo`.");
    } else if operation.path == "/api/v1/calls/{id}" {
        parameters.insert(0, parameters::call_id());
        responses["404"] = problem("No finished call that is kept has this id.");
    } else if operation.path.contains("{id}") {
        parameters.insert(0, parameters::session_id());
        responses["404"] = problem("No finished call that is kept names this session.");
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
    if operation.path == own_use::PATH {
        let keys = ["provider_bearer", "x-api-key", "api-key", "x-goog-api-key"];
        described["security"] = keys.map(|key| json!({ key: [] })).into();
    }
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
        name["type"] = json!(["string", "null"]);
        name["description"] =
            format!("The {what} that it is about; all where it is absent or null.").into();
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
