//! Metrics of objectives.

use super::families;

families! {
    /// Events of an objective (calls, tokens or slices of time), by verdict and reason.
    SLO_EVENTS: Counter[SloEvent] = tokengauge_slo::rules::EVENTS_METRIC, Count;
    /// Share of events that must be good to meet the objective.
    SLO_OBJECTIVE_RATIO: Gauge[Slo] = "tokengauge_slo_objective_ratio", Ratio;
    /// Remaining share of the error budget by the counts of this process: 1 untouched, 0 spent,
    /// below 0 overspent.
    SLO_ERROR_BUDGET_REMAINING: Gauge[Slo] = "tokengauge_slo_error_budget_remaining_ratio", Ratio;
    /// Burn rate of the error budget by the counts of this process. 1 spends the budget exactly in
    /// its period.
    SLO_BURN_RATE: Gauge[SloWindow] = "tokengauge_slo_burn_rate", Ratio;
}
