#![doc = include_str!("../README.md")]
#![deny(clippy::print_stdout, clippy::print_stderr)] // printing panics if the output is closed
#![cfg_attr(test, allow(clippy::print_stdout, clippy::print_stderr))]

pub mod columns;
pub mod csv;
pub mod export;
pub mod history;
pub mod ledger;
pub mod marks;
pub mod parquet_table;
pub mod query;
pub mod scores;
pub mod stored_calls;
pub mod warehouse;

mod answer;
mod figures;
mod pending_mark;
mod pending_scores;
mod sketch;
mod varint;
