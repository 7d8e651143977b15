//! How a gate stands, as the API answers it. What is not known is null.

use crate::settings::Select;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokengauge_core::time::Timestamp;

/// Whether a rollout may continue.
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
    /// It may: every check is shown to hold.
    Pass,
    /// It may not: a check is shown not to hold.
    Fail,
    /// Neither is shown.
    Inconclusive,
}

/// How a gate stands.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize, Deserialize)]
#[schemars(rename = "Gate")]
pub struct Report {
    /// Its name.
    pub name: String,
    /// Whether the rollout may go on.
    pub verdict: GateVerdict,
    /// Why, in a sentence.
    pub reason: String,
    /// Whether it is inconclusive for longer than `max_wait`, so that somebody has to decide.
    pub waited_too_long: bool,
    /// When it passes a candidate that is as good as the baseline; null where it is not inconclusive, and where that is not
    /// known.
    #[serde(default)]
    pub forecast: Option<Forecast>,
    /// When it was evaluated.
    pub evaluated_at: Timestamp,
    /// Calls from then on are looked at; null before the candidate's first call.
    pub since: Option<Timestamp>,
    /// Seconds since then.
    pub waited_seconds: Option<f64>,
    /// The longest wait, in seconds; null is for ever.
    pub max_wait_seconds: Option<f64>,
    /// What is one unit: session, agent or user.
    pub unit: String,
    /// Complete units that each side needs.
    pub min_units: u64,
    /// The probability, for each check over all looks, that it is found to hold where it does not; and for all checks
    /// together, that one is found not to hold where it does.
    pub alpha: f64,
    /// The configuration that was in use: the first 16 digits of its SHA-256.
    pub config_sha256: String,
    /// What is rolled out.
    pub candidate: SideReport,
    /// What it is compared with.
    pub baseline: SideReport,
    /// Units with calls of both sides; they are left out.
    pub mixed_units: u64,
    /// Every check.
    pub checks: Vec<Check>,
}

/// One side.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize, Deserialize)]
#[schemars(rename = "GateSide")]
pub struct SideReport {
    /// Which calls.
    pub select: Select,
    /// All units.
    pub units: u64,
    /// Those that are complete and have calls of this side alone: what is compared.
    pub complete_units: u64,
    /// Calls, of any unit.
    pub calls: u64,
    /// Calls that name no unit. A call without a session is a unit by itself. A call without an agent or user is left out.
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
    /// The candidate's units that become complete in a minute.
    pub units_per_minute: f64,
    /// With the candidate's present share of the traffic.
    pub at: AtShare,
    /// With larger ones.
    pub with_more: Vec<AtShare>,
}

/// The same with one share of the traffic.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize, Deserialize)]
#[schemars(rename = "GateForecastAtShare")]
pub struct AtShare {
    /// The candidate's share of the units.
    pub candidate_share: f64,
    /// Seconds from now on, or from the beginning of the rollout; null where it is more than 30 days.
    pub seconds: Option<f64>,
    /// What takes the longest, or never holds: a check, or the least number of units.
    pub slowest_check: String,
}

/// How long a rollout takes with several shares of the traffic, by the units that the baseline had.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize, Deserialize)]
#[schemars(rename = "GatePlan")]
pub struct Plan {
    /// The gate's name.
    pub name: String,
    /// Which calls its baseline is.
    pub baseline: Select,
    /// The time that was looked at, in seconds.
    pub window_seconds: f64,
    /// What is one unit: session, agent or user.
    pub unit: String,
    /// The units that were looked at.
    pub units: u64,
    /// All calls of the time.
    pub calls: u64,
    /// Units that begin in a minute; null where there are too few.
    pub units_per_minute: Option<f64>,
    /// How long it takes, by share of the traffic.
    pub at: Vec<AtShare>,
    /// Why that is not known; null where it is.
    pub reason: Option<String>,
}

/// What kind of check it is.
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

/// One check.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize, Deserialize)]
#[schemars(rename = "GateCheck")]
pub struct Check {
    /// What is measured, or the objective's name.
    pub name: String,
    /// What kind of check it is.
    pub kind: CheckKind,
    /// Whether it holds.
    pub verdict: GateVerdict,
    /// Whether values are compared relative to the baseline's (0.05 is 5 % of it); else their difference is looked at.
    pub relative: bool,
    /// The units of both sides that it is of.
    pub n: [u64; 2],
    /// The candidate's value.
    pub candidate: Option<f64>,
    /// The baseline's.
    pub baseline: Option<f64>,
    /// What is held against the limit: by how much the candidate is worse, its value, or how fast it burns a budget.
    pub value: Option<f64>,
    /// At least so much, all checks together, at every look.
    pub lower: Option<f64>,
    /// At most so much, at every look.
    pub upper: Option<f64>,
    /// The limit.
    pub limit: f64,
    /// Why nothing is known; null where something is.
    pub reason: Option<String>,
}

/// A value, and what it is at least and at most.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bound {
    pub value: f64,
    pub lower: f64,
    pub upper: f64,
}
