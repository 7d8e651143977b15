//! The state of a gate as the API shows it. Unknown values are null.

use crate::settings::Select;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokengauge_core::time::Timestamp;

/// The verdict on a rollout or on one check.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    JsonSchema,
    Serialize,
    Deserialize,
    strum::IntoStaticStr,
    strum::EnumIter,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
#[schemars(rename = "GateVerdict")]
pub enum GateVerdict {
    /// The rollout may continue: every check is shown to hold.
    Pass,
    /// The rollout may not continue: a check is shown not to hold.
    Fail,
    /// It is not shown yet that every check holds, or that a check does not hold.
    Inconclusive,
}

/// The state of a gate.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize, Deserialize)]
#[schemars(rename = "Gate")]
pub struct Report {
    /// The name of the gate.
    pub name: String,
    /// Whether the rollout may continue.
    pub verdict: GateVerdict,
    /// The reason for the verdict, in a sentence.
    pub reason: String,
    /// Whether the gate has been inconclusive for longer than `max_wait`, so that a person must decide.
    pub waited_too_long: bool,
    /// When the gate passes a candidate that is as good as the baseline; null if the gate is not inconclusive or the time
    /// is unknown.
    #[serde(default)]
    pub forecast: Option<Forecast>,
    /// When the gate was evaluated.
    pub evaluated_at: Timestamp,
    /// The start of the observed time; null before the candidate's first call.
    pub since: Option<Timestamp>,
    /// Seconds since `since`.
    pub waited_seconds: Option<f64>,
    /// The longest wait in seconds; null if there is no limit.
    pub max_wait_seconds: Option<f64>,
    /// The unit of comparison: session, agent or user.
    pub unit: String,
    /// The number of complete units that each side needs.
    pub min_units: u64,
    /// The error probability over all evaluations: for each check, of finding that it holds although it does not; for all
    /// checks together, of finding that one does not hold although it does.
    pub alpha: f64,
    /// The first 16 digits of the SHA-256 of the configuration that was in use.
    pub config_sha256: String,
    /// The side that is rolled out.
    pub candidate: SideReport,
    /// The side that the candidate is compared with.
    pub baseline: SideReport,
    /// Units with calls of both sides. They are left out.
    pub mixed_units: u64,
    /// The checks of the gate.
    pub checks: Vec<Check>,
}

/// The calls and units of one side.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize, Deserialize)]
#[schemars(rename = "GateSide")]
pub struct SideReport {
    /// Which calls belong to this side.
    pub select: Select,
    /// The number of all units.
    pub units: u64,
    /// The number of units that are compared: they are complete and have calls of only this side.
    pub complete_units: u64,
    /// The number of calls, with or without a unit.
    pub calls: u64,
    /// Calls without a unit. A call without a session is a unit by itself. A call without an agent or user is left out.
    pub calls_without_unit: u64,
    /// 1 if all calls were read, n if the calls of one session in n were read.
    #[serde(default = "one")]
    pub one_in: u64,
}

fn one() -> u64 {
    1
}

/// When a gate passes a candidate that is as good as the baseline.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize, Deserialize)]
#[schemars(rename = "GateForecast")]
pub struct Forecast {
    /// The number of the candidate's units that become complete per minute.
    pub units_per_minute: f64,
    /// The forecast for the candidate's present share of the traffic.
    pub at: AtShare,
    /// The forecasts for larger shares of the traffic.
    pub with_more: Vec<AtShare>,
}

/// The forecast for one share of the traffic.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize, Deserialize)]
#[schemars(rename = "GateForecastAtShare")]
pub struct AtShare {
    /// The candidate's share of the units.
    pub candidate_share: f64,
    /// Seconds from now, or from the start of the rollout in a plan; null if it takes more than 30 days.
    pub seconds: Option<f64>,
    /// The check that passes last or never passes, or the least number of units if that takes longest.
    pub slowest_check: String,
}

/// How long a rollout takes with several shares of the traffic, computed from the baseline's units.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize, Deserialize)]
#[schemars(rename = "GatePlan")]
pub struct Plan {
    /// The name of the gate.
    pub name: String,
    /// Which calls belong to the baseline.
    pub baseline: Select,
    /// The length of the observed time in seconds.
    pub window_seconds: f64,
    /// The unit of comparison: session, agent or user.
    pub unit: String,
    /// The number of observed units.
    pub units: u64,
    /// The number of observed calls.
    pub calls: u64,
    /// Units that begin per minute; null if there are too few units.
    pub units_per_minute: Option<f64>,
    /// How long the rollout takes with each share of the traffic.
    pub at: Vec<AtShare>,
    /// Why the durations are unknown; null if they are known.
    pub reason: Option<String>,
}

/// The kind of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "GateCheckKind")]
pub enum CheckKind {
    /// The candidate is not worse than the baseline by more than the limit.
    NotWorseBy,
    /// The candidate's value is at most the limit.
    AtMost,
    /// The candidate's calls burn the budget of an objective no faster than the limit.
    Burn,
}

/// A check and its verdict.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize, Deserialize)]
#[schemars(rename = "GateCheck")]
pub struct Check {
    /// The metric, or the name of the objective.
    pub name: String,
    /// The kind of the check.
    pub kind: CheckKind,
    /// Whether the check holds.
    pub verdict: GateVerdict,
    /// Whether the value is relative to the baseline's value (0.05 is 5 % of it). Otherwise it is a difference.
    pub relative: bool,
    /// Whether the values are in the unit of a score that is not a share.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub in_unit_of_score: bool,
    /// The number of units of the candidate and of the baseline.
    pub n: [u64; 2],
    /// The candidate's value.
    pub candidate: Option<f64>,
    /// The baseline's value.
    pub baseline: Option<f64>,
    /// The value that is compared with the limit: by how much the candidate is worse, its own value, or its burn rate.
    pub value: Option<f64>,
    /// The lower bound of the value, valid for all checks together and at every evaluation.
    pub lower: Option<f64>,
    /// The upper bound of the value, valid at every evaluation.
    pub upper: Option<f64>,
    /// The limit of the value.
    pub limit: f64,
    /// Why nothing is known; null if the value is known.
    pub reason: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bound {
    pub value: f64,
    pub lower: f64,
    pub upper: f64,
}
