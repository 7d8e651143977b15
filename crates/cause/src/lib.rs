#![doc = include_str!("../README.md")]
#![deny(clippy::print_stdout, clippy::print_stderr)] // printing panics where the output is closed
#![cfg_attr(test, allow(clippy::print_stdout, clippy::print_stderr))]

mod answer;
mod call;
mod evidence;
mod find;
mod first_token;
mod load;
mod mechanism;
mod onset;
mod rank;
mod sentence;
mod signals;
mod throughput;

pub use answer::{
    Candidate, Cause, ComparedWith, Load, MIN_BAD, MIN_CALLS, Mechanism, Moved, Quantile, Rates,
    Signal, ThroughputChange,
};
pub use call::{Call, Dimension};
pub use find::{MIN_REFERENCE, find};
pub use mechanism::Phases;
pub use throughput::{MIN_MINUTES, Minute, find_throughput};
