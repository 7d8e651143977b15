//! What was seen of an experiment: its units, reduced to the sums that metrics are made of.

use crate::experiment::Rules;
use crate::stratum::Stratum;
use std::time::SystemTime;
use tokengauge_store::query::{ExperimentUnits, UnitKind, UnitSums};

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Observed {
    /// What each unit adds to each variant. A unit with calls of two variants is here twice.
    pub units: Vec<ObservedUnit>,
    pub calls_without_unit: u64,
    /// Calls of units beyond the bound of the store.
    pub collapsed_calls: u64,
}

/// What one unit adds to one variant.
#[derive(Clone, Debug, PartialEq)]
pub struct ObservedUnit {
    /// The variant; `None` where calls name the experiment alone.
    pub variant: Option<String>,
    pub unit: String,
    /// When its last call ended.
    pub last_at: SystemTime,
    /// What was so before it had a variant.
    pub stratum: Stratum,
    pub sums: Sums,
}

/// Sums over calls. Calls while the backend warmed up are in none that is about speed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// Calls that generate or embed.
    pub calls: u64,
    pub failures: u64,
    /// Calls with a time to first token.
    pub ttft_calls: u64,
    pub ttft_above: u64,
    /// Calls that have none: they failed before it, were given up, or do not generate.
    pub ttft_unavailable: u64,
    /// Calls with a decode speed.
    pub tps_calls: u64,
    /// Those at most at the threshold.
    pub tps_below: u64,
    /// Calls whose decode speed was withheld, for a reason.
    pub tps_unavailable: u64,
    /// Normalised tokens after first chunks, of calls with a decode speed.
    pub decode_tokens: u64,
    /// The microseconds they took.
    pub decode_us: u64,
    /// The cost in billionths of a US dollar.
    pub cost_nano_usd: u64,
    pub priced_calls: u64,
    /// Answers that a limit on tokens cut off.
    pub truncated: u64,
    /// Answers that the model or a filter refused.
    pub refused: u64,
    /// Answers that came whole and without text.
    pub empty: u64,
    /// Answers that had begun and were lost.
    pub cut_off: u64,
    /// Answers whose tool call the provider called unreadable.
    pub invalid_tool_calls: u64,
}

impl Observed {
    /// What the store has, by the thresholds of `rules`.
    pub fn of(found: &ExperimentUnits, kind: UnitKind, rules: &Rules) -> Observed {
        let units = found.units.iter().map(|unit| ObservedUnit {
            variant: unit.variant.clone(),
            unit: unit.unit.clone(),
            last_at: unit.sums.last_at(),
            stratum: Stratum::of(&unit.sums, kind),
            sums: Sums::of(&unit.sums, rules),
        });
        Observed {
            units: units.collect(),
            calls_without_unit: found.calls_without_unit,
            collapsed_calls: found.collapsed_calls,
        }
    }
}

impl Sums {
    /// The sums of one unit, by the thresholds of `rules`; 0 calls are beyond one that is not set.
    pub fn of(sums: &UnitSums, rules: &Rules) -> Sums {
        Sums {
            calls: sums.calls,
            failures: sums.errors,
            ttft_calls: sums.ttft_calls(),
            ttft_above: rules.ttft_above.map_or(0, |at| sums.ttft_above(at)),
            ttft_unavailable: (sums.calls - sums.warm_up_calls).saturating_sub(sums.ttft_calls()),
            tps_calls: sums.tps_calls(),
            tps_below: rules.tps_below.map_or(0, |at| sums.tps_at_most(at)),
            tps_unavailable: sums.tps_unavailable,
            decode_tokens: sums.decode_tokens,
            decode_us: sums.decode_us,
            cost_nano_usd: sums.cost_nano_usd,
            priced_calls: sums.priced_calls,
            truncated: sums.truncated,
            refused: sums.refused,
            empty: sums.empty,
            cut_off: sums.cut_off,
            invalid_tool_calls: sums.invalid_tool_calls,
        }
    }
}
