#![doc = include_str!("../README.md")]
#![deny(clippy::print_stdout, clippy::print_stderr)] // printing panics where the output is closed
#![cfg_attr(test, allow(clippy::print_stdout, clippy::print_stderr))]

mod alerts;
mod bounded_stream;
mod client;
mod keys;
mod settings;
mod sync;

pub use alerts::{AlertClaims, AlertState, Claim, ClaimCounts};
pub use client::{ClientError, Script};
pub use settings::{Address, InvalidAddress, Password, Settings};
pub use sync::QuotaStore;
