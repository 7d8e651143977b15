//! A simulated backend with a known truth: for the demo, tests and benchmarks.
//!
//! It speaks every streamed dialect, at a pace that a [`Profile`] and the request's
//! `x-sim` header set ([`HELP`] is the grammar), and writes down what it really did:
//! [`Truth`], per call, with instants read when a write to the socket has returned.
//! It shares no code with the meter: its texts are made of units that are one
//! o200k token each, so the count is known and not measured.

pub mod agents;
mod dialects;
mod grammar;
mod gzip;
mod pace;
mod plan;
mod profile;
mod realtime;
mod recorded;
mod reply;
mod request;
mod route;
mod script;
mod server;
mod socket;
mod stream;
mod truth;
mod visit;
mod websocket;
mod words;

pub use profile::{
    Cut, Fault, FaultKind, Finish, Gap, HELP, InvalidSetting, Profile, ToolCalls, UsageMode,
};
pub use server::{Setup, Simulator};
pub use truth::{Ending, Instants, Seen, Truth, TruthSeconds, TruthTokens, Witness};
