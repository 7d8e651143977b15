//! The layout of the trie of the reversed tokens, a double array: a node's children are at its
//! base plus their byte. No two nodes have the same base, so a child's byte identifies its
//! parent. The build script, which writes the trie, compiles this file, too.

use super::hash::TOKEN_BITS;

/// The value for a node without a token.
pub const NO_TOKEN: u32 = (1 << TOKEN_BITS) - 1;

/// The base of the root.
pub const ROOT: usize = 0;
/// The base of all nodes without children, whose places stay empty.
pub const LEAF: usize = 1 << 8;

const BYTE_BITS: u32 = 9;

/// A node as stored: its token, the byte that leads to it, and its base.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node(pub u64);

impl Node {
    /// A place that no byte leads to.
    pub const EMPTY: Node = Node(1 << (BYTE_BITS - 1) << TOKEN_BITS);

    /// A node with its children from `base` on.
    pub fn new(token: u32, byte: u8, base: usize) -> Node {
        let way = (base as u64) << BYTE_BITS | u64::from(byte);
        Node(way << TOKEN_BITS | u64::from(token))
    }

    /// The token whose first byte leads here.
    #[inline]
    pub fn token(self) -> Option<u32> {
        let token = self.0 as u32 & NO_TOKEN;
        (token != NO_TOKEN).then_some(token)
    }

    /// Whether this byte leads here, from the node with the right base.
    #[inline]
    pub fn is_led_to_by(self, byte: u8) -> bool {
        (self.0 >> TOKEN_BITS) & ((1 << BYTE_BITS) - 1) == u64::from(byte)
    }

    /// Where its children are, each at its byte from there.
    #[inline]
    pub fn base(self) -> usize {
        (self.0 >> (TOKEN_BITS + BYTE_BITS)) as usize
    }
}
