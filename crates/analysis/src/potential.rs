//! Simulates caches of prompts at each upstream. Only a sample of blocks is followed. Hashes are
//! random, so all blocks have about the same hit ratio.

use super::block_chain::BLOCK_TOKENS;
use super::lru::Lru;
use std::collections::BTreeMap;

/// One block in this number is followed. Hashes are random, so the sample is too.
const SAMPLE: u64 = 16;
/// Sizes of the caches that are compared, in tokens.
pub const CACHE_TOKENS: [u64; 2] = [1_000_000, 10_000_000];
/// Blocks of the cache that stands for an infinite one: 64 million tokens.
const INFINITE_BLOCKS: usize = 64_000_000 / (BLOCK_TOKENS * SAMPLE) as usize;
const MAX_UPSTREAMS: usize = 64;

/// The savings of simulated caches at one upstream since the start of the process. Shares are of the
/// tokens of all prompts, from 0 to 1.
#[derive(Clone, Debug, PartialEq)]
pub struct CachePotential {
    /// The name of the upstream.
    pub upstream: String,
    /// The number of calls whose provider reported cached input.
    pub calls: u64,
    /// Input tokens that these calls reported.
    pub input: u64,
    /// The share that came from the provider's cache.
    pub counted: f64,
    /// The share that a cache would have had that forgets nothing (up to 64 million tokens).
    pub infinite: f64,
    /// The share that a cache of each size in [`CACHE_TOKENS`] would have had.
    pub lru: [f64; 2],
}

#[derive(Default)]
pub(crate) struct Potentials {
    upstreams: BTreeMap<Box<str>, Upstream>,
    /// Calls of upstreams beyond the limit.
    pub(crate) skipped: u64,
}

#[derive(Default)]
struct Upstream {
    calls: u64,
    input: u64,
    cached: u64,
    /// Sampled blocks of all calls.
    blocks: u64,
    infinite: Simulated,
    lru: [Simulated; 2],
}

/// A simulated cache and its hits.
#[derive(Default)]
struct Simulated {
    known: Lru<u64, ()>,
    hits: u64,
}

impl Simulated {
    /// Reads a prompt up to the first block that the cache does not have, and adds the others.
    fn prompt(&mut self, blocks: impl DoubleEndedIterator<Item = u64> + Clone, capacity: usize) {
        let is_known = |block: &u64| self.known.peek(block).is_some();
        self.hits += blocks.clone().take_while(is_known).count() as u64;
        // The end of a prompt is forgotten before its beginning.
        for block in blocks.rev() {
            if self.known.get(&block).is_none() {
                self.known.insert(block, (), 0);
            }
        }
        while self.known.len() > capacity {
            self.known.pop_oldest();
        }
    }
}

impl Potentials {
    /// Adds a prompt and what its provider reported.
    pub(crate) fn prompt(
        &mut self,
        upstream: &str,
        blocks: impl DoubleEndedIterator<Item = u64> + Clone,
        (input, cached): (u64, u64),
    ) {
        if !self.upstreams.contains_key(upstream) {
            if self.upstreams.len() >= MAX_UPSTREAMS {
                self.skipped += 1;
                return;
            }
            self.upstreams.insert(upstream.into(), Upstream::default());
        }
        let Some(known) = self.upstreams.get_mut(upstream) else {
            return;
        };
        let sampled = blocks.filter(|block| block % SAMPLE == 0);
        known.calls += 1;
        known.input += input;
        known.cached += cached;
        known.blocks += sampled.clone().count() as u64;
        known.infinite.prompt(sampled.clone(), INFINITE_BLOCKS);
        for (cache, tokens) in known.lru.iter_mut().zip(CACHE_TOKENS) {
            let capacity = (tokens / (BLOCK_TOKENS * SAMPLE)) as usize;
            cache.prompt(sampled.clone(), capacity);
        }
    }

    pub(crate) fn all(&self) -> Vec<CachePotential> {
        let all = self.upstreams.iter().map(|(name, upstream)| {
            let share = |cache: &Simulated| share(cache.hits, upstream.blocks);
            CachePotential {
                upstream: name.to_string(),
                calls: upstream.calls,
                input: upstream.input,
                counted: share_of(upstream.cached, upstream.input),
                infinite: share(&upstream.infinite),
                lru: [share(&upstream.lru[0]), share(&upstream.lru[1])],
            }
        });
        all.collect()
    }

    pub(crate) fn bytes(&self) -> usize {
        let of = |upstream: &Upstream| {
            let lru = upstream.lru.iter().map(|cache| cache.known.bytes());
            upstream.infinite.known.bytes() + lru.sum::<usize>()
        };
        self.upstreams.values().map(of).sum()
    }

    /// Forgets the blocks of the upstream that takes most memory, if any takes some.
    pub(crate) fn shrink(&mut self) -> bool {
        let largest = self
            .upstreams
            .values_mut()
            .max_by_key(|one| one.infinite.known.bytes());
        let Some(upstream) = largest.filter(|one| one.infinite.known.bytes() > 0) else {
            return false;
        };
        upstream.infinite.known = Lru::default();
        upstream
            .lru
            .iter_mut()
            .for_each(|cache| cache.known = Lru::default());
        true
    }
}

fn share(part: u64, whole: u64) -> f64 {
    share_of(part, whole)
}

fn share_of(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        0.0
    } else {
        part as f64 / whole as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Blocks of a conversation, as random as hashes are.
    fn blocks(conversation: u64, number: u64) -> impl DoubleEndedIterator<Item = u64> + Clone {
        let mixed = move |at: u64| {
            let seed = (conversation << 32 | at).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            (seed ^ seed >> 29).wrapping_mul(0xBF58_476D_1CE4_E5B9) >> 11
        };
        (0..number).map(mixed)
    }

    #[test]
    fn a_conversation_that_fits_is_read_from_each_cache() {
        let mut potentials = Potentials::default();
        for turn in 1..=10 {
            potentials.prompt("u", blocks(1, turn * 1_000), (turn * 64_000, 32_000));
        }
        let found = &potentials.all()[0];
        // 45 of 55 thousand blocks were in the previous turn.
        assert!((found.infinite - 45.0 / 55.0).abs() < 0.03, "{found:?}");
        assert_eq!((found.infinite, found.calls), (found.lru[0], 10));
        assert!((found.counted - 5.0 / 55.0).abs() < 1e-9, "{found:?}");
    }

    #[test]
    fn a_small_cache_forgets_what_does_not_fit() {
        let mut potentials = Potentials::default();
        // 100 conversations of 32,000 tokens each take 3.2 million tokens.
        for _ in 0..4 {
            for conversation in 0..100 {
                potentials.prompt("u", blocks(conversation, 500), (32_000, 0));
            }
        }
        let found = &potentials.all()[0];
        assert_eq!((found.infinite, found.lru), (0.75, [0.0, 0.75]));
    }

    #[test]
    fn upstreams_and_memory_are_bounded() {
        let mut potentials = Potentials::default();
        for upstream in 0..100 {
            potentials.prompt(&upstream.to_string(), blocks(upstream, 100), (1, 1));
        }
        assert_eq!(
            (potentials.all().len(), potentials.skipped),
            (MAX_UPSTREAMS, 36)
        );
        while potentials.shrink() {}
        assert_eq!(potentials.bytes(), 0);
    }
}
