//! The o200k_base vocabulary as read-only tables, which the build script writes.

use super::class::{BLOCK, Class};
use super::hash;
use super::trie::{self, Node};

static BYTES: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/bytes.bin"));
static STARTS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/starts.bin"));
static TOKENS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/tokens.bin"));
static PAIRS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/pairs.bin"));
static MERGES: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/merges.bin"));
static HALVES: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/halves.bin"));
static BORDERS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/borders.bin"));
static SHORTER: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/shorter.bin"));
static SUFFIXES: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/suffixes.bin"));
static CLASS_INDEX: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/class_index.bin"));
static CLASS_BLOCKS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/class_blocks.bin"));

/// The number of a token, which is also the rank of the merge that makes it.
pub(super) type Token = u32;

/// The length of the longest token in bytes.
pub(super) const LONGEST: usize = 128;

pub(super) fn token(piece: &[u8]) -> Option<Token> {
    find(TOKENS, hash::bytes(piece), |token| bytes(token) == piece)
}

/// Whether two adjacent tokens merge with a rank below `limit`. A small set of bits that fits into
/// the processor cache rules out most pairs.
pub(super) fn merge_before(limit: Token, left: Token, right: Token) -> bool {
    let hash = hash::pair(left, right);
    let (byte, bit) = hash::bit(hash, MERGES.len());
    if MERGES[byte] & bit == 0 {
        return false;
    }
    let merges = |token| token < limit && halves(token) == (left, right);
    find(PAIRS, hash, merges).is_some()
}

/// The lowest rank of a merge whose left token ends with the first byte and whose right token
/// begins with the second. Greater than every rank if there is none.
pub(super) fn first_merge_across(border: [u8; 2]) -> Token {
    word(BORDERS, hash::border(border))
}

/// The two tokens that the last merge into this token joins. A token of one byte is returned as
/// both.
pub(super) fn halves(token: Token) -> (Token, Token) {
    let at = 2 * token as usize;
    (word(HALVES, at), word(HALVES, at + 1))
}

pub(super) fn bytes(token: Token) -> &'static [u8] {
    let at = token as usize;
    &BYTES[word(STARTS, at) as usize..word(STARTS, at + 1) as usize]
}

/// The longest token at the end of a text, and its length in bytes. Takes the bytes of the text in
/// reverse.
pub(super) fn longest_at_end(backwards: impl Iterator<Item = u8>) -> (Token, usize) {
    let mut base = trie::ROOT;
    let mut longest = (0, 0);
    for (byte, len) in backwards.zip(1..) {
        let node = suffix_node(base + usize::from(byte));
        if !node.is_led_to_by(byte) {
            break;
        }
        base = node.base();
        if let Some(token) = node.token() {
            longest = (token, len);
        }
    }
    longest
}

/// The longest shorter token that is a suffix of this one, and its length in bytes. A token of one
/// byte is returned itself.
pub(super) fn shorter(token: Token) -> (Token, usize) {
    let entry = word(SHORTER, token as usize);
    (
        entry & hash::TOKEN_MASK,
        (entry >> hash::TOKEN_BITS) as usize,
    )
}

pub(super) fn class(character: char) -> Class {
    let code = character as usize;
    let block = usize::from(CLASS_INDEX[code / BLOCK]);
    Class::ALL[usize::from(CLASS_BLOCKS[block * BLOCK + code % BLOCK])]
}

pub(super) fn touch() {
    let tables = [
        BYTES,
        STARTS,
        TOKENS,
        PAIRS,
        MERGES,
        HALVES,
        BORDERS,
        SHORTER,
        SUFFIXES,
        CLASS_INDEX,
        CLASS_BLOCKS,
    ];
    let pages = tables.iter().flat_map(|table| table.iter().step_by(4096));
    std::hint::black_box(pages.fold(0, |sum: u8, byte| sum ^ byte));
}

fn suffix_node(at: usize) -> Node {
    let bytes = SUFFIXES[8 * at..].first_chunk();
    Node(bytes.map_or(0, |&node| u64::from_le_bytes(node)))
}

fn find(table: &[u8], hash: u64, is_it: impl Fn(Token) -> bool) -> Option<Token> {
    let slots = table.len() / 4;
    let mut at = hash::home(hash, slots);
    loop {
        let slot = word(table, at);
        if slot == hash::EMPTY {
            return None;
        }
        let token = slot & hash::TOKEN_MASK;
        if hash::matches(slot, hash) && is_it(token) {
            return Some(token);
        }
        at = (at + 1) & (slots - 1);
    }
}

fn word(table: &[u8], at: usize) -> u32 {
    let bytes = table[4 * at..].first_chunk();
    bytes.map_or(0, |&word| u32::from_le_bytes(word))
}
