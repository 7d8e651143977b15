#![doc = include_str!("../README.md")]
#![deny(clippy::print_stdout, clippy::print_stderr)] // printing panics where the output is closed
#![cfg_attr(test, allow(clippy::print_stdout, clippy::print_stderr))]

pub mod agents;
mod clock;
mod dialects;
mod grammar;
mod gzip;
mod pace;
mod plan;
mod prefix_cache;
mod profile;
mod realtime;
mod recorded;
mod request;
mod response;
mod route;
mod script;
mod server;
mod setting_error;
mod sim_call;
mod socket;
mod stream;
mod text_gen;
mod truth;
mod websocket;

pub use profile::{
    Cut, Fault, FaultKind, Finish, Gap, HELP, InvalidSetting, Profile, ToolCalls, UsageMode,
};
pub use server::{Setup, Simulator};
pub use setting_error::SettingError;
pub use truth::{Ending, Instants, Seen, Truth, TruthSeconds, TruthTokens, Witness};
