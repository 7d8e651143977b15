//! The results of a run, as their JSON has them.

use crate::level::{LevelResult, LoadName, Price};
use crate::metric::Metric;
use crate::objective::ObjectiveVerdict;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokengauge_core::fingerprint::{Fingerprint, MeasuredBy};
use tokengauge_store::history;
use tokengauge_store::query::{CapacityPoint, Knee};

/// The version of the shape of results. A member that changes its meaning or goes raises it; one that comes does not.
pub const SCHEMA_VERSION: u32 = 1;

/// The results of a run.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize, Deserialize)]
#[schemars(title = "Results of tokengauge bench")]
pub struct Results {
    /// The version of this shape.
    pub schema_version: u32,
    /// The version of the program.
    pub version: String,
    /// When it began, RFC 3339.
    pub started_at: String,
    /// What was called, and how.
    pub settings: Settings,
    /// What the calls asked for and what answered them; `null` of results of before there was one. The load is that of the level.
    #[serde(default)]
    pub fingerprint: Option<Fingerprint>,
    /// What measured: program, method and machine.
    #[serde(default)]
    pub measured_by: Option<MeasuredBy>,
    /// The loads, in ascending order.
    pub levels: Vec<LevelResult>,
    /// Beyond it more calls at once bring no more tokens.
    pub knee: Option<Knee>,
    /// Why there is no knee.
    pub no_knee: Option<String>,
    /// The highest load that keeps all objectives, where there are some.
    pub highest: Option<Highest>,
    /// Whether the run was stopped before its end.
    pub interrupted: bool,
}

/// The highest load that keeps all objectives.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct Highest {
    /// The load.
    pub load: LoadName,
    /// The lowest load above it that was tried: it misses them, or it is not shown to keep them. `null` if there is none.
    pub missed_at: Option<LoadName>,
    /// Output tokens per second at that load.
    pub output_throughput: Option<f64>,
    /// What a million output tokens cost there.
    pub usd_per_million_output: Price,
}

/// Why no load is known to keep the objectives.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoHighest {
    /// The lowest load misses them.
    #[error("no load that was tried keeps the objectives")]
    Missed,
    /// The lowest load may keep them: why that is not shown, and what to do.
    #[error("no load that was tried is shown to keep the objectives: {0}")]
    Undecided(String),
}

/// What was called, and how.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct Settings {
    /// The URL, without its query.
    pub url: String,
    /// The kind of endpoint.
    pub endpoint_type: String,
    /// The model asked for.
    pub model: String,
    /// The workload in words.
    pub workload: String,
    /// The seed of texts, arrivals, the order of levels and resampling.
    pub random_seed: u64,
    /// Trials of each load.
    pub trials: u32,
    /// Seconds of warm-up, burn-in and measurement of each.
    pub warm_up: f64,
    /// Seconds of burn-in.
    pub burn_in: f64,
    /// Seconds of measurement.
    pub measure: f64,
    /// Seconds of an observation of throughput.
    pub interval: f64,
    /// The change of TTFT and TPS over a run that is allowed, as a share.
    pub steady_within: f64,
    /// The confidence of intervals.
    pub confidence: f64,
    /// The objectives, as they were given.
    pub objectives: Vec<String>,
}

impl Results {
    /// What levels came to, with knee and highest load.
    pub fn of(
        settings: Settings,
        started_at: String,
        mut levels: Vec<LevelResult>,
        interrupted: bool,
    ) -> Results {
        levels.sort_by(|left, right| left.load.number().total_cmp(&right.load.number()));
        let knee = history::knee(&capacity(&levels));
        Results {
            schema_version: SCHEMA_VERSION,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            started_at,
            fingerprint: None,
            measured_by: None,
            highest: highest(&levels),
            no_knee: knee.as_ref().err().map(ToString::to_string),
            knee: knee.ok(),
            settings,
            levels,
            interrupted,
        }
    }

    pub fn without_figures(&self) -> impl Iterator<Item = &LevelResult> {
        self.levels
            .iter()
            .filter(|level| !level.withheld.is_empty())
    }

    /// Why no load is known to keep the objectives; `None` if one is, or if there are no objectives. It is undecided if the
    /// lowest load is not shown to miss them.
    pub fn no_highest(&self) -> Option<NoHighest> {
        if self.settings.objectives.is_empty() || self.highest.is_some() {
            return None;
        }
        let not_shown = |level: &&LevelResult| level.verdict() == ObjectiveVerdict::NotShown;
        let undecided: Vec<_> = self.levels.iter().take_while(not_shown).collect();
        let Some(lowest) = undecided.first() else {
            return Some(NoHighest::Missed);
        };
        let reasons = lowest.objectives.iter().filter_map(|result| {
            let reason = result.reason.as_ref()?;
            Some(format!("{}: {reason}", result.objective))
        });
        let reasons: Vec<_> = reasons.collect();
        Some(NoHighest::Undecided(format!(
            "at {}, {}",
            lowest.load,
            reasons.join("; ")
        )))
    }
}

/// The capacity curve: throughput by the calls under way.
fn capacity(levels: &[LevelResult]) -> Vec<CapacityPoint> {
    let point = |level: &LevelResult| {
        let counting = || level.trials.iter().filter(|trial| trial.figures.is_some());
        let in_flight =
            counting().map(|trial| trial.in_flight).sum::<f64>() / counting().count() as f64;
        let seconds =
            counting().map(|trial| trial.measured - trial.steady_after.unwrap_or_default());
        Some(CapacityPoint {
            concurrency: level.load.concurrency.unwrap_or(in_flight.round() as u32),
            system_tps: level.value(Metric::OutputThroughput)?,
            request_tps: level.value(Metric::TpsMean),
            seconds: seconds.sum::<f64>().round() as u64,
        })
    };
    let mut points: Vec<_> = levels.iter().filter_map(point).collect();
    points.sort_by_key(|point| point.concurrency);
    points.dedup_by_key(|point| point.concurrency);
    points
}

/// The highest load that keeps the objectives, below the lowest one that misses them. Loads below it that are not shown to
/// keep them had too few calls, or too scattered ones.
fn highest(levels: &[LevelResult]) -> Option<Highest> {
    if levels.iter().all(|level| level.objectives.is_empty()) {
        return None;
    }
    let missed = levels
        .iter()
        .position(|level| level.verdict() == ObjectiveVerdict::Missed);
    let below = &levels[..missed.unwrap_or(levels.len())];
    let kept = below
        .iter()
        .rposition(|level| level.verdict() == ObjectiveVerdict::Kept)?;
    let level = &levels[kept];
    Some(Highest {
        load: level.load.clone(),
        missed_at: levels.get(kept + 1).map(|level| level.load.clone()),
        output_throughput: level.value(Metric::OutputThroughput),
        usd_per_million_output: level.usd_per_million_output,
    })
}
