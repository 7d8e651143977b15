//! Keyed hashes of the blocks of a prompt. Each hash covers everything before it, as in the prefix
//! caches of engines, so equal hashes mean equal beginnings.

use sha2::{Digest, Sha256};
use tokengauge_tokenizer as tokens;
use tokengauge_wire::TextKind;

/// Tokens of a block. A block ends at the first piece of the tokenizer that ends at or after this
/// number of tokens.
pub const BLOCK_TOKENS: u64 = 64;
/// Numbers up to here are exact in JSON and in JavaScript.
const HASH_BITS: u32 = 53;
/// How many bytes of media are hashed between pauses.
const SLICE: usize = 64 * 1024;

/// The key of block hashes. Without it nobody can test a guess of a text against a hash.
#[derive(Clone)]
pub struct BlockKey([u8; 32]);

impl BlockKey {
    /// A key of secret bytes of any number.
    pub fn new(secret: &[u8]) -> BlockKey {
        BlockKey(Sha256::digest(secret).into())
    }
}

/// Omits the key, which is a secret.
impl std::fmt::Debug for BlockKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("BlockKey")
    }
}

/// The state between two sections: the hash of everything so far, and the tokens of the block that
/// is not complete.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ChainState {
    hash: [u8; 16],
    filled: u8,
}

/// Appends texts and gives the hashes of complete blocks.
pub(crate) struct BlockChain<'k> {
    key: &'k BlockKey,
    state: ChainState,
    pub(crate) blocks: Vec<u64>,
}

const CALL_TAG: u8 = 100;
const MEDIA_TAG: u8 = 101;
const EMPTY_TAG: u8 = 102;

impl<'k> BlockChain<'k> {
    pub(crate) fn new(key: &'k BlockKey, state: ChainState) -> BlockChain<'k> {
        BlockChain {
            key,
            state,
            blocks: Vec::new(),
        }
    }

    pub(crate) fn state(&self) -> ChainState {
        self.state
    }

    /// Appends a text, and returns its number of tokens.
    pub(crate) fn text(&mut self, kind: TextKind, text: &str, pause: &mut dyn FnMut()) -> u64 {
        let (mut start, mut at, mut total) = (0, 0, 0);
        let mut filled = u64::from(self.state.filled);
        let tag = kind as u8;
        let mut paused = 0;
        let mut within = || {};
        tokens::pieces(
            text,
            |bytes, tokens| {
                at += bytes;
                total += tokens;
                filled += tokens;
                if at - paused >= SLICE / 16 {
                    paused = at;
                    pause();
                }
                if filled >= BLOCK_TOKENS {
                    self.append(tag, &text.as_bytes()[start..at]);
                    start = at;
                    filled = self.close(filled);
                }
            },
            &mut within,
        );
        if start < text.len() {
            self.append(tag, &text.as_bytes()[start..]);
        }
        self.state.filled = filled as u8;
        total
    }

    /// Appends the name of a tool that is called. Names are not counted as tokens.
    pub(crate) fn call(&mut self, name: &str) {
        self.append(CALL_TAG, name.as_bytes());
    }

    /// Appends media, which are not counted as tokens.
    pub(crate) fn media(&mut self, data: &str, pause: &mut dyn FnMut()) {
        let mut hasher = self.hasher(MEDIA_TAG);
        for slice in data.as_bytes().chunks(SLICE) {
            hasher.update(slice);
            pause();
        }
        self.state.hash = truncated(hasher);
    }

    fn hasher(&self, tag: u8) -> Sha256 {
        let hasher = Sha256::new_with_prefix(self.key.0);
        hasher.chain_update(self.state.hash).chain_update([tag])
    }

    fn append(&mut self, tag: u8, bytes: &[u8]) {
        self.state.hash = truncated(self.hasher(tag).chain_update(bytes));
    }

    /// Ends as many blocks as `filled` tokens complete. A very long piece completes several.
    fn close(&mut self, mut filled: u64) -> u64 {
        loop {
            let [a, b, c, d, e, f, g, h, ..] = self.state.hash;
            let hash = u64::from_be_bytes([a, b, c, d, e, f, g, h]);
            self.blocks.push(hash >> (u64::BITS - HASH_BITS));
            filled -= BLOCK_TOKENS;
            if filled < BLOCK_TOKENS {
                return filled;
            }
            self.append(EMPTY_TAG, &[]);
        }
    }
}

fn truncated(hasher: Sha256) -> [u8; 16] {
    let hash: [u8; 32] = hasher.finalize().into();
    let mut half = [0; 16];
    half.copy_from_slice(&hash[..16]);
    half
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocks(secret: &[u8], texts: &[(TextKind, &str)]) -> (Vec<u64>, u64) {
        let key = BlockKey::new(secret);
        let mut chain = BlockChain::new(&key, ChainState::default());
        let counted = texts
            .iter()
            .map(|(kind, text)| chain.text(*kind, text, &mut || {}));
        let counted = counted.sum();
        (chain.blocks, counted)
    }

    #[test]
    fn blocks_are_those_of_equal_beginnings_with_one_key() {
        let text = "The river carries boats. ".repeat(100);
        let (all, counted) = blocks(b"k", &[(TextKind::User, &text)]);
        assert_eq!(counted, tokens::count(&text));
        assert_eq!(all.len() as u64, counted / BLOCK_TOKENS);
        assert!(all.iter().all(|block| *block < 1 << HASH_BITS));
        let longer = format!("{text}And back.");
        assert_eq!(
            blocks(b"k", &[(TextKind::User, &longer)]).0[..all.len()],
            all
        );
        let changed = text.replacen("boats. The river", "ships. The river", 1);
        assert_ne!(blocks(b"k", &[(TextKind::User, &changed)]).0[0], all[0]);
        let late = format!("{}x{}", &text[..1_500], &text[1_501..]);
        let late = blocks(b"k", &[(TextKind::User, &late)]).0;
        let same = all
            .iter()
            .zip(&late)
            .take_while(|(one, other)| one == other)
            .count();
        assert!((3..6).contains(&same), "{same}");
        assert_ne!(blocks(b"other", &[(TextKind::User, &text)]).0[0], all[0]);
        assert_ne!(blocks(b"k", &[(TextKind::System, &text)]).0[0], all[0]);
    }

    #[test]
    fn a_block_may_have_several_texts_and_a_piece_several_blocks() {
        let short: Vec<(TextKind, &str)> = vec![(TextKind::User, "one two three"); 100];
        assert_eq!(blocks(b"k", &short), {
            let (all, counted) = blocks(b"k", &short);
            assert_eq!((all.len(), counted), (300 / 64, 300));
            (all, counted)
        });
        let long = "ab".repeat(5_000);
        let (all, counted) = blocks(b"k", &[(TextKind::User, &long)]);
        assert_eq!(all.len() as u64, counted / BLOCK_TOKENS);
        let mut distinct = all.clone();
        distinct.dedup();
        assert_eq!(distinct, all);
    }

    #[test]
    fn a_chain_goes_on_from_its_state() {
        let key = BlockKey::new(b"k");
        let mut whole = BlockChain::new(&key, ChainState::default());
        whole.text(TextKind::User, &"one ".repeat(70), &mut || {});
        let between = whole.state();
        let known = whole.blocks.len();
        whole.call("search");
        whole.media("AAAA", &mut || {});
        whole.text(TextKind::User, &"two ".repeat(100), &mut || {});
        let mut rest = BlockChain::new(&key, between);
        rest.call("search");
        rest.media("AAAA", &mut || {});
        rest.text(TextKind::User, &"two ".repeat(100), &mut || {});
        assert_eq!(rest.blocks, whole.blocks[known..]);
        let mut other = BlockChain::new(&key, between);
        other.call("search");
        other.media("AAAB", &mut || {});
        other.text(TextKind::User, &"two ".repeat(100), &mut || {});
        assert_ne!(other.blocks[0], rest.blocks[0]);
    }
}
