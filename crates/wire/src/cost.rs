//! The cost that a provider reports in its usage.

use super::Sink;
use super::json::{Count, Object};
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::fmt;
use tokengauge_core::call::Event;

const TICKS_PER_USD: f64 = 1e10;

/// US dollars in `usage.cost`. An object counts by its `total_cost` (Perplexity), unless that is 0,
/// as in chunks before the last. Any other or negative value is unknown. `true` reads as 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Amount(pub(super) Option<f64>);

pub(super) struct ReportedCost<'a> {
    pub(super) cost: Amount,
    pub(super) ticks: Count,
    /// Whether the agent's own provider key was used (OpenRouter, Vercel). `cost` is only the fee
    /// of the gateway then.
    pub(super) own_key: Amount,
    pub(super) details: &'a Object<CostDetails>,
}

/// The cost of the provider, which a gateway paid or would have paid.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub(super) struct CostDetails {
    #[serde(default)]
    upstream_inference_cost: Amount,
}

impl ReportedCost<'_> {
    pub(super) fn give(&self, sink: Sink<'_>) {
        if let Some(usd) = self.usd() {
            sink(Event::Cost(usd));
        }
    }

    fn usd(&self) -> Option<f64> {
        if self.own_key.0.is_some_and(|flag| flag > 0.0) {
            let upstream = self.details.0.as_ref()?.upstream_inference_cost.0?;
            return Some(self.cost.0? + upstream);
        }
        let ticks = self.ticks.0.filter(|ticks| *ticks > 0);
        let of_ticks = ticks.map(|ticks| ticks as f64 / TICKS_PER_USD);
        self.cost.0.or(of_ticks)
    }
}

impl Amount {
    fn new(usd: f64) -> Amount {
        Amount((usd.is_finite() && usd >= 0.0).then_some(usd))
    }
}

impl<'de> Deserialize<'de> for Amount {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AmountVisitor)
    }
}

struct AmountVisitor;

impl<'de> Visitor<'de> for AmountVisitor {
    type Value = Amount;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an amount")
    }

    fn visit_f64<E>(self, number: f64) -> Result<Amount, E> {
        Ok(Amount::new(number))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Amount, E> {
        Ok(Amount::new(number as f64))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Amount, E> {
        Ok(Amount::new(number as f64))
    }

    fn visit_bool<E>(self, flag: bool) -> Result<Amount, E> {
        Ok(Amount::new(f64::from(u8::from(flag))))
    }

    fn visit_str<E>(self, text: &str) -> Result<Amount, E> {
        Ok(text.parse().map_or(Amount(None), Amount::new))
    }

    fn visit_unit<E>(self) -> Result<Amount, E> {
        Ok(Amount(None))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<Amount, A::Error> {
        IgnoredAny.visit_seq(items).map(|_| Amount(None))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Amount, A::Error> {
        let mut total = Amount(None);
        while let Some(key) = entries.next_key::<super::json::Text<'_>>()? {
            if &*key == "total_cost" {
                let found: Amount = entries.next_value()?;
                total = Amount(found.0.filter(|usd| *usd > 0.0));
            } else {
                entries.next_value::<IgnoredAny>()?;
            }
        }
        Ok(total)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn amount(json: &str) -> Option<f64> {
        serde_json::from_str::<Amount>(json).expect("JSON").0
    }

    #[test]
    fn an_amount_is_a_number_or_the_total_of_an_object() {
        assert_eq!(amount("0.00047432"), Some(0.000_474_32));
        assert_eq!(amount("0"), Some(0.0), "a free model");
        assert_eq!(
            amount(r#"{"request_cost":0.005,"total_cost":0.006}"#),
            Some(0.006)
        );
        for unknown in [
            "null",
            "-1",
            "[3]",
            r#""much""#,
            "{}",
            r#"{"total_cost":0}"#,
        ] {
            assert_eq!(amount(unknown), None, "{unknown}");
        }
    }

    #[test]
    fn with_a_key_of_the_agents_own_the_fee_is_not_all() {
        let charge = |own_key, upstream| {
            let details = Object(Some(CostDetails {
                upstream_inference_cost: Amount(upstream),
            }));
            let charge = ReportedCost {
                cost: Amount(Some(0.25)),
                ticks: Count(None),
                own_key: Amount(own_key),
                details: &details,
            };
            charge.usd()
        };
        assert_eq!(charge(Some(1.0), Some(5.0)), Some(5.25));
        assert_eq!(charge(Some(1.0), None), None);
        assert_eq!(charge(Some(0.0), Some(5.0)), Some(0.25));
    }
}
