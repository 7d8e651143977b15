//! The difference of two values as a JSON patch (RFC 6902).

use serde_json::{Map, Value, json};

/// The operations that change `before` into `after`. List items are matched by `name` if all items have one.
pub fn diff(before: &Value, after: &Value) -> Vec<Value> {
    let mut patch = Vec::new();
    walk("", before, after, &mut patch);
    patch
}

fn walk(path: &str, before: &Value, after: &Value, patch: &mut Vec<Value>) {
    match (before, after) {
        _ if before == after => {}
        (Value::Object(before), Value::Object(after)) => objects(path, before, after, patch),
        (Value::Array(one), Value::Array(other)) if keeps_order(one, other) => {
            lists(path, one, other, patch);
        }
        _ => patch.push(json!({ "op": "replace", "path": path, "value": after })),
    }
}

fn objects(
    path: &str,
    before: &Map<String, Value>,
    after: &Map<String, Value>,
    patch: &mut Vec<Value>,
) {
    for key in before.keys().filter(|key| !after.contains_key(*key)) {
        patch.push(json!({ "op": "remove", "path": below(path, key) }));
    }
    for (key, value) in after {
        match before.get(key) {
            Some(known) => walk(&below(path, key), known, value, patch),
            None => patch.push(json!({ "op": "add", "path": below(path, key), "value": value })),
        }
    }
}

/// The items of `before` must be in `after` in the same order, possibly with others between them.
fn lists(path: &str, before: &[Value], after: &[Value], patch: &mut Vec<Value>) {
    let mut known = before.iter().peekable();
    for (at, item) in after.iter().enumerate() {
        let path = below(path, &at.to_string());
        match known.peek() {
            Some(before) if before["name"] == item["name"] => {
                walk(&path, before, item, patch);
                known.next();
            }
            _ => patch.push(json!({ "op": "add", "path": path, "value": item })),
        }
    }
}

fn keeps_order(before: &[Value], after: &[Value]) -> bool {
    let distinct = |all: &[Value]| {
        let names: Option<Vec<&str>> = all.iter().map(|item| item["name"].as_str()).collect();
        names.is_some_and(|mut names| {
            names.sort_unstable();
            names.windows(2).all(|pair| pair[0] != pair[1])
        })
    };
    let mut left = before.iter().peekable();
    for item in after {
        left.next_if(|known| known["name"] == item["name"]);
    }
    distinct(before) && distinct(after) && left.peek().is_none()
}

fn below(path: &str, key: &str) -> String {
    format!("{path}/{}", key.replace('~', "~0").replace('/', "~1"))
}
