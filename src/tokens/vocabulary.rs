//! The o200k_base vocabulary: read-only tables written by the build script.

use super::class::{BLOCK, Class};
use super::hash;
use super::trie::Node;

static BYTES: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/bytes.bin"));
static STARTS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/starts.bin"));
static TOKENS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/tokens.bin"));
static PAIRS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/pairs.bin"));
static HALVES: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/halves.bin"));
static SHORTER: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/shorter.bin"));
static SUFFIX_NODES: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/suffix_nodes.bin"));
static SUFFIX_LABELS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/suffix_labels.bin"));
static CLASS_INDEX: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/class_index.bin"));
static CLASS_BLOCKS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/class_blocks.bin"));

/// A token's number, which is also the rank of the merge that makes it.
pub(super) type Token = u32;

/// Bytes of the longest token.
pub(super) const LONGEST: usize = 128;

/// The token of exactly these bytes.
pub(super) fn token(piece: &[u8]) -> Option<Token> {
    find(TOKENS, hash::bytes(piece), |token| bytes(token) == piece)
}

/// The token that two neighbouring tokens merge to.
pub(super) fn merge(left: Token, right: Token) -> Option<Token> {
    find(PAIRS, hash::pair(left, right), |token| {
        halves(token) == (left, right)
    })
}

/// The two tokens that the last merge to this token joins; a single byte's token
/// has itself.
pub(super) fn halves(token: Token) -> (Token, Token) {
    let at = 2 * token as usize;
    (word(HALVES, at), word(HALVES, at + 1))
}

/// The bytes of a token.
pub(super) fn bytes(token: Token) -> &'static [u8] {
    let at = token as usize;
    &BYTES[word(STARTS, at) as usize..word(STARTS, at + 1) as usize]
}

/// The longest token that a text ends with, and its length; the text's bytes come
/// backwards.
pub(super) fn longest_at_end(backwards: impl Iterator<Item = u8>) -> (Token, usize) {
    let mut node = suffix_node(0);
    let mut longest = (0, 0);
    for (byte, len) in backwards.zip(1..) {
        let children = node.children();
        let child = match children.len() {
            // All bytes, in order.
            256 => Some(usize::from(byte)),
            _ => memchr::memchr(byte, &SUFFIX_LABELS[children.clone()]),
        };
        let Some(child) = child else { break };
        node = suffix_node(children.start + child);
        if let Some(token) = node.token() {
            longest = (token, len);
        }
    }
    longest
}

/// The longest shorter token that this one ends with, and its length; a single byte's
/// token has itself.
pub(super) fn shorter(token: Token) -> (Token, usize) {
    let entry = word(SHORTER, token as usize);
    (
        entry & hash::TOKEN_MASK,
        (entry >> hash::TOKEN_BITS) as usize,
    )
}

/// The class of a character.
pub(super) fn class(character: char) -> Class {
    let code = character as usize;
    let block = usize::from(CLASS_INDEX[code / BLOCK]);
    Class::ALL[usize::from(CLASS_BLOCKS[block * BLOCK + code % BLOCK])]
}

/// Reads every table once, so that the first stream does not wait for the disk.
pub(super) fn touch() {
    let tables = [
        BYTES,
        STARTS,
        TOKENS,
        PAIRS,
        HALVES,
        SHORTER,
        SUFFIX_NODES,
        SUFFIX_LABELS,
        CLASS_INDEX,
        CLASS_BLOCKS,
    ];
    let pages = tables.iter().flat_map(|table| table.iter().step_by(4096));
    std::hint::black_box(pages.fold(0, |sum: u8, byte| sum ^ byte));
}

fn suffix_node(at: usize) -> Node {
    let bytes = SUFFIX_NODES[8 * at..].first_chunk();
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
