//! Reads the text of a configuration: a TOML file, or the `config` of the Helm chart's values.

use super::{Invalid, Problem};
use serde::Deserialize;
use serde::de::IgnoredAny;
use std::collections::BTreeMap;
use std::path::Path;

/// The configuration if no file is given: a copy of the example.
pub const BUILT_IN: &str = include_str!("../../../proxy-config.toml");

/// Top-level names of the chart's values.
const VALUES: &[&str] = &[
    "admin",
    "check",
    "config",
    "dashboards",
    "env",
    "envFrom",
    "existingConfigMap",
    "extraObjects",
    "fullnameOverride",
    "gateway",
    "global",
    "image",
    "imagePullSecrets",
    "kubeVersion",
    "labels",
    "logLevel",
    "mode",
    "nameOverride",
    "networkPolicy",
    "podMonitor",
    "podSecurityContext",
    "prometheusRule",
    "secrets",
    "securityContext",
    "serviceAccount",
    "serviceMonitor",
    "sidecar",
    "tests",
    "tls",
];

#[derive(Deserialize)]
struct Values {
    #[serde(default)]
    config: Option<Written>,
    #[serde(default, rename = "existingConfigMap")]
    existing_config_map: Option<String>,
    #[serde(flatten)]
    others: BTreeMap<String, IgnoredAny>,
}

/// The configuration as a TOML string or as YAML tables.
#[derive(Deserialize)]
#[serde(untagged)]
enum Written {
    Text(String),
    Tables(toml::Table),
}

/// Returns a file's text as TOML. A file that ends in `.yaml` or `.yml` is read as values of the chart. Its `config`,
/// if it is a string, keeps its line numbers. Without a `config`, the text is [`BUILT_IN`], as in the chart.
pub fn text(path: &Path) -> Result<String, Invalid> {
    let text = std::fs::read_to_string(path).map_err(|error| {
        let reason = format!("cannot be read: {error}; name another file with --config");
        invalid(path, reason)
    })?;
    if !is_values(path) {
        return Ok(text);
    }
    of_values(&text).map_err(|error| invalid(path, error.to_string()))
}

pub fn is_values(path: &Path) -> bool {
    path.extension()
        .is_some_and(|end| end == "yaml" || end == "yml")
}

/// Why a file of values has no usable configuration.
#[derive(Debug, thiserror::Error)]
enum ValuesError {
    #[error("is not a file of values for the chart: {0}")]
    Unreadable(#[from] serde_saphyr::Error),
    #[error("config: {0}")]
    NoToml(#[from] toml::ser::Error),
    #[error("has no `config`, and `{0}` is not a value of the chart helm/tokengauge")]
    Unknown(String),
    #[error(
        "existingConfigMap: the configuration is in the ConfigMap `{0}`, and not in this file: \
         name the file that the ConfigMap is made of"
    )]
    Elsewhere(String),
}

fn of_values(text: &str) -> Result<String, ValuesError> {
    // A file with only comments has no values, as for `helm -f`.
    let values: Option<Values> = serde_saphyr::from_str(text)?;
    let Some(values) = values else {
        return Ok(BUILT_IN.to_owned());
    };
    match values.config {
        Some(Written::Text(config)) if !config.is_empty() => {
            let above = text.lines().take_while(|line| !line.starts_with("config:"));
            return Ok("\n".repeat(above.count() + 1) + &config);
        }
        Some(Written::Tables(tables)) if !tables.is_empty() => {
            return Ok(toml::to_string(&tables)?);
        }
        _ => {}
    }
    if let Some(name) = values.existing_config_map.filter(|name| !name.is_empty()) {
        return Err(ValuesError::Elsewhere(name));
    }
    let unknown = |name: &String| !VALUES.contains(&name.as_str());
    match values.others.into_keys().find(unknown) {
        Some(name) => Err(ValuesError::Unknown(name)),
        None => Ok(BUILT_IN.to_owned()),
    }
}

fn invalid(path: &Path, reason: String) -> Invalid {
    Invalid {
        origin: path.display().to_string(),
        problems: vec![Problem {
            reason,
            ..Problem::default()
        }],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;

    const ENGINE: &str =
        "[[upstream]]\nname = \"e\"\nurl = \"http://h\"\n[[route]]\nupstream = \"e\"\n";

    fn values(config: &str) -> String {
        let indented: String = config.lines().map(|line| format!("  {line}\n")).collect();
        format!("mode: gateway\nconfig: |\n{indented}image:\n  tag: x\n")
    }

    #[test]
    fn a_text_in_values_keeps_its_lines() {
        let text = of_values(&values(&ENGINE.replace("http:", "nothing:"))).expect("a text");
        let problems = Config::parse(&text, "values.yaml")
            .expect_err("no URL")
            .problems;
        // The fifth line of `mode`, `config`, `[[upstream]]`, `name`, `url`.
        assert_eq!(problems[0].line, Some(5), "{problems:?}");
    }

    #[test]
    fn tables_of_values_are_the_same_configuration() {
        let yaml = "config:\n  drain_timeout: 1m\n  upstream: [{name: e, url: 'http://h', max_idle: 5}]\n  \
                    route: [{upstream: e}]\n  slo: [{name: s, objective: 0.5, stalls: {at_most: 0}}]\n";
        let config = Config::parse(&of_values(yaml).expect("a text"), "v").expect("valid");
        assert_eq!(config.drain_timeout.as_secs(), 60);
        assert_eq!(config.routes[0].upstream.max_idle, 5);
        assert_eq!(&*config.slos[0].name, "s");
    }

    #[test]
    fn values_without_a_configuration_are_those_of_the_built_in_one() {
        for yaml in [
            "mode: gateway\n",
            "config: \"\"\n",
            "config: {}\n",
            "config:\nexistingConfigMap: \"\"\n",
            "# Nothing.\n",
            "",
        ] {
            assert_eq!(of_values(yaml).expect(yaml), BUILT_IN, "{yaml}");
        }
        for (yaml, reason) in [
            ("config: [", "is not a file"),
            ("- config\n", "is not a file"),
            ("conifg: x = 1\n", "`conifg` is not a value"),
            (
                "tokengauge: { config: x = 1 }\n",
                "`tokengauge` is not a value",
            ),
            ("existingConfigMap: ours\n", "the ConfigMap `ours`"),
        ] {
            let error = of_values(yaml).expect_err(yaml).to_string();
            assert!(error.contains(reason), "{error}");
        }
    }

    #[test]
    fn the_values_are_those_of_the_charts_schema() {
        let schema = include_str!("../../../helm/tokengauge/values.schema.json");
        let schema: serde_json::Value = serde_json::from_str(schema).expect("JSON");
        let mut names: Vec<_> = schema["properties"]
            .as_object()
            .expect("a table")
            .keys()
            .collect();
        names.sort_unstable();
        assert_eq!(names, VALUES);
    }
}
