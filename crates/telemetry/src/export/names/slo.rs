//! Metrics of objectives.

use super::families;

families! {
    /// Events of an objective, calls or tokens or slices of time, by verdict and reason.
    SLO_EVENTS: Counter[SloEvent] = tokengauge_slo::rules::EVENTS_METRIC, Count;
    /// The share of events that is promised to be good.
    SLO_OBJECTIVE_RATIO: Gauge[Slo] = "tokengauge_slo_objective_ratio", Ratio;
    /// What is left of the error budget by this process's own counts: 1 untouched, 0 spent, below 0
    /// overspent.
    SLO_ERROR_BUDGET_REMAINING: Gauge[Slo] = "tokengauge_slo_error_budget_remaining_ratio", Ratio;
    /// How fast the error budget is spent by this process's own counts; 1 spends it exactly.
    SLO_BURN_RATE: Gauge[SloWindow] = "tokengauge_slo_burn_rate", Ratio;
}
