#![doc = include_str!("../README.md")]
#![deny(clippy::print_stdout, clippy::print_stderr)] // these macros panic if the reader has closed the pipe
#![cfg_attr(test, allow(clippy::print_stdout, clippy::print_stderr))]

#[cfg(test)]
mod calibration;
pub mod client;
mod clock;
pub mod compare;
pub mod endpoint;
mod error;
pub mod figure;
pub mod gauge;
pub mod junit;
pub mod lag;
pub mod length;
pub mod level;
pub mod load;
mod load_name;
pub mod metric;
pub mod objective;
pub mod observed;
mod plan;
pub mod prompt;
mod quota;
pub mod recorder;
mod relabel;
pub mod results;
pub mod run;
mod search;
pub mod steady;
pub mod text;
pub mod transport;
pub mod trial;
pub mod workload;

pub use error::BenchError;
pub use results::Results;
pub use run::run;
