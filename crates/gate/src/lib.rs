#![doc = include_str!("../README.md")]
#![deny(clippy::print_stdout, clippy::print_stderr)] // they panic where nobody reads any more
#![cfg_attr(test, allow(clippy::print_stdout, clippy::print_stderr))]

#[cfg(test)]
mod calibration;
mod check;
mod evaluate;
mod forecast;
mod observed;
mod report;
#[cfg(test)]
mod score_calibration;
mod settings;
#[cfg(test)]
mod tests;

pub use evaluate::{Asked, evaluate, evaluate_calls};
pub use forecast::plan;
pub use observed::{Calls, MAX_CALLS, Observed, Side, Unit, observe};
pub use report::{
    AtShare, Bound, Check, CheckKind, Forecast, GateVerdict, Plan, Report, SideReport,
};
pub use settings::{Ceilings, Gate, Margins, Select};
