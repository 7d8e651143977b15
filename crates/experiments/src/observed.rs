//! The observations of an experiment: its units, reduced to the sums that the metrics need.

use crate::experiment::Rules;
use crate::stratum::Stratum;
use std::collections::HashMap;
use std::time::SystemTime;
use tokengauge_store::query::{
    Dimension, ExperimentUnits, Filter, ScoreQuery, ScoreSum, ScoredUnit, UnitKind, UnitScores,
    UnitSums,
};

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Observed {
    /// The sums of each unit and variant. A unit with calls of two variants appears twice.
    pub units: Vec<ObservedUnit>,
    pub calls_without_unit: u64,
    /// Calls of units beyond the limit of the store.
    pub collapsed_calls: u64,
}

#[derive(Clone, Debug, PartialEq)]
pub struct ObservedUnit {
    /// The variant; `None` if calls name only the experiment.
    pub variant: Option<String>,
    pub unit: String,
    pub last_at: SystemTime,
    /// The stratum of the unit, which is known before the unit has a variant.
    pub stratum: Stratum,
    pub sums: Sums,
    /// The scores of the unit by name.
    pub scores: UnitScores,
}

/// Sums over calls. Calls during the warm-up of the backend are excluded from all sums about speed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sums {
    /// Calls that generate or embed.
    pub calls: u64,
    pub failures: u64,
    pub ttft_calls: u64,
    pub ttft_above: u64,
    /// Calls without a time to first token, because they failed or were cancelled before it or do not generate.
    pub ttft_unavailable: u64,
    pub tps_calls: u64,
    pub tps_below: u64,
    /// Calls whose decode speed was withheld for a reason.
    pub tps_unavailable: u64,
    /// Normalised tokens after first chunks, for calls with a decode speed.
    pub decode_tokens: u64,
    /// The decode time of `decode_tokens`, in microseconds.
    pub decode_us: u64,
    /// The cost in billionths of a US dollar.
    pub cost_nano_usd: u64,
    pub priced_calls: u64,
    /// Responses that a token limit cut off.
    pub truncated: u64,
    /// Responses that the model or a filter refused.
    pub refused: u64,
    /// Complete responses without text.
    pub empty: u64,
    /// Responses that had begun and were lost.
    pub cut_off: u64,
    /// Responses with a tool call that the provider reported as unreadable.
    pub invalid_tool_calls: u64,
    /// The scores of the name that is compared.
    pub score: ScoreSum,
}

impl Observed {
    pub fn of(found: &ExperimentUnits, kind: UnitKind, rules: &Rules) -> Observed {
        let units = found.units.iter().map(|unit| ObservedUnit {
            variant: unit.variant.clone(),
            unit: unit.unit.clone(),
            last_at: unit.sums.last_at(),
            stratum: Stratum::of(&unit.sums, kind),
            sums: Sums::of(&unit.sums, rules),
            scores: UnitScores::new(),
        });
        Observed {
            units: units.collect(),
            calls_without_unit: found.calls_without_unit,
            collapsed_calls: found.collapsed_calls,
        }
    }

    /// Adds the scores of units, which [`score_query`] finds.
    #[must_use]
    pub fn with_scores(mut self, scored: Vec<ScoredUnit>) -> Observed {
        let named = scored.into_iter().filter_map(|unit| {
            let variant = unit.names.into_iter().next().flatten();
            Some(((variant, unit.unit?), unit.scores))
        });
        let mut scores: HashMap<_, _> = named.collect();
        for unit in &mut self.units {
            let key = (unit.variant.clone(), unit.unit.clone());
            unit.scores = scores.remove(&key).unwrap_or_default();
        }
        self
    }
}

/// The question for the scores of an experiment's units.
pub fn score_query(experiment: &str, unit: UnitKind) -> ScoreQuery {
    ScoreQuery {
        filter: Filter {
            names: [(Dimension::Experiment, Some(experiment.to_owned()))].into(),
            operation_classes: Filter::counted(),
            ..Filter::default()
        },
        variant: None,
        by: vec![Dimension::Variant],
        unit,
    }
}

impl Sums {
    /// Returns the sums of one unit, with the thresholds of `rules`. Without a threshold, 0 calls exceed it.
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
            score: ScoreSum::default(),
        }
    }
}
