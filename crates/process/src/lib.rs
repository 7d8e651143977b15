#![doc = include_str!("../README.md")]
#![deny(clippy::print_stdout, clippy::print_stderr)] // printing panics where the output is closed
#![cfg_attr(test, allow(clippy::print_stdout, clippy::print_stderr))]

mod block_key;
pub mod check;
mod error;
pub mod evaluations;
pub mod fallback;
pub mod fd_limit;
mod finished_calls;
pub mod ledger;
mod marks;
mod notify;
mod objectives;
pub mod operators;
pub mod output;
mod oversight;
mod page_link;
mod periodic;
mod quota_store;
pub mod reload;
mod reload_status;
mod running_proxy;
mod scores;
mod scrape_hooks;
pub mod serve;
pub mod signals;
pub mod sinks;
mod spending;
pub mod threads;

pub use error::{Fatal, ProcessError, SystemError};
