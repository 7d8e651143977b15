//! Prices per million tokens by kind, and the cost of a call.

use serde::Deserialize;
use tokengauge_core::call::{CostUnavailable, Usage};

const MILLION: f64 = 1e6;

/// US dollars per million tokens. If a kind has no price, the price of the kind that contains it
/// applies: `input` for cached and written input, `output` for reasoning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tariff {
    /// Input that is neither read from a cache nor written to one.
    pub input: Option<f64>,
    pub cached_input: Option<f64>,
    pub cache_write: Option<f64>,
    /// The part of the cache writes that is kept for an hour.
    pub cache_write_1h: Option<f64>,
    pub output: Option<f64>,
    pub reasoning: Option<f64>,
    pub batch: Option<f64>,
}

/// The service tier of a call, as far as it changes the price.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tier {
    #[default]
    Standard,
    /// Low priority: `flex` or `batch`.
    Batch,
    /// A tier with an unknown price, such as `priority`.
    Other,
}

impl Tier {
    /// The tier with this name in the response or the request. Case is ignored.
    pub fn of(name: Option<&str>) -> Tier {
        const STANDARD: &[&str] = &["auto", "default", "standard", "standard_only", "on_demand"];
        const BATCH: &[&str] = &["flex", "batch", "on_demand_flex"];
        let Some(name) = name else {
            return Tier::Standard;
        };
        let is_of = |names: &[&str]| names.iter().any(|known| known.eq_ignore_ascii_case(name));
        match (is_of(STANDARD), is_of(BATCH)) {
            (true, _) => Tier::Standard,
            (_, true) => Tier::Batch,
            _ => Tier::Other,
        }
    }
}

impl Tariff {
    pub fn prices(&self) -> [(&'static str, Option<f64>); 7] {
        [
            ("input", self.input),
            ("cached_input", self.cached_input),
            ("cache_write", self.cache_write),
            ("cache_write_1h", self.cache_write_1h),
            ("output", self.output),
            ("reasoning", self.reasoning),
            ("batch", self.batch),
        ]
    }

    /// The cost of a call with these tokens.
    ///
    /// # Errors
    /// Returns an error if the tier has no price, or the count of tokens with a price is unknown.
    pub fn cost(&self, tokens: &Usage, tier: Tier) -> Result<f64, CostUnavailable> {
        let factor = match tier {
            Tier::Standard => 1.0,
            Tier::Batch => self.batch.ok_or(CostUnavailable::ServiceTier)?,
            Tier::Other => return Err(CostUnavailable::ServiceTier),
        };
        let usd = self.standard(tokens).ok_or(CostUnavailable::NoTokens)?;
        Ok(usd * factor)
    }

    fn standard(&self, tokens: &Usage) -> Option<f64> {
        let input = match self.input {
            None => 0.0,
            Some(price) => self.input_cost(price, tokens)?,
        };
        let output = match self.output {
            None => 0.0,
            Some(price) => {
                let all = tokens.output?;
                let reasoning = tokens.reasoning.unwrap_or(0).min(all);
                of(all - reasoning, price) + of(reasoning, self.reasoning.unwrap_or(price))
            }
        };
        Some(input + output)
    }

    fn input_cost(&self, price: f64, tokens: &Usage) -> Option<f64> {
        let all = tokens.input?;
        let cached = tokens.cached_input.unwrap_or(0).min(all);
        let written = tokens.cache_write.unwrap_or(0).min(all - cached);
        let hour = tokens.cache_write_1h.unwrap_or(0).min(written);
        let write = self.cache_write.unwrap_or(price);
        Some(
            of(all - cached - written, price)
                + of(cached, self.cached_input.unwrap_or(price))
                + of(written - hour, write)
                + of(hour, self.cache_write_1h.unwrap_or(write)),
        )
    }
}

fn of(tokens: u64, price: f64) -> f64 {
    tokens as f64 * price / MILLION
}

#[cfg(test)]
mod tests {
    use super::*;

    const TARIFF: Tariff = Tariff {
        input: Some(3.0),
        cached_input: Some(0.3),
        cache_write: Some(3.75),
        cache_write_1h: Some(6.0),
        output: Some(15.0),
        reasoning: None,
        batch: Some(0.5),
    };
    fn tokens() -> Usage {
        Usage {
            input: Some(10_000),
            cached_input: Some(6_000),
            cache_write: Some(1_000),
            output: Some(500),
            reasoning: Some(200),
            ..Usage::default()
        }
    }

    fn close(one: Result<f64, CostUnavailable>, other: f64) {
        let one = one.expect("a cost");
        assert!((one - other).abs() < 1e-12, "{one} {other}");
    }

    #[test]
    fn each_kind_of_token_has_its_price() {
        let uncached = 3_000.0 * 3.0 + 6_000.0 * 0.3 + 1_000.0 * 3.75;
        close(
            TARIFF.cost(&tokens(), Tier::Standard),
            (uncached + 500.0 * 15.0) / 1e6,
        );
        let kept = Usage {
            cache_write_1h: Some(400),
            ..tokens()
        };
        let more = 400.0 * (6.0 - 3.75);
        close(
            TARIFF.cost(&kept, Tier::Standard),
            (uncached + more + 500.0 * 15.0) / 1e6,
        );
        let apart = Tariff {
            reasoning: Some(60.0),
            ..TARIFF
        };
        let output = 300.0 * 15.0 + 200.0 * 60.0;
        close(
            apart.cost(&tokens(), Tier::Standard),
            (uncached + output) / 1e6,
        );
    }

    #[test]
    fn what_has_no_price_of_its_own_has_that_of_the_whole() {
        let plain = Tariff {
            input: Some(3.0),
            output: Some(15.0),
            ..Tariff::default()
        };
        close(
            plain.cost(&tokens(), Tier::Standard),
            (30_000.0 + 7_500.0) / 1e6,
        );
        let input_alone = Tariff {
            input: Some(0.02),
            ..Tariff::default()
        };
        let embedding = Usage {
            input: Some(1_000),
            ..Usage::default()
        };
        close(input_alone.cost(&embedding, Tier::Standard), 0.000_02);
    }

    #[test]
    fn a_batch_costs_its_share_and_an_unknown_tier_is_unknown() {
        let full = TARIFF.cost(&tokens(), Tier::Standard).expect("a cost");
        close(TARIFF.cost(&tokens(), Tier::of(Some("flex"))), full / 2.0);
        let tier = Err(CostUnavailable::ServiceTier);
        assert_eq!(TARIFF.cost(&tokens(), Tier::of(Some("priority"))), tier);
        let never_less = Tariff {
            batch: None,
            ..TARIFF
        };
        assert_eq!(never_less.cost(&tokens(), Tier::Batch), tier);
    }

    #[test]
    fn an_unknown_count_makes_no_cost_of_zero() {
        let unknown = Usage {
            output: None,
            ..tokens()
        };
        let none = Err(CostUnavailable::NoTokens);
        assert_eq!(TARIFF.cost(&unknown, Tier::Standard), none);
        assert_eq!(TARIFF.cost(&Usage::default(), Tier::Standard), none);
        let more_cached_than_sent = Usage {
            cached_input: Some(99_999),
            ..tokens()
        };
        let cost = TARIFF.cost(&more_cached_than_sent, Tier::Standard);
        close(cost, (10_000.0 * 0.3 + 7_500.0) / 1e6);
    }
}
