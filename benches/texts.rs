//! Texts of the benchmark, handwritten or generated.

/// A text of about this many bytes.
pub type Generator = Box<dyn Fn(usize) -> Vec<u8>>;

pub fn typical() -> Vec<(&'static str, String)> {
    vec![
        ("English", include_str!("texts/english.txt").into()),
        ("code", include_str!("../crates/core/src/call.rs").into()),
        ("Chinese", include_str!("texts/chinese.txt").into()),
        ("emoji", include_str!("texts/emoji.txt").into()),
        ("JSON", json(20_000)),
        ("one endless word", letters(20_000)),
    ]
}

pub fn hard() -> Vec<(&'static str, Generator)> {
    let mut texts: Vec<(&'static str, Generator)> = Vec::new();
    for (name, unit) in [
        ("one letter", "a"),
        ("upper case", "S"),
        (
            "upper case, one ideograph",
            "SSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSS中",
        ),
        ("dashes", "-"),
        ("blanks", " "),
        (
            "blanks and words",
            "                                                             x",
        ),
        ("line ends", "\n"),
        ("blanks and line ends", " \n  \r\n \t \n      "),
        ("digits", "31415926535897932384626433"),
        (
            "no punctuation",
            "的一是不了人我在有他这为之大来以个中上们到说国和地也子时道出而要于就下得可你年生",
        ),
        ("combining marks", "e\u{301}\u{302}\u{323}"),
        ("zero-width joiners", "a\u{200d}b\u{200d}"),
        ("emoji with joiners", "👩\u{200d}👩\u{200d}👧\u{200d}👦"),
        ("contractions", "don't we'LL I'm they'r'e "),
        ("special tokens", "<|endoftext|>"),
    ] {
        texts.push((
            name,
            Box::new(move |length| unit.repeat(length.div_ceil(unit.len())).into()),
        ));
    }
    texts.push((
        "one ideograph, upper case",
        Box::new(|length| format!("中{}", "S".repeat(length)).into()),
    ));
    texts.push((
        "line end, then blanks",
        Box::new(|length| format!("\n{}", " ".repeat(length)).into()),
    ));
    texts.push((
        "hexadecimal",
        Box::new(|length| drawn(b"0123456789abcdef", length).into()),
    ));
    texts.push(("base64", Box::new(|length| drawn(BASE64, length).into())));
    texts.push((
        "letters without a blank",
        Box::new(|length| letters(length).into()),
    ));
    texts.push((
        "invalid UTF-8",
        Box::new(|length| b"\xe4\xb8\xff\xc3 a\xf0\x9f".repeat(length / 8)),
    ));
    texts
}

const BASE64: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

fn letters(length: usize) -> String {
    drawn(b"abcdefghijklmnopqrstuvwxyz", length)
}

fn json(length: usize) -> String {
    let mut random = Random(7);
    let mut text = String::from("[");
    while text.len() < length {
        let [id, cents, day, quantity] =
            [90_000, 1_000_000, 28, 12].map(|below| random.below(below));
        let name = drawn(b"aeioustrnlm", 4 + random.below(6));
        text.push_str(&format!(
            "{{\"id\": {id}, \"customer\": \"{name}\", \"status\": \"shipped\", \"total\": {}.{:02},\n  \
             \"created_at\": \"2026-03-{:02}T09:41:00Z\", \"items\": [{{\"sku\": \"A-{quantity}\", \"gift\": false, \"note\": null}}]}},\n",
            cents / 100, cents % 100, day + 1,
        ));
    }
    text
}

fn drawn(alphabet: &[u8], length: usize) -> String {
    let mut random = Random(length as u64 + 1);
    (0..length)
        .map(|_| char::from(alphabet[random.below(alphabet.len())]))
        .collect()
}

/// The same numbers in every run (SplitMix64).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((mixed ^ mixed >> 31) % limit as u64) as usize
    }
}
