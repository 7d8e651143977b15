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

/// Compares recent calls with the calls of earlier weeks, by model, route and workload ([drift](drift.md)). Drift needs
/// a ledger.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Drift {
    /// The name of the entry in alerts and metric labels.
    #[schemars(with = "Label")]
    pub(crate) name: Spanned<String>,
    /// The calls that are compared. The default is all calls.
    #[serde(default)]
    pub(crate) select: DriftSelect,
    /// The length of the earlier time that recent calls are compared with, in whole hours. This time ends where
    /// `current` begins.
    #[schemars(extend(
        "default" = Span(Settings::REFERENCE),
        "x-minimum" = Span(SHORTEST),
        "x-maximum" = Span(LONGEST),
    ))]
    pub(crate) reference: Option<Spanned<Span>>,
    /// The length of the recent time that is compared, in whole hours. This time ends now.
    #[schemars(extend(
        "default" = Span(Settings::CURRENT),
        "x-minimum" = Span(SHORTEST),
        "x-maximum" = Span(LONGEST),
    ))]
    pub(crate) current: Option<Spanned<Span>>,
    /// Which hours of the reference an hour is compared with, in UTC. `week` is the same hour of the week, `day` the
    /// same hour of the day, and `none` any hour.
    #[schemars(with = "Option<EnumNames<Season>>", extend("default" = "week"))]
    pub(crate) season: Option<Season>,
    /// How many sessions the recent time and the reference each need for a result. A call without a session counts as a
    /// session.
    #[schemars(extend("default" = Thresholds::default().min_sessions, "minimum" = 2, "x-also" = ["min_calls"]))]
    pub(crate) min_sessions: Option<u64>,
    /// A signal has drifted only if its Wasserstein-1 distance reaches this many interquartile ranges of the reference.
    /// 0.3 is a shift by about a third of the usual spread.
    #[schemars(extend(
        "default" = Thresholds::default().distance,
        "exclusiveMinimum" = 0,
        "x-must" = POSITIVE,
        "x-reason" = ": at 0 everything is drift",
    ))]
    pub(crate) distance: Option<f64>,
    /// A signal has drifted only if its population stability index reaches this value.
    #[schemars(extend(
        "default" = Thresholds::default().stability_index,
        "exclusiveMinimum" = 0,
        "x-must" = POSITIVE,
        "x-reason" = ": at 0 everything is drift",
    ))]
    pub(crate) stability_index: Option<f64>,
    /// A signal has drifted only if its distance reaches this share of the reference's mean: 0.1 is 10 %. A change
    /// point also needs at least this change.
    #[schemars(extend(
        "default" = Thresholds::default().min_change,
        "exclusiveMinimum" = 0,
        "x-must" = POSITIVE,
        "x-reason" = ": at 0 everything is drift",
    ))]
    pub(crate) min_change: Option<f64>,
    /// Outcomes and finish reasons have drifted only if at least this share of calls ends in another way.
    #[schemars(extend(
        "default" = Thresholds::default().outcome_share,
        "exclusiveMinimum" = 0,
        "maximum" = 1,
        "x-must" = "a share above 0 and at most 1, such as 0.05",
    ))]
    pub(crate) outcome_share: Option<f64>,
}

/// Selects series. A series must match all keys that are set.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct DriftSelect {
    /// Only models of this pattern are compared, such as `gpt-4*`. The pattern matches the model that answered, or
    /// otherwise the requested model.
    pub(crate) model: Option<String>,
    /// Only calls of the route with this name are compared.
    pub(crate) route: Option<Spanned<String>>,
    /// Only calls of the workload with this name are compared.
    pub(crate) workload: Option<Spanned<String>>,
}
