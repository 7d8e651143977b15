//! Byte-pair encoding of one whole piece: how many tokens it has.

use super::run::Run;
use super::vocabulary::{self, LONGEST, Token};

/// No token; as a rank, worse than any.
const NONE: Token = Token::MAX;

/// The number of tokens of a whole piece.
pub(super) fn count(piece: &[u8]) -> u64 {
    match piece.len() {
        0 => 0,
        1 => 1,
        2..=LONGEST if vocabulary::token(piece).is_some() => 1,
        2..=LONGEST => Merging::new(piece).run(),
        _ => {
            let mut run = Run::new();
            run.extend(piece);
            run.count()
        }
    }
}

/// Tokens, and for each the token that it makes with its right neighbour. The
/// lowest is found by looking at all of them: at this length that is faster than
/// keeping them in order.
struct Merging {
    tokens: [Token; LONGEST],
    merged: [Token; LONGEST],
    len: usize,
}

impl Merging {
    fn new(piece: &[u8]) -> Merging {
        let mut merging = Merging {
            tokens: [NONE; LONGEST],
            merged: [NONE; LONGEST],
            len: piece.len(),
        };
        for (token, &byte) in merging.tokens.iter_mut().zip(piece) {
            *token = vocabulary::single(byte);
        }
        for at in 0..merging.len {
            merging.look(at);
        }
        merging
    }

    fn run(mut self) -> u64 {
        while let Some(at) = self.lowest() {
            self.tokens[at] = self.merged[at];
            self.tokens.copy_within(at + 2..self.len, at + 1);
            self.merged.copy_within(at + 2..self.len, at + 1);
            self.len -= 1;
            self.look(at);
            if at > 0 {
                self.look(at - 1);
            }
        }
        self.len as u64
    }

    /// The leftmost of the merges of the lowest rank.
    fn lowest(&self) -> Option<usize> {
        let merged = &self.merged[..self.len];
        let lowest = merged.iter().copied().fold(NONE, Token::min);
        (lowest != NONE).then(|| merged.iter().position(|&token| token == lowest))?
    }

    fn look(&mut self, at: usize) {
        self.merged[at] = if at + 1 < self.len {
            vocabulary::merge(self.tokens[at], self.tokens[at + 1]).unwrap_or(NONE)
        } else {
            NONE
        };
    }
}
