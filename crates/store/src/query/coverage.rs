use super::Filter;
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;
use tokengauge_core::call::CallRecord;

/// The reason for calls whose record has none, such as records of older versions.
const UNKNOWN: &str = "unknown";

/// How many calls have a cost and a speed, and why the others have none. Only generations and
/// embeddings are counted.
#[derive(Clone, Debug, Default, PartialEq, Eq, JsonSchema, Serialize)]
pub struct Coverage {
    /// Number of calls.
    pub calls: u64,
    /// Calls with a cost.
    pub with_cost: u64,
    /// Calls with a decode speed.
    pub with_speed: u64,
    /// Calls without a cost, by reason.
    pub cost_unavailable: BTreeMap<String, u64>,
    /// Calls without a decode speed, by reason.
    pub tps_unavailable: BTreeMap<String, u64>,
    /// Events of streams that were skipped because they could not be read.
    pub skipped_events: u64,
}

/// The part of a call that coverage needs. The reasons are `None` if the record has none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Covered<R> {
    pub(crate) priced: bool,
    pub(crate) cost_unavailable: Option<R>,
    pub(crate) timed: bool,
    pub(crate) tps_unavailable: Option<R>,
}

impl Coverage {
    pub fn add(&mut self, call: &CallRecord) {
        let covered = Covered {
            priced: call.cost_usd.is_some(),
            cost_unavailable: call.cost_unavailable.map(|reason| reason.as_str()),
            timed: call.tps.output.is_some(),
            tps_unavailable: call.tps.unavailable.map(|reason| reason.as_str()),
        };
        self.add_calls(covered, 1, call.skipped_events);
    }

    /// Adds several calls with equal properties.
    pub(crate) fn add_calls(&mut self, of: Covered<&str>, calls: u64, skipped_events: u64) {
        self.calls += calls;
        self.skipped_events += skipped_events;
        let count = |has: bool, with: &mut u64, without: &mut BTreeMap<String, u64>, reason| {
            if has {
                *with += calls;
            } else {
                let reason: Option<&str> = reason;
                let reason = reason.unwrap_or(UNKNOWN).to_owned();
                *without.entry(reason).or_default() += calls;
            }
        };
        let (cost, speed) = (&mut self.cost_unavailable, &mut self.tps_unavailable);
        count(of.priced, &mut self.with_cost, cost, of.cost_unavailable);
        count(of.timed, &mut self.with_speed, speed, of.tps_unavailable);
    }
}

impl Filter {
    /// The filter restricted to the classes of operations that count; `None` if it selects none of
    /// them.
    pub fn of_counted_classes(&self) -> Option<Filter> {
        let mut classes = Filter::counted();
        classes.retain(|class| self.has_class(*class));
        (!classes.is_empty()).then(|| Filter {
            operation_classes: classes,
            ..self.clone()
        })
    }
}
