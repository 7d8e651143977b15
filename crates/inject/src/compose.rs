//! The configuration of a sidecar: the operator's configuration after the pod's upstreams, workload and objectives.

use super::PREFIX;
use super::annotations::{Annotations, Engine, Slo};
use super::error::InjectError;
use std::collections::BTreeMap;
use tokengauge_config::Config;
use toml::{Table, Value};

pub(super) const STATE: &str = "/var/lib/tokengauge";

/// Keys that depend on the host. A sidecar gets them as arguments, and the files that they name are not in the pod.
const OF_A_PLACE: &[&str] = &["listen", "tls", "admin", "state_dir", "ledger", "notify"];
/// The lists that a fallback keeps, and the keys that it keeps of their tables.
const IN_FALLBACK: &[(&str, &[&str])] = &[
    ("upstream", &["name", "url", "urls", "protocol", "timeouts"]),
    (
        "route",
        &[
            "name", "upstream", "path", "strip", "host", "headers", "dialect", "upgrades",
        ],
    ),
];
/// Seconds of the grace period that remain after streams were cut off.
const MARGIN: u64 = 5;

/// The configuration for containers that call models. `upstreams` are names and base URLs.
pub(super) fn agents(
    base: &str,
    annotations: &Annotations,
    upstreams: &[(String, String)],
    base_urls: &BTreeMap<String, String>,
    grace: u64,
) -> Result<String, InjectError> {
    let mut table = of_any_place(base)?;
    for (name, url) in annotations.upstreams.iter().chain(upstreams) {
        point(&mut table, name, bare(name, url, base_urls));
    }
    finish(table, annotations, grace)
}

/// The fallback for a configuration `text` that cannot be used: its upstreams and routes, without keys that need a file or
/// that the sidecar's version may not know.
pub(super) fn fallback(text: &str, grace: u64) -> Result<String, InjectError> {
    let whole = of_any_place(text)?;
    let mut table = Table::new();
    table.insert("drain_timeout".to_owned(), drain(grace).into());
    for (list, keys) in IN_FALLBACK {
        let all = whole.get(*list).and_then(Value::as_array);
        let all = all.into_iter().flatten().filter_map(Value::as_table);
        let of = |one: &Table| {
            let known = keys.iter().filter_map(|key| one.get_key_value(*key));
            let known = known.map(|(key, value)| (key.clone(), value.clone()));
            Value::Table(known.collect())
        };
        let all: Vec<Value> = all.map(of).collect();
        table.insert((*list).to_owned(), all.into());
    }
    toml::to_string(&table).map_err(unwritable)
}

pub(super) fn engine(
    base: &str,
    annotations: &Annotations,
    engine: &Engine,
    name: &str,
    grace: u64,
) -> Result<String, InjectError> {
    let mut table = of_any_place(base)?;
    // In the base configuration, these keys select the base configuration's own routes.
    for key in ["workload", "slo"] {
        table.remove(key);
    }
    for key in ["quota", "budget"] {
        if let Some(Value::Array(limits)) = table.get_mut(key) {
            limits.retain(|limit| !selects_a_place(limit));
        }
    }
    let address = format!(
        "http://127.0.0.1:{}",
        engine.moves_to.unwrap_or(engine.port)
    );
    let mut upstream = Table::new();
    upstream.insert("name".to_owned(), name.into());
    upstream.insert("url".to_owned(), address.clone().into());
    if let Some(path) = &engine.metrics {
        upstream.insert("metrics_url".to_owned(), format!("{address}{path}").into());
    }
    let mut route = Table::new();
    route.insert("name".to_owned(), name.into());
    route.insert("upstream".to_owned(), name.into());
    table.insert("upstream".to_owned(), Value::Array(vec![upstream.into()]));
    table.insert("route".to_owned(), Value::Array(vec![route.into()]));
    finish(table, annotations, grace)
}

fn selects_a_place(limit: &Value) -> bool {
    let select = limit.get("select").and_then(Value::as_table);
    select.is_some_and(|select| {
        ["route", "upstream", "workload"]
            .iter()
            .any(|key| select.contains_key(*key))
    })
}

fn of_any_place(base: &str) -> Result<Table, InjectError> {
    let mut table: Table = base.parse().map_err(|error: toml::de::Error| {
        InjectError::text("base_config", error.message().trim().to_owned())
    })?;
    let admin = table.get("admin").and_then(Value::as_table);
    let guarded = admin.and_then(|admin| admin.get("metrics_token")).cloned();
    for key in OF_A_PLACE {
        table.remove(*key);
    }
    if let Some(guarded) = guarded {
        let mut admin = Table::new();
        admin.insert("metrics_token".to_owned(), guarded);
        table.insert("admin".to_owned(), admin.into());
    }
    Ok(table)
}

fn finish(mut table: Table, annotations: &Annotations, grace: u64) -> Result<String, InjectError> {
    table.insert("drain_timeout".to_owned(), drain(grace).into());
    if let Some(workload) = &annotations.workload {
        // A workload without conditions matches every call, and the first match wins.
        let mut every = Table::new();
        every.insert("name".to_owned(), workload.as_str().into());
        list(&mut table, "workload").insert(0, every.into());
    }
    for slo in &annotations.slos {
        list(&mut table, "slo").push(objective(slo).into());
    }
    if table.contains_key("slo") {
        table.insert("state_dir".to_owned(), STATE.into());
        // The volume is small and in memory, so it has room for sums but not for calls.
        let mut ledger = Table::new();
        ledger.insert("enabled".to_owned(), false.into());
        table.insert("ledger".to_owned(), ledger.into());
    }
    let text = toml::to_string(&table).map_err(unwritable)?;
    match Config::parse(&text, "annotations") {
        Ok(_) => Ok(text),
        Err(invalid) => {
            let problems = invalid.problems.iter();
            let problems: Vec<String> = problems
                .map(|problem| format!("{}: {}", problem.key, problem.reason))
                .collect();
            Err(InjectError::Refused(format!(
                "the annotations {PREFIX}… make an invalid configuration: {}",
                problems.join("; ")
            )))
        }
    }
}

fn unwritable(error: toml::ser::Error) -> InjectError {
    InjectError::text("the sidecar's configuration cannot be written", error)
}

fn drain(grace: u64) -> String {
    format!("{}s", grace.saturating_sub(MARGIN).max(1))
}

fn objective(slo: &Slo) -> Table {
    match slo {
        Slo::Preset(name) => {
            let mut table = Table::new();
            table.insert("preset".to_owned(), name.as_str().into());
            table
        }
        Slo::Table(name, keys) => {
            let mut table = keys.clone();
            table.insert("name".to_owned(), name.as_str().into());
            table
        }
    }
}

/// Sets the URL of the upstream `name`. Adds the upstream and a route to it if they do not exist.
fn point(table: &mut Table, name: &str, url: &str) {
    let upstreams = list(table, "upstream");
    let known = upstreams
        .iter_mut()
        .filter_map(Value::as_table_mut)
        .find(|known| known.get("name").and_then(Value::as_str) == Some(name));
    match known {
        Some(known) => {
            for key in ["urls", "metrics_url", "metrics_interval"] {
                known.remove(key);
            }
            known.insert("url".to_owned(), url.into());
        }
        None => {
            let mut upstream = Table::new();
            upstream.insert("name".to_owned(), name.into());
            upstream.insert("url".to_owned(), url.into());
            upstreams.push(upstream.into());
        }
    }
    let routes = list(table, "route");
    let leads = |route: &Value| route.get("upstream").and_then(Value::as_str) == Some(name);
    if !routes.iter().any(leads) {
        let mut route = Table::new();
        route.insert("path".to_owned(), format!("/{name}").into());
        route.insert("upstream".to_owned(), name.into());
        routes.insert(0, route.into());
    }
}

/// A base URL without the path that the SDK appends, such as `/v1` for OpenAI's.
fn bare<'a>(name: &str, url: &'a str, base_urls: &BTreeMap<String, String>) -> &'a str {
    let url = url.trim_end_matches('/');
    let paths = base_urls.values();
    let mut ends = paths.filter_map(|path| path.strip_prefix(&format!("/{name}")));
    ends.find_map(|end| (!end.is_empty()).then(|| url.strip_suffix(end))?)
        .unwrap_or(url)
}

fn list<'a>(table: &'a mut Table, key: &str) -> &'a mut Vec<Value> {
    let value = table.entry(key).or_insert_with(|| Value::Array(Vec::new()));
    if !value.is_array() {
        // The base configuration is valid, so the list exists or is missing.
        *value = Value::Array(Vec::new());
    }
    value.as_array_mut().expect("made above")
}
