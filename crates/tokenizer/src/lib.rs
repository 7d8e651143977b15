#![doc = include_str!("../README.md")]
#![deny(missing_docs)]
#![deny(clippy::print_stdout, clippy::print_stderr)] // printing panics if the output is closed
#![cfg_attr(test, allow(clippy::print_stdout, clippy::print_stderr))]

mod bpe;
mod class;
mod counter;
#[allow(
    dead_code,
    reason = "only the build script uses the rest of this module"
)]
mod hash;
#[cfg(test)]
mod oracle;
mod pending;
mod piece_counter;
mod pieces;
mod split;
#[allow(
    dead_code,
    reason = "only the build script uses the rest of this module"
)]
mod trie;
mod utf8;
mod vocabulary;

pub use counter::Counter;
pub use split::pieces;

/// The o200k_base tokens of a complete text.
pub fn count(text: &str) -> u64 {
    let mut counter = Counter::new();
    counter.push(text);
    counter.finish()
}

/// Reads the tables of the vocabulary once, so that the first stream does not wait for the disk.
pub fn warm() {
    vocabulary::touch();
}
