//! Counts the tokens of text that is not split into pieces yet.

use super::bpe::PrefixCache;
use super::piece_counter::{self, PieceCounter};
use super::vocabulary::{self, LONGEST};

/// Unfinished text of at most two pieces. The second piece starts at the tentative cut of the
/// scanner.
#[derive(Clone)]
pub(super) struct Pending {
    len: usize,
    bytes: [u8; LONGEST],
    beginnings: PrefixCache,
    long: Option<Box<Long>>,
}

#[derive(Clone)]
struct Long {
    /// Counts the text as one piece, since later text may remove the cut.
    whole: PieceCounter,
    cut: Option<Cut>,
}

#[derive(Clone)]
struct Cut {
    at: usize,
    before: u64,
    after: PieceCounter,
}

impl Default for Pending {
    fn default() -> Pending {
        Pending {
            len: 0,
            bytes: [0; LONGEST],
            beginnings: PrefixCache::new(),
            long: None,
        }
    }
}

impl Pending {
    /// Appends text and returns the tokens of the whole unfinished text. `cut` is the offset of the
    /// tentative cut, or the length of the text if there is no cut.
    pub(super) fn append(&mut self, text: &[u8], cut: usize) -> u64 {
        let end = self.len + text.len();
        if let Some(long) = &mut self.long {
            long.append(text, cut);
        } else if let Some(free) = self.bytes.get_mut(self.len..end) {
            free.copy_from_slice(text);
            self.beginnings.forget(self.len..end);
        } else {
            let mut long = Box::new(Long {
                whole: PieceCounter::new(),
                cut: None,
            });
            long.append(&self.bytes[..self.len], cut);
            long.append(text, cut);
            self.long = Some(long);
        }
        self.len = end;
        match &self.long {
            Some(long) => long.count(),
            None => self.count(cut) + piece_counter::count(&self.bytes[cut..end]),
        }
    }

    /// Appends the rest of a single finished piece, returns the tokens of that piece and clears the
    /// text.
    pub(super) fn finish(&mut self, text: &[u8]) -> u64 {
        let tokens = self.append(text, self.len + text.len());
        self.clear();
        tokens
    }

    pub(super) fn clear(&mut self) {
        (self.len, self.long) = (0, None);
    }

    /// Removes a finished piece, which is everything except the last `rest` bytes, and returns its
    /// tokens.
    pub(super) fn split(&mut self, rest: usize) -> u64 {
        let end = self.len - rest;
        let Some(mut long) = self.long.take() else {
            let tokens = self.count(end);
            self.bytes.copy_within(end..self.len, 0);
            self.start_again(rest);
            return tokens;
        };
        let tokens = match long.cut.take() {
            Some(cut) if cut.at == end => {
                long.whole = cut.after;
                cut.before
            }
            _ => long.whole.count_without(rest),
        };
        if rest <= LONGEST {
            let bytes = self.bytes.iter_mut().zip(long.whole.end(rest));
            bytes.for_each(|(to, byte)| *to = byte);
        } else {
            self.long = Some(long);
        }
        self.start_again(rest);
        tokens
    }

    fn start_again(&mut self, len: usize) {
        self.beginnings.forget(0..len.min(LONGEST));
        self.len = len;
    }

    fn count(&mut self, len: usize) -> u64 {
        if len == 0 {
            return 0;
        }
        if self.beginnings.known(len).is_none()
            && let Some(token) = vocabulary::token(&self.bytes[..len])
        {
            self.beginnings.learn(len, token);
        }
        self.beginnings.count(&self.bytes[..len]).into()
    }
}

impl Long {
    fn append(&mut self, text: &[u8], cut: usize) {
        let len = self.whole.len();
        match &mut self.cut {
            Some(known) if known.at == cut => {
                self.whole.extend(text);
                known.after.extend(text);
            }
            // A new cut always lies within the text that was just appended.
            _ if (len..len + text.len()).contains(&cut) => {
                let (before, after) = text.split_at(cut - len);
                self.whole.extend(before);
                let before = self.whole.count();
                let mut second = PieceCounter::new();
                second.extend(after);
                self.whole.extend(after);
                self.cut = Some(Cut {
                    at: cut,
                    before,
                    after: second,
                });
            }
            _ => {
                self.whole.extend(text);
                self.cut = None;
            }
        }
    }

    fn count(&self) -> u64 {
        match &self.cut {
            Some(Cut { before, after, .. }) => before + after.count(),
            None => self.whole.count(),
        }
    }
}
