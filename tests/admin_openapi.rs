//! The document of the API against what the API does.

use crate::admin_api::Server;
use serde_json::Value;

/// Where `value` breaks `schema`; nothing where it does not.
fn broken(document: &Value, schema: &Value, value: &Value, at: &str) -> Option<String> {
    if let Some(name) = schema["$ref"].as_str() {
        let schema = document
            .pointer(&name[1..])
            .unwrap_or_else(|| panic!("{name}"));
        return broken(document, schema, value, at);
    }
    if let Some(either) = schema["anyOf"].as_array() {
        let breaks: Option<Vec<_>> = either
            .iter()
            .map(|schema| broken(document, schema, value, at))
            .collect();
        return breaks.map(|breaks| breaks.join(" and "));
    }
    if let Some(words) = schema["enum"].as_array() {
        return (!words.contains(value)).then(|| format!("{at}: {value} is no word"));
    }
    let is = match schema["type"].as_str().expect("a type") {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "integer" => value.is_u64(),
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        other => panic!("{other}"),
    };
    if !is {
        return Some(format!("{at}: {value} is not of {}", schema["type"]));
    }
    if let Some(items) = value.as_array() {
        let mut items = items.iter();
        return items.find_map(|item| broken(document, &schema["items"], item, &format!("{at}[]")));
    }
    members(document, schema, value, at)
}

fn members(document: &Value, schema: &Value, value: &Value, at: &str) -> Option<String> {
    let members = value.as_object()?;
    let required = schema["required"].as_array().into_iter().flatten();
    let mut missing = required
        .filter_map(Value::as_str)
        .filter(|name| !members.contains_key(*name));
    if let Some(name) = missing.next() {
        return Some(format!("{at}.{name} is missing"));
    }
    members.iter().find_map(|(name, value)| {
        let at = format!("{at}.{name}");
        let known = schema["properties"].get(name);
        match known.or(schema.get("additionalProperties")) {
            Some(Value::Bool(false)) => Some(format!("{at} is not documented")),
            Some(schema) => broken(document, schema, value, &at),
            None => None,
        }
    })
}

#[tokio::test]
async fn every_answer_is_as_documented() {
    let server = Server::start().await;
    crate::admin_finished::chat(&server, 0, "s-1", "agent/1");
    let _call = server.bench.chat();
    let document = server.json("/api/v1/openapi.json").await;
    let paths = document["paths"].as_object().expect("paths");
    for path in paths.keys().filter(|path| !path.ends_with("events")) {
        let query = if path.ends_with("groups") {
            "?by=model,agent"
        } else {
            ""
        };
        let asked = format!("{}{query}", path.replace("{id}", "s-1"));
        let reply = server.fetch(&asked).await;
        assert_eq!(reply.status, 200, "{asked}: {}", reply.body);
        let response = &document["paths"][path]["get"]["responses"][reply.status.to_string()];
        let schema = &response["content"]["application/json"]["schema"];
        let body: Value = serde_json::from_str(&reply.body).expect("JSON");
        assert_eq!(broken(&document, schema, &body, path), None, "{body:#}");
    }
}

#[tokio::test]
async fn every_parameter_is_documented_and_every_documented_one_is_known() {
    let server = Server::start().await;
    let document = server.json("/api/v1/openapi.json").await;
    for (path, operations) in document["paths"].as_object().expect("paths") {
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
            "there are no parameters here".to_owned()
        } else {
            format!("the only parameters here are {}", names.join(", "))
        };
        let asked = format!("{}?no-such=1", path.replace("{id}", "s"));
        let reply = server.fetch(&asked).await;
        assert_eq!(reply.status, 400, "{asked}");
        let error: Value = serde_json::from_str(&reply.body).expect("JSON");
        assert_eq!(error["error"]["message"], said, "{path}");
        let schema = document
            .pointer("/components/schemas/Problem")
            .expect("a schema");
        assert_eq!(broken(&document, schema, &error, path), None);
    }
}

#[tokio::test]
async fn a_wrong_method_is_told_which_is_right() {
    let server = Server::start().await;
    let reply =
        tokengauge_test_support::http_client::request(server.address, "DELETE", "/api/v1/calls")
            .await;
    assert_eq!(reply.status, 405);
    assert!(reply.head.contains("allow: get,head"), "{}", reply.head);
}
