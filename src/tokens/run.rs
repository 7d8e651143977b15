//! Byte-pair encoding of one piece without end, in constant memory.
//!
//! The encoding of a text is the encoding of the text without its last token, and
//! that token; and of all tokens that the text ends with, only one goes with the
//! last token of what is before it ([`vocabulary::are_neighbours`]). So it is
//! enough to know, for each of the places where a last token can start, the last
//! token and the number of tokens up to there. This is how the `bpe` crate of
//! rust-gems appends to a text.

use super::vocabulary::{self, LONGEST, Token};

const MASK: usize = LONGEST - 1;

/// A piece that grows at its end, and the number of its tokens at any time.
#[derive(Clone, Debug)]
pub(super) struct Run {
    len: usize,
    /// How often the last byte is repeated at the end.
    repeated: usize,
    /// The last bytes, each at its position modulo their number.
    bytes: [u8; LONGEST],
    /// The last token up to each of the last positions.
    last: [Token; LONGEST],
    /// The number of tokens up to each of the last positions.
    counts: [u64; LONGEST],
}

impl Run {
    pub(super) fn new() -> Run {
        Run {
            len: 0,
            repeated: 0,
            bytes: [0; LONGEST],
            last: [0; LONGEST],
            counts: [0; LONGEST],
        }
    }

    /// Appends bytes.
    pub(super) fn extend(&mut self, bytes: &[u8]) {
        let mut candidates = [(0, 0); LONGEST];
        for &byte in bytes {
            self.push(byte, &mut candidates);
        }
    }

    /// Its length in bytes.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The number of its tokens.
    pub(super) fn count(&self) -> u64 {
        self.count_without(0)
    }

    /// The number of tokens without this many bytes of the end, fewer than a token
    /// can have.
    pub(super) fn count_without(&self, bytes: usize) -> u64 {
        match self.len - bytes {
            0 => 0,
            end => self.counts[end & MASK],
        }
    }

    /// Its last bytes, at most as many as a token can have.
    pub(super) fn end(&self, bytes: usize) -> impl Iterator<Item = u8> {
        (self.len - bytes..self.len).map(|at| self.bytes[at & MASK])
    }

    fn push(&mut self, byte: u8, candidates: &mut [(usize, Token); LONGEST]) {
        let previous = self.bytes[self.len.wrapping_sub(1) & MASK];
        self.repeated = if byte == previous {
            self.repeated + 1
        } else {
            1
        };
        self.bytes[self.len & MASK] = byte;
        self.len += 1;
        let (len, token) = match self.guess() {
            Some(guess) => guess,
            None => self.search(candidates),
        };
        self.counts[self.len & MASK] = self.count_without(len) + 1;
        self.last[self.len & MASK] = token;
    }

    /// In a long run of one byte what was right a round ago is right most often.
    fn guess(&self) -> Option<(usize, Token)> {
        if self.repeated < 2 * LONGEST {
            return None;
        }
        let token = self.last[self.len & MASK];
        let len = vocabulary::bytes(token).len();
        self.may_end_with(len, token).then_some((len, token))
    }

    /// The one token among those that the text ends with.
    fn search(&self, candidates: &mut [(usize, Token); LONGEST]) -> (usize, Token) {
        let mut found = 0;
        let backwards =
            (1..=self.len.min(LONGEST)).map(|back| self.bytes[(self.len - back) & MASK]);
        vocabulary::tokens_at_end(backwards, |len, token| {
            candidates[found] = (len, token);
            found += 1;
        });
        // A single byte always is one; the longest is the likeliest.
        let longer = candidates[1..found].iter().rev();
        let fits = longer
            .copied()
            .find(|&(len, token)| self.may_end_with(len, token));
        fits.unwrap_or(candidates[0])
    }

    fn may_end_with(&self, len: usize, token: Token) -> bool {
        match self.len - len {
            0 => true,
            before => vocabulary::are_neighbours(self.last[before & MASK], token),
        }
    }
}
