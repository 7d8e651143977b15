//! What is fuzzed, one file per target: what it does with any bytes, and what must hold then.
//! `fuzz/run` lets libFuzzer find inputs; `tests/fuzz_corpora.rs` plays the kept ones, and
//! random ones made of them, in every run of the tests.

pub mod admission;
pub mod answers;
pub mod chunked;
pub mod config;
pub mod counter;
pub mod engine;
pub mod framed;
pub mod inject;
pub mod manifests;
pub mod poisoning;
mod proxy;
pub mod query;
pub mod request;
pub mod smuggling;
pub mod wire;
