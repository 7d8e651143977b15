//! Tokens of o200k_base, counted while the text is still coming.
//!
//! [`Counter`] takes a text in pieces of any size and knows after each how many
//! tokens the text so far has: exactly those of the whole at once, in time
//! proportional to the new bytes.

mod bpe;
mod class;
mod counter;
#[allow(dead_code, reason = "the build script writes the tables with it")]
mod hash;
#[cfg(test)]
mod oracle;
mod pending;
mod pieces;
mod run;
#[allow(dead_code, reason = "the build script writes the trie with it")]
mod trie;
mod utf8;
mod vocabulary;

pub use counter::Counter;

/// The o200k_base tokens of a whole text.
pub fn count(text: &str) -> u64 {
    let mut counter = Counter::new();
    counter.push(text);
    counter.finish()
}

/// Reads the vocabulary's tables once, so that the first stream does not wait for
/// them.
pub fn warm() {
    vocabulary::touch();
}
