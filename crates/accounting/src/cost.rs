//! What calls cost. The first available source wins: a configured price, the hourly price of
//! self-hosted GPUs, the cost that the provider reports in the response, and the built-in list
//! prices. A call without a price has an unknown cost, which is not 0.

pub mod budget;
mod gpu;
mod shipped;
mod tariff;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::SystemTime;
use tokengauge_core::call::{CallRecord, CostSource, CostUnavailable, Dialect, Outcome, Usage};
use tokengauge_core::pattern::Pattern;

pub use gpu::{GpuPrice, GpuShare, Gpus};
pub use shipped::{TABLE, checked_on as prices_checked_on};
pub use tariff::{Tariff, Tier};

#[derive(Clone, Debug, PartialEq)]
pub struct Price {
    pub model: Pattern,
    /// The upstream that the price applies to; `None` for any.
    pub upstream: Option<Arc<str>>,
    /// The price applies only to calls with more input tokens than this.
    pub above: Option<u64>,
    pub tariff: Tariff,
}

/// Costs of a call that are known without a price per token, in US dollars.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DirectCosts {
    pub reported: Option<f64>,
    pub gpu: Option<f64>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct PriceList {
    /// The first price that matches wins.
    pub configured: Vec<Price>,
    pub shipped: bool,
    pub gpus: HashMap<Arc<str>, GpuPrice>,
}

impl Default for PriceList {
    fn default() -> Self {
        PriceList {
            configured: Vec::new(),
            shipped: true,
            gpus: HashMap::new(),
        }
    }
}

#[derive(Clone, Debug)]
pub struct Prices {
    configured: Vec<Price>,
    shipped: bool,
    gpus: HashMap<Arc<str>, Arc<Gpus>>,
}

impl Default for Prices {
    fn default() -> Self {
        Arc::unwrap_or_clone(Prices::new(&PriceList::default()))
    }
}

impl Prices {
    pub fn new(list: &PriceList) -> Arc<Prices> {
        let gpus = list.gpus.iter();
        let gpus = gpus.map(|(upstream, price)| (Arc::clone(upstream), Gpus::new(*price)));
        Arc::new(Prices {
            configured: list.configured.clone(),
            shipped: list.shipped,
            gpus: gpus.collect(),
        })
    }

    pub fn all_gpus(&self) -> &HashMap<Arc<str>, Arc<Gpus>> {
        &self.gpus
    }

    pub fn gpus(&self, upstream: &str) -> Option<&Arc<Gpus>> {
        self.gpus.get(upstream)
    }

    /// Takes over the state of `before`. GPUs with an unchanged price keep their state, so that
    /// calls in flight and new calls share their time.
    pub fn carry_over(&self, before: &Prices) -> Arc<Prices> {
        let mut prices = self.clone();
        for (upstream, gpus) in &mut prices.gpus {
            let known = before.gpus.get(upstream);
            let same = |known: &&Arc<Gpus>| known.usd_per_hour() == gpus.usd_per_hour();
            if let Some(known) = known.filter(same) {
                *gpus = Arc::clone(known);
            }
        }
        Arc::new(prices)
    }

    /// The cost of the call in its service tier, in US dollars, and the source of that price.
    ///
    /// # Errors
    /// Why the cost is unknown.
    pub fn cost(
        &self,
        record: &CallRecord,
        known: DirectCosts,
    ) -> Result<(f64, CostSource), CostUnavailable> {
        let tier = Tier::of(record.service_tier.as_deref());
        let tokens = billed(record);
        let models = [record.model.as_deref(), record.model_requested.as_deref()];
        let models = || models.iter().copied().flatten();
        let of = |find: &dyn Fn(&str) -> Option<Tariff>| models().find_map(find);
        let source = |source| move |cost| (cost, source);
        if let Some(tariff) = of(&|model| self.configured(record, model, &tokens)) {
            return tariff
                .cost(&tokens, tier)
                .map(source(CostSource::Configured));
        }
        if self.gpus.contains_key(record.upstream.as_str()) {
            let usd = known.gpu.ok_or(CostUnavailable::NotBilled)?;
            return Ok((usd, CostSource::Gpu));
        }
        if let Some(usd) = known.reported {
            return Ok((usd, CostSource::Reported));
        }
        if is_refused(record.outcome) {
            return Err(CostUnavailable::NotBilled);
        }
        let host = host(record);
        let entry = models().find_map(|model| listed(record, host, model, &tokens));
        let entry = entry.filter(|_| self.shipped);
        let entry = entry.ok_or(CostUnavailable::NoPrice)?;
        let usd = entry.tariff.cost(&tokens, tier)?;
        let details = &tokens.details;
        let is_regional = details.regional == Some(true) || entry.is_regional(host);
        let usd = entry
            .extras
            .cost(usd, &entry.tariff, details, is_regional)?;
        Ok((usd, CostSource::List))
    }

    /// The cost that the call would have had with `cached` input tokens from a cache; `None` unless
    /// its price is per token.
    pub fn cost_if_cached(&self, record: &CallRecord, cached: u64) -> Option<f64> {
        let mut record = has_token_price(record).then(|| record.clone())?;
        let reported = &mut record.tokens.reported;
        let rest = reported.input?.saturating_sub(cached);
        // A token that comes from the cache is not written to it.
        reported.cache_write = reported.cache_write.map(|written| written.min(rest));
        reported.cached_input = Some(cached);
        let cost = self.cost(&record, DirectCosts::default());
        cost.ok().map(|(usd, _)| usd)
    }

    /// The prices of input tokens in US dollars per token: not cached, and read from a cache. `None`
    /// unless the price is per token. Prices of long prompts and of service tiers are left out.
    pub fn input_prices(
        &self,
        upstream: &str,
        endpoint: Option<&str>,
        model: &str,
        at: SystemTime,
    ) -> Option<(f64, f64)> {
        let of_upstream = |price: &&Price| {
            let wanted = price.upstream.as_deref();
            wanted.is_none_or(|wanted| wanted == upstream)
                && price.model.matches(model)
                && price.above.is_none()
        };
        let configured = self.configured.iter().find(of_upstream);
        let tariff = match configured {
            Some(price) => price.tariff,
            None if !self.shipped || self.gpus.contains_key(upstream) => return None,
            None => {
                let lines = shipped::lines_for(host_of(endpoint), model)?;
                let mut lines = lines.iter();
                let line = lines.find(|line| line.is_at(at) && line.above.is_none())?;
                line.tariff
            }
        };
        let input = tariff.input?;
        let cached = tariff.cached_input.unwrap_or(input);
        Some((input / 1e6, cached / 1e6))
    }

    /// The cost of the output tokens that repeat earlier text; `None` unless the price is per token.
    pub fn cost_of_repetition(&self, record: &CallRecord) -> Option<f64> {
        let repetition = record.repetition.as_deref()?;
        let mut shorter = has_token_price(record).then(|| record.clone())?;
        let tokens = &mut shorter.tokens;
        let counted = tokens.normalised.output?.max(1) as f64;
        let share = (repetition.tokens as f64 / counted).min(1.0);
        for output in [&mut tokens.reported.output, &mut tokens.normalised.output] {
            *output = output.map(|all| all - (all as f64 * share).round() as u64);
        }
        let rest = tokens.reported.output.or(tokens.normalised.output);
        let reasoning = &mut tokens.reported.reasoning;
        *reasoning = reasoning.map(|reasoning| reasoning.min(rest.unwrap_or(reasoning)));
        let (cost, _) = self.cost(&shorter, DirectCosts::default()).ok()?;
        record.cost_usd.map(|all| (all - cost).max(0.0))
    }

    fn configured(&self, record: &CallRecord, model: &str, tokens: &Usage) -> Option<Tariff> {
        let matches = |price: &&Price| {
            let upstream = price.upstream.as_deref();
            upstream.is_none_or(|upstream| upstream == record.upstream)
                && price.model.matches(model)
                && long_enough(price.above, tokens)
        };
        self.configured
            .iter()
            .find(matches)
            .map(|price| price.tariff)
    }
}

fn has_token_price(record: &CallRecord) -> bool {
    let source = record.cost_source;
    matches!(source, Some(CostSource::List | CostSource::Configured))
}

fn host(record: &CallRecord) -> &str {
    host_of(record.endpoint.as_deref())
}

fn host_of(endpoint: Option<&str>) -> &str {
    let endpoint = endpoint.unwrap_or_default();
    endpoint.rsplit_once(':').map_or(endpoint, |(host, _)| host)
}

fn listed(
    record: &CallRecord,
    host: &str,
    model: &str,
    tokens: &Usage,
) -> Option<&'static shipped::PriceEntry> {
    let lines = shipped::lines_for(host, model)?;
    let time = record.started_at.time();
    let matches =
        |line: &&&shipped::PriceEntry| line.is_at(time) && long_enough(line.above, tokens);
    lines.iter().find(matches).copied()
}

fn long_enough(above: Option<u64>, tokens: &Usage) -> bool {
    above.is_none_or(|above| tokens.input.is_some_and(|input| input > above))
}

fn is_refused(outcome: Outcome) -> bool {
    matches!(
        outcome,
        Outcome::HttpError | Outcome::Rejected | Outcome::Unreachable
    )
}

/// The billed tokens, from the provider or otherwise from our own count. A call that failed midway
/// is billed for the tokens that it streamed. A refused call is not billed.
fn billed(record: &CallRecord) -> Usage {
    let (reported, ours) = (&record.tokens.reported, &record.tokens.normalised);
    let refused = is_refused(record.outcome);
    let details = reported.details;
    // A usage of zeros for an answer with text is a placeholder of the server, so the billed tokens
    // are unknown. An answer with only a tool call can come from a program, which costs no tokens.
    let text = ours.answer.unwrap_or(0) + ours.reasoning.unwrap_or(0);
    let is_filled_in = reported.output == Some(0) && text > 0;
    if is_filled_in && reported.input == Some(0) {
        return Usage::default();
    }
    let accepted = record.status.is_some_and(|status| status < 300);
    let vectors = accepted && matches!(record.dialect, Dialect::Embeddings | Dialect::Rerank);
    Usage {
        input: details
            .billed_input
            .or(reported.input)
            .or(ours.input.filter(|_| !refused)),
        output: details
            .billed_output
            .or(reported.output.filter(|_| !is_filled_in))
            .or(ours.output)
            .or(vectors.then_some(0)),
        reasoning: reported
            .reasoning
            .or(ours.reasoning.filter(|_| reported.output.is_none())),
        ..*reported
    }
}

#[cfg(test)]
mod tests;
