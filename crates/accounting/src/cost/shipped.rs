//! The built-in list prices.

use super::tariff::Tariff;
use parking_lot::Mutex;
use serde::Deserialize;
use std::sync::{Arc, LazyLock};
use std::time::SystemTime;
use tokengauge_core::call::{CostUnavailable, UsageDetails};
use tokengauge_core::hash::FastMap;
use tokengauge_core::pattern::Pattern;
use tokengauge_core::time::whole_seconds_since_1970;

pub const TABLE: &str = include_str!("prices.toml");

/// The day on which the prices were read, such as `2026-01-31`.
pub fn checked_on() -> Option<&'static str> {
    let line = TABLE
        .lines()
        .find_map(|line| line.strip_prefix("checked = "));
    line.map(|day| day.trim_matches('"'))
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct PriceEntry {
    /// The hosts that the entry applies to; empty for any.
    hosts: Vec<String>,
    /// The prefix that gateways put before a model name for this provider.
    vendor: Option<String>,
    models: Vec<Pattern>,
    pub(super) above: Option<u64>,
    /// Half-open ranges of UTC hours in which the entry applies; empty for any.
    utc_hours: Vec<(u64, u64)>,
    pub(super) tariff: Tariff,
    pub(super) extras: Extras,
    /// Hosts that process calls in a region, at the regional price.
    regional_hosts: Vec<Pattern>,
}

/// Prices of anything that is not text or is billed apart from tokens. If a call needs a missing
/// price, its cost is unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Extras {
    /// US dollars per million input tokens of audio.
    audio_input: Option<f64>,
    cached_audio_input: Option<f64>,
    /// US dollars per million output tokens of audio.
    audio_output: Option<f64>,
    /// US dollars per million output tokens of images and video.
    image_output: Option<f64>,
    /// US dollars per thousand web searches.
    search: Option<f64>,
    /// The factor on all token prices if a region processes the call.
    regional: Option<f64>,
}

impl Extras {
    /// The cost of a call whose tokens would cost `usd` if all of them were text.
    pub(super) fn cost(
        &self,
        usd: f64,
        tariff: &Tariff,
        details: &UsageDetails,
        is_regional: bool,
    ) -> Result<f64, CostUnavailable> {
        let input = tariff.input.unwrap_or(0.0);
        let output = tariff.output.unwrap_or(0.0);
        let cached = details.cached_audio_input.unwrap_or(0);
        let fresh = details.audio_input.map(|all| all.saturating_sub(cached));
        let mut tokens_usd = usd;
        for (tokens, price, of_text) in [
            (fresh, self.audio_input, input),
            (
                details.cached_audio_input,
                self.cached_audio_input,
                tariff.cached_input.unwrap_or(input),
            ),
            (details.audio_output, self.audio_output, output),
            (details.image_output, self.image_output, output),
        ] {
            let tokens = tokens.unwrap_or(0) as f64;
            if tokens > 0.0 {
                let price = price.ok_or(CostUnavailable::Modality)?;
                tokens_usd += tokens * (price - of_text) / 1e6;
            }
        }
        if is_regional {
            tokens_usd *= self.regional.ok_or(CostUnavailable::Region)?;
        }
        let is_uncounted = details.searched == Some(true) && details.searches.is_none();
        if details.other_tools > Some(0) || is_uncounted {
            return Err(CostUnavailable::HostedTools);
        }
        match details.searches.unwrap_or(0) {
            0 => Ok(tokens_usd),
            searches => {
                let price = self.search.ok_or(CostUnavailable::HostedTools)?;
                Ok(tokens_usd + searches as f64 * price / 1e3)
            }
        }
    }
}

/// A gateway that sells at the list prices of its vendors.
const GATEWAY: &str = "openrouter.ai";

impl PriceEntry {
    fn is_for(&self, host: &str, model: &str) -> bool {
        let is_there = self.hosts.is_empty() || self.hosts.iter().any(|known| known == host);
        let named = |name: &str| self.models.iter().any(|known| known.matches(name));
        (is_there && named(model))
            || (is_there || host == GATEWAY) && self.unprefixed(model).is_some_and(|m| named(&m))
    }

    /// The vendor's spelling of a model name in the form `vendor/name`. Gateways write
    /// `claude-opus-4.8` for `claude-opus-4-8`.
    fn unprefixed(&self, model: &str) -> Option<String> {
        let vendor = self.vendor.as_deref()?;
        let name = model.strip_prefix(vendor)?.strip_prefix('/')?;
        let dots = if vendor == "anthropic" { "-" } else { "." };
        Some(name.replace('.', dots))
    }

    pub(super) fn is_regional(&self, host: &str) -> bool {
        self.regional_hosts.iter().any(|known| known.matches(host))
    }

    pub(super) fn is_at(&self, time: SystemTime) -> bool {
        let hour = whole_seconds_since_1970(time) / 3600 % 24;
        let within = |(from, to): &(u64, u64)| (*from..*to).contains(&hour);
        self.utc_hours.is_empty() || self.utc_hours.iter().any(within)
    }
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
    vendor: Option<String>,
    search: Option<f64>,
    regional: Option<f64>,
    #[serde(default)]
    regional_hosts: Vec<Pattern>,
    prices: Vec<ListedPrice>,
}

#[derive(Deserialize)]
struct ListedPrice {
    models: Vec<Pattern>,
    above: Option<u64>,
    #[serde(default)]
    utc_hours: Vec<(u64, u64)>,
    input: Option<f64>,
    cached_input: Option<f64>,
    cache_write: Option<f64>,
    cache_write_1h: Option<f64>,
    output: Option<f64>,
    reasoning: Option<f64>,
    batch: Option<f64>,
    audio_input: Option<f64>,
    cached_audio_input: Option<f64>,
    audio_output: Option<f64>,
    image_output: Option<f64>,
}

pub(super) fn listed() -> &'static [PriceEntry] {
    static LISTED: LazyLock<Vec<PriceEntry>> = LazyLock::new(|| {
        let table: Table = toml::from_str(TABLE).expect("a test reads the table");
        let lines = table.provider.into_iter().flat_map(|provider| {
            let (hosts, vendor) = (provider.hosts, provider.vendor);
            let (search, regional) = (provider.search, provider.regional);
            let regional_hosts = provider.regional_hosts;
            let listed = move |line: ListedPrice| PriceEntry {
                hosts: hosts.clone(),
                vendor: vendor.clone(),
                utc_hours: line.utc_hours,
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
                extras: Extras {
                    audio_input: line.audio_input,
                    cached_audio_input: line.cached_audio_input,
                    audio_output: line.audio_output,
                    image_output: line.image_output,
                    search,
                    regional,
                },
                regional_hosts: regional_hosts.clone(),
            };
            provider.prices.into_iter().map(listed)
        });
        lines.collect()
    });
    &LISTED
}

type Lines = Arc<[&'static PriceEntry]>;

/// The limit for remembered pairs of a host and a model. Agents name the models, so their number is
/// not bounded otherwise.
const REMEMBERED: usize = 1024;

#[derive(Default)]
struct KnownLines {
    hosts: FastMap<String, FastMap<String, Option<Lines>>>,
    pairs: usize,
}

impl KnownLines {
    fn get(&self, host: &str, model: &str) -> Option<&Option<Lines>> {
        self.hosts.get(host)?.get(model)
    }

    fn insert(&mut self, host: &str, model: &str, lines: Option<Lines>) {
        if self.pairs >= REMEMBERED {
            *self = KnownLines::default();
        }
        let models = self.hosts.entry(host.to_owned()).or_default();
        if models.insert(model.to_owned(), lines).is_none() {
            self.pairs += 1;
        }
    }
}

static KNOWN: LazyLock<Mutex<KnownLines>> = LazyLock::new(Mutex::default);

/// The entries for this model at this host, in the order of the table; `None` if there are none.
/// Results are cached, because hundreds of patterns must be compared and a process sees few models.
pub(super) fn lines_for(host: &str, model: &str) -> Option<Lines> {
    if let Some(lines) = KNOWN.lock().get(host, model) {
        return lines.clone();
    }
    let lines = listed().iter().filter(|line| line.is_for(host, model));
    let lines: Vec<_> = lines.collect();
    let lines = (!lines.is_empty()).then(|| Lines::from(lines));
    KNOWN.lock().insert(host, model, lines.clone());
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_remembered_is_right_and_has_an_end() {
        for number in 0..2 * REMEMBERED {
            let host = ["api.openai.com", "engine"][number % 2];
            assert!(lines_for(host, &format!("made-up-{number}")).is_none());
            let known = KNOWN.lock();
            let pairs: usize = known.hosts.values().map(|models| models.len()).sum();
            assert!(pairs <= REMEMBERED);
            assert_eq!(known.pairs, pairs);
        }
        for _ in 0..2 {
            let lines = lines_for("api.openai.com", "gpt-4.1");
            assert!(lines.is_some_and(|lines| !lines.is_empty()));
        }
    }

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
                let hides = |earlier: &&PriceEntry| {
                    let same_hosts = earlier.hosts.is_empty() || earlier.hosts == line.hosts;
                    let always = earlier.utc_hours.is_empty();
                    same_hosts
                        && always
                        && earlier.above <= line.above
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
        assert_eq!(checked_on(), Some(checked));
        for provider in table["provider"].as_array().expect("providers") {
            let source = provider["source"].as_str().expect("a source");
            assert!(source.starts_with("https://"), "{source}");
        }
    }
}
