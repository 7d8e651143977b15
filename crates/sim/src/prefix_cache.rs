//! The prompt cache of the simulated provider: which part of a prompt it has seen before.

use parking_lot::Mutex;
use serde_json::Value;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::{Duration, Instant};

/// Bytes of a block. The simulator counts four bytes as one token.
const BLOCK: usize = 512;
const BLOCK_TOKENS: u64 = 128;
/// Shorter prompts are not cached.
const LEAST_TOKENS: u64 = 1024;
/// Beyond this number of blocks the cache is emptied.
const MAX_BLOCKS: usize = 200_000;
/// Members of a request that belong to the prompt, in the order of prefix caches.
const PROMPT: [&str; 8] = [
    "tools",
    "system",
    "systemInstruction",
    "instructions",
    "messages",
    "contents",
    "input",
    "prompt",
];

/// When each block was used last, by a hash of the block and everything before it.
#[derive(Debug, Default)]
pub struct PrefixCache(Mutex<HashMap<u64, Instant>>);

impl PrefixCache {
    /// The number of the prompt's `tokens` that were in the cache at `now`. Puts the prompt into
    /// the cache. A prompt that was not used for the time `kept` is not found.
    pub fn take(
        &self,
        (model, body): (&str, &Value),
        tokens: u64,
        kept: Duration,
        now: Instant,
    ) -> u64 {
        let prompt: String = PROMPT.iter().map(|member| text(&body[*member])).collect();
        let mut chain = DefaultHasher::new();
        model.hash(&mut chain);
        let mut known = self.0.lock();
        if known.len() > MAX_BLOCKS {
            known.clear();
        }
        let mut found = 0;
        for (number, block) in prompt.as_bytes().chunks_exact(BLOCK).enumerate() {
            chain.write(block);
            let last = known.insert(chain.finish(), now);
            let fresh = last.is_some_and(|last| now.duration_since(last) <= kept);
            if fresh && found == number {
                found += 1;
            }
        }
        let share = (found * BLOCK) as f64 / prompt.len().max(1) as f64;
        let cached = (tokens as f64 * share) as u64 / BLOCK_TOKENS * BLOCK_TOKENS;
        if cached < LEAST_TOKENS { 0 } else { cached }
    }
}

fn text(part: &Value) -> String {
    match part {
        Value::Null => String::new(),
        Value::Array(items) => items.iter().map(Value::to_string).collect(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const KEPT: Duration = Duration::from_secs(300);

    fn messages(texts: &[&str]) -> Value {
        let messages: Vec<Value> = texts.iter().map(|text| json!({"content": text})).collect();
        json!({"model": "m", "messages": messages})
    }

    #[test]
    fn a_prompt_that_continues_another_is_cached_as_far_as_the_other_went() {
        let cache = PrefixCache::default();
        let now = Instant::now();
        let (first, second) = ("a b ".repeat(4_000), "c d ".repeat(4_000));
        let take = |body: &Value, tokens, at| cache.take(("m", body), tokens, KEPT, at);
        assert_eq!(take(&messages(&[&first]), 4_000, now), 0);
        let longer = messages(&[&first, &second]);
        let cached = take(&longer, 8_000, now);
        assert!((3_800..=4_000).contains(&cached), "{cached}");
        let later = now + KEPT * 2;
        assert_eq!(take(&longer, 8_000, later), 0, "it was dropped");
        let changed = messages(&[&format!("x{first}"), &second]);
        assert_eq!(take(&changed, 8_000, later), 0);
        assert_eq!(cache.take(("other", &longer), 8_000, KEPT, later), 0);
    }

    #[test]
    fn a_short_prompt_is_not_cached() {
        let cache = PrefixCache::default();
        let now = Instant::now();
        let body = messages(&["a b ".repeat(900).as_str()]);
        assert_eq!(cache.take(("m", &body), 900, KEPT, now), 0);
        assert_eq!(cache.take(("m", &body), 900, KEPT, now), 0);
    }
}
