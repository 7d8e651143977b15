//! The tables of gates.

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

/// Whether a rollout may go on ([gate](gate.md)): a candidate's calls are held against those of a baseline, which goes on
/// meanwhile.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Gate {
    /// Its name in commands and addresses.
    #[schemars(with = "Label")]
    pub(crate) name: Spanned<String>,
    /// The calls of what is rolled out.
    pub(crate) candidate: Spanned<GateSelect>,
    /// The calls that they are compared with.
    pub(crate) baseline: Spanned<GateSelect>,
    /// What is one observation.
    #[schemars(with = "Option<EnumNames<AssignedUnit>>", extend("default" = "session"))]
    pub(crate) unit: Option<AssignedUnit>,
    /// By how much the candidate may be worse.
    #[serde(default)]
    pub(crate) not_worse_by: Margins,
    /// The share of calls that wait longer for the first token is compared. Without it that is not.
    #[schemars(extend("x-exclusiveMinimum" = Span(Duration::ZERO)))]
    pub(crate) ttft_above: Option<Span>,
    /// The share of calls that decode no faster is compared, in tokens per second. Without it that is not.
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub(crate) tps_below: Option<f64>,
    /// The share of the candidate's calls that may fail, whatever the baseline's do.
    #[schemars(extend("exclusiveMinimum" = 0, "maximum" = 1))]
    pub(crate) max_failures: Option<f64>,
    /// What the candidate may cost, in US dollars per unit.
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub(crate) max_cost: Option<f64>,
    /// The names of objectives whose budgets the candidate's calls may not burn too fast.
    #[serde(default)]
    pub(crate) slos: Vec<Spanned<String>>,
    /// How fast that is; 1 spends a budget exactly in its period.
    #[schemars(extend("default" = Settings::MAX_BURN, "exclusiveMinimum" = 0))]
    pub(crate) max_burn: Option<f64>,
    /// The probability, over all looks, that it passes where a check does not hold, or fails where all do.
    #[schemars(extend("default" = DEFAULT_ALPHA, "exclusiveMinimum" = 0, "maximum" = HIGHEST_ALPHA))]
    pub(crate) alpha: Option<f64>,
    /// Sessions that each side must have before anything is said; agents or users where these are the unit.
    #[schemars(extend("default" = Settings::MIN_UNITS, "minimum" = SMALLEST_MIN_UNITS, "x-reason" = ": intervals are asymptotic"))]
    pub(crate) min_sessions: Option<u64>,
    /// One counts when its last call is over for so long.
    #[schemars(extend("default" = Span(DEFAULT_SETTLED_AFTER)))]
    pub(crate) settled_after: Option<Span>,
    /// Older calls are not looked at, where nobody says since when.
    #[schemars(extend(
        "default" = Span(Settings::WINDOW),
        "x-minimum" = Span(SHORTEST_WINDOW),
        "x-maximum" = Span(LONGEST_WINDOW),
    ))]
    pub(crate) window: Option<Span>,
    /// So long after the candidate's first call somebody has to decide if the gate cannot. It stays inconclusive: it neither passes
    /// nor fails by waiting.
    #[schemars(extend("x-exclusiveMinimum" = Span(Duration::ZERO)))]
    pub(crate) max_wait: Option<Span>,
}

/// Which calls: those that match everything that is named.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct GateSelect {
    /// The route's name.
    pub(crate) route: Option<Spanned<String>>,
    /// The upstream's name.
    pub(crate) upstream: Option<Spanned<String>>,
    /// The model that answered, else the one asked for; the whole name.
    pub(crate) model: Option<String>,
    /// The workload's name.
    pub(crate) workload: Option<Spanned<String>>,
    /// The experiment that calls name.
    pub(crate) experiment: Option<String>,
    /// The variant of it.
    pub(crate) variant: Option<String>,
}

/// By how much the candidate may be worse. For `tps` and `cost`, 0.1 is a tenth of the baseline's value. For all others, 0.03 is three
/// percentage points of the calls.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Margins {
    /// How much lower the decode speed may be.
    #[schemars(extend("default" = Settled::TPS, "exclusiveMinimum" = 0, "maximum" = 1))]
    pub(crate) tps: Option<f64>,
    /// How many more calls may wait longer than `ttft_above`.
    #[schemars(extend("default" = Settled::SHARE, "exclusiveMinimum" = 0, "maximum" = 1))]
    pub(crate) ttft_above: Option<f64>,
    /// How many more calls may decode no faster than `tps_below`.
    #[schemars(extend("default" = Settled::SHARE, "exclusiveMinimum" = 0, "maximum" = 1))]
    pub(crate) tps_below: Option<f64>,
    /// How much more a unit may cost. Without it that is not compared.
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub(crate) cost: Option<f64>,
    /// How many more calls may fail.
    #[schemars(extend("default" = Settled::SHARE, "exclusiveMinimum" = 0, "maximum" = 1))]
    pub(crate) failures: Option<f64>,
    /// How many more answers a limit on tokens may cut off.
    #[schemars(extend("default" = Settled::SHARE, "exclusiveMinimum" = 0, "maximum" = 1))]
    pub(crate) truncated: Option<f64>,
    /// How many more answers may be refused.
    #[schemars(extend("default" = Settled::SHARE, "exclusiveMinimum" = 0, "maximum" = 1))]
    pub(crate) refused: Option<f64>,
    /// How many more answers may come without text.
    #[schemars(extend("default" = Settled::SHARE, "exclusiveMinimum" = 0, "maximum" = 1))]
    pub(crate) empty: Option<f64>,
    /// How many more answers may be lost after they began; not compared by default, since they are also failures.
    #[schemars(extend("exclusiveMinimum" = 0, "maximum" = 1))]
    pub(crate) cut_off: Option<f64>,
    /// How many more answers may have a tool call that the provider calls unreadable; not compared by default.
    #[schemars(extend("exclusiveMinimum" = 0, "maximum" = 1))]
    pub(crate) invalid_tool_calls: Option<f64>,
}
