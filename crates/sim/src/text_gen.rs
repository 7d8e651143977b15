//! Generates text with a known token count. Every unit is exactly one o200k token, also next to any
//! neighbour that [`answer`] or [`arguments`] can generate. A test checks both with tiktoken.

/// A small generator of reproducible random numbers (splitmix64), not suitable for secrets.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed ^ 0x9e37_79b9_7f4a_7c15)
    }

    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`, which must not be 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.bits() % bound.max(1)
    }

    /// A number of this range, both ends included.
    pub fn within(&mut self, (least, most): (u64, u64)) -> u64 {
        least + self.below(most - least + 1)
    }

    /// A fraction in `[0, 1)`.
    pub fn fraction(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// A seed for a name (FNV-1a), so that a call's text follows from its id.
pub fn seed_of(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// The smallest number of units for [`arguments`].
pub const FEWEST_ARGUMENTS: u64 = 5;

/// Prose of exactly `tokens` units.
pub fn answer(tokens: u64, random: &mut Random) -> Vec<&'static str> {
    let mut units = Vec::with_capacity(tokens as usize);
    let mut words_left = sentence(random);
    let mut fresh_line = true;
    while (units.len() as u64) < tokens {
        if words_left == 0 {
            let paragraph = random.below(5) == 0;
            units.push(if paragraph { ".\n\n" } else { "." });
            fresh_line = paragraph;
            words_left = sentence(random);
            continue;
        }
        let last_of_sentence = words_left == 1;
        // Only a plain word may precede a full stop, because `👍.` would merge.
        units.push(if fresh_line {
            bare(random)
        } else if !last_of_sentence && random.below(16) == 0 {
            pick(FOREIGN, random)
        } else {
            pick(WORDS, random)
        });
        fresh_line = false;
        words_left -= 1;
    }
    units
}

/// Replaces the units from `position` on by the same `period` words again and again.
pub fn repeat(units: &mut [&'static str], period: u64, position: u64, random: &mut Random) {
    let words: Vec<_> = (0..period).map(|_| pick(WORDS, random)).collect();
    let rest = units.iter_mut().skip(position as usize);
    rest.zip(words.iter().cycle())
        .for_each(|(unit, word)| *unit = word);
}

/// The arguments of a tool call as compact JSON of exactly `tokens` units. `tokens` is at least
/// [`FEWEST_ARGUMENTS`].
pub fn arguments(tokens: u64, random: &mut Random) -> Vec<&'static str> {
    let mut units = vec!["{\"", "query", "\":\"", bare(random)];
    while (units.len() as u64) + 1 < tokens {
        units.push(pick(WORDS, random));
    }
    units.push("\"}");
    units
}

fn sentence(random: &mut Random) -> u64 {
    6 + random.below(10)
}

fn pick(list: &[&'static str], random: &mut Random) -> &'static str {
    list[random.below(list.len() as u64) as usize]
}

/// A word without its leading blank, for the start of a text or a line.
fn bare(random: &mut Random) -> &'static str {
    &pick(WORDS, random)[1..]
}

/// Each word is one token, with or without its leading space.
#[rustfmt::skip]
const WORDS: &[&str] = &[
    " the", " of", " and", " to", " in", " is", " was", " for", " on", " with", " as", " by", " at", " from",
    " that", " this", " it", " an", " be", " are", " or", " not", " have", " had", " but", " which", " one", " we",
    " all", " their", " has", " would", " when", " there", " can", " more", " no", " out", " so", " what", " up",
    " into", " than", " them", " about", " some", " could", " time", " other", " only", " then", " new", " these",
    " two", " may", " first", " any", " now", " such", " like", " our", " over", " even", " most", " me", " after",
    " also", " made", " many", " before", " must", " through", " back", " years", " where", " much", " your",
    " way", " well", " down", " should", " because", " each", " just", " those", " people", " too", " how",
    " little", " state", " good", " very", " make", " world", " still", " own", " see", " men", " work", " long",
    " get", " here", " between", " both", " life", " being", " under", " never", " day", " same", " another",
    " know", " while", " last", " might", " us", " great", " old", " year", " off", " come", " since", " against",
    " go", " came", " right", " used", " take", " three", " states", " few", " house", " use", " during",
    " without", " again", " place", " around", " however", " home", " small", " found", " thought", " went", " say",
    " part", " once", " general", " high", " upon", " school", " every", " does", " got", " left", " number",
    " course", " war", " until", " always", " away", " something", " fact", " though", " water", " less", " public",
    " put", " think", " almost", " hand", " far", " head", " yet", " government", " system", " better", " set",
    " nothing", " night", " end", " why", " called", " find", " going", " look", " asked", " later", " point",
    " next", " city", " business", " case", " group", " value", " order", " light", " river", " stone", " garden",
    " window", " letter", " music", " paper", " signal", " engine", " memory", " token", " stream", " model",
    " answer", " question", " reason", " measure", " clock", " network", " server", " client", " total", " simple",
    " open", " close", " early", " quiet", " green", " yellow", " silver", " winter", " summer", " forest",
    " bridge", " market", " teacher", " student", " doctor", " story", " chapter", " sentence", " language",
    " circle", " corner", " center", " border", " balance", " pattern", " texture", " shadow", " energy", " motion",
    " metal", " glass", " coffee", " bread", " fruit", " apple", " orange",
];

/// Each word is one token with its blank, and has several bytes per character.
#[rustfmt::skip]
const FOREIGN: &[&str] = &[
    " café", " für", " über", " más", " año", " día", " être", " está", " não", " été", " мир", " слово", " для",
    " ответ", " için", " là", " où", " 世界", " 中国", " 日本", " 한국", " من", " 👍", " 😊",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens_of(text: &str) -> Vec<String> {
        let bpe = tiktoken_rs::o200k_base_singleton();
        bpe.encode_ordinary(text)
            .into_iter()
            .map(|token| {
                let bytes = bpe
                    .decode_bytes(&[token])
                    .expect("a token of the vocabulary");
                String::from_utf8(bytes).expect("whole characters")
            })
            .collect()
    }

    #[test]
    fn every_unit_of_an_answer_is_exactly_one_token() {
        for seed in 0..200 {
            let units = answer(1 + seed * 7, &mut Random::new(seed));
            assert_eq!(units.len() as u64, 1 + seed * 7);
            assert_eq!(tokens_of(&units.concat()), units, "seed {seed}");
        }
    }

    #[test]
    fn every_unit_of_a_repetition_is_exactly_one_token() {
        for seed in 0..50 {
            let mut random = Random::new(seed);
            let mut units = answer(400, &mut random);
            repeat(&mut units, 1 + seed, 3 * seed, &mut random);
            assert_eq!(tokens_of(&units.concat()), units, "seed {seed}");
            let (from, period) = (3 * seed as usize, 1 + seed as usize);
            assert_eq!(units[from..400 - period], units[from + period..]);
        }
    }

    #[test]
    fn every_unit_of_arguments_is_exactly_one_token_and_the_whole_is_json() {
        for seed in 0..200 {
            let units = arguments(FEWEST_ARGUMENTS + seed, &mut Random::new(seed));
            assert_eq!(units.len() as u64, FEWEST_ARGUMENTS + seed);
            let text = units.concat();
            assert_eq!(tokens_of(&text), units, "seed {seed}");
            let value: serde_json::Value = serde_json::from_str(&text).expect("JSON");
            assert_eq!(
                value.to_string(),
                text,
                "compact, so an object serialises to the same text"
            );
        }
    }

    #[test]
    fn every_word_is_one_token_wherever_it_may_stand() {
        for word in WORDS {
            assert_eq!(tokens_of(word).len(), 1, "{word:?}");
            assert_eq!(tokens_of(&word[1..]).len(), 1, "{word:?} at the start");
        }
        for word in FOREIGN {
            assert_eq!(tokens_of(word).len(), 1, "{word:?}");
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_text() {
        let text = |seed| answer(300, &mut Random::new(seed)).concat();
        assert_eq!(text(7), text(7));
        assert_ne!(text(7), text(8));
    }
}
