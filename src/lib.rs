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
//!   process/           the running process: sockets, files, reloads, the end
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

pub use command::run;
pub use tokengauge_process::Error;
