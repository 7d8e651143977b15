//! The text that is not split into pieces yet, and its tokens.

use super::bpe::PrefixCache;
use super::piece_counter::{self, PieceCounter};
use super::vocabulary::{self, LONGEST};

/// At most two pieces: the second starts at the cut that the scanner knows.
#[derive(Clone)]
pub(super) struct Pending {
    len: usize,
    bytes: [u8; LONGEST],
    beginnings: PrefixCache,
    /// Used when the text is longer than the bytes.
    long: Option<Box<Long>>,
}

#[derive(Clone)]
struct Long {
    /// All of it as one piece, which it may yet become.
    whole: PieceCounter,
    cut: Option<Cut>,
}

#[derive(Clone)]
struct Cut {
    at: usize,
    /// The tokens before it.
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
    /// Appends text; `cut` is where all of it then is cut, its length if it is not.
    /// Gives the tokens of all of it.
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

    /// Appends the rest of the first piece, which is all of it: gives its tokens
    /// and starts again.
    pub(super) fn finish(&mut self, text: &[u8]) -> u64 {
        let tokens = self.append(text, self.len + text.len());
        self.clear();
        tokens
    }

    pub(super) fn clear(&mut self) {
        (self.len, self.long) = (0, None);
    }

    /// All but the last bytes is a finished piece: gives its tokens and keeps those.
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

    /// The tokens of a beginning of the short text.
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
            // A cut is never older than the text that brings it.
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
