//! Background evaluations of a running proxy.

pub(crate) mod drift;
pub mod experiments;
pub mod gates;
