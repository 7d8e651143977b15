//! Queries over finished calls, and the rows of their answers, which are the same from the
//! ledger and from calls in memory.

mod capacity;
mod filter;
mod rows;

pub use filter::*;
pub use rows::*;

pub(crate) use capacity::CapacitySums;
