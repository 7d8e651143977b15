//! Figures of a load with their intervals.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A figure over all trials of a load.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct LevelFigure {
    /// The mean of the trials.
    pub value: f64,
    /// The lower end of the interval of the mean; `null` if it is unknown.
    pub lower: Option<f64>,
    /// The upper end of the interval of the mean; `null` if it is unknown.
    pub upper: Option<f64>,
    /// How the interval was computed.
    pub method: Method,
    /// The figure of each counted trial, in the order of the trials.
    pub trials: Vec<f64>,
}

/// How an interval was computed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Method {
    /// Student's t across trials.
    StudentT,
    /// Student's t across trials, with a confidence that holds for the intervals after each trial together, because the
    /// run may stop after any trial.
    SequentialStudentT,
    /// The moving-block bootstrap within a single trial.
    #[default]
    MovingBlockBootstrap,
}

/// A tail percentile over the calls of all trials.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct TailFigure {
    /// The name of the tail, such as `ttft_p95` or `tps_p5`.
    pub name: String,
    /// The percentile of the calls; `null` if there are too few calls for its bound.
    pub value: Option<f64>,
    /// The upper bound of the percentile at 99 % (LoadGen); `null` if there are too few calls.
    pub bound: Option<f64>,
    /// The number of calls that have the figure.
    pub calls: usize,
    /// The number of calls that the bound needs.
    pub calls_needed: usize,
}
