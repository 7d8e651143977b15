//! What is asked of finished calls, and the shapes of the answers: from the ledger and
//! from the calls at hand they are the same.

mod capacity;
mod filter;
mod rows;

pub use filter::*;
pub use rows::*;

pub(crate) use capacity::CapacitySums;
