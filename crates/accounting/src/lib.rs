#![doc = include_str!("../README.md")]
#![deny(clippy::print_stdout, clippy::print_stderr)] // printing panics where the output is closed
#![cfg_attr(test, allow(clippy::print_stdout, clippy::print_stderr))]

mod accounting;
mod admission;
pub mod attribution;
pub mod cost;
pub mod keys;
pub mod quota;
pub mod sharing;
mod split;

pub use accounting::Accounting;
pub use admission::{AdmissionRequest, LimitedCall};
pub use split::split_position;
