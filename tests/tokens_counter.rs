//! The counter against tiktoken-rs on the whole text, however the text is cut.

use proptest::prelude::*;
use proptest::sample::{Index, select};
use tiktoken_rs::o200k_base_singleton;
use tokengauge::tokens::{self, Counter};

/// What the whole text has, by the reference.
fn reference(text: &str) -> u64 {
    o200k_base_singleton().encode_ordinary(text).len() as u64
}

/// Feeds the bytes cut at these places; after each piece the count must be that of
/// all complete characters so far.
fn assert_exact_at_every_cut(bytes: &[u8], mut cuts: Vec<usize>) {
    cuts.push(bytes.len());
    cuts.sort_unstable();
    let mut counter = Counter::new();
    let (mut start, mut settled) = (0, 0);
    for cut in cuts {
        counter.push_bytes(&bytes[start..cut]);
        start = cut;
        let so_far = String::from_utf8_lossy(complete(&bytes[..cut]));
        assert_eq!(counter.count(), reference(&so_far), "after {so_far:?}");
        assert!(settled <= counter.settled() && counter.settled() <= counter.count());
        settled = counter.settled();
    }
    let whole = reference(&String::from_utf8_lossy(bytes));
    assert!(settled <= whole);
    assert_eq!(
        counter.finish(),
        whole,
        "all of {:?}",
        String::from_utf8_lossy(bytes)
    );
    assert_eq!((counter.count(), counter.settled()), (whole, whole));
}

/// The bytes without a character at their end that could still be completed.
fn complete(bytes: &[u8]) -> &[u8] {
    let incomplete = |at: &usize| {
        let end = std::str::from_utf8(&bytes[*at..]);
        end.is_err_and(|error| error.valid_up_to() == 0 && error.error_len().is_none())
    };
    let last = bytes.len().saturating_sub(3)..bytes.len();
    last.into_iter()
        .find(incomplete)
        .map_or(bytes, |at| &bytes[..at])
}

fn assert_exact_at_every_byte(text: &str) {
    assert_exact_at_every_cut(text.as_bytes(), (0..text.len()).collect());
}

/// Things that texts are made of, of every class the splitting expression knows and
/// of every kind that is hard to count.
fn fragment() -> impl Strategy<Value = String> {
    let word = select(vec![
        "the",
        " of",
        " Streaming",
        "don",
        "'s",
        "'T",
        "'re",
        "'VE",
        "'ll",
        "'",
        "'ſ",
        "HTTP",
        "iPhone",
        "ẞ",
        "ǅ",
        "straße",
        " naïve",
        "e\u{301}",
        "\u{301}",
        "中",
        "文字",
        "中S",
        "、",
        "。",
        "日本語",
        "คำ",
        "한국어",
        "ʰ",
        "ª",
        "1",
        "23",
        "2026",
        "½",
        "Ⅷ",
        "٣",
        " ",
        "  ",
        "\t",
        "\u{a0}",
        "\u{3000}",
        "\u{2028}",
        "\r",
        "\n",
        "\r\n",
        "\n\n",
        "/",
        "//",
        "\"",
        "{\"",
        "\":",
        "},",
        "->",
        "!",
        "...",
        "—",
        "😀",
        "👩\u{200d}💻",
        "\u{200d}",
        "\u{fe0f}",
        "€",
        "<|endoftext|>",
        "<|",
        "|>",
        "_",
        "__init__",
        "\u{0}",
        "\u{fffd}",
        "\u{10ffff}",
        "ZWxl",
        "0x1F",
    ]);
    prop_oneof![
        6 => word.prop_map(String::from),
        2 => "[a-zA-Z' ]{1,12}",
        1 => any::<char>().prop_map(String::from),
        1 => (select(vec!["a", "A", " ", "\n", "-", "中", "7", "\u{301}", "=", "🙂"]), 1..200usize).prop_map(|(s, n)| s.repeat(n)),
    ]
}

fn text() -> impl Strategy<Value = String> {
    prop::collection::vec(fragment(), 0..40).prop_map(|fragments| fragments.concat())
}

proptest! {
    #[test]
    fn counts_any_text_as_the_reference_wherever_it_is_cut(text in text(), cuts in prop::collection::vec(any::<Index>(), 0..12)) {
        let cuts = cuts.iter().map(|cut| cut.index(text.len() + 1)).collect();
        assert_exact_at_every_cut(text.as_bytes(), cuts);
        prop_assert_eq!(tokens::count(&text), reference(&text));
    }

    #[test]
    fn counts_invalid_utf8_as_it_is_replaced(bytes in prop::collection::vec(prop_oneof![any::<u8>(), select(vec![0x20, 0x61, 0xC3, 0xA9, 0xE4, 0xB8, 0xAD, 0xF0, 0x9F, 0x98, 0x80])], 0..40), cuts in prop::collection::vec(any::<Index>(), 0..8)) {
        let cuts = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
        assert_exact_at_every_cut(&bytes, cuts);
    }
}

#[test]
fn counts_special_token_strings_as_plain_text() {
    for text in [
        "<|endoftext|>",
        "a<|endofprompt|>b",
        "<|fim_prefix|><|im_start|>",
    ] {
        assert!(reference(text) > 1);
        assert_exact_at_every_byte(text);
    }
}
