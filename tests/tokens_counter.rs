//! The counter must agree with tiktoken-rs on the whole text, however the text is cut.

use proptest::prelude::*;
use proptest::sample::{Index, select};
use tiktoken_rs::o200k_base_singleton;
use tokengauge_tokenizer::{self as tokens, Counter};

/// Token count of the whole text by tiktoken-rs.
fn reference(text: &str) -> u64 {
    o200k_base_singleton().encode_ordinary(text).len() as u64
}

/// Feeds the bytes cut at these places. After each piece the count must equal the count of all complete characters so
/// far.
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

/// The bytes without an incomplete character at their end.
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

/// Parts of texts, of every class in the splitting expression and of every kind that is hard to count.
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

/// The hardest texts to count: few boundaries, or boundaries that stay undecided for long.
const PATHOLOGICAL: [(&str, usize); 26] = [
    ("a", 700),
    ("S", 700),
    ("中S", 1),
    ("-", 700),
    (" ", 700),
    ("\n", 700),
    (" \n  \r\n \t \n      ", 40),
    ("7", 700),
    ("deadbeef0123456789abcdef", 30),
    ("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJ", 12),
    ("qzjxkvwpbfghymnlrtcdsuoaei", 25),
    (
        "的一是不了人我在有他这为之大来以个中上们到说国和地也子时道出而要于就下得可你年生",
        5,
    ),
    ("e\u{301}\u{302}\u{323}", 60),
    ("a\u{200d}b\u{200d}", 60),
    ("👩\u{200d}👩\u{200d}👧\u{200d}👦", 20),
    ("don't we'LL they'RE I'M he'ſ it'v o'r 'l ''s", 4),
    ("\r\n\n\r", 60),
    ("<|endoftext|><|endofprompt|>", 8),
    ("=", 300),
    ("_", 300),
    ("\t", 300),
    ("\u{3000}", 100),
    ("ー", 150),
    ("\u{0}", 200),
    ("!/\n/", 60),
    ("ⅫⅩ½٣", 40),
];

#[test]
fn counts_what_is_hard_to_count_after_every_byte() {
    for (unit, times) in PATHOLOGICAL {
        assert_exact_at_every_byte(&unit.repeat(times));
    }
}

#[test]
fn counts_a_long_piece_whose_end_is_undecided() {
    for before in ["", "中", "x中", "\n", " \n ", "!"] {
        for run in ["S", " ", "\u{3000}", "Ä", "\n"] {
            for after in [
                "", "a", "中", "'s", "'re", "'r!", "'x", "\n", "\r\n", " ", "7", "!", "a中",
            ] {
                let text = format!("{before}{}{after}.", run.repeat(300));
                assert_exact_at_every_cut(
                    text.as_bytes(),
                    vec![before.len(), 100, 150, 280, text.len() - 3],
                );
                let ends = text.len() - after.len() - 5..text.len();
                assert_exact_at_every_cut(text.as_bytes(), ends.collect());
            }
        }
    }
}

#[test]
fn counts_a_contraction_wherever_it_is_cut() {
    for word in ["don", "DON", "中", "中S", "", " "] {
        for ending in [
            "'s", "'T", "'re", "'Ve", "'lL", "'m", "'D", "'ſ", "'r", "'rx", "'l'l", "'v ", "''s",
            "'",
        ] {
            for after in ["", "x", " x", "'s", "!"] {
                assert_exact_at_every_byte(&format!("{word}{ending}{after}"));
            }
        }
    }
}

#[test]
fn counts_every_character() {
    let characters: Vec<char> = ('\0'..=char::MAX).collect();
    for some in characters.chunks(500) {
        let alone: String = some
            .iter()
            .flat_map(|&character| [character, ' '])
            .collect();
        let together: String = some.iter().collect();
        for text in [alone, together] {
            assert_eq!(tokens::count(&text), reference(&text), "from {:?}", some[0]);
        }
    }
}

/// One character of each class in the splitting expression.
const CHARACTERS: [char; 14] = [
    'S', 'a', '中', '\u{301}', '7', '\n', ' ', '\u{3000}', '\'', '/', '!', 's', 'r', 'e',
];

#[test]
fn counts_every_short_string_character_by_character() {
    let longest = std::env::var("TOKENGAUGE_EXHAUSTIVE")
        .map_or(4, |text| text.parse().expect("a number of characters"));
    assert_exact_with_more(&mut String::new(), &Counter::new(), longest);
}

fn assert_exact_with_more(text: &mut String, counter: &Counter, more: usize) {
    assert_eq!(counter.count(), reference(text), "{text:?}");
    assert!(counter.settled() <= counter.count());
    if more == 0 {
        return;
    }
    for character in CHARACTERS {
        let mut counter = counter.clone();
        counter.push(character.encode_utf8(&mut [0; 4]));
        text.push(character);
        assert_exact_with_more(text, &counter, more - 1);
        text.pop();
    }
}
