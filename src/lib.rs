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
//!   output.rs          what commands write for people
//! crates/
//!   config/            the file as written → settings as used; what may change while running
//!   core/              the words that all share: call record, observer, memory, throughput
//!   tokenizer/         o200k_base, incrementally; knows no dialect
//!   wire/              bytes → events: no clock, no sockets, no counting
//!   meter/             chunks + instants → finished calls; attribution, cost, quotas
//!   slo/               objectives, budgets, burn rates, rules; time is an argument
//!   proxy/             moves bytes: no JSON, no tokens, no metric names
//!   net/               sockets, TLS, the HTTP client that is not the proxy's
//!   store/             finished calls on disk and in memory, and questions to them
//!   sink/              finished calls sent to ClickHouse and S3, and read back
//!   quota-store/       limits, spending and alerts that processes share in Valkey or Redis
//!   experiments/       variants compared by unit; pure functions
//!   telemetry/         metric names, registry, Prometheus, OTLP, the call log, engines' metrics
//!   files/             private files, and state that survives a restart
//!   bench/             benchmarks: load, phases, the statistics of a run, results
//!   drift/             whether traffic and speed have changed, what, when and why
//!   cause/             why an objective is missed: which calls, what moved, since when
//!   gate/              whether a rollout may go on; pure functions
//!   sessions/          what a session's length is made of, what its prompt cache missed, its trace
//!   admin/             health, /metrics, the JSON API, the live page
//!   fleet/             many processes as one: their calls from a store, their streams
//!   html/              HTML files: pages of figures, plots, an incident in one file
//!   inject/            sidecars into pods and manifests
//!   sim/               a simulated backend with a known truth; a feature of the program
//!   test-support/      what tests and benchmarks share
//! ```
//!
//! Dependencies point one way; which crate may use which is in `tests/supply.rs`, and the
//! compiler refuses anything else. `core`, `tokenizer`, `net` and `files` use none of ours, `proxy`
//! uses `core` and `net` alone: it reaches the meter only through `core::observer`.

#![deny(clippy::print_stdout, clippy::print_stderr)] // printing panics where the output is closed
#![cfg_attr(test, allow(clippy::print_stdout, clippy::print_stderr))]

pub mod cli;
pub mod command;
mod output;

pub use command::run;
/// Why a command fails; each variant has an exit code of its own in `main`.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The operator's configuration cannot be used; the text names line and key.
    #[error("{0}")]
    Configuration(String),
    /// Something failed while running; the text says what and what to do.
    #[error("tokengauge: {0}")]
    Failed(String),
    /// The command was done except for a part, which the text names.
    #[error("tokengauge: {0}")]
    LeftOut(String),
    /// The command was done, and what it looks for is there.
    #[error("tokengauge: {0}")]
    Found(String),
    /// The command was done, and what it was asked is not known yet.
    #[error("tokengauge: {0}")]
    Undecided(String),
    /// An address cannot be listened on: another configuration would not help. The text says
    /// which, why and what to do.
    #[error("tokengauge: {0}")]
    Address(String),
    /// Work was stopped by a signal before its end; what was done until then is written.
    #[error("tokengauge: {0}")]
    Interrupted(String),
    /// Standard output was closed by its reader, as by `| head -1`: there is nothing more to do.
    #[error("tokengauge: nobody reads standard output")]
    OutputClosed,
}

impl Error {
    /// Prints the error on standard error, without control characters.
    pub fn print(&self) {
        output::note(&self.to_string());
    }
}

impl From<tokengauge_config::Invalid> for Error {
    fn from(invalid: tokengauge_config::Invalid) -> Self {
        Error::Configuration(invalid.to_string())
    }
}
