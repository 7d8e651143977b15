//! Generates texts with a given number of tokens.

use rand::RngExt;
use tokengauge_stats::Generator;
use tokengauge_tokenizer::count;

/// Each word with its leading space is one token.
#[rustfmt::skip]
const WORDS: &[&str] = &[
    " the", " of", " and", " to", " in", " is", " was", " for", " on", " with", " as", " by", " at", " from", " that",
    " this", " it", " an", " be", " are", " or", " not", " have", " had", " but", " which", " one", " we", " all",
    " their", " has", " would", " when", " there", " can", " more", " no", " out", " so", " what", " up", " into",
    " than", " them", " about", " some", " could", " time", " other", " only", " then", " new", " these", " two",
    " may", " first", " any", " now", " such", " like", " our", " over", " even", " most", " after", " also", " made",
    " many", " before", " must", " through", " back", " years", " where", " much", " your", " way", " well", " down",
    " people", " little", " state", " good", " world", " still", " work", " long", " here", " between", " life",
    " under", " never", " day", " same", " another", " great", " old", " year", " three", " house", " place", " home",
    " small", " general", " high", " school", " left", " number", " course", " war", " system", " water", " public",
    " hand", " head", " government", " night", " end", " point", " city", " business", " case", " group", " value",
    " order", " light", " river", " stone", " garden", " window", " letter", " music", " paper", " signal", " engine",
    " memory", " token", " stream", " model", " answer", " question", " reason", " measure", " clock", " network",
];

/// Returns a text of exactly `tokens` o200k_base tokens, at least 1. It begins with random words, so that no two texts
/// share a prefix that an engine could have cached.
pub fn text(tokens: u32, random: &mut Generator) -> String {
    let mut text = String::with_capacity(tokens as usize * 6);
    for _ in 0..tokens {
        text.push_str(WORDS[random.random_range(0..WORDS.len())]);
    }
    debug_assert_eq!(count(&text), u64::from(tokens));
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokengauge_stats::seeded;

    #[test]
    fn a_text_has_as_many_tokens_as_wanted_and_follows_from_its_seed() {
        for tokens in [1, 2, 17, 400, 3000] {
            let made = text(tokens, &mut seeded(u64::from(tokens)));
            assert_eq!(count(&made), u64::from(tokens));
            assert_eq!(made, text(tokens, &mut seeded(u64::from(tokens))));
            assert_ne!(made, text(tokens, &mut seeded(u64::from(tokens) + 9_000)));
        }
    }

    #[test]
    fn every_word_is_one_token() {
        for word in WORDS {
            assert_eq!(count(word), 1, "{word}");
        }
    }
}
