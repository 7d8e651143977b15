#![doc = include_str!("../README.md")]
#![deny(clippy::print_stdout, clippy::print_stderr)] // these macros panic if the reader has closed the pipe
#![cfg_attr(test, allow(clippy::print_stdout, clippy::print_stderr))]

#[cfg(test)]
mod calibration;
pub mod compare;
mod experiment;
mod group;
mod judge;
mod metric;
mod observed;
mod report;
#[cfg(test)]
mod score_tests;
mod scores;
mod strata;
mod stratum;
#[cfg(test)]
mod tests;
mod withheld;
pub mod words;

pub use experiment::{
    Arm, DEFAULT_ALPHA, DEFAULT_MIN_UNITS, DEFAULT_SETTLED_AFTER, Experiment, Rules,
};
pub use group::{Group, Tally};
pub use judge::judge;
pub use metric::Metric;
pub use observed::{Observed, ObservedUnit, Sums, score_query};
pub use report::{ArmComparison, ArmReport, Decision, MetricReport, Report, decision};
pub use scores::{ScoredGroup, compare_scores};
pub use strata::MIN_UNITS_OF_STRATUM;
pub use stratum::Stratum;
pub use withheld::Withheld;
