use super::super::scalar::Span;
use super::super::schema_types::{EnumNames, Label};
use super::super::spanned::Spanned;
use schemars::JsonSchema;
use serde::Deserialize;
use std::time::Duration;
use tokengauge_core::experiment::AssignedUnit;
use tokengauge_experiments::{DEFAULT_ALPHA, DEFAULT_MIN_UNITS, DEFAULT_SETTLED_AFTER};

/// Highest probability of a false alarm.
pub(crate) const HIGHEST_ALPHA: f64 = 0.5;
const LONGEST_BLOCK: Duration = Duration::from_secs(86_400);
const MAX_ARMS: usize = 10;
const MAX_SCORES: usize = 10;
/// Most calls that start in a block should also end in it.
const SHORTEST_BLOCK: Duration = Duration::from_secs(10);
pub(crate) const SMALLEST_MIN_UNITS: u64 = 10;

/// An experiment on live traffic ([experiments](experiments.md)). With two or more `arms`, the calls of a route are
/// split among the arms, and each arm is compared with the first arm. Without `arms`, agents name their variants, and
/// the entry says how variants are compared.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Experiment {
    /// The name of the experiment in call records and commands.
    #[schemars(with = "Label")]
    pub(crate) name: Spanned<String>,
    /// The name of the route whose calls are split. Works only with `arms`.
    pub(crate) route: Option<Spanned<String>>,
    /// The arms that calls are split among. The first arm is the baseline.
    #[schemars(extend("maxItems" = MAX_ARMS))]
    pub(crate) arms: Option<Spanned<Vec<Arm>>>,
    /// The unit that stays in one arm and counts as one observation: the session, agent or user that the request
    /// headers name.
    #[schemars(with = "Option<EnumNames<AssignedUnit>>", extend("default" = "session"))]
    pub(crate) unit: Option<Spanned<AssignedUnit>>,
    /// A string in the hash that assigns units to arms. The default is the name of the experiment.
    pub(crate) salt: Option<String>,
    /// Instead of sessions, agents or users, blocks of time of this length are assigned to arms. The length is in whole
    /// seconds. Use blocks for arms that share one engine.
    #[schemars(extend(
        "x-minimum" = Span(SHORTEST_BLOCK),
        "x-maximum" = Span(LONGEST_BLOCK),
        "x-reason" = ", in whole seconds",
    ))]
    pub(crate) switchback: Option<Spanned<Span>>,
    /// The probability of reporting a difference that does not exist, over all looks and metrics together.
    #[schemars(extend(
        "default" = DEFAULT_ALPHA,
        "exclusiveMinimum" = 0,
        "maximum" = HIGHEST_ALPHA,
    ))]
    pub(crate) alpha: Option<f64>,
    /// Adds a comparison of the share of calls whose first token takes longer than this, such as `500ms`. There is no
    /// such comparison by default.
    #[schemars(extend("x-exclusiveMinimum" = Span(Duration::ZERO)))]
    pub(crate) ttft_above: Option<Span>,
    /// Adds a comparison of the share of calls that decode no faster than this many tokens per second, such as `20`.
    /// There is no such comparison by default.
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub(crate) tps_below: Option<f64>,
    /// How many sessions, agents, users or blocks of time each arm needs for a result.
    #[schemars(extend("default" = DEFAULT_MIN_UNITS, "minimum" = SMALLEST_MIN_UNITS, "x-reason" = ": intervals are asymptotic"))]
    pub(crate) min_units: Option<u64>,
    /// The names of scores from outside that are compared ([scores](scores.md)). A higher score is better. List them
    /// before the first session.
    #[serde(default)]
    #[schemars(extend("maxItems" = MAX_SCORES))]
    pub(crate) scores: Vec<Spanned<String>>,
    /// How long after its last call a session, agent or user counts as complete and is included in the result.
    #[schemars(extend("default" = Span(DEFAULT_SETTLED_AFTER)))]
    pub(crate) settled_after: Option<Span>,
}

/// One arm of an experiment.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Arm {
    /// The name of the arm. Its calls have this name as their `variant`.
    #[schemars(with = "Label")]
    pub(crate) name: Spanned<String>,
    /// The `name` of the upstream that receives the calls of the arm.
    pub(crate) upstream: Spanned<String>,
    /// The arm's share of sessions, agents or users, relative to the weights of the other arms. Weights of 9 and 1
    /// split the units nine to one.
    #[schemars(extend("default" = 1))]
    pub(crate) weight: Option<Spanned<f64>>,
}
