//! Reads the text of a configuration: a TOML file, or the `config` of the chart's values.

use super::{Invalid, Problem};
use serde::Deserialize;
use std::path::Path;

/// The part of the chart's values that holds the configuration.
#[derive(Deserialize)]
struct Values {
    #[serde(default)]
    config: Option<Written>,
}

/// As text, or as tables of YAML.
#[derive(Deserialize)]
#[serde(untagged)]
enum Written {
    Text(String),
    Tables(toml::Table),
}

/// The text of a file as TOML. A file that ends in `.yaml` or `.yml` is taken for values
/// of the chart; a text in it keeps its line numbers.
pub(crate) fn text(path: &Path) -> Result<String, Invalid> {
    let text = std::fs::read_to_string(path).map_err(|error| {
        let reason = format!("cannot be read: {error}; name another file with --config");
        invalid(path, reason)
    })?;
    let yaml = path
        .extension()
        .is_some_and(|end| end == "yaml" || end == "yml");
    if !yaml {
        return Ok(text);
    }
    of_values(&text).map_err(|error| invalid(path, error.to_string()))
}

/// Why a file of values has no usable configuration.
#[derive(Debug, thiserror::Error)]
enum ValuesError {
    #[error("is no file of the chart's values: {0}")]
    Unreadable(#[from] serde_saphyr::Error),
    #[error("config: {0}")]
    NoToml(#[from] toml::ser::Error),
    #[error("has no `config`: with these values the chart runs the built-in configuration")]
    Missing,
}

fn of_values(text: &str) -> Result<String, ValuesError> {
    let values: Values = serde_saphyr::from_str(text)?;
    match values.config {
        Some(Written::Text(config)) if !config.trim().is_empty() => {
            let above = text.lines().take_while(|line| !line.starts_with("config:"));
            Ok("\n".repeat(above.count() + 1) + &config)
        }
        Some(Written::Tables(tables)) if !tables.is_empty() => Ok(toml::to_string(&tables)?),
        _ => Err(ValuesError::Missing),
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
    use crate::config::Config;

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
        // `mode`, `config`, `[[upstream]]`, `name`, `url`.
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
    fn values_without_a_configuration_say_so() {
        for yaml in ["mode: gateway\n", "config: \"\"\n", "config: {}\n"] {
            assert!(
                of_values(yaml)
                    .expect_err(yaml)
                    .to_string()
                    .contains("built-in")
            );
        }
        assert!(of_values("config: [").is_err());
    }
}
