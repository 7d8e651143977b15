//! Sums over calls of a session.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokengauge_store::history::TimedCall;

/// Sums over calls. Token counts are the provider's if it reported them.
#[derive(Clone, Copy, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct CallSums {
    /// Number of calls.
    pub calls: usize,
    /// Number of calls that failed.
    pub failed: usize,
    /// Input tokens.
    pub input_tokens: u64,
    /// Input tokens that came from a cache.
    pub cached_input_tokens: u64,
    /// Output tokens.
    pub output_tokens: u64,
    /// Cost of the calls that have a price, in US dollars. `null` if no call has a price.
    pub cost_usd: Option<f64>,
    /// Cost of the calls that failed, in US dollars.
    pub failed_usd: f64,
}

impl CallSums {
    pub(crate) fn of<'a>(calls: impl Iterator<Item = &'a TimedCall<'a>>) -> CallSums {
        let mut sums = CallSums::default();
        calls.for_each(|call| sums.add(call));
        sums
    }

    fn add(&mut self, call: &TimedCall<'_>) {
        let record = call.record;
        let (reported, counted) = (&record.tokens.reported, &record.tokens.normalised);
        self.calls += 1;
        self.input_tokens += reported.input.or(counted.input).unwrap_or(0);
        self.cached_input_tokens += reported.cached_input.unwrap_or(0);
        self.output_tokens += reported.output.or(counted.output).unwrap_or(0);
        if let Some(cost) = record.cost_usd {
            *self.cost_usd.get_or_insert(0.0) += cost;
        }
        if call.failed() {
            self.failed += 1;
            self.failed_usd += record.cost_usd.unwrap_or(0.0);
        }
    }

    /// Input and output tokens.
    pub fn tokens(&self) -> u64 {
        self.input_tokens + self.output_tokens
    }
}
