//! Metrics of drift from previous weeks.

use super::families;

families! {
    /// Distance from the reference of the series with the largest distance, in interquartile ranges
    /// of the reference. For outcomes and finish reasons it is the share of calls that end
    /// differently. Absent while all series are learning.
    DRIFT_DISTANCE: Gauge[Drift] = "tokengauge_drift_distance_ratio", Ratio;
    /// Series of model, route and workload, by state: learning, stable, drifted. The signal `model`
    /// counts series whose model was replaced by another within a day.
    DRIFT_SERIES: Gauge[DriftStateLabels] = "tokengauge_drift_series", Count;
    /// Series that are not evaluated because there are too many or time is too short.
    DRIFT_SERIES_LEFT_OUT: Gauge[DriftEntry] = "tokengauge_drift_series_left_out", Count;
    /// Duration in seconds of the last evaluation of all drift entries.
    DRIFT_EVALUATION_SECONDS: Gauge[] = "tokengauge_drift_evaluation_seconds", Seconds;
    /// Drift evaluations that failed because the ledger did not answer.
    DRIFT_FAILURES: Counter[] = "tokengauge_drift_failures_total", Count;
}
