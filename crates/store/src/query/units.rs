//! Experiments by unit: the sums of each session, agent or user of each variant.
//!
//! Calls of one unit depend on each other, so statistics treat the unit as the observation. A ratio
//! such as tokens per second is Σ numerators / Σ denominators over units, and its variance comes
//! from the squares and products of the units' sums (delta method). These are computed from
//! [`UnitSums`] when they are read, so no squares of single calls are needed.

use super::Filter;
use crate::figures::CallFigures;
use crate::sketch::Sketch;
use std::time::{Duration, SystemTime};
use tokengauge_core::finish_class::FinishClass;
use tokengauge_core::time::rfc3339_seconds;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum UnitKind {
    #[default]
    Session,
    Agent,
    User,
    /// A block of time of this length, counted from 1970, with the calls that began in it. Sums by
    /// block are not stored, so every call of the experiment is read.
    Block(Duration),
}

impl UnitKind {
    /// The number of the block at `us`, in microseconds since 1970; 0 if the unit is not a block.
    pub(crate) fn block(self, us: i64) -> i64 {
        match self {
            UnitKind::Block(length) => {
                let length = i64::try_from(length.as_micros()).unwrap_or(i64::MAX);
                us.div_euclid(length.max(1))
            }
            UnitKind::Session | UnitKind::Agent | UnitKind::User => 0,
        }
    }

    /// The name of a block: its start as RFC 3339 in UTC.
    pub(crate) fn block_name(self, block: i64) -> String {
        let UnitKind::Block(length) = self else {
            return block.to_string();
        };
        let length = i64::try_from(length.as_micros()).unwrap_or(i64::MAX);
        rfc3339_seconds(instant(block.saturating_mul(length))).to_string()
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct UnitQuery {
    pub experiment: String,
    pub unit: UnitKind,
    /// Selects units whose first call within a variant began at this time or later.
    pub since: Option<SystemTime>,
    /// Selects units whose first call within a variant began before this time.
    pub until: Option<SystemTime>,
}

impl UnitQuery {
    pub(crate) fn matches(&self, first: SystemTime) -> bool {
        self.since.is_none_or(|since| first >= since)
            && self.until.is_none_or(|until| first < until)
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct ExperimentUnits {
    /// Units by variant, then by first call. A unit with calls of two variants is listed twice.
    pub units: Vec<ExperimentUnit>,
    /// Calls without such a unit since the experiment began; they are in no unit.
    pub calls_without_unit: u64,
    /// Calls of units beyond the bound since the experiment began; they are in no unit.
    pub collapsed_calls: u64,
}

/// The sums of one unit in one variant.
#[derive(Clone, Debug, PartialEq)]
pub struct ExperimentUnit {
    /// The variant; `None` if calls name only the experiment.
    pub variant: Option<String>,
    /// The name of the session, agent or user.
    pub unit: String,
    pub sums: UnitSums,
}

#[derive(Clone, Debug, PartialEq)]
pub struct CallUnitQuery {
    pub filter: Filter,
    /// The variant of the experiment, which a filter cannot select.
    pub variant: Option<String>,
    pub unit: UnitKind,
    /// Approximate maximum number of calls that are read. If there are more, the calls of one
    /// session in two, four and so on are read.
    pub max_calls: u64,
}

#[derive(Clone, Debug, PartialEq)]
pub struct CallUnits {
    /// The units in arbitrary order.
    pub units: Vec<CallUnit>,
    /// Calls that match, including calls that were not read.
    pub calls: u64,
    /// 1 if all calls were read, n if the calls of one session in n were read.
    pub one_in: u64,
}

impl Default for CallUnits {
    fn default() -> Self {
        CallUnits {
            units: Vec::new(),
            calls: 0,
            one_in: 1,
        }
    }
}

impl CallUnits {
    pub(crate) fn scale_costs(&mut self, unit: UnitKind) {
        if unit != UnitKind::Session {
            for unit in &mut self.units {
                unit.sums.cost_nano_usd = unit.sums.cost_nano_usd.saturating_mul(self.one_in);
            }
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct CallUnit {
    /// The name of the session, agent or user; `None` for a single call that names none.
    pub name: Option<String>,
    pub sums: UnitSums,
}

/// Sums over the calls of a unit. Sums of speeds exclude calls during the backend's warm-up.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct UnitSums {
    pub(crate) first_us: i64,
    pub(crate) last_us: i64,
    /// Index of the first call's prompt length in [`tokengauge_core::lengths::PROMPT_LENGTHS`], if
    /// known. The variant cannot have influenced it.
    pub first_prompt: Option<usize>,
    /// Calls that generate or embed.
    pub calls: u64,
    /// Calls that failed. Calls that the agent cancelled are not counted.
    pub errors: u64,
    pub warm_up_calls: u64,
    /// Input tokens, as reported, otherwise as counted.
    pub input_tokens: u64,
    /// Input tokens read from a cache, as reported.
    pub cached_input_tokens: u64,
    /// Output tokens, as reported, otherwise as counted.
    pub output_tokens: u64,
    /// The cost in billionths of a US dollar.
    pub cost_nano_usd: u64,
    pub priced_calls: u64,
    /// Normalised tokens after first chunks, of calls with a decode speed.
    pub decode_tokens: u64,
    /// Microseconds that the decode tokens took.
    pub decode_us: u64,
    /// Calls with a reason for a missing decode speed.
    pub tps_unavailable: u64,
    /// Sum of the times to first token in microseconds.
    pub ttft_us: u64,
    /// Sum of the durations in microseconds.
    pub duration_us: u64,
    /// Answers that reached a limit on tokens.
    pub truncated: u64,
    /// Answers that the model or a filter refused.
    pub refused: u64,
    /// Complete answers without text.
    pub empty: u64,
    /// Answers that began and were lost.
    pub cut_off: u64,
    /// Answers whose tool call the provider reported as malformed. Arguments are not stored, so
    /// other invalid tool calls are unknown.
    pub invalid_tool_calls: u64,
    pub(crate) ttft: Sketch,
    pub(crate) tps: Sketch,
}

pub(crate) const COUNTS: usize = 18;

impl UnitSums {
    /// When the first call began.
    pub fn first_at(&self) -> SystemTime {
        instant(self.first_us)
    }

    /// When the last call ended. A unit is complete when no further calls are expected.
    pub fn last_at(&self) -> SystemTime {
        instant(self.last_us)
    }

    /// Calls with a time to first token.
    pub fn ttft_calls(&self) -> u64 {
        self.ttft.len()
    }

    /// Calls with a decode speed.
    pub fn tps_calls(&self) -> u64 {
        self.tps.len()
    }

    /// Calls with a time to first token above `threshold`, in seconds.
    pub fn ttft_above(&self, threshold: Threshold) -> u64 {
        self.ttft.len() - self.ttft.at_most(threshold.0)
    }

    /// Calls with a decode speed of at most `threshold`, in tokens per second.
    pub fn tps_at_most(&self, threshold: Threshold) -> u64 {
        self.tps.at_most(threshold.0)
    }

    pub(crate) fn of(call: &CallFigures) -> UnitSums {
        let count = |value: Option<i64>| u64::try_from(value.unwrap_or(0)).unwrap_or(0);
        let finished = |class| u64::from(call.finish.contains(class));
        let (tokens, us) = call.decode().unzip();
        let mut sums = UnitSums {
            first_us: call.started_us,
            last_us: call.ended_us(),
            first_prompt: call.prompt_class(),
            calls: 1,
            errors: u64::from(call.error()),
            warm_up_calls: u64::from(call.warm_up),
            input_tokens: count(call.input),
            cached_input_tokens: count(call.cached_input),
            output_tokens: count(call.output),
            cost_nano_usd: count(call.cost_nano),
            priced_calls: u64::from(call.cost_nano.is_some()),
            decode_tokens: count(tokens),
            decode_us: count(us),
            tps_unavailable: u64::from(call.tps_unavailable && !call.warm_up),
            ttft_us: count(call.ttft()),
            duration_us: count(call.duration_us),
            truncated: finished(FinishClass::Length),
            refused: finished(FinishClass::Refused),
            empty: u64::from(call.empty()),
            cut_off: u64::from(call.cut_off()),
            invalid_tool_calls: finished(FinishClass::InvalidToolCall),
            ..UnitSums::default()
        };
        if let Some(us) = call.ttft() {
            sums.ttft.add(us as f64 / 1e6);
        }
        if let Some(milli) = call.tps() {
            sums.tps.add(milli as f64 / 1e3);
        }
        sums
    }

    pub fn merge(&mut self, other: &UnitSums) {
        if self.calls == 0 {
            *self = other.clone();
            return;
        }
        let first = |sums: &UnitSums| (sums.first_us, sums.first_prompt);
        (self.first_us, self.first_prompt) = first(self).min(first(other));
        self.last_us = self.last_us.max(other.last_us);
        let counts = self.counts_mut().into_iter().zip(other.counts());
        counts.for_each(|(sum, more)| *sum = sum.saturating_add(more));
        self.ttft.merge(&other.ttft);
        self.tps.merge(&other.tps);
    }

    /// The counts, in the order of the table's columns.
    pub(crate) fn counts(&self) -> [u64; COUNTS] {
        let mut counts = UnitSums {
            ttft: Sketch::default(),
            tps: Sketch::default(),
            ..*self
        };
        counts.counts_mut().map(|count| *count)
    }

    pub(crate) fn counts_mut(&mut self) -> [&mut u64; COUNTS] {
        [
            &mut self.calls,
            &mut self.errors,
            &mut self.warm_up_calls,
            &mut self.input_tokens,
            &mut self.cached_input_tokens,
            &mut self.output_tokens,
            &mut self.cost_nano_usd,
            &mut self.priced_calls,
            &mut self.decode_tokens,
            &mut self.decode_us,
            &mut self.tps_unavailable,
            &mut self.ttft_us,
            &mut self.duration_us,
            &mut self.truncated,
            &mut self.refused,
            &mut self.empty,
            &mut self.cut_off,
            &mut self.invalid_tool_calls,
        ]
    }
}

/// A threshold between two classes of the sketches, so that calls on either side of it are counted
/// exactly.
///
/// The threshold must be fixed before the first unit is analysed (from a baseline, or an objective). A
/// sequence of intervals that holds at every look requires that each unit's share of calls beyond
/// the threshold always has one meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Threshold(i32);

impl Threshold {
    /// The threshold at `value` or at most 2 % above it.
    ///
    /// ```
    /// use tokengauge_store::query::Threshold;
    /// let half_a_second = Threshold::near(0.5).value();
    /// assert!((0.5..=0.51).contains(&half_a_second));
    /// assert_eq!(Threshold::near(half_a_second).value(), half_a_second);
    /// ```
    pub fn near(value: f64) -> Threshold {
        // A value that is a bound must not be rounded to the next bound.
        Threshold(Sketch::class_of(value * (1.0 - 1e-9)))
    }

    pub fn value(self) -> f64 {
        Sketch::upper_bound(self.0)
    }
}

fn instant(us: i64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_micros(u64::try_from(us).unwrap_or(0))
}
