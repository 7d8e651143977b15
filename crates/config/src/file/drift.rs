//! The tables of comparisons with the weeks before.

use super::super::scalar::Span;
use super::super::schema_types::{EnumNames, Label};
use super::super::spanned::Spanned;
use schemars::JsonSchema;
use serde::Deserialize;
use std::time::Duration;
use tokengauge_drift::{Season, Settings, Thresholds};

const LONGEST: Duration = Duration::from_secs(400 * 86_400);
/// The ledger keeps distributions by hour.
const SHORTEST: Duration = Duration::from_secs(3_600);

const POSITIVE: &str = "a number above 0";

/// What is compared with the weeks before ([drift](drift.md)), by model, route and workload; needs a ledger.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Drift {
    /// Becomes a label.
    #[schemars(with = "Label")]
    pub(crate) name: Spanned<String>,
    /// The calls that it is for; all by default.
    #[serde(default)]
    pub(crate) select: DriftSelect,
    /// The time before the current window that it is compared with, in whole hours.
    #[schemars(extend(
        "default" = Span(Settings::REFERENCE),
        "x-minimum" = Span(SHORTEST),
        "x-maximum" = Span(LONGEST),
    ))]
    pub(crate) reference: Option<Spanned<Span>>,
    /// The time that has just passed, in whole hours.
    #[schemars(extend(
        "default" = Span(Settings::CURRENT),
        "x-minimum" = Span(SHORTEST),
        "x-maximum" = Span(LONGEST),
    ))]
    pub(crate) current: Option<Spanned<Span>>,
    /// Which hours are compared: the same of the `week`, the same of the `day`, or any with any (`none`). In UTC.
    #[schemars(with = "Option<EnumNames<Season>>", extend("default" = "week"))]
    pub(crate) season: Option<Season>,
    /// Sessions in either window before anything is said. A call without a session counts as a session.
    #[schemars(extend("default" = Thresholds::default().min_sessions, "minimum" = 2, "x-also" = ["min_calls"]))]
    pub(crate) min_sessions: Option<u64>,
    /// Drift from this Wasserstein-1 distance on, in interquartile ranges of the reference.
    #[schemars(extend(
        "default" = Thresholds::default().distance,
        "exclusiveMinimum" = 0,
        "x-must" = POSITIVE,
        "x-reason" = ": at 0 everything is drift",
    ))]
    pub(crate) distance: Option<f64>,
    /// And from this population stability index on.
    #[schemars(extend(
        "default" = Thresholds::default().stability_index,
        "exclusiveMinimum" = 0,
        "x-must" = POSITIVE,
        "x-reason" = ": at 0 everything is drift",
    ))]
    pub(crate) stability_index: Option<f64>,
    /// And from this distance on as a share of the reference's mean; the least change of a change point, too.
    #[schemars(extend(
        "default" = Thresholds::default().min_change,
        "exclusiveMinimum" = 0,
        "x-must" = POSITIVE,
        "x-reason" = ": at 0 everything is drift",
    ))]
    pub(crate) min_change: Option<f64>,
    /// The share of calls that end in another way, from which on outcomes and finish reasons have drifted.
    #[schemars(extend(
        "default" = Thresholds::default().outcome_share,
        "exclusiveMinimum" = 0,
        "maximum" = 1,
        "x-must" = "a share above 0 and at most 1, such as 0.05",
    ))]
    pub(crate) outcome_share: Option<f64>,
}

/// Which series are compared: those that match everything that is named.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct DriftSelect {
    /// The model that answered, else the one asked for; `*` is any run of characters.
    pub(crate) model: Option<String>,
    /// The route's name.
    pub(crate) route: Option<Spanned<String>>,
    /// The workload's name.
    pub(crate) workload: Option<Spanned<String>>,
}
