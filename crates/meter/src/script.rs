//! The script of a text. It largely decides how many tokens other tokenizers make of a text,
//! compared with o200k_base.

/// A piece of text gives one letter for each of these many bytes.
const STRIDE: usize = 32;
const MAX_LETTERS: usize = 64;
const WINDOW: usize = 8;
/// A text with at least this share of digits is a text of numbers.
const MANY_DIGITS: f64 = 0.3;
/// A script with a smaller share of the letters does not count.
const MIN_SHARE: f64 = 0.1;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Script {
    #[default]
    Latin,
    Cyrillic,
    Han,
    /// Latin with additional letters, such as Vietnamese, Polish and Turkish.
    LatinExtended,
    Hebrew,
    Greek,
    Hangul,
    Arabic,
    SoutheastAsian,
    /// Hindi, Bengali, Tamil and other scripts of India.
    Indic,
    Other,
    /// Tables of numbers. Some tokenizers make one token of each digit.
    Digits,
}

const ALL: [Script; 12] = [
    Script::Latin,
    Script::Cyrillic,
    Script::Han,
    Script::LatinExtended,
    Script::Hebrew,
    Script::Greek,
    Script::Hangul,
    Script::Arabic,
    Script::SoutheastAsian,
    Script::Indic,
    Script::Other,
    Script::Digits,
];

impl Script {
    fn of(letter: char) -> Script {
        match u32::from(letter) {
            0..=0xFF => Script::Latin,
            0x100..=0x24F | 0x1E00..=0x1EFF => Script::LatinExtended,
            0x370..=0x3FF | 0x1F00..=0x1FFF => Script::Greek,
            0x400..=0x52F => Script::Cyrillic,
            0x590..=0x5FF => Script::Hebrew,
            0x600..=0x6FF | 0x750..=0x77F | 0x8A0..=0x8FF | 0xFB50..=0xFDFF | 0xFE70..=0xFEFF => {
                Script::Arabic
            }
            0x900..=0xDFF => Script::Indic,
            0xE00..=0xEFF | 0x1000..=0x109F | 0x1780..=0x17FF => Script::SoutheastAsian,
            0x1100..=0x11FF | 0x3130..=0x318F | 0xAC00..=0xD7AF => Script::Hangul,
            0x3040..=0x30FF | 0x3400..=0x4DBF | 0x4E00..=0x9FFF | 0xF900..=0xFAFF => Script::Han,
            _ => Script::Other,
        }
    }

    /// The largest number of tokens that a common tokenizer makes of one o200k_base token, rounded
    /// up. Measured with the tokenizers of Llama 2 and 3, Mistral and Claude 2 and with cl100k_base
    /// (docs/measurement.md).
    pub(crate) fn most_tokens(self) -> f64 {
        match self {
            Script::Latin | Script::Cyrillic => 2.0,
            Script::Han => 2.2,
            Script::Digits => 2.6,
            Script::LatinExtended => 3.0,
            Script::Hebrew => 3.4,
            Script::Greek | Script::Hangul => 3.6,
            Script::Arabic => 4.0,
            Script::SoutheastAsian => 4.5,
            Script::Indic => 5.0,
            Script::Other => 6.0,
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Scripts {
    letters: [u16; ALL.len()],
    /// The number of digits, and of all characters among which digits were counted.
    digits: u16,
    characters: u16,
}

impl Scripts {
    pub(crate) fn push(&mut self, text: &str) {
        if (1..=STRIDE).contains(&text.len()) {
            return self.sample(text, 0);
        }
        let stride = (text.len() / MAX_LETTERS).max(STRIDE);
        let starts = (0..text.len()).step_by(stride).take(MAX_LETTERS);
        for start in starts {
            let boundary = (0..=start).rev().find(|at| text.is_char_boundary(*at));
            self.sample(
                &text[boundary.unwrap_or(0)..],
                start - boundary.unwrap_or(0),
            );
        }
    }

    /// Counts the first letter of the text, and the digits in a window at `start`.
    #[inline]
    fn sample(&mut self, text: &str, start: usize) {
        if let Some(letter) = letter(text) {
            let count = &mut self.letters[Script::of(letter) as usize];
            *count = count.saturating_add(1);
        }
        let bytes = text.as_bytes();
        let window = &bytes[start..bytes.len().min(start + WINDOW)];
        let (mut digits, mut characters) = (0, 0);
        for byte in window {
            digits += u16::from(byte.is_ascii_digit());
            characters += u16::from(!byte.is_ascii_whitespace());
        }
        self.digits = self.digits.saturating_add(digits);
        self.characters = self.characters.saturating_add(characters);
    }

    pub(crate) fn and(mut self, other: &Scripts) -> Scripts {
        for (count, more) in self.letters.iter_mut().zip(other.letters) {
            *count = count.saturating_add(more);
        }
        self.digits = self.digits.saturating_add(other.digits);
        self.characters = self.characters.saturating_add(other.characters);
        self
    }

    /// The script with the largest [`Script::most_tokens`] among those with a relevant share.
    pub(crate) fn widest(&self) -> Script {
        let all: f64 = self.letters.iter().map(|count| f64::from(*count)).sum();
        let matters = |script: &Script| {
            let count = f64::from(self.letters[*script as usize]);
            count > 0.0 && count >= all * MIN_SHARE
        };
        let scripts = ALL.into_iter().filter(matters);
        let many = f64::from(self.digits) >= f64::from(self.characters.max(1)) * MANY_DIGITS;
        let scripts = scripts.chain(many.then_some(Script::Digits));
        let widest = scripts.max_by(|one, other| one.most_tokens().total_cmp(&other.most_tokens()));
        widest.unwrap_or_default()
    }
}

/// One of the first letters. A letter outside of ASCII is preferred, because it tells more about
/// the script.
fn letter(text: &str) -> Option<char> {
    let start = &text.as_bytes()[..text.len().min(WINDOW)];
    if start.is_ascii() {
        let first = start.iter().find(|letter| letter.is_ascii_alphabetic());
        return first.copied().map(char::from);
    }
    let window = text.chars().take(WINDOW);
    let mut first = None;
    for letter in window.filter(|letter| letter.is_alphabetic()) {
        if !letter.is_ascii() {
            return Some(letter);
        }
        first = first.or(Some(letter));
    }
    first
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script(text: &str, piece: usize) -> Script {
        let mut scripts = Scripts::default();
        let letters: Vec<char> = text.chars().collect();
        for piece in letters.chunks(piece) {
            scripts.push(&piece.iter().collect::<String>());
        }
        scripts.widest()
    }

    #[test]
    fn a_text_has_its_script_whole_and_in_pieces() {
        for (text, expected) in [
            ("The proxy measures tokens.", Script::Latin),
            ("Der Prüfer übermäßig häufig", Script::Latin),
            ("fn main() { println!(\"{}\", 1 + 2); }", Script::Latin),
            (
                "Nó không thay đổi câu trả lời và không giữ lại",
                Script::LatinExtended,
            ),
            ("Прокси измеряет", Script::Cyrillic),
            ("Ο διακομιστής μετρά", Script::Greek),
            ("يقيس الوكيل عدد الرموز", Script::Arabic),
            ("प्रॉक्सी यह मापता है", Script::Indic),
            ("พร็อกซีวัดว่ามีโทเค็น", Script::SoutheastAsian),
            ("프록시는 매초 얼마나", Script::Hangul),
            ("プロキシは毎秒いくつの", Script::Han),
            ("", Script::Latin),
            ("12345 67", Script::Digits),
            ("17,204.5,2026-11-29\n18,9.25,2026-11-30", Script::Digits),
            ("{\"id\": 17, \"name\": \"Anna\"}", Script::Latin),
        ] {
            for piece in [1, 4, 1000] {
                assert_eq!(script(text, piece), expected, "{text} by {piece}");
            }
        }
    }

    #[test]
    fn of_mixed_text_the_script_counts_that_tokenizers_differ_on_most() {
        let mixed = "{\"title\": \"สวัสดีครับ ยินดีต้อนรับ\", \"id\": 17}".repeat(20);
        assert_eq!(script(&mixed, 4), Script::SoutheastAsian);
        let quoted = format!("{}สวัส", "A plain English text. ".repeat(50));
        assert_eq!(script(&quoted, 4), Script::Latin, "one word of it");
    }
}
