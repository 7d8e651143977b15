#![doc = include_str!("../README.md")]
#![deny(missing_docs)]
#![deny(clippy::print_stdout, clippy::print_stderr)] // these macros panic if the reader has closed the pipe
#![cfg_attr(test, allow(clippy::print_stdout, clippy::print_stderr))]

pub mod bootstrap;
pub mod change;
mod check;
pub mod clustered;
mod distribution;
pub mod drift;
mod error;
mod estimate;
pub mod holm;
mod interval;
pub mod mix;
mod moments;
mod random;
pub mod rank;
pub mod ratio;
pub mod sequence;
pub mod share;
pub mod split;
pub mod steady;
pub mod stratified;
pub mod student;
pub mod tail;

pub use error::{Result, StatsError};
pub use estimate::Estimate;
pub use interval::Interval;
pub use random::{Generator, seeded};
