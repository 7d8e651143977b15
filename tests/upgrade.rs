//! Everything that 0.2 accepted works in 0.3, or fails with a message that names the replacement. The fixtures come
//! from 0.2: commands with their options, metrics with their labels, alerts, every key of its example, and the values
//! of its chart's examples.

use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use tokengauge_telemetry::export::names;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// Removed keys, and the text that the error message must contain.
const GONE_KEYS: [(&str, &str); 3] = [
    ("min_calls", "min_sessions"),
    ("after_max_wait", "max_wait"),
    ("retries", "failures"),
];

fn fixture(name: &str) -> PathBuf {
    Path::new(ROOT)
        .join("tests/fixtures/upgrade-0.2")
        .join(name)
}

fn text(name: &str) -> String {
    fs::read_to_string(fixture(name)).expect(name)
}

fn run(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tokengauge"));
    let command = command.args(arguments).stdin(Stdio::null());
    command.output().expect("it runs")
}

#[test]
fn every_command_line_is_understood() {
    let mut refused = Vec::new();
    for line in text("commands.txt").lines() {
        let mut arguments: Vec<_> = line.split(' ').collect();
        // Options before `--help` are parsed, and nothing is executed.
        arguments.push("--help");
        let output = run(&arguments);
        if !output.status.success() {
            let error = String::from_utf8_lossy(&output.stderr).into_owned();
            refused.push(format!("{line}: {error}"));
        }
    }
    assert!(refused.is_empty(), "{}", refused.join("\n"));
}

#[test]
fn every_metric_and_label_that_dashboards_and_alerts_may_use_exists() {
    for line in text("metrics.txt").lines() {
        let mut words = line.split(' ');
        let name = words.next().unwrap_or_default();
        let metric = names::all().find(|metric| metric.name == name);
        let metric = metric.unwrap_or_else(|| panic!("{name} is gone"));
        for label in words {
            assert!(metric.labels.contains(&label), "{name} has no {label}");
        }
    }
}

#[test]
fn every_alert_has_the_name_that_it_had() {
    let rules = Path::new(ROOT).join("helm/tokengauge/files/rules.yaml");
    let rules = fs::read_to_string(rules).expect("rules");
    for alert in text("alerts.txt").lines() {
        let named = format!("alert: {alert}\n");
        assert!(rules.contains(&named), "{alert}");
    }
}

#[test]
fn every_key_is_taken_or_the_message_names_the_new_one() {
    let config = fixture("every-key.toml");
    let config = config.to_str().expect("UTF-8");
    let output = run(&["check", "--config", config]);
    let error = String::from_utf8_lossy(&output.stderr);
    let unknown: Vec<_> = error
        .lines()
        .filter(|line| line.contains("unknown field"))
        .collect();
    assert_eq!(unknown.len(), GONE_KEYS.len(), "{error}");
    for ((key, new), line) in GONE_KEYS.iter().zip(unknown) {
        assert!(line.contains(&format!("`{key}`")), "{line}");
        assert!(
            line.contains(&format!("`{new}`")),
            "{line} does not name {new}"
        );
    }
}

fn yaml(file: &Path) -> Value {
    let text = fs::read_to_string(file).expect("readable");
    serde_saphyr::from_str(&text).expect("YAML")
}

/// Merges values as Helm does.
fn overlay(values: &mut Value, others: Value) {
    match (values, others) {
        (Value::Object(values), Value::Object(others)) => {
            for (name, other) in others {
                overlay(values.entry(name).or_insert(Value::Null), other);
            }
        }
        (value, other) => *value = other,
    }
}

#[test]
fn values_of_the_chart_are_taken() {
    let schema = Path::new(ROOT).join("helm/tokengauge/values.schema.json");
    let schema: Value =
        serde_json::from_slice(&fs::read(schema).expect("the schema")).expect("JSON");
    let validator = jsonschema::validator_for(&schema).expect("a schema");
    let chart = Path::new(ROOT).join("helm/tokengauge/values.yaml");
    let chart = yaml(&chart);
    let files = fs::read_dir(fixture("values")).expect("values");
    for file in files.map(|file| file.expect("a file").path()) {
        let mut values = chart.clone();
        overlay(&mut values, yaml(&file));
        let errors: Vec<_> = validator
            .iter_errors(&values)
            .map(|e| e.to_string())
            .collect();
        assert!(errors.is_empty(), "{}: {errors:?}", file.display());
    }
}
