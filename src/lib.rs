//! # tokengauge
//!
//! A transparent streaming reverse proxy between agents and model backends that
//! measures tokens per second on live traffic.
//!
//! ```text
//! src/                 the program
//!   main.rs            command line → run → exit code
//!   cli.rs, cli/       the commands and their help
//!   command/           one file per command: puts the crates together
//! ```
//!
//! `docs/architecture.md` lists the crates. `tests/supply.rs` says which crate may use which.

#![deny(clippy::print_stdout, clippy::print_stderr)] // these macros panic if the reader has closed the pipe
#![cfg_attr(test, allow(clippy::print_stdout, clippy::print_stderr))]

pub mod cli;
pub mod command;

pub use command::run;
pub use tokengauge_process::ProcessError as Error;
