//! Writes groups of rules as readable YAML: a rule file, or a `PrometheusRule` for the Prometheus
//! operator.

use super::{Group, Rule, RuleKind};
use crate::label;
use std::fmt::Write;

/// The first line of a generated file.
const HEAD: &str =
    "# Written by `tokengauge print rules`; change the configuration and write it again.\n";

/// A file for `rule_files` of Prometheus.
pub fn file(groups: &[Group]) -> String {
    let mut text = HEAD.to_owned();
    body(&mut text, groups, "");
    text
}

pub fn operator(groups: &[Group]) -> String {
    let mut text = HEAD.to_owned();
    text += "apiVersion: monitoring.coreos.com/v1\nkind: PrometheusRule\nmetadata:\n  name: tokengauge\n  labels:\n    \
             app.kubernetes.io/name: tokengauge\nspec:\n";
    body(&mut text, groups, "  ");
    text
}

/// Values for the chart: the rules and their objectives in their configured form. The chart
/// compares these objectives with its own to detect outdated rules.
pub fn values(groups: &[Group], objectives: &[serde_json::Value]) -> String {
    let mut text = HEAD.to_owned();
    let none = if objectives.is_empty() { " []" } else { "" };
    let _ = writeln!(text, "prometheusRule:\n  objectives:{none}");
    for objective in objectives {
        // JSON is valid YAML.
        let _ = writeln!(text, "    - {objective}");
    }
    body(&mut text, groups, "  ");
    text
}

/// Writes the groups. Writing to a string does not fail, so results are ignored.
fn body(text: &mut String, groups: &[Group], pad: &str) {
    let _ = writeln!(text, "{pad}groups:");
    for group in groups {
        for note in &group.notes {
            let _ = writeln!(text, "{pad}  # {note}");
        }
        let _ = writeln!(text, "{pad}  - name: {}", scalar(&group.name));
        if let Some(interval) = group.interval {
            let _ = writeln!(text, "{pad}    interval: {}", label(interval));
        }
        let _ = writeln!(text, "{pad}    rules:");
        for one in &group.rules {
            rule(text, one, &format!("{pad}      "));
        }
    }
}

fn rule(text: &mut String, rule: &Rule, pad: &str) {
    let _ = match &rule.kind {
        RuleKind::Record(name) => writeln!(text, "{pad}- record: {name}"),
        RuleKind::Alert(name, _) => writeln!(text, "{pad}- alert: {name}"),
    };
    expression(text, &rule.expr, pad);
    if let RuleKind::Alert(_, held) = rule.kind
        && !held.is_zero()
    {
        let _ = writeln!(text, "{pad}  for: {}", label(held));
    }
    for (key, pairs) in [("labels", &rule.labels), ("annotations", &rule.annotations)] {
        if !pairs.is_empty() {
            let _ = writeln!(text, "{pad}  {key}:");
        }
        for (name, value) in pairs {
            let _ = writeln!(text, "{pad}    {name}: {}", scalar(value));
        }
    }
}

/// Writes a literal block, because PromQL is full of quotes and braces.
fn expression(text: &mut String, expr: &str, pad: &str) {
    let _ = writeln!(text, "{pad}  expr: |-");
    for line in expr.lines() {
        let _ = writeln!(text, "{pad}    {line}");
    }
}

/// A YAML string: plain if it is unambiguous, otherwise in double quotes with JSON's escapes, which
/// are valid YAML.
fn scalar(value: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
    let word = value.starts_with(|c: char| c.is_ascii_alphabetic()) && value.chars().all(plain);
    let taken = ["true", "false", "null", "yes", "no", "on", "off", "y", "n"];
    if word && !taken.contains(&value.to_ascii_lowercase().as_str()) {
        return value.to_owned();
    }
    serde_json::Value::from(value).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_cannot_be_misread_is_plain() {
        assert_eq!(scalar("page"), "page");
        assert_eq!(scalar("docs/runbooks.md"), "docs/runbooks.md");
        for text in [
            "no",
            "True",
            "1h",
            "a: b",
            "{{ $value }}",
            "# x",
            "",
            "a\"b\n",
        ] {
            assert_eq!(scalar(text), serde_json::Value::from(text).to_string());
        }
    }
}
