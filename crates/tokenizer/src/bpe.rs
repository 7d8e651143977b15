//! Byte-pair encoding: counts the tokens of a piece.
//!
//! The encoding of a piece is the encoding of a shorter prefix, followed by the last token. Among
//! all tokens that the piece ends with, exactly one is compatible with the last token of the prefix
//! before it. The search for that token starts at the end of the piece, so the results for prefixes
//! stay valid while the piece grows. The `bpe` crate of rust-gems appends to a text in the same
//! way.

use super::hash;
use super::vocabulary::{self, LONGEST, Token};

/// Caches the encodings of the prefixes of a piece. Prefixes have at most [`LONGEST`] bytes.
#[derive(Clone)]
pub(super) struct PrefixCache([CachedPrefix; LONGEST]);

/// The last token of a prefix, and the number of its tokens in the low [`COUNT_BITS`] bits. 0 if
/// unknown.
type CachedPrefix = u32;

/// Bits of a token count. A piece never has more tokens than bytes, and a prefix has at most
/// [`LONGEST`] bytes.
const COUNT_BITS: u32 = 8;

const _: () = assert!(LONGEST < 1 << COUNT_BITS && hash::TOKEN_BITS + COUNT_BITS <= u32::BITS);

impl PrefixCache {
    pub(super) fn new() -> PrefixCache {
        PrefixCache([0; LONGEST])
    }

    pub(super) fn forget(&mut self, lengths: std::ops::Range<usize>) {
        self.0[lengths].fill(0);
    }

    pub(super) fn known(&self, len: usize) -> Option<u8> {
        Some(self.0[len - 1] as u8).filter(|&count| count > 0)
    }

    pub(super) fn learn(&mut self, len: usize, token: Token) {
        self.note(len, token, 1);
    }

    fn note(&mut self, len: usize, last: Token, count: u8) {
        self.0[len - 1] = last << COUNT_BITS | u32::from(count);
    }

    fn last(&self, len: usize) -> Token {
        self.0[len - 1] >> COUNT_BITS
    }

    pub(super) fn count(&mut self, beginning: &[u8]) -> u8 {
        let len = beginning.len();
        if len == 0 {
            return 0;
        }
        if let Some(known) = self.known(len) {
            return known;
        }
        let longest = vocabulary::longest_at_end(beginning.iter().rev().copied());
        let (token, token_len) = last_token(longest, |token, token_len| {
            let before = &beginning[..len - token_len];
            self.count(before) == 0 || {
                let border = [beginning[before.len() - 1], beginning[before.len()]];
                are_neighbours(self.last(before.len()), token, border)
            }
        });
        let count = self.count(&beginning[..len - token_len]) + 1;
        self.note(len, token, count);
        count
    }
}

/// Finds the last token of a text, and its length in bytes. `longest` is the longest token that the
/// text ends with, which is tried first because it is the most likely. `fits` tells whether a token
/// is compatible with the text before it.
pub(super) fn last_token(
    longest: (Token, usize),
    mut fits: impl FnMut(Token, usize) -> bool,
) -> (Token, usize) {
    let (mut token, mut len) = longest;
    while len > 1 && !fits(token, len) {
        (token, len) = vocabulary::shorter(token);
    }
    (token, len)
}

/// Whether two adjacent tokens stay separate in the encoding of their concatenation. `border` is
/// the last byte of `left` and the first byte of `right`. Undoes the merges of both tokens, last
/// merge first, and looks for an earlier merge across the border.
pub(super) fn are_neighbours(mut left: Token, mut right: Token, border: [u8; 2]) -> bool {
    let first = vocabulary::first_merge_across(border);
    let mut limit = Token::MAX;
    while first < limit {
        if vocabulary::merge_before(limit, left, right) {
            return false;
        }
        // If two merges have the same rank, the left one is applied first.
        let (left_half, right_half) = (vocabulary::halves(left).1, vocabulary::halves(right).0);
        if (left > right || right_half == right) && left_half != left {
            (limit, left) = (left, left_half);
        } else if right_half != right {
            (limit, right) = (right + 1, right_half);
        } else {
            break;
        }
    }
    true
}
