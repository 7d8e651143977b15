//! The state of the analysis, which has a limit in bytes.

use super::block_chain::BlockKey;
use super::conversations::{Conversations, Place};
use super::hash::Seeds;
use super::item::Item;
use super::lru::Lru;
use super::potential::{CachePotential, Potentials};
use super::prompt::Prompt;
use super::retries::Retries;
use std::sync::Arc;

/// Upstreams and models that are known to cache.
const MAX_CACHING: usize = 1024;

/// What the analysis held and left out since the start of the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AnalysisCounts {
    /// Bytes that the analysis holds now.
    pub held_bytes: usize,
    /// Sections, conversations and failed requests that were forgotten because memory was short.
    pub evicted: u64,
    /// Calls that were not analyzed, because they have too many sections or upstreams.
    pub skipped: u64,
    /// Sections whose tokens were known from an earlier call.
    pub known_sections: u64,
    /// Sections that were read.
    pub read_sections: u64,
}

/// Analyzes the prompts of calls. Keeps hashes and counts of recent turns, and no text.
pub struct Analysis {
    pub(crate) seeds: Seeds,
    pub(crate) key: BlockKey,
    pub(crate) limit: usize,
    pub(crate) known: Lru<u128, Arc<Item>>,
    pub(crate) conversations: Conversations,
    pub(crate) retries: Retries,
    pub(crate) potentials: Potentials,
    /// Upstreams that cached a prompt of a model.
    pub(crate) caching: Lru<u64, ()>,
    pub(crate) counts: AnalysisCounts,
}

impl Analysis {
    /// An analysis that holds about `limit` bytes at most. `key` is the key of block hashes.
    pub fn new(limit: usize, key: BlockKey) -> Analysis {
        Analysis {
            seeds: Seeds::default(),
            key,
            limit,
            known: Lru::default(),
            conversations: Conversations::default(),
            retries: Retries::default(),
            potentials: Potentials::default(),
            caching: Lru::default(),
            counts: AnalysisCounts::default(),
        }
    }

    /// Changes the limit in bytes. The next call forgets entries that exceed it.
    pub fn resize(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// Forgets the least recently used entries until at most `bytes` bytes are held.
    pub fn shrink_to(&mut self, bytes: usize) {
        let limit = std::mem::replace(&mut self.limit, bytes);
        self.shrink();
        self.limit = limit;
    }

    /// What the analysis holds and left out.
    pub fn counts(&self) -> AnalysisCounts {
        AnalysisCounts {
            held_bytes: self.held_bytes(),
            evicted: self.counts.evicted + self.retries.forgotten,
            skipped: self.counts.skipped + self.potentials.skipped,
            ..self.counts
        }
    }

    /// The savings of simulated caches, by upstream.
    pub fn potentials(&self) -> Vec<CachePotential> {
        self.potentials.all()
    }

    /// The hashes of all blocks of a prompt.
    pub fn blocks(&self, prompt: &Prompt) -> Vec<u64> {
        let known = prompt.after;
        let known = known.and_then(|link| common_blocks(&self.conversations, link));
        let known = known.unwrap_or_default().iter();
        known.chain(&prompt.blocks).copied().collect()
    }

    fn held_bytes(&self) -> usize {
        let caches = self.known.bytes() + self.conversations.bytes() + self.caching.bytes();
        caches + self.retries.bytes() + self.potentials.bytes()
    }

    /// Forgets the least recently used entries until the limit holds. Potentials take a quarter at
    /// most, and conversations half of the rest.
    pub(crate) fn shrink(&mut self) {
        while self.caching.len() > MAX_CACHING {
            self.caching.pop_oldest();
        }
        while self.potentials.bytes() > self.limit / 4 && self.potentials.shrink() {
            self.counts.evicted += 1;
        }
        while self.held_bytes() > self.limit {
            let conversations_first = self.conversations.bytes() > self.known.bytes();
            let forgot = conversations_first && self.conversations.forget_oldest()
                || self.known.pop_oldest().is_some()
                || self.conversations.forget_oldest();
            if !forgot {
                return;
            }
            self.counts.evicted += 1;
        }
    }
}

pub(crate) fn common_blocks(
    all: &Conversations,
    (place, common): (Place, usize),
) -> Option<&[u64]> {
    let (conversation, _) = all.get(place)?;
    Some(conversation.blocks_of(common))
}
