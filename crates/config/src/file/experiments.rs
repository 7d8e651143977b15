//! The tables of experiments.

use super::super::scalar::Span;
use super::super::schema_types::{EnumNames, Label};
use super::super::spanned::Spanned;
use schemars::JsonSchema;
use serde::Deserialize;
use std::time::Duration;
use tokengauge_core::experiment::AssignedUnit;
use tokengauge_experiments::{DEFAULT_ALPHA, DEFAULT_MIN_UNITS, DEFAULT_SETTLED_AFTER};

/// The highest probability of a false alarm.
pub(crate) const HIGHEST_ALPHA: f64 = 0.5;
const LONGEST_BLOCK: Duration = Duration::from_secs(86_400);
const MAX_ARMS: usize = 10;
/// The shortest block of time: calls of one block are to end within it, most of them.
const SHORTEST_BLOCK: Duration = Duration::from_secs(10);
/// The least number of units that may be asked for.
pub(crate) const SMALLEST_MIN_UNITS: u64 = 10;

/// An experiment on live traffic ([experiments](experiments.md)). With `arms`, two or more, the route's calls are split among
/// them, and the others are compared with the first; without, agents name their variants, and this says how they are judged.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Experiment {
    /// Its name in records and commands.
    #[schemars(with = "Label")]
    pub(crate) name: Spanned<String>,
    /// With `arms`: the name of the route whose calls are split.
    pub(crate) route: Option<Spanned<String>>,
    /// Where the calls go; the first arm is the baseline.
    #[schemars(extend("maxItems" = MAX_ARMS))]
    pub(crate) arms: Option<Spanned<Vec<Arm>>>,
    /// What is assigned to an arm as a whole and is one observation: by the headers of its calls.
    #[schemars(with = "Option<EnumNames<AssignedUnit>>", extend("default" = "session"))]
    pub(crate) unit: Option<Spanned<AssignedUnit>>,
    /// Goes into the hash that assigns units; the experiment's name by default.
    pub(crate) salt: Option<String>,
    /// For arms that share one engine: blocks of time of this length are assigned to arms, in place of units.
    #[schemars(extend(
        "x-minimum" = Span(SHORTEST_BLOCK),
        "x-maximum" = Span(LONGEST_BLOCK),
        "x-reason" = ", in whole seconds",
    ))]
    pub(crate) switchback: Option<Spanned<Span>>,
    /// The probability, over all looks and metrics together, of finding a difference where there is none.
    #[schemars(extend(
        "default" = DEFAULT_ALPHA,
        "exclusiveMinimum" = 0,
        "maximum" = HIGHEST_ALPHA,
    ))]
    pub(crate) alpha: Option<f64>,
    /// The share of calls that wait longer for the first token is compared. Without it that is not.
    #[schemars(extend("x-exclusiveMinimum" = Span(Duration::ZERO)))]
    pub(crate) ttft_above: Option<Span>,
    /// The share of calls that decode no faster is compared, in tokens per second. Without it that is not.
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub(crate) tps_below: Option<f64>,
    /// Units that each arm must have before anything is said.
    #[schemars(extend("default" = DEFAULT_MIN_UNITS, "minimum" = SMALLEST_MIN_UNITS, "x-reason" = ": intervals are asymptotic"))]
    pub(crate) min_units: Option<u64>,
    /// A unit counts when its last call is over for so long.
    #[schemars(extend("default" = Span(DEFAULT_SETTLED_AFTER)))]
    pub(crate) settled_after: Option<Span>,
}

/// One arm.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Arm {
    /// The variant of its calls.
    #[schemars(with = "Label")]
    pub(crate) name: Spanned<String>,
    /// The `name` of the upstream that its calls go to.
    pub(crate) upstream: Spanned<String>,
    /// Its part of the units, relative to the other weights.
    #[schemars(extend("default" = 1))]
    pub(crate) weight: Option<Spanned<f64>>,
}
