#![doc = include_str!("../README.md")]
#![deny(missing_docs)]
#![deny(clippy::print_stdout, clippy::print_stderr)] // printing panics if the output is closed

mod analysis;
mod block_chain;
mod compose;
mod conversations;
mod hash;
mod item;
mod lru;
mod names;
mod potential;
mod prompt_break;
mod retries;
mod scope;
mod turn;

pub use analysis::{Analysis, AnalysisCounts, Prompt};
pub use block_chain::{BLOCK_TOKENS, BlockKey};
pub use potential::{CACHE_TOKENS, CachePotential};
pub use scope::Scope;
