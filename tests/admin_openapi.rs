//! The OpenAPI document must describe what the API does.

use crate::admin_api::Server;
use serde_json::Value;
use std::net::SocketAddr;
use tokengauge_test_support::http_client::{fetch, request};

/// Errors of `value` against the schema at `pointer` of the document.
pub fn broken(document: &Value, pointer: &str, value: &Value) -> Option<String> {
    let mut whole = document.pointer(pointer).expect(pointer).clone();
    whole["components"] = document["components"].clone();
    let schema = jsonschema::draft202012::new(&whole).expect("a schema");
    let errors: Vec<_> = schema
        .iter_errors(value)
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect();
    (!errors.is_empty()).then(|| errors.join("\n"))
}

#[tokio::test]
async fn every_answer_is_as_documented() {
    let server = Server::start().await;
    crate::admin_finished::chat(&server, 0, "s-1", "agent/1");
    let _call = server.bench.chat();
    let calls = server.json("/api/v1/calls").await;
    let call = calls["calls"][0]["id"].as_str().expect("an id").to_owned();
    let document = server.json("/api/v1/openapi.json").await;
    let paths = document["paths"].as_object().expect("paths");
    let read = paths
        .iter()
        .filter(|(_, operations)| operations.get("get").is_some())
        .map(|(path, _)| path);
    // These paths need a fleet or a setting: tests/fleet.rs and tests/payers.rs request them.
    let elsewhere = ["/api/v1/events", "/api/v1/pods", "/api/v1/me"];
    for path in read.filter(|path| !elsewhere.contains(&path.as_str())) {
        let query = if path.ends_with("groups") {
            "?by=model,agent"
        } else {
            ""
        };
        let id = if path.contains("/calls/") {
            &call
        } else {
            "s-1"
        };
        let asked = format!(
            "{}{query}",
            path.replace("{id}", id).replace("{name}", "decoder")
        );
        if path.ends_with(".parquet") {
            continue; // tests/admin_finished.rs reads the file
        }
        let response = server.fetch(&asked).await;
        assert_eq!(response.status, 200, "{asked}: {}", response.body);
        if path.ends_with("capsule") {
            assert!(
                response.body.starts_with("<!doctype html>"),
                "{}",
                response.body
            );
            continue;
        }
        let path = path.replace('/', "~1");
        let schema = format!("/paths/{path}/get/responses/200/content/application~1json/schema");
        let body: Value = serde_json::from_str(&response.body).expect("JSON");
        assert_eq!(broken(&document, &schema, &body), None, "{body:#}");
    }
}

#[tokio::test]
async fn every_parameter_is_documented_and_every_documented_one_is_known() {
    let server = Server::start().await;
    let document = server.json("/api/v1/openapi.json").await;
    let paths = document["paths"].as_object().expect("paths");
    // This path must be enabled in the configuration: tests/payers.rs requests it.
    let read = paths
        .iter()
        .filter(|(path, operations)| operations.get("get").is_some() && *path != "/api/v1/me");
    for (path, operations) in read {
        let parameters = operations["get"]["parameters"]
            .as_array()
            .expect("parameters");
        let in_query = parameters
            .iter()
            .filter(|parameter| parameter["in"] == "query");
        let names: Vec<_> = in_query
            .filter_map(|parameter| parameter["name"].as_str())
            .collect();
        let said = if names.is_empty() {
            "unknown parameter; the endpoint has no parameters".to_owned()
        } else {
            format!(
                "unknown parameter; the parameters of the endpoint are {}",
                names.join(", ")
            )
        };
        let asked = format!(
            "{}?no-such=1",
            path.replace("{id}", "s").replace("{name}", "decoder")
        );
        let response = server.fetch(&asked).await;
        assert_eq!(response.status, 400, "{asked}");
        let error: Value = serde_json::from_str(&response.body).expect("JSON");
        assert_eq!(error["error"]["message"], said, "{path}");
        let problem = "/components/schemas/Problem";
        assert_eq!(broken(&document, problem, &error), None);
    }
}

/// Requests every path of the document by each method that the document does not list.
pub async fn refuses_other_methods(address: SocketAddr) {
    let document = fetch(address, "/api/v1/openapi.json").await;
    let document: Value = serde_json::from_str(&document.body).expect("JSON");
    let paths = document["paths"].as_object().expect("paths");
    for (path, operations) in paths {
        let path = path.replace("{id}", "some").replace("{name}", "some");
        for method in ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"] {
            if operations.get(method.to_lowercase()).is_some() {
                continue;
            }
            let response = request(address, method, &path).await;
            assert_eq!(response.status, 405, "{method} {path}: {}", response.body);
            let allowed = if operations.get("get").is_some() {
                "allow: get,head"
            } else {
                "allow: post"
            };
            assert!(response.head.contains(allowed), "{path}: {}", response.head);
        }
    }
}

#[tokio::test]
async fn a_wrong_method_is_refused_with_the_allowed_ones() {
    let server = Server::start().await;
    refuses_other_methods(server.address).await;
}

/// Descriptions come from doc comments, whose links to other code readers of the API cannot follow.
#[tokio::test]
async fn every_member_is_described_in_words_that_stand_alone() {
    let server = Server::start().await;
    let document = server.json("/api/v1/openapi.json").await;
    let schemas = document["components"]["schemas"]
        .as_object()
        .expect("schemas");
    assert!(schemas.len() > 40, "{}", schemas.len());
    for (name, schema) in schemas {
        assert!(!schema.to_string().contains("[`"), "{name}: {schema:#}");
        for (member, schema) in schema["properties"].as_object().into_iter().flatten() {
            assert!(schema["description"].is_string(), "{name}.{member}");
        }
        if schema["type"] == "object" {
            assert_eq!(schema["additionalProperties"], false, "{name}");
        }
    }
}
