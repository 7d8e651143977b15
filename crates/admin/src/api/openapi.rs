//! The OpenAPI document, `/api/v1/openapi.json`. Schemas and their descriptions are derived from the types of the responses
//! and their doc comments.

mod parameters;
mod schemas;

use super::calls_file::MEDIA_TYPE;
use super::endpoint::{Endpoint, RequestBody, ResponseFormat};
use super::marks;
use super::problem::ProblemBody;
use super::query_params::MAX_NAME;
use super::scores;
use schemars::{Schema, SchemaGenerator};
use serde_json::{Map, Value, json};
use tokengauge_gate::Report as Gate;

pub(super) fn document(endpoints: &[Endpoint]) -> Value {
    let mut schemas = schemas::generator();
    let mut paths: Map<String, Value> = Map::new();
    for endpoint in endpoints {
        let path = paths.entry(endpoint.path).or_insert_with(|| json!({}));
        path[endpoint.method] = described(endpoint, &mut schemas);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "tokengauge",
            "version": env!("CARGO_PKG_VERSION"),
            "summary": "Tokens per second of live LLM traffic: calls, sessions, objectives, capacity.",
            "description": "Responses come from the ledger if there is one, otherwise from the last finished calls in \
             memory; `store` says which. Unknown values are null, never 0. Instants are RFC 3339 in UTC, durations are in \
             seconds, costs in US dollars. `tokengauge fleet` has the same API for many processes. It returns 404 for \
             endpoints of a single process.",
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
            "description": "The token of [admin]. It is needed only if one is configured.",
        },
        "provider_bearer": {
            "type": "http", "scheme": "bearer", "description": "The provider's key.",
        },
        "x-api-key": key("x-api-key"),
        "api-key": key("api-key"),
        "x-goog-api-key": key("x-goog-api-key"),
    })
}

fn described(endpoint: &Endpoint, schemas: &mut SchemaGenerator) -> Value {
    let names = endpoint.parameters.iter().copied().flatten();
    let of_path = endpoint.subject.map(parameters::of_path).into_iter();
    let parameters = of_path.chain(names.map(|name| parameters::query(name)));
    let parameters: Vec<Value> = parameters.collect();
    let content = match endpoint.response {
        ResponseFormat::Json(schema) => in_json(schema(schemas)),
        ResponseFormat::Html => json!({"text/html": {"schema": {"type": "string"}}}),
        ResponseFormat::Parquet => {
            json!({MEDIA_TYPE: {"schema": {"type": "string", "format": "binary"}}})
        }
        ResponseFormat::Events => json!({"text/event-stream": {"schema": {"type": "string"}}}),
    };
    let success = match endpoint.body {
        Some(RequestBody::Mark | RequestBody::Scores) => "201",
        _ => "200",
    };
    let mut responses = json!({success: {"description": "The response.", "content": content}});
    let all = [
        (
            "400",
            "A parameter is invalid. The message names the parameter and the rule.",
        ),
        ("401", "The token of [admin] is missing or wrong."),
        (
            "503",
            "The query took too long, the ledger cannot be read, or there are too many requests.",
        ),
    ];
    for (status, description) in all.iter().chain(&endpoint.problems) {
        let content = in_json(schemas.subschema_for::<ProblemBody<'_>>());
        responses[*status] = json!({"description": description, "content": content});
    }
    if matches!(endpoint.body, Some(RequestBody::Hook)) {
        let content = in_json(schemas.subschema_for::<Gate>());
        responses["409"] = json!({"description": "The gate has another verdict. The body has the verdict and the reason.", "content": content});
    }
    let mut described = json!({
        "operationId": endpoint.id,
        "summary": endpoint.summary,
        "parameters": parameters,
        "responses": responses,
    });
    if endpoint.for_keys {
        let keys = ["provider_bearer", "x-api-key", "api-key", "x-goog-api-key"];
        described["security"] = keys.map(|key| json!({ key: [] })).into();
    }
    match endpoint.body {
        Some(RequestBody::Mark) => described["requestBody"] = mark_body(),
        Some(RequestBody::Scores) => described["requestBody"] = scores::body(),
        Some(RequestBody::Hook) => described["requestBody"] = hook_body(),
        None => {}
    }
    described
}

/// The body of Flagger's hooks. Only the token in it is read.
fn hook_body() -> Value {
    let token =
        json!({"type": "string", "description": "The token of [admin], if no header contains it."});
    let metadata = json!({"type": "object", "properties": {"token": token}});
    json!({
        "required": false,
        "content": {"application/json": {
            "schema": {"type": "object", "properties": {"metadata": metadata}},
        }},
    })
}

fn mark_body() -> Value {
    let text = |least: usize, most: usize| json!({"type": "string", "minLength": least, "maxLength": most});
    let name = |what: &str| {
        let mut name = text(1, MAX_NAME);
        name["type"] = json!(["string", "null"]);
        name["description"] =
            format!("The {what} to which the mark belongs; all of them if absent or null.").into();
        name
    };
    let mut what = text(1, marks::MAX_TEXT);
    what["pattern"] = "\\S".into();
    what["description"] = "The text of the mark.".into();
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

fn in_json(schema: Schema) -> Value {
    json!({"application/json": {"schema": schema}})
}
