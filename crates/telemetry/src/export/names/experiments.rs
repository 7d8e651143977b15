//! Metrics of experiments.

use super::families;

families! {
    /// Difference of a variant from the baseline in the last evaluation: relative for tps and cost,
    /// otherwise a difference of shares or of a score. Absent while the comparison is withheld.
    EXPERIMENT_DIFFERENCE: Gauge[ExperimentMetric] = "tokengauge_experiment_difference_ratio", Ratio;
    /// Lower bound of the difference of a variant from the baseline, which holds at every look.
    EXPERIMENT_DIFFERENCE_LOWER: Gauge[ExperimentMetric] = "tokengauge_experiment_difference_lower_ratio", Ratio;
    /// Upper bound of the difference of a variant from the baseline, which holds at every look.
    EXPERIMENT_DIFFERENCE_UPPER: Gauge[ExperimentMetric] = "tokengauge_experiment_difference_upper_ratio", Ratio;
    /// Complete units of a variant: sessions, agents, users or blocks of time.
    EXPERIMENT_UNITS: Gauge[ExperimentVariant] = "tokengauge_experiment_units", Count;
    /// 1 if the comparison of the experiment is withheld, otherwise 0. The API reports the reason.
    EXPERIMENT_WITHHELD: Gauge[Experiment] = "tokengauge_experiment_withheld", Count;
    /// Experiment evaluations that failed because the ledger did not answer.
    EXPERIMENT_FAILURES: Counter[] = "tokengauge_experiment_failures_total", Count;
}
