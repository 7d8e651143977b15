//! The results of a run and their JSON format.

use crate::level::{LevelResult, LoadName, Price};
use crate::metric::Metric;
use crate::objective::ObjectiveVerdict;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokengauge_core::fingerprint::{Fingerprint, MeasuredBy};
use tokengauge_store::history;
use tokengauge_store::query::{CapacityPoint, Knee};

/// The version of the JSON format. Removing a member or changing its meaning increases the version; adding a member
/// does not.
pub const SCHEMA_VERSION: u32 = 1;

/// The results of a run.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize, Deserialize)]
#[schemars(title = "Results of tokengauge bench")]
pub struct Results {
    /// The version of this format.
    pub schema_version: u32,
    /// The version of tokengauge.
    pub version: String,
    /// The start of the run, in RFC 3339.
    pub started_at: String,
    /// The backend and the settings of the calls.
    pub settings: Settings,
    /// A fingerprint of what the calls requested and what answered them. The load is in the level. `null` for results
    /// of older versions.
    #[serde(default)]
    pub fingerprint: Option<Fingerprint>,
    /// The program, method and machine of the measurement.
    #[serde(default)]
    pub measured_by: Option<MeasuredBy>,
    /// The loads, in ascending order.
    pub levels: Vec<LevelResult>,
    /// The concurrency above which more concurrent calls do not increase the throughput.
    pub knee: Option<Knee>,
    /// Why there is no knee.
    pub no_knee: Option<String>,
    /// The highest load that meets all objectives, if there are objectives.
    pub highest: Option<Highest>,
    /// Whether the run was stopped early.
    pub interrupted: bool,
}

/// The highest load that meets all objectives.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct Highest {
    /// The load.
    pub load: LoadName,
    /// The lowest tested load above the highest load that misses the objectives or is not shown to meet them; `null` if
    /// there is none.
    pub missed_at: Option<LoadName>,
    /// Output tokens per second at the highest load.
    pub output_throughput: Option<f64>,
    /// The cost of a million output tokens at the highest load.
    pub usd_per_million_output: Price,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoHighest {
    #[error("no tested load meets the objectives; test lower loads or relax the objectives")]
    Missed,
    /// The lowest load is not shown to meet or to miss the objectives, with the reason and what to do.
    #[error("no tested load is shown to meet the objectives: {0}")]
    Undecided(String),
}

/// The backend and the settings of the calls.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct Settings {
    /// The URL without its query.
    pub url: String,
    /// The endpoint type.
    pub endpoint_type: String,
    /// The requested model.
    pub model: String,
    /// A description of the workload.
    pub workload: String,
    /// The seed of texts, arrivals, the order of loads and resampling.
    pub random_seed: u64,
    /// The number of trials of each load.
    pub trials: u32,
    /// The seconds of warm-up of each trial.
    pub warm_up: f64,
    /// The seconds of burn-in of each trial.
    pub burn_in: f64,
    /// The seconds of measurement of each trial.
    pub measure: f64,
    /// The seconds of an observation of throughput.
    pub interval: f64,
    /// The allowed change of TTFT and TPS during a trial, as a share.
    pub steady_within: f64,
    /// The confidence of intervals.
    pub confidence: f64,
    /// The objectives as the user wrote them.
    pub objectives: Vec<String>,
}

impl Results {
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

    /// Returns why no load is known to meet the objectives; `None` if a load meets them or if there are no objectives.
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

/// Returns the highest load that meets the objectives, below the lowest load that misses them. Loads below the returned
/// load may not be shown to meet the objectives if they had too few or too scattered calls.
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
