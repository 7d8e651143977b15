#![doc = include_str!("../README.md")]
#![deny(clippy::print_stdout, clippy::print_stderr)] // printing panics where the output is closed
#![cfg_attr(test, allow(clippy::print_stdout, clippy::print_stderr))]

mod assess;
#[cfg(test)]
mod calibration;
mod chance;
mod change;
mod compare;
mod evaluate;
mod fine;
mod mix;
mod replaced;
mod report;
mod sentence;
mod settings;
mod signal;
mod why;
mod windows;

pub use assess::{assess, span};
pub use change::{MIN_CHANGE_PERIODS, MIN_HOURLY_CALLS};
pub use evaluate::evaluate;
pub use fine::{STEP, Steps, refine, steps};
pub use replaced::replace;
pub use report::{
    ChangePoint, DriftState, Entry, Figures, Replaced, Series, SignalDrift, Stratum, Why,
    WindowTimes,
};
pub use settings::{MAX_SERIES, Season, Select, Settings, Thresholds};
pub use signal::SignalName;
