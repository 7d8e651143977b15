//! The result of a comparison, as the API and `--format json` show it.

use crate::settings::Season;
use crate::signal::SignalName;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokengauge_core::time::Timestamp;

/// One comparison and its series.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize, Deserialize)]
#[schemars(rename = "Drift")]
pub struct Entry {
    /// The name of the comparison in the configuration.
    pub name: String,
    /// The most severe state of any series.
    pub state: DriftState,
    /// The periods that are compared.
    pub windows: WindowTimes,
    /// At most 20 series, the one with most calls first.
    pub series: Vec<Series>,
    /// The number of series that were not evaluated: `series` is full of series with more calls, or the evaluation ran out
    /// of time.
    pub series_left_out: usize,
}

/// The periods that are compared.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct WindowTimes {
    /// When the reference begins.
    pub reference_since: Timestamp,
    /// When the reference ends and the current window begins.
    pub current_since: Timestamp,
    /// When the current window ends.
    pub current_until: Timestamp,
    /// Which hours are compared with each other.
    pub season: Season,
}

/// Whether the calls of a series have changed.
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
    /// There are not enough calls yet to decide.
    Learning,
    /// The differences are within the thresholds or explained by chance.
    Stable,
    /// The differences exceed the thresholds and chance.
    Drifted,
}

impl DriftState {
    /// The state of a signal, by whether it differs beyond chance. `None` if that is unknown.
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
    /// The model that answered. If that is unknown, the requested model.
    pub model: Option<String>,
    /// The route.
    pub route: Option<String>,
    /// The workload.
    pub workload: Option<String>,
    /// `drifted` if a signal drifted, or if the model replaced another one within a day; `learning` if no signal has a
    /// known state.
    pub state: DriftState,
    /// A sentence that says what changed, when and why, or that it is not known.
    pub sentence: String,
    /// The model that this model replaced; `null` if it replaced none.
    pub replaced: Option<Replaced>,
    /// Every signal that has calls.
    pub signals: Vec<SignalDrift>,
    /// Jumps of hourly or five-minute medians minus the seasonal median, in order of time. For complete calls the level is
    /// a share.
    pub change_points: Vec<ChangePoint>,
    /// Why there are no change points yet; `null` if they can be computed.
    pub change_points_learning: Option<String>,
    /// Why means changed: by the mix of calls, or within calls of one class.
    pub why: Vec<Why>,
}

/// A model that another one replaced on the same route and workload.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize, Deserialize)]
#[schemars(rename = "DriftReplaced")]
pub struct Replaced {
    /// The model that answered before the replacement.
    pub model: String,
    /// The last hour with calls of the replaced model.
    pub last_hour: Timestamp,
    /// The first hour with calls of the new model.
    pub since: Timestamp,
}

/// One signal, over all classes or in one class.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct SignalDrift {
    /// The signal.
    pub signal: SignalName,
    /// The prompt length class for `ttft`, or the concurrency class for `tps`; `null` for all classes together.
    pub bucket: Option<String>,
    /// Whether the signal has changed.
    pub state: DriftState,
    /// What is missing while the state is `learning`.
    pub learning: Option<String>,
    /// Figures of the reference, standardised to the hours of the current calls.
    pub reference: Option<Figures>,
    /// Figures of the current window.
    pub current: Option<Figures>,
    /// The Wasserstein-1 distance in interquartile ranges of the reference. For outcomes and finish reasons, the share of
    /// calls that end differently. `null` if the reference has no spread.
    pub distance: Option<f64>,
    /// The population stability index; `null` if all deciles of the reference are equal.
    pub stability_index: Option<f64>,
}

/// A summary of a distribution in the unit of its signal: tokens, seconds, tokens per second, or a share of complete calls.
#[derive(Clone, Copy, Debug, PartialEq, JsonSchema, Serialize, Deserialize)]
#[schemars(rename = "DriftFigures")]
pub struct Figures {
    /// The number of calls. For the reference, the effective number after its hours are standardised (Kish).
    pub calls: f64,
    /// The effective number of sessions (Kish), which `min_sessions` bounds. A call without a session counts as a session.
    pub sessions: f64,
    /// The exact mean.
    pub mean: f64,
    /// The median, within 1 %; `null` for shares.
    pub p50: Option<f64>,
    /// The 90th percentile, within 1 %; `null` for shares.
    pub p90: Option<f64>,
}

/// A time at which the level of a signal jumped.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct ChangePoint {
    /// The signal, over all classes.
    pub signal: SignalName,
    /// When the first step after the change begins.
    pub at: Timestamp,
    /// The level before the change in the unit of the signal: the median level times the ratio to the usual values before
    /// the change.
    pub before: f64,
    /// The level after the change in the unit of the signal.
    pub after: f64,
    /// The signed change as a share of the usual value of each hour.
    pub change: f64,
    /// The p value of the t test between both sides. It does not decide whether there is a change.
    pub p: f64,
    /// The length of a step in seconds: 3600 or 300.
    pub step_seconds: u64,
    /// The number of steps since the previous change point.
    pub steps_before: usize,
    /// The number of steps after the change.
    pub steps_after: usize,
}

/// Kitagawa's decomposition of the difference between two means (not medians).
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize, Deserialize)]
#[schemars(rename = "DriftWhy")]
pub struct Why {
    /// The signal whose mean is decomposed: `ttft` by prompt length classes, or `tps` by concurrency classes.
    pub signal: SignalName,
    /// The mean in the reference.
    pub before: f64,
    /// The mean in the current window.
    pub after: f64,
    /// The part of the difference due to the changed mix of calls.
    pub mix: f64,
    /// The part of the difference due to changes within classes. `mix + within` equals `after - before`.
    pub within: f64,
    /// The parts of each class.
    pub strata: Vec<Stratum>,
}

/// One class of calls.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize, Deserialize)]
#[schemars(rename = "DriftStratum")]
pub struct Stratum {
    /// The name of the class; `unknown` for calls without a known class.
    pub name: String,
    /// The class's share of calls in the reference.
    pub share_before: f64,
    /// The class's share of calls in the current window.
    pub share_after: f64,
    /// The class's mean in the reference; `null` without calls.
    pub mean_before: Option<f64>,
    /// The class's mean in the current window; `null` without calls.
    pub mean_after: Option<f64>,
    /// The part of the difference due to the class's changed share.
    pub mix: f64,
    /// The part of the difference due to the class's changed mean.
    pub within: f64,
}
