//! # tokengauge
//!
//! A transparent streaming reverse proxy between agents and model backends that
//! measures tokens per second on live traffic.
//!
//! ```text
//! main.rs          command line → run → exit code
//! lib.rs           this map
//! cli.rs           the commands and their help
//! command/         one file per command: wires the rooms together
//! background.rs    threads that traffic does not wait for
//! output.rs        what commands write for people
//! private_file.rs  files that only their owner may read
//! state_file.rs    files that survive a restart, written by one process
//! config/          file.rs as written → mod.rs as used; reload.rs what may change while running
//! call.rs          the domain's words; knows nobody
//! caller.rs        who makes a call, as quotas and budgets see it
//! observer.rs      the one door between moving bytes and measuring them
//! memory.rs        the bound on what measuring holds, and buffers that keep to it
//! proxy/           moves bytes: no JSON, no tokens, no metric names
//! wire/            bytes → events: no clock, no sockets, no counting
//! tokens/          o200k_base, incrementally; knows no dialect
//! throughput/      the tokens of all streams, by the second in which they came
//! meter/           chunks + instants → call records
//! trace.rs         W3C trace context: where a call stands in a trace, and its spans
//! attribution/     headers, baggage, body → session, agent, user, experiment
//! cost/            prices, GPU-hours and budgets → what calls cost
//! slo/             objectives, events, budgets, burn rates, rules; time is an argument
//! quota/           requests and tokens a minute, calls at once: who may go on
//! ledger/          every call record and the sums of sessions, in SQLite
//! engine/          what upstreams tell of themselves: queue, batch, KV cache, restarts
//! export/          the table of names, the registry, Prometheus' text, OTLP, the call log
//! history/         what finished calls come to: sessions, models, points in time
//! plot.rs          plots as SVG, for reports
//! fetch.rs         one HTTP request to somebody who is no upstream
//! inject/          sidecars into pods and manifests
//! admin/           health, /metrics, the JSON API, the live page
//! sim/             a simulated backend with a known truth, and simulated agents
//! ```
//!
//! Dependencies point one way: `command` → `proxy`, `meter`, `export`, `admin`, `sim`;
//! `meter` → `wire`, `tokens`, `throughput`, `attribution`, `cost`, `quota`; everyone → `call`. `proxy` reaches the meter
//! only through `observer`; `admin`, `engine` and `fetch` take nothing of it but its TLS.
//! Whoever takes finished calls (`export`, `ledger`, `history`, `slo`, the budgets of `cost`)
//! knows the meter's findings; `ledger` and `history` answer the same questions, from a file
//! and from memory, in the rows of the one and with the arithmetic of the other.

#![deny(clippy::print_stdout, clippy::print_stderr)] // they panic where nobody reads any more
#![cfg_attr(test, allow(clippy::print_stdout, clippy::print_stderr))]

mod address;
pub mod admin;
pub mod attribution;
mod background;
pub mod call;
pub mod caller;
pub mod cli;
pub mod command;
pub mod config;
pub mod cost;
pub mod engine;
pub mod export;
pub mod fetch;
pub mod history;
pub mod inject;
pub mod ledger;
pub mod lengths;
pub mod memory;
pub mod meter;
pub mod observer;
mod output;
pub mod plot;
mod private_file;
pub mod proxy;
pub mod quota;
pub mod sim;
pub mod slo;
mod state_file;
pub mod throughput;
pub mod tokens;
pub mod trace;
pub mod upstream_facts;
pub mod wire;

pub use command::run;

/// Why the process ends without having done what it was told.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The operator's configuration cannot be used; the text names line and key.
    #[error("{0}")]
    Configuration(String),
    /// Something failed while running; the text says what and what to do.
    #[error("tokengauge: {0}")]
    Failed(String),
    /// Everything was done but for a part, which the text names.
    #[error("tokengauge: {0}")]
    LeftOut(String),
    /// An address cannot be listened on: another configuration would not help. The text says
    /// which, why and what to do.
    #[error("tokengauge: {0}")]
    Address(String),
    /// Whoever read standard output has seen enough: nothing more is to be done or said.
    #[error("tokengauge: nobody reads standard output")]
    OutputClosed,
}

impl Error {
    /// Says on standard error what happened, without control characters.
    pub fn tell(&self) {
        output::note(&self.to_string());
    }
}

impl From<config::Invalid> for Error {
    fn from(invalid: config::Invalid) -> Self {
        Error::Configuration(invalid.to_string())
    }
}
