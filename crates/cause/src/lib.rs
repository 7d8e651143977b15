#![doc = include_str!("../README.md")]
#![deny(clippy::print_stdout, clippy::print_stderr)] // printing panics where the output is closed
#![cfg_attr(test, allow(clippy::print_stdout, clippy::print_stderr))]

mod call;
mod evidence;
mod find;
mod first_token;
mod json;
mod load;
mod mechanism;
mod onset;
mod rank;
mod report;
mod sentence;
mod signals;
mod throughput;

pub use call::{Call, Dimension};
pub use find::{MIN_REFERENCE, find};
pub use mechanism::Phases;
pub use report::{
    CallBasis, CallCandidate, CallShares, Cause, CauseBasis, ComparedWith, Load, MIN_BAD,
    MIN_CALLS, Mechanism, MinuteBasis, Moved, Quantile, Rates, Signal, ThroughputChange,
    TokenCandidate, TokenShares,
};
pub use throughput::{MIN_MINUTES, Minute, find_throughput};
