//! The result of a comparison: the shapes of the API, of `--format json` and of what follows from them.

use crate::settings::Season;
use crate::signal::SignalName;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokengauge_core::time::Timestamp;

/// One comparison and all its series.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize, Deserialize)]
#[schemars(rename = "Drift")]
pub struct Entry {
    /// Its name in the configuration.
    pub name: String,
    /// The state of the series that is furthest from its reference.
    pub state: DriftState,
    /// The times that are compared.
    pub windows: WindowTimes,
    /// The series with most calls first; at most 20.
    pub series: Vec<Series>,
    /// Series with fewer calls that were not evaluated, or for which the time did not suffice.
    pub series_left_out: usize,
}

/// The times that are compared.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct WindowTimes {
    /// When the reference begins.
    pub reference_since: Timestamp,
    /// When it ends and the current window begins.
    pub current_since: Timestamp,
    /// When the current window ends.
    pub current_until: Timestamp,
    /// Which hours are compared with each other.
    pub season: Season,
}

/// Whether something has changed.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    JsonSchema,
    Serialize,
    Deserialize,
    strum::IntoStaticStr,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
#[schemars(rename = "DriftState")]
pub enum DriftState {
    /// Not enough is known yet.
    Learning,
    /// It is as it was, within the thresholds.
    Stable,
    /// It has changed by more than the thresholds.
    Drifted,
}

impl DriftState {
    /// The state of a signal that differs beyond chance, does not, or of which that is not known.
    pub(crate) fn of(beyond: Option<bool>) -> DriftState {
        match beyond {
            None => DriftState::Learning,
            Some(false) => DriftState::Stable,
            Some(true) => DriftState::Drifted,
        }
    }
}

/// Calls of one model, route and workload.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize, Deserialize)]
#[schemars(rename = "DriftSeries")]
pub struct Series {
    /// The model that answered, else the one asked for.
    pub model: Option<String>,
    /// The route.
    pub route: Option<String>,
    /// The workload.
    pub workload: Option<String>,
    /// `drifted` if a signal has, or if the model is new and replaced another one within a day; `learning` if none is known.
    pub state: DriftState,
    /// What changed, when and why, in a sentence; or that it is not known.
    pub sentence: String,
    /// The model that answered before this one took its place; `null` if there is none.
    pub replaced: Option<Replaced>,
    /// Every signal that has calls.
    pub signals: Vec<SignalDrift>,
    /// Where the medians of hours, and of five minutes, jump, less the seasonal median; by time. Complete calls are a share.
    pub change_points: Vec<ChangePoint>,
    /// Why there are no change points yet; `null` where there could be.
    pub change_points_learning: Option<String>,
    /// Why means changed: the mix of calls, or calls of the same kind.
    pub why: Vec<Why>,
}

/// A model whose calls another one has now, on the same route and workload.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize, Deserialize)]
#[schemars(rename = "DriftReplaced")]
pub struct Replaced {
    /// The model that answered before.
    pub model: String,
    /// The last hour that has calls of it.
    pub last_hour: Timestamp,
    /// The first hour that has calls of the new one.
    pub since: Timestamp,
}

/// One signal, in one class where it is kept by classes.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct SignalDrift {
    /// Which.
    pub signal: SignalName,
    /// The class of the prompt's length for `ttft`, of concurrency for `tps`; `null` for all together.
    pub bucket: Option<String>,
    /// Whether it has changed.
    pub state: DriftState,
    /// What is missing while it is learning.
    pub learning: Option<String>,
    /// The reference, standardised to the hours of the current calls.
    pub reference: Option<Figures>,
    /// The current window.
    pub current: Option<Figures>,
    /// The Wasserstein-1 distance in interquartile ranges of the reference; for outcomes and finish reasons the share of
    /// calls that end in another way. `null` where the reference has no spread to measure by.
    pub distance: Option<f64>,
    /// The population stability index; `null` where the reference's deciles are all equal.
    pub stability_index: Option<f64>,
}

/// A distribution in short, in the signal's unit: tokens, seconds, tokens per second, or a share of complete calls.
#[derive(Clone, Copy, Debug, PartialEq, JsonSchema, Serialize, Deserialize)]
#[schemars(rename = "DriftFigures")]
pub struct Figures {
    /// Calls; of a reference the number that weighs as much once its hours are standardised (Kish).
    pub calls: f64,
    /// The effective number of sessions (Kish), which `min_sessions` bounds. A call without a session counts as a session.
    pub sessions: f64,
    /// The mean, exact.
    pub mean: f64,
    /// The median, within 1 %; `null` of shares.
    pub p50: Option<f64>,
    /// The 90th percentile, likewise.
    pub p90: Option<f64>,
}

/// A time at which the level of a signal jumped.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct ChangePoint {
    /// Which signal, over all classes.
    pub signal: SignalName,
    /// When the first step after the change begins: an hour, or five minutes of TTFT and TPS in the last day.
    pub at: Timestamp,
    /// The median level times what the hours before were of their usual values, in the signal's unit.
    pub before: f64,
    /// The same from then on.
    pub after: f64,
    /// The change as a share of the usual value of each hour, with its sign.
    pub change: f64,
    /// The p value of the t test between both sides; not what decides.
    pub p: f64,
    /// The length of a step in seconds: 3600 or 300.
    pub step_seconds: u64,
    /// Steps before it, up to the change point before.
    pub steps_before: usize,
    /// Steps after it.
    pub steps_after: usize,
}

/// Kitagawa's decomposition of the difference of two means, not medians.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize, Deserialize)]
#[schemars(rename = "DriftWhy")]
pub struct Why {
    /// The signal whose mean is decomposed: `ttft` by classes of prompt length, `tps` by classes of concurrency.
    pub signal: SignalName,
    /// The mean in the reference.
    pub before: f64,
    /// The mean now.
    pub after: f64,
    /// What the change of the calls' mix adds to the difference.
    pub mix: f64,
    /// What the change within classes adds. `mix + within` is `after - before`.
    pub within: f64,
    /// Each class.
    pub strata: Vec<Stratum>,
}

/// One class of calls.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize, Deserialize)]
#[schemars(rename = "DriftStratum")]
pub struct Stratum {
    /// Its name; `unknown` where the class is not known.
    pub name: String,
    /// Its share of calls in the reference.
    pub share_before: f64,
    /// Its share now.
    pub share_after: f64,
    /// Its mean in the reference; `null` without calls.
    pub mean_before: Option<f64>,
    /// Its mean now.
    pub mean_after: Option<f64>,
    /// What its change of share adds.
    pub mix: f64,
    /// What its change of mean adds.
    pub within: f64,
}
