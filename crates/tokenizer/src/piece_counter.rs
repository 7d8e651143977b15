//! Byte-pair encoding of a piece of unlimited length in constant memory. No token is longer than
//! [`LONGEST`] bytes, so older prefixes are not needed.

use super::bpe;
use super::vocabulary::{self, LONGEST, Token};

const MASK: usize = LONGEST - 1;

pub(super) fn count(piece: &[u8]) -> u64 {
    match piece.len() {
        0 => 0,
        1 => 1,
        2..=LONGEST if vocabulary::token(piece).is_some() => 1,
        2..=LONGEST => bpe::PrefixCache::new().count(piece).into(),
        _ => {
            let mut run = PieceCounter::new();
            run.extend(piece);
            run.count()
        }
    }
}

/// Counts the tokens of a piece while bytes are appended.
#[derive(Clone)]
pub(super) struct PieceCounter {
    len: usize,
    /// How many times the last byte occurs in a row at the end.
    repeated: usize,
    /// The longest token that the piece ends with, and its length in bytes.
    longest: (Token, usize),
    /// The last [`LONGEST`] bytes as a ring buffer.
    bytes: [u8; LONGEST],
    /// The last token of the prefix that ends at each of the last positions.
    last: [Token; LONGEST],
    /// The number of tokens of the prefix that ends at each of the last positions.
    counts: [u64; LONGEST],
}

impl PieceCounter {
    pub(super) fn new() -> PieceCounter {
        PieceCounter {
            len: 0,
            repeated: 0,
            longest: (0, 0),
            bytes: [0; LONGEST],
            last: [0; LONGEST],
            counts: [0; LONGEST],
        }
    }

    pub(super) fn extend(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.push(byte));
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn count(&self) -> u64 {
        self.count_without(0)
    }

    /// The number of tokens without the last `bytes` bytes. `bytes` must be smaller than
    /// [`LONGEST`].
    pub(super) fn count_without(&self, bytes: usize) -> u64 {
        match self.len - bytes {
            0 => 0,
            end => self.counts[end & MASK],
        }
    }

    pub(super) fn end(&self, bytes: usize) -> impl Iterator<Item = u8> {
        (self.len - bytes..self.len).map(|at| self.bytes[at & MASK])
    }

    fn push(&mut self, byte: u8) {
        let previous = self.bytes[self.len.wrapping_sub(1) & MASK];
        self.repeated = if byte == previous {
            self.repeated + 1
        } else {
            1
        };
        self.bytes[self.len & MASK] = byte;
        self.len += 1;
        let (token, len) = self.guess().unwrap_or_else(|| self.search());
        self.counts[self.len & MASK] = self.count_without(len) + 1;
        self.last[self.len & MASK] = token;
    }

    /// Guesses the last token in a long run of one byte. The token from [`LONGEST`] bytes ago is
    /// usually right.
    fn guess(&self) -> Option<(Token, usize)> {
        if self.repeated < 2 * LONGEST {
            return None;
        }
        let token = self.last[self.len & MASK];
        let len = vocabulary::bytes(token).len();
        self.may_end_with(token, len).then_some((token, len))
    }

    fn search(&mut self) -> (Token, usize) {
        // Once one repeated byte fills the window, the longest token no longer changes.
        if self.repeated <= LONGEST {
            let backwards = 1..=self.len.min(LONGEST);
            let backwards = backwards.map(|back| self.bytes[(self.len - back) & MASK]);
            self.longest = vocabulary::longest_at_end(backwards);
        }
        bpe::last_token(self.longest, |token, len| self.may_end_with(token, len))
    }

    fn may_end_with(&self, token: Token, len: usize) -> bool {
        match self.len - len {
            0 => true,
            before => {
                let border = [before - 1, before].map(|at| self.bytes[at & MASK]);
                bpe::are_neighbours(self.last[before & MASK], token, border)
            }
        }
    }
}
