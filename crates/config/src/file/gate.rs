use super::super::scalar::Span;
use super::super::schema_types::{EnumNames, Label};
use super::super::spanned::Spanned;
use super::experiments::HIGHEST_ALPHA;
use super::experiments::SMALLEST_MIN_UNITS;
use schemars::JsonSchema;
use serde::Deserialize;
use std::time::Duration;
use tokengauge_core::experiment::AssignedUnit;
use tokengauge_experiments::{DEFAULT_ALPHA, DEFAULT_SETTLED_AFTER};
use tokengauge_gate::{Gate as Settings, Margins as Settled};

const LONGEST_WINDOW: Duration = Duration::from_secs(30 * 86_400);
const SHORTEST_WINDOW: Duration = Duration::from_secs(60);
/// Each check needs a part of `alpha`.
const MAX_SCORES: usize = 10;

/// Decides whether a rollout may continue ([gate](gate.md)). A gate compares the calls of a candidate with the calls of
/// a baseline that runs at the same time.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Gate {
    /// The name of the gate in commands and API paths.
    #[schemars(with = "Label")]
    pub(crate) name: Spanned<String>,
    /// The calls to the version that is rolled out.
    pub(crate) candidate: Spanned<GateSelect>,
    /// The calls that the candidate's calls are compared with.
    pub(crate) baseline: Spanned<GateSelect>,
    /// What counts as one observation. With `session`, all calls of a session are one observation.
    #[schemars(with = "Option<EnumNames<AssignedUnit>>", extend("default" = "session"))]
    pub(crate) unit: Option<AssignedUnit>,
    /// By how much the candidate may be worse than the baseline.
    #[serde(default)]
    pub(crate) not_worse_by: Margins,
    /// Scores from outside in which the candidate may not be worse ([scores](scores.md)). There is no such check by
    /// default.
    #[serde(default)]
    #[schemars(extend("maxItems" = MAX_SCORES))]
    pub(crate) scores: Vec<ScoreMargin>,
    /// Adds a check of the share of calls whose first token takes longer than this, such as `2s`. There is no such
    /// check by default.
    #[schemars(extend("x-exclusiveMinimum" = Span(Duration::ZERO)))]
    pub(crate) ttft_above: Option<Span>,
    /// Adds a check of the share of calls that decode no faster than this many tokens per second, such as `20`. There
    /// is no such check by default.
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub(crate) tps_below: Option<f64>,
    /// The share of the candidate's calls that may fail, whatever the baseline does. There is no such check by default.
    #[schemars(extend("exclusiveMinimum" = 0, "maximum" = 1))]
    pub(crate) max_failures: Option<f64>,
    /// The cost in US dollars that one session, agent or user of the candidate may have, on average. There is no such
    /// check by default.
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub(crate) max_cost: Option<f64>,
    /// The names of objectives whose error budgets the candidate's calls may burn no faster than `max_burn`.
    #[serde(default)]
    pub(crate) slos: Vec<Spanned<String>>,
    /// The highest burn rate for the objectives in `slos`. A rate of 1 spends an error budget exactly in its window.
    #[schemars(extend("default" = Settings::MAX_BURN, "exclusiveMinimum" = 0))]
    pub(crate) max_burn: Option<f64>,
    /// The probability of a wrong verdict over all looks: the gate passes although a check does not hold, or fails
    /// although all checks hold.
    #[schemars(extend("default" = DEFAULT_ALPHA, "exclusiveMinimum" = 0, "maximum" = HIGHEST_ALPHA))]
    pub(crate) alpha: Option<f64>,
    /// How many sessions (or agents or users, as `unit` says) each side needs for a verdict.
    #[schemars(extend("default" = Settings::MIN_UNITS, "minimum" = SMALLEST_MIN_UNITS, "x-reason" = ": intervals are asymptotic"))]
    pub(crate) min_sessions: Option<u64>,
    /// How long after its last call a session, agent or user counts as complete and is included in the result.
    #[schemars(extend("default" = Span(DEFAULT_SETTLED_AFTER)))]
    pub(crate) settled_after: Option<Span>,
    /// How far back the gate looks if the caller does not say when the rollout began.
    #[schemars(extend(
        "default" = Span(Settings::WINDOW),
        "x-minimum" = Span(SHORTEST_WINDOW),
        "x-maximum" = Span(LONGEST_WINDOW),
    ))]
    pub(crate) window: Option<Span>,
    /// How long after the candidate's first call the gate asks for a decision by a person. The verdict stays
    /// inconclusive: a gate neither passes nor fails by waiting.
    #[schemars(extend("x-exclusiveMinimum" = Span(Duration::ZERO)))]
    pub(crate) max_wait: Option<Span>,
}

/// A score in which the candidate may not be worse than the baseline.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ScoreMargin {
    /// The name of the score, such as `success`.
    pub(crate) name: Spanned<String>,
    /// How much lower the candidate's average may be. If all values are 0 or 1, 0.02 is two percentage points.
    /// Otherwise the limit is in the unit of the score.
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub(crate) not_worse_by: f64,
}

/// Selects calls. A call must match all keys that are set.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct GateSelect {
    /// Only calls of the route with this name are compared.
    pub(crate) route: Option<Spanned<String>>,
    /// Only calls to the upstream with this name are compared.
    pub(crate) upstream: Option<Spanned<String>>,
    /// Only calls of the model with this full name are compared: the model that answered, or otherwise the requested
    /// model.
    pub(crate) model: Option<String>,
    /// Only calls of the workload with this name are compared.
    pub(crate) workload: Option<Spanned<String>>,
    /// Only calls of the experiment with this name are compared.
    pub(crate) experiment: Option<String>,
    /// Only calls of this variant are compared. Works only with `experiment`.
    pub(crate) variant: Option<String>,
}

/// By how much the candidate may be worse than the baseline. For `tps` and `cost`, 0.1 is a tenth of the baseline's
/// value. For all other keys, 0.03 is three percentage points of the calls.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Margins {
    /// How much lower the candidate's decode speed may be. 0.1 is 10 % of the baseline's speed.
    #[schemars(extend("default" = Settled::TPS, "exclusiveMinimum" = 0, "maximum" = 1))]
    pub(crate) tps: Option<f64>,
    /// How much larger the candidate's share of calls with a first token after `ttft_above` may be. 0.03 is three
    /// percentage points.
    #[schemars(extend("default" = Settled::SHARE, "exclusiveMinimum" = 0, "maximum" = 1))]
    pub(crate) ttft_above: Option<f64>,
    /// How much larger the candidate's share of calls no faster than `tps_below` may be. 0.03 is three percentage
    /// points.
    #[schemars(extend("default" = Settled::SHARE, "exclusiveMinimum" = 0, "maximum" = 1))]
    pub(crate) tps_below: Option<f64>,
    /// How much higher the candidate's cost per session, agent or user may be. 0.1 is 10 % of the baseline's cost.
    /// There is no such check by default.
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub(crate) cost: Option<f64>,
    /// How much larger the candidate's share of failed calls may be. 0.03 is three percentage points.
    #[schemars(extend("default" = Settled::SHARE, "exclusiveMinimum" = 0, "maximum" = 1))]
    pub(crate) failures: Option<f64>,
    /// How much larger the candidate's share of answers that a token limit cuts off may be. 0.03 is three percentage
    /// points.
    #[schemars(extend("default" = Settled::SHARE, "exclusiveMinimum" = 0, "maximum" = 1))]
    pub(crate) truncated: Option<f64>,
    /// How much larger the candidate's share of refused answers may be. 0.03 is three percentage points.
    #[schemars(extend("default" = Settled::SHARE, "exclusiveMinimum" = 0, "maximum" = 1))]
    pub(crate) refused: Option<f64>,
    /// How much larger the candidate's share of answers without text may be. 0.03 is three percentage points.
    #[schemars(extend("default" = Settled::SHARE, "exclusiveMinimum" = 0, "maximum" = 1))]
    pub(crate) empty: Option<f64>,
    /// How much larger the candidate's share of answers that are lost after they began may be. There is no such check
    /// by default, because these answers are also failures.
    #[schemars(extend("exclusiveMinimum" = 0, "maximum" = 1))]
    pub(crate) cut_off: Option<f64>,
    /// How much larger the candidate's share of answers with a tool call that the provider calls unreadable may be.
    /// There is no such check by default.
    #[schemars(extend("exclusiveMinimum" = 0, "maximum" = 1))]
    pub(crate) invalid_tool_calls: Option<f64>,
}
