//! Byte-pair encoding: how many tokens a piece has.
//!
//! The encoding of a piece is the encoding of the piece without its last token, and
//! that token; and of all tokens that the piece ends with, only one goes with the
//! last token of what is before it. So a piece is encoded from its end, and what is
//! known of its beginnings stays true while it grows. This is how the `bpe` crate of
//! rust-gems appends to a text.

use super::hash;
use super::vocabulary::{self, LONGEST, Token};

/// A cache of the encodings of a piece's prefixes, of at most [`LONGEST`] bytes.
#[derive(Clone)]
pub(super) struct PrefixCache([CachedPrefix; LONGEST]);

/// The last token of a prefix, and after it the number of its tokens in [`COUNT_BITS`] bits; 0
/// if nothing is known.
type CachedPrefix = u32;

/// No piece of [`LONGEST`] bytes has more tokens than bytes.
const COUNT_BITS: u32 = 8;

const _: () = assert!(LONGEST < 1 << COUNT_BITS && hash::TOKEN_BITS + COUNT_BITS <= u32::BITS);

impl PrefixCache {
    pub(super) fn new() -> PrefixCache {
        PrefixCache([0; LONGEST])
    }

    /// Clears the cache of prefixes of these lengths, less one.
    pub(super) fn forget(&mut self, lengths: std::ops::Range<usize>) {
        self.0[lengths].fill(0);
    }

    /// The number of tokens of the whole, where it is known.
    pub(super) fn known(&self, len: usize) -> Option<u8> {
        Some(self.0[len - 1] as u8).filter(|&count| count > 0)
    }

    /// Notes that this many bytes are one token.
    pub(super) fn learn(&mut self, len: usize, token: Token) {
        self.note(len, token, 1);
    }

    fn note(&mut self, len: usize, last: Token, count: u8) {
        self.0[len - 1] = last << COUNT_BITS | u32::from(count);
    }

    fn last(&self, len: usize) -> Token {
        self.0[len - 1] >> COUNT_BITS
    }

    /// The number of tokens of this prefix of the piece.
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

/// The last token of a text, and its length, given the longest that it ends with: the
/// only one that fits what is before it. The longest is the likeliest.
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

/// Whether two tokens, of which one ends and the other begins with the bytes of `border`,
/// stay as they are side by side: takes both apart, last merge first, and looks for a merge
/// across the border that would have come before.
pub(super) fn are_neighbours(mut left: Token, mut right: Token, border: [u8; 2]) -> bool {
    let first = vocabulary::first_merge_across(border);
    let mut limit = Token::MAX;
    while first < limit {
        if vocabulary::merge_before(limit, left, right) {
            return false;
        }
        // Of two merges of the same rank the left one comes first.
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
