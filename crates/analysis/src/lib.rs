#![doc = include_str!("../README.md")]
#![deny(missing_docs)]
#![deny(clippy::print_stdout, clippy::print_stderr)] // printing panics if the output is closed

mod block_chain;
mod compose;
mod conversations;
mod finishing;
mod hash;
mod item;
mod lru;
mod names;
mod potential;
mod prompt;
mod prompt_break;
mod reading;
mod retries;
mod scope;
mod state;
mod turn;

pub use block_chain::{BLOCK_TOKENS, BlockKey};
pub use potential::{CACHE_TOKENS, CachePotential};
pub use prompt::Prompt;
pub use scope::Scope;
pub use state::{Analysis, AnalysisCounts};
