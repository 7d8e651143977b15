//! Searches a text for its own end, and counts a period.

use tokengauge_tokenizer as tokenizer;

/// Bytes of the text that are searched for in the text after them.
#[derive(Clone, Copy, Default)]
pub(super) struct Probe {
    at: usize,
    /// Where the search continues; 0 if there is no probe.
    next: usize,
}

impl Probe {
    pub(super) const LENGTH: usize = 16;
    /// The bytes at the end of a text among which a probe may begin.
    const CHOICE: usize = 24;

    /// A probe near the end of the text. It begins with a byte that is rare in most texts, so that
    /// the search seldom stops.
    pub(super) fn at_end(text: &[u8]) -> Probe {
        let Some(last) = text.len().checked_sub(Probe::LENGTH) else {
            return Probe::default();
        };
        let first = last.saturating_sub(Probe::CHOICE);
        let mut best = (0, last);
        for (at, byte) in text[first..=last].iter().enumerate() {
            let rarity = RARITY[usize::from(*byte)];
            if rarity >= best.0 {
                best = (rarity, first + at);
            }
        }
        let (_, at) = best;
        Probe { at, next: at + 1 }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.next == 0
    }

    /// The bytes from the beginning of the probe; 0 if there is no probe.
    pub(super) fn bytes_until(&self, length: usize) -> usize {
        if self.is_empty() { 0 } else { length - self.at }
    }

    /// The distance to the next occurrence of the probe that ends within the text.
    pub(super) fn find(&mut self, text: &[u8]) -> Option<usize> {
        if self.is_empty() {
            return None;
        }
        let probe = text.get(self.at..self.at + Probe::LENGTH)?;
        let end = text.len() + 1 - Probe::LENGTH;
        while let Some(skip) = memchr::memchr(probe[0], text.get(self.next..end)?) {
            let at = self.next + skip;
            self.next = at + 1;
            if text[at..].starts_with(probe) {
                return Some(at - self.at);
            }
        }
        self.next = self.next.max(end);
        None
    }

    /// Where the occurrence begins that was found last.
    pub(super) fn found_at(&self) -> usize {
        self.next - 1
    }

    /// Follows the text, from whose beginning `dropped` bytes were removed.
    pub(super) fn moved(&mut self, dropped: usize) {
        *self = match self.at.checked_sub(dropped) {
            Some(at) => Probe {
                at,
                next: self.next - dropped,
            },
            None => Probe::default(),
        };
    }
}

static RARITY: [u8; 256] = {
    let mut all = [0; 256];
    let mut byte = 0;
    while byte < all.len() {
        all[byte] = rarity(byte as u8);
        byte += 1;
    }
    all
};

const fn rarity(byte: u8) -> u8 {
    match byte {
        b'j' | b'q' | b'x' | b'z' => 5,
        b'A'..=b'Z' | 0x80..=0xBF => 4,
        b'0'..=b'9' | b'k' | b'v' => 3,
        b'b' | b'f' | b'g' | b'p' | b'w' | b'y' => 2,
        b'a'..=b'z' => 1,
        _ => 0,
    }
}

/// The number of equal bytes at the beginning of both.
pub(super) fn equal_at_start(one: &[u8], other: &[u8]) -> usize {
    const BLOCK: usize = 32;
    let blocks = one.chunks_exact(BLOCK).zip(other.chunks_exact(BLOCK));
    let equal = BLOCK * blocks.take_while(|(one, other)| one == other).count();
    let rest = one[equal..].iter().zip(&other[equal..]);
    equal + rest.take_while(|(one, other)| one == other).count()
}

/// The number of equal bytes at the end of both.
pub(super) fn equal_at_end(one: &[u8], other: &[u8]) -> usize {
    let pairs = one.iter().rev().zip(other.iter().rev());
    pairs.take_while(|(one, other)| one == other).count()
}

/// The tokens that each further copy of the period adds to a text. Several copies of a short period
/// may share a token.
pub(super) fn tokens_of_period(period: &[u8]) -> f64 {
    const ENOUGH: usize = 256;
    let copies = (ENOUGH / period.len().max(1)).max(1);
    let count = |copies: usize| {
        let text = period.repeat(copies);
        // The period may begin within a character.
        let start = text.iter().position(|byte| byte & 0xC0 != 0x80);
        tokenizer::count(&String::from_utf8_lossy(&text[start.unwrap_or(0)..]))
    };
    let added = count(2 * copies).saturating_sub(count(copies));
    added as f64 / copies as f64
}
