//! Metrics of drift from previous weeks.

use super::families;

families! {
    /// The distance from the reference of the series that is furthest from it: in interquartile ranges of the reference, for
    /// outcomes and finish reasons the share of calls that end in another way. Absent while all are learning.
    DRIFT_DISTANCE: Gauge[Drift] = "tokengauge_drift_distance_ratio", Ratio;
    /// Series of model, route and workload by state: learning, stable, drifted. The signal `model` has the series whose model replaced another one within a day.
    DRIFT_SERIES: Gauge[DriftStateLabels] = "tokengauge_drift_series", Count;
    /// Series that are not evaluated because there are too many, or for want of time.
    DRIFT_SERIES_LEFT_OUT: Gauge[DriftEntry] = "tokengauge_drift_series_left_out", Count;
    /// How long the last evaluation of all entries took.
    DRIFT_EVALUATION_SECONDS: Gauge[] = "tokengauge_drift_evaluation_seconds", Seconds;
    /// Evaluations that the ledger did not answer.
    DRIFT_FAILURES: Counter[] = "tokengauge_drift_failures_total", Count;
}
