#![doc = include_str!("../README.md")]
#![deny(missing_docs)]
#![deny(clippy::print_stdout, clippy::print_stderr)] // printing panics if the output is closed
#![cfg_attr(test, allow(clippy::print_stdout, clippy::print_stderr))]

pub mod alert_notification;
pub mod background;
pub mod backoff;
pub mod batch_queue;
pub mod call;
pub mod caller;
pub mod cells;
pub mod concurrency;
pub mod dialect;
pub mod dimension;
pub mod experiment;
pub mod fingerprint;
pub mod finish_class;
pub mod finished;
pub mod hash;
pub mod inter_token;
pub mod lengths;
pub mod log_buckets;
pub mod log_interval;
pub mod memory;

pub mod observer;
pub mod pattern;
pub mod payer;
pub mod pod;
pub mod printable;
pub mod prompt;
pub mod prompt_cache;
pub mod score;
pub mod selector;
pub mod subscriber;
pub mod throughput;
pub mod time;
pub mod trace;
pub mod upstream_facts;
pub mod warm_ups;
