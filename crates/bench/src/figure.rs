//! A figure of a load, with what is known of its precision.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A figure over all trials of a load.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct LevelFigure {
    /// The mean of the trials.
    pub value: f64,
    /// The lower end of its interval; `null` where none is known.
    pub lower: Option<f64>,
    /// The upper end.
    pub upper: Option<f64>,
    /// How the interval was made.
    pub method: Method,
    /// The figure of each trial that counts, in their order.
    pub trials: Vec<f64>,
}

/// How an interval was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Method {
    /// Student's t across trials.
    StudentT,
    /// The same at a confidence such that the intervals after each trial hold at once, since the run may stop after any.
    SequentialStudentT,
    /// The moving-block bootstrap within the one trial.
    #[default]
    MovingBlockBootstrap,
}

/// A tail over the calls of all trials.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct TailFigure {
    /// Its name: `ttft_p95`, `tps_p5`.
    pub name: String,
    /// The percentile of the calls; `null` where they are too few for its bound.
    pub value: Option<f64>,
    /// The upper bound of the percentile at 99 % (LoadGen); `null` if there are too few calls.
    pub bound: Option<f64>,
    /// The calls that have it.
    pub calls: usize,
    /// The calls that its bound needs.
    pub calls_needed: usize,
}
