//! The list prices that the binary carries.

use super::tariff::Tariff;
use crate::slo::Pattern;
use serde::Deserialize;
use std::sync::LazyLock;

/// The table, as it is in the source tree.
pub const TABLE: &str = include_str!("prices.toml");

/// One line of the table.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Listed {
    /// Hosts that it is for; any where there are none.
    pub(super) hosts: Vec<String>,
    pub(super) models: Vec<Pattern>,
    pub(super) above: Option<u64>,
    pub(super) tariff: Tariff,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    #[serde(rename = "checked")]
    _checked: String,
    provider: Vec<Provider>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Provider {
    #[serde(rename = "name")]
    _name: String,
    #[serde(rename = "source")]
    _source: String,
    #[serde(default)]
    hosts: Vec<String>,
    prices: Vec<Line>,
}

#[derive(Deserialize)]
struct Line {
    models: Vec<Pattern>,
    above: Option<u64>,
    input: Option<f64>,
    cached_input: Option<f64>,
    cache_write: Option<f64>,
    cache_write_1h: Option<f64>,
    output: Option<f64>,
    reasoning: Option<f64>,
    batch: Option<f64>,
}

/// Every line, in the order of the table.
pub(super) fn listed() -> &'static [Listed] {
    static LISTED: LazyLock<Vec<Listed>> = LazyLock::new(|| {
        let table: Table = toml::from_str(TABLE).expect("a test reads the table");
        let lines = table.provider.into_iter().flat_map(|provider| {
            let hosts = provider.hosts;
            let listed = move |line: Line| Listed {
                hosts: hosts.clone(),
                models: line.models,
                above: line.above,
                tariff: Tariff {
                    input: line.input,
                    cached_input: line.cached_input,
                    cache_write: line.cache_write,
                    cache_write_1h: line.cache_write_1h,
                    output: line.output,
                    reasoning: line.reasoning,
                    batch: line.batch,
                },
            };
            provider.prices.into_iter().map(listed)
        });
        lines.collect()
    });
    &LISTED
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_has_a_usable_price_and_no_model_is_hidden_by_an_earlier_line() {
        let listed = listed();
        assert!(listed.len() > 50, "{}", listed.len());
        for (at, line) in listed.iter().enumerate() {
            assert!(line.tariff.input.is_some(), "{line:?}");
            let prices = line.tariff.prices();
            let mut known = prices.iter().filter_map(|(_, price)| *price);
            assert!(
                known.all(|price| price > 0.0 && price < 1_000.0),
                "{line:?}"
            );
            let cheaper =
                |part: Option<f64>| part.is_none_or(|part| Some(part) < line.tariff.input);
            assert!(cheaper(line.tariff.cached_input), "{line:?}");
            for model in &line.models {
                let name = model.as_str().replace('*', "26-01-01");
                let hides = |earlier: &&Listed| {
                    earlier.above <= line.above
                        && earlier.models.iter().any(|other| other.matches(&name))
                };
                let hidden = listed[..at].iter().find(hides);
                assert_eq!(hidden, None, "{model} never gets its own price");
            }
        }
    }

    #[test]
    fn the_table_says_when_and_where_its_prices_were_read() {
        let table: toml::Table = toml::from_str(TABLE).expect("a table");
        let checked = table["checked"].as_str().expect("a date");
        humantime::parse_rfc3339(&format!("{checked}T00:00:00Z")).expect("a date");
        for provider in table["provider"].as_array().expect("providers") {
            let source = provider["source"].as_str().expect("a source");
            assert!(source.starts_with("https://"), "{source}");
        }
    }
}
