#![doc = include_str!("../README.md")]
#![deny(clippy::print_stdout, clippy::print_stderr)] // they panic where nobody reads any more
#![cfg_attr(test, allow(clippy::print_stdout, clippy::print_stderr))]

mod check;
mod evaluate;
mod observed;
mod report;
mod settings;
#[cfg(test)]
mod tests;

pub use evaluate::{Asked, evaluate, evaluate_calls};
pub use observed::{MAX_CALLS, Observed, ObservedUnit, Side, observe};
pub use report::{Bound, Check, Kind, Of, Report, SideReport, Verdict};
pub use settings::{AfterWait, Ceilings, Gate, Margins, Measured, Select};
