//! Costs of calls over time, grouped by a dimension.

use super::{DailySums, Dimension, Filter, TokenSums};
use schemars::JsonSchema;
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokengauge_core::time::Timestamp;

#[derive(Clone, Debug, PartialEq)]
pub struct CostQuery {
    pub filter: Filter,
    pub by: Dimension,
    /// The length of a point, in whole seconds.
    pub step: Duration,
    /// Maximum number of series, the most expensive first. The calls of all others form one series.
    pub most: usize,
}

/// Costs over time.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize)]
pub struct Costs {
    /// The length of each point in seconds.
    pub step: u64,
    /// The most expensive series, largest cost first. Series without a price are sorted by their
    /// tokens.
    pub series: Vec<CostSeries>,
    /// All other calls together; `null` if there are none.
    pub others: Option<CostSeries>,
}

/// The costs of calls with a common value of the dimension.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize)]
pub struct CostSeries {
    /// The value of the dimension; `null` for calls without one, and for the series of all other
    /// calls.
    pub name: Option<String>,
    /// Number of values in the series.
    pub names: u64,
    /// Sums over the whole time.
    #[serde(flatten)]
    pub sums: CostSums,
    /// The steps in which calls began, in the order of time. Steps without calls are left out.
    pub points: Vec<CostPoint>,
}

/// The calls that began within one step.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize)]
pub struct CostPoint {
    /// When the step begins.
    pub at: Timestamp,
    /// Sums over the calls of the step.
    #[serde(flatten)]
    pub sums: CostSums,
}

/// Calls, tokens and costs.
#[derive(Clone, Copy, Debug, Default, PartialEq, JsonSchema, Serialize)]
pub struct CostSums {
    /// Calls that have ended.
    pub calls: u64,
    /// Calls that failed.
    pub errors: u64,
    /// Tokens of the calls.
    pub tokens: TokenSums,
    /// Cost of the calls with a price in US dollars; `null` if no call has a price.
    pub cost_usd: Option<f64>,
    /// Calls with tokens but without a price.
    pub unpriced_calls: u64,
}

impl CostSums {
    pub fn merge(&mut self, other: &CostSums) {
        self.calls += other.calls;
        self.errors += other.errors;
        let (sums, more) = (&mut self.tokens, &other.tokens);
        add(&mut sums.input, more.input);
        add(&mut sums.cached_input, more.cached_input);
        add(&mut sums.output, more.output);
        add(&mut sums.reasoning, more.reasoning);
        if let Some(cost) = other.cost_usd {
            *self.cost_usd.get_or_insert(0.0) += cost;
        }
        self.unpriced_calls += other.unpriced_calls;
    }

    /// The order of series: descending by cost in billionths of a dollar, then by tokens, then by
    /// calls.
    pub(crate) fn rank(&self) -> Reverse<(Option<u64>, u64, u64)> {
        let nano = self.cost_usd.map(|cost| (cost * 1e9).round() as u64);
        let tokens = self.tokens.input.unwrap_or(0) + self.tokens.output.unwrap_or(0);
        Reverse((nano, tokens, self.calls))
    }
}

fn add(sum: &mut Option<u64>, more: Option<u64>) {
    if let Some(more) = more {
        *sum = Some(sum.unwrap_or(0).saturating_add(more));
    }
}

impl CostSeries {
    /// A series from the sums of its steps, by their start in seconds since 1970.
    pub(crate) fn of(name: Option<String>, names: u64, steps: BTreeMap<u64, CostSums>) -> Self {
        let mut sums = CostSums::default();
        steps.values().for_each(|step| sums.merge(step));
        let point = |(at, sums)| CostPoint {
            at: (UNIX_EPOCH + Duration::from_secs(at)).into(),
            sums,
        };
        CostSeries {
            name,
            names,
            sums,
            points: steps.into_iter().map(point).collect(),
        }
    }
}

const DAY: u64 = 86_400;

impl CostQuery {
    /// The sums by day that can answer the query; `None` if only calls can. Sums of users, keys and
    /// tools exist only for whole days.
    pub fn daily_sums(&self) -> Option<DailySums> {
        if self.filter.summed(&[self.by]) {
            return Some(DailySums::All);
        }
        let whole_days = self.step.as_secs() >= DAY && self.step.as_secs().is_multiple_of(DAY);
        (whole_days && self.filter.spending_summed(&[self.by])).then_some(DailySums::Spending)
    }

    /// The start of the step that contains `at`, in seconds since 1970.
    pub(crate) fn step_of(&self, at: SystemTime) -> u64 {
        let seconds = tokengauge_core::time::since_1970(at) as u64;
        let step = self.step.as_secs().max(1);
        seconds / step * step
    }
}
