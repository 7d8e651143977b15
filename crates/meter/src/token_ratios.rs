//! How many tokens a model reports for each o200k_base token of its text: learned from its
//! own complete calls without reasoning, by model and script.

use super::script::Script;
use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;

/// The most models and scripts that are tracked. Beyond it the least recently used is dropped.
const MAX_KNOWN: usize = 1024;
/// The number of recent calls that a bound is based on.
const CALLS: usize = 32;
/// The number of calls it takes to learn a bound.
const ENOUGH: usize = 16;
/// The shortest text to learn from: in shorter ones the fixed overhead of an answer weighs too
/// much.
const MIN_TOKENS: u64 = 64;
/// The margin above the largest ratio that was seen.
const MARGIN: f64 = 1.15;

/// The largest ratio of reported to normalised tokens if no output is hidden.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct RatioBound {
    pub(crate) high: f64,
    /// Whether it was learned from the model's own calls.
    pub(crate) learned: bool,
}

/// The newest ratios of one model and script.
#[derive(Clone, Debug, Default)]
struct RecentRatios {
    ratios: [f32; CALLS],
    count: usize,
    /// When it was last used, as a count of all uses.
    used: u64,
}

#[derive(Debug, Default)]
struct RatioTable {
    seen: HashMap<(Box<str>, Script), RecentRatios>,
    uses: u64,
}

/// The ratios of all models.
#[derive(Debug, Default)]
pub(crate) struct TokenRatios {
    known: Mutex<RatioTable>,
}

impl TokenRatios {
    /// The band of a model's text in a script; what tokenizers in use make of that script
    /// until it is learned, and never more than that.
    pub(crate) fn bound(&self, model: &str, script: Script) -> RatioBound {
        let widest = script.most_tokens();
        let known = self.lock();
        let learned = known
            .seen
            .get(&(model.into(), script))
            .and_then(RecentRatios::highest);
        RatioBound {
            high: learned.map_or(widest, |ratio| (ratio * MARGIN).min(widest)),
            learned: learned.is_some(),
        }
    }

    /// Learns from a complete call without reasoning. A ratio that no tokenizer has is ignored.
    pub(crate) fn learn(&self, model: &str, script: Script, reported: u64, normalised: u64) {
        let ratio = reported as f64 / normalised as f64;
        if normalised < MIN_TOKENS || ratio > script.most_tokens() {
            return;
        }
        let mut known = self.lock();
        known.uses += 1;
        let uses = known.uses;
        let key = (model.into(), script);
        if known.seen.len() >= MAX_KNOWN && !known.seen.contains_key(&key) {
            known.forget_one();
        }
        let seen = known.seen.entry(key).or_default();
        seen.used = uses;
        seen.ratios[seen.count % CALLS] = ratio as f32;
        seen.count += 1;
    }

    fn lock(&self) -> MutexGuard<'_, RatioTable> {
        self.known.lock()
    }
}

impl RecentRatios {
    /// The largest ratio, once there are enough of them.
    fn highest(&self) -> Option<f64> {
        let ratios = &self.ratios[..self.count.min(CALLS)];
        let highest = ratios.iter().copied().fold(0.0, f32::max);
        (self.count >= ENOUGH).then_some(f64::from(highest))
    }
}

impl RatioTable {
    fn forget_one(&mut self) {
        let oldest = self.seen.iter().min_by_key(|(_, seen)| seen.used);
        if let Some(key) = oldest.map(|(key, _)| key.clone()) {
            self.seen.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_band_is_wide_until_it_is_learned_and_never_wider() {
        let token_ratios = TokenRatios::default();
        let bound = || token_ratios.bound("m", Script::SoutheastAsian);
        let high = Script::SoutheastAsian.most_tokens();
        assert_eq!((bound().high, bound().learned), (high, false));
        for call in 0..ENOUGH {
            assert!(!bound().learned, "{call}");
            token_ratios.learn("m", Script::SoutheastAsian, 200, 100);
        }
        assert!((bound().high - 2.0 * MARGIN).abs() < 1e-6 && bound().learned);
        let other = token_ratios.bound("m", Script::Latin);
        assert!(!other.learned, "another script of the model");
        for _ in 0..CALLS {
            token_ratios.learn("m", Script::SoutheastAsian, 1000, 100);
        }
        assert!(bound().high < 2.5, "no tokenizer makes ten of one");
        for _ in 0..CALLS {
            token_ratios.learn("m", Script::SoutheastAsian, 445, 100);
        }
        assert_eq!(bound().high, high, "never wider than at first");
    }

    #[test]
    fn short_texts_teach_nothing_and_new_calls_push_out_old_ones() {
        let token_ratios = TokenRatios::default();
        for _ in 0..CALLS {
            token_ratios.learn("m", Script::Latin, 100, MIN_TOKENS - 1);
        }
        assert!(!token_ratios.bound("m", Script::Latin).learned);
        for reported in [190, 100] {
            (0..CALLS).for_each(|_| token_ratios.learn("m", Script::Latin, reported, 100));
        }
        assert!((token_ratios.bound("m", Script::Latin).high - MARGIN).abs() < 1e-6);
    }

    #[test]
    fn as_many_as_the_bound_are_known_and_the_silent_one_goes() {
        let token_ratios = TokenRatios::default();
        let learn = |model: usize| {
            let model = model.to_string();
            (0..ENOUGH).for_each(|_| token_ratios.learn(&model, Script::Latin, 100, 100));
        };
        (0..MAX_KNOWN).for_each(learn);
        learn(0);
        learn(MAX_KNOWN);
        let learned = |model: usize| {
            token_ratios
                .bound(&model.to_string(), Script::Latin)
                .learned
        };
        assert_eq!(token_ratios.lock().seen.len(), MAX_KNOWN);
        assert!(learned(0) && !learned(1) && learned(2) && learned(MAX_KNOWN));
    }
}
