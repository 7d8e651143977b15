//! The ledger: every call record and the sums of every session, in SQLite.

mod reader;

pub use reader::*;
