//! What is evaluated in the background of a running proxy.

pub(crate) mod drift;
pub mod experiments;
pub mod gates;
