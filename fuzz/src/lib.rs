//! The fuzz targets, one file each: a function of arbitrary bytes, and the properties that must hold. libFuzzer finds
//! inputs in `fuzz/run`. `tests/fuzz_corpora.rs` runs the kept inputs and random mutations of them in every test run.

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
