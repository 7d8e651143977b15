//! The pieces of a complete text.

use super::piece_counter::{self, PieceCounter};
use super::pieces::Pieces;

/// A longer piece is counted in slices of this length, with a pause after each.
const SLICE: usize = 4096;

/// Calls `piece` with the length in bytes and the number of o200k_base tokens of each piece of a
/// complete text, in order. Pieces are encoded one by one, so their tokens add up to the tokens of
/// the text. Calls `pause` within a very long piece; a caller may pause between pieces itself.
pub fn pieces(text: &str, mut piece: impl FnMut(usize, u64), mut pause: impl FnMut()) {
    let bytes = text.as_bytes();
    let mut scanner = Pieces::default();
    let mut counted = 0;
    let mut give = |from: usize, to: usize| {
        if from < to {
            piece(to - from, count(&bytes[from..to], &mut pause));
        }
    };
    scanner.push(text, |start, end| {
        counted = end.unsigned_abs();
        give(start.unsigned_abs(), counted);
    });
    let cut = counted + scanner.cut();
    give(counted, cut);
    give(cut, bytes.len());
}

fn count(piece: &[u8], pause: &mut impl FnMut()) -> u64 {
    if piece.len() <= SLICE {
        return piece_counter::count(piece);
    }
    let mut counter = PieceCounter::new();
    for slice in piece.chunks(SLICE) {
        counter.extend(slice);
        pause();
    }
    counter.count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sums(text: &str) -> (usize, u64) {
        let mut sums = (0, 0);
        pieces(
            text,
            |bytes, tokens| sums = (sums.0 + bytes, sums.1 + tokens),
            || {},
        );
        sums
    }

    #[test]
    fn a_long_piece_pauses_and_counts_as_a_whole() {
        let text = "a".repeat(3 * SLICE + 5);
        let mut pauses = 0;
        let mut all = Vec::new();
        pieces(
            &text,
            |bytes, tokens| all.push((bytes, tokens)),
            || pauses += 1,
        );
        assert_eq!((all, pauses), (vec![(text.len(), crate::count(&text))], 4));
    }

    proptest! {
        #[test]
        fn pieces_add_up_to_the_text(text in "[a-zA-Z0-9 '\\n\\r\\t/.é語ǅ]{0,200}") {
            prop_assert_eq!(sums(&text), (text.len(), crate::count(&text)));
        }

        #[test]
        fn pieces_of_any_text_add_up(text in "\\PC{0,100}") {
            prop_assert_eq!(sums(&text), (text.len(), crate::count(&text)));
        }
    }
}
