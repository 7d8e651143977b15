//! Metrics of experiments.

use super::families;

families! {
    /// By how much a variant is above the baseline, as the last minute has it: relative to it for tps and cost, else a difference of
    /// shares. Absent while it is withheld.
    EXPERIMENT_DIFFERENCE: Gauge[ExperimentMetric] = "tokengauge_experiment_difference_ratio", Ratio;
    /// The lower bound of that difference, which holds at every look.
    EXPERIMENT_DIFFERENCE_LOWER: Gauge[ExperimentMetric] = "tokengauge_experiment_difference_lower_ratio", Ratio;
    /// The upper bound of that difference, which holds at every look.
    EXPERIMENT_DIFFERENCE_UPPER: Gauge[ExperimentMetric] = "tokengauge_experiment_difference_upper_ratio", Ratio;
    /// Complete units of a variant: sessions, agents, users or blocks of time.
    EXPERIMENT_UNITS: Gauge[ExperimentVariant] = "tokengauge_experiment_units", Count;
    /// 1 where nothing of an experiment is compared, else 0; the API says why.
    EXPERIMENT_WITHHELD: Gauge[Experiment] = "tokengauge_experiment_withheld", Count;
    /// Evaluations of experiments that the ledger did not answer.
    EXPERIMENT_FAILURES: Counter[] = "tokengauge_experiment_failures_total", Count;
}
