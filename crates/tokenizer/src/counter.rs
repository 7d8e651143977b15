//! Counts the tokens of one text while it arrives.

use super::pending::Pending;
use super::piece_counter;
use super::pieces::Pieces;
use super::utf8::Utf8;
use std::fmt;

/// Counts the o200k_base tokens of a text that arrives in chunks of any size.
///
/// Special-token strings count as plain text. Invalid UTF-8 counts as [`String::from_utf8_lossy`]
/// would replace it.
///
/// A counter takes about a kilobyte and no heap, until a piece is longer than any token. It then
/// takes a few more kilobytes until that piece ends, independent of the length of the piece.
#[derive(Clone, Default)]
pub struct Counter {
    utf8: Utf8,
    text: Text,
}

/// The part of a counter that sees decoded text.
#[derive(Clone, Default)]
struct Text {
    settled: u64,
    unsettled: u64,
    pieces: Pieces,
    pending: Pending,
}

impl Counter {
    /// A counter of an empty text.
    pub fn new() -> Counter {
        Counter::default()
    }

    /// Appends text. An incomplete character from [`Counter::push_bytes`] is replaced by U+FFFD.
    pub fn push(&mut self, text: &str) {
        self.utf8.finish(|text| self.text.push(text));
        self.text.push(text);
    }

    /// Appends bytes, which may end inside a character.
    pub fn push_bytes(&mut self, bytes: &[u8]) {
        self.utf8.push(bytes, |text| self.text.push(text));
    }

    /// The o200k_base tokens of everything so far, equal to the count of the whole text at once. An
    /// incomplete character at the end does not count yet.
    pub fn count(&self) -> u64 {
        self.text.count()
    }

    /// The tokens that later text cannot change. Never decreases.
    pub fn settled(&self) -> u64 {
        self.text.settled
    }

    /// Ends the text and returns its number of tokens. Text that is pushed afterwards is tokenized
    /// separately and added to the count.
    pub fn finish(&mut self) -> u64 {
        self.utf8.finish(|text| self.text.push(text));
        self.text.finish()
    }
}

/// Omits the text, which may be confidential.
impl fmt::Debug for Counter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut counter = f.debug_struct("Counter");
        counter.field("count", &self.count());
        counter.field("settled", &self.settled());
        counter.finish_non_exhaustive()
    }
}

impl Text {
    fn push(&mut self, text: &str) {
        let Text {
            settled,
            unsettled,
            pieces,
            pending,
        } = self;
        let bytes = text.as_bytes();
        let mut kept = 0;
        pieces.push(text, |start, end| {
            *settled += match (usize::try_from(start), usize::try_from(end)) {
                (Ok(start), Ok(end)) => {
                    kept = end;
                    piece_counter::count(&bytes[start..end])
                }
                (Err(_), Ok(end)) => {
                    kept = end;
                    pending.finish(&bytes[..end])
                }
                (_, Err(_)) => pending.split(end.unsigned_abs()),
            };
        });
        *unsettled = pending.append(&bytes[kept..], pieces.cut());
    }

    fn count(&self) -> u64 {
        self.settled + self.unsettled
    }

    fn finish(&mut self) -> u64 {
        self.settled += std::mem::take(&mut self.unsettled);
        self.pieces = Pieces::default();
        self.pending.clear();
        self.settled
    }
}

#[cfg(test)]
mod tests {
    use super::Counter;

    #[test]
    fn is_small() {
        assert!(size_of::<Counter>() <= 1024, "{}", size_of::<Counter>());
    }

    #[test]
    fn says_nothing_of_the_text() {
        let mut counter = Counter::new();
        counter.push_bytes(b"zebra\xf0\x9f");
        assert_eq!(
            format!("{counter:?}"),
            "Counter { count: 2, settled: 0, .. }"
        );
    }

    #[test]
    fn settles_a_piece_once_nothing_can_change_it() {
        let mut counter = Counter::new();
        let steps = [
            ("One", 0),
            (" two", 1),
            ("'r", 1),
            ("e", 3),
            ("\n", 3),
            ("x", 4),
        ];
        for (text, settled) in steps {
            counter.push(text);
            assert_eq!(counter.settled(), settled, "after {text:?}");
        }
        assert_eq!(counter.finish(), 5);
        assert_eq!(counter.settled(), 5);
    }
}
