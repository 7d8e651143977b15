//! The layout of the trie of the tokens read backwards. Nodes are numbered level by
//! level, so that a node's children are neighbours. The build script, which writes
//! the trie, compiles this very file.

use super::hash::TOKEN_BITS;

/// What a node without a token has in a token's place.
pub const NO_TOKEN: u32 = (1 << TOKEN_BITS) - 1;

const COUNT_BITS: u32 = 9;

/// A node as stored: its token, how many children it has, and the first of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node(pub u64);

impl Node {
    /// A node with its children from `first` on.
    pub fn new(token: u32, count: usize, first: usize) -> Node {
        let children = (first as u64) << COUNT_BITS | count as u64;
        Node(children << TOKEN_BITS | u64::from(token))
    }

    /// The token whose first byte leads here.
    #[inline]
    pub fn token(self) -> Option<u32> {
        let token = self.0 as u32 & NO_TOKEN;
        (token != NO_TOKEN).then_some(token)
    }

    /// The numbers of its children.
    #[inline]
    pub fn children(self) -> std::ops::Range<usize> {
        let children = self.0 >> TOKEN_BITS;
        let first = (children >> COUNT_BITS) as usize;
        first..first + (children as usize & ((1 << COUNT_BITS) - 1))
    }
}
