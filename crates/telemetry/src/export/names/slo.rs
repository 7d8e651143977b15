//! How objectives stand.

use super::{Metric, Unit, counter, gauge};

/// The promises, event by event.
pub const SLO_EVENTS: Metric = counter(
    tokengauge_slo::rules::EVENTS_METRIC,
    Unit::Count,
    &["slo", "verdict", "reason"],
    "Events of an objective, calls or tokens or slices of time, by verdict and reason.",
);
/// The share of events that is promised to be good.
pub const SLO_OBJECTIVE_RATIO: Metric = gauge(
    "tokengauge_slo_objective_ratio",
    Unit::Ratio,
    &["slo"],
    "The share of events that is promised to be good.",
);
/// What is left of the error budget by this process's own counts: 1 untouched, 0 spent, below 0
/// overspent.
pub const SLO_ERROR_BUDGET_REMAINING: Metric = gauge(
    "tokengauge_slo_error_budget_remaining_ratio",
    Unit::Ratio,
    &["slo"],
    "What is left of the error budget by this process's own counts: 1 untouched, 0 spent, below 0 overspent.",
);
/// How fast it goes.
pub const SLO_BURN_RATE: Metric = gauge(
    "tokengauge_slo_burn_rate",
    Unit::Ratio,
    &["slo", "window"],
    "How fast the error budget is spent by this process's own counts; 1 spends it exactly.",
);
