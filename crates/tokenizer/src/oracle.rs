//! Compares the scanner with the splitting expression by the end of each piece.

use super::pieces::Pieces;
use fancy_regex::Regex;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use std::sync::LazyLock;
use tiktoken_rs::O200K_BASE_PAT_STR;

/// One character of each class, and the letters of contractions.
const CHARACTERS: [char; 14] = [
    'S', 'a', '中', '\u{301}', '7', '\n', ' ', '\u{3000}', '\'', '/', '!', 's', 'r', 'e',
];

static EXPRESSION: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(O200K_BASE_PAT_STR).expect("tiktoken runs it"));

fn expected(text: &str) -> Vec<usize> {
    let pieces = EXPRESSION.find_iter(text);
    pieces
        .map(|piece| piece.expect("the texts are short").end())
        .collect()
}

#[derive(Clone, Default)]
struct Scan {
    pieces: Pieces,
    len: usize,
    ends: Vec<usize>,
}

impl Scan {
    fn push(&mut self, text: &str) {
        let before = self.len;
        self.pieces.push(text, |start, end| {
            let [start, end] = [start, end].map(|at| before.strict_add_signed(at));
            assert_eq!(
                start,
                self.ends.last().copied().unwrap_or(0),
                "pieces are side by side"
            );
            assert!(start < end, "a piece is never empty");
            self.ends.push(end);
        });
        self.len += text.len();
    }

    /// The ends of all pieces if the text ended here.
    fn all_ends(&self) -> Vec<usize> {
        let start = self.ends.last().copied().unwrap_or(0);
        let mut ends = self.ends.clone();
        ends.extend([start + self.pieces.cut(), self.len]);
        ends.dedup();
        ends.retain(|&end| end > 0);
        ends
    }
}

fn scanned<'a>(chunks: impl IntoIterator<Item = &'a str>) -> Scan {
    let mut scan = Scan::default();
    chunks.into_iter().for_each(|chunk| scan.push(chunk));
    scan
}

/// Checks every continuation by up to `more` characters, pushed at once and character by character.
/// Reported ends must not change.
fn check_all(alphabet: &[char], text: &str, scan: &Scan, more: usize) {
    let expected = expected(text);
    assert_eq!(scan.all_ends(), expected, "{text:?} by characters");
    assert_eq!(scanned([text]).all_ends(), expected, "{text:?} at once");
    if more == 0 {
        return;
    }
    for character in alphabet {
        let mut scan = scan.clone();
        let longer = format!("{text}{character}");
        scan.push(&longer[text.len()..]);
        check_all(alphabet, &longer, &scan, more - 1);
    }
}

#[test]
fn splits_every_short_string_as_the_expression() {
    let longest = std::env::var("TOKENGAUGE_EXHAUSTIVE")
        .map_or(4, |text| text.parse().expect("a number of characters"));
    check_all(&CHARACTERS, "", &Scan::default(), longest);
}

#[test]
fn splits_every_contraction_as_the_expression() {
    let letters: Vec<char> = "'sſtmdrevlSTMDREVLKK中".chars().collect();
    for word in ["a", "S", "中", "中S", " ", "!", "7"] {
        let text = format!("{word}'");
        check_all(&letters, &text, &scanned([&text[..]]), 3);
    }
}

#[test]
fn puts_every_character_into_the_class_of_the_expression() {
    for character in '\0'..=char::MAX {
        let text =
            format!("{character}a{character}S{character}!{character}7 {character}\n{character}");
        assert_eq!(scanned([&text[..]]).all_ends(), expected(&text), "{text:?}");
    }
}

/// Texts in which a few characters are frequent, as in real texts.
fn text() -> impl Strategy<Value = String> {
    let common = prop_oneof![
        select(CHARACTERS.to_vec()).prop_map(String::from),
        select(vec![
            "'ll", "'VE", "'ſ", "\r\n", "\n \n", "  ", "中SS", "\u{a0}", "ǅ", "ʰ", "½", "٣"
        ])
        .prop_map(String::from),
        any::<char>().prop_map(String::from),
    ];
    prop::collection::vec(common, 0..60).prop_map(|fragments| fragments.concat())
}

proptest! {
    #[test]
    fn splits_any_text_as_the_expression_wherever_it_is_cut(text in text(), cuts in prop::collection::vec(any::<Index>(), 0..12)) {
        let ends: Vec<usize> = text.char_indices().map(|(at, _)| at).chain([text.len()]).collect();
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| ends[cut.index(ends.len())]).chain([0, text.len()]).collect();
        cuts.sort_unstable();
        let scan = scanned(cuts.windows(2).map(|cut| &text[cut[0]..cut[1]]));
        prop_assert_eq!(scan.all_ends(), expected(&text));
    }
}
