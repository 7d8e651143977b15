//! The layout of the trie of the reversed tokens, which is a double array: the children of a node
//! are at its base plus their byte. No two nodes have the same base, so the byte of a child
//! identifies its parent. The build script also compiles this file.

use super::hash::TOKEN_BITS;

/// The value of a node without a token.
pub const NO_TOKEN: u32 = (1 << TOKEN_BITS) - 1;

pub const ROOT: usize = 0;
/// The base of all nodes without children. The slots from there on stay empty.
pub const LEAF: usize = 1 << 8;

const BYTE_BITS: u32 = 9;

/// A stored node: its token, the byte that leads to it, and its base.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node(pub u64);

impl Node {
    /// A slot that no byte leads to.
    pub const EMPTY: Node = Node(1 << (BYTE_BITS - 1) << TOKEN_BITS);

    pub fn new(token: u32, byte: u8, base: usize) -> Node {
        let way = (base as u64) << BYTE_BITS | u64::from(byte);
        Node(way << TOKEN_BITS | u64::from(token))
    }

    /// The token that ends at this node when read backwards.
    #[inline]
    pub fn token(self) -> Option<u32> {
        let token = self.0 as u32 & NO_TOKEN;
        (token != NO_TOKEN).then_some(token)
    }

    #[inline]
    pub fn is_led_to_by(self, byte: u8) -> bool {
        (self.0 >> TOKEN_BITS) & ((1 << BYTE_BITS) - 1) == u64::from(byte)
    }

    #[inline]
    pub fn base(self) -> usize {
        (self.0 >> (TOKEN_BITS + BYTE_BITS)) as usize
    }
}
