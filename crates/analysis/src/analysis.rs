//! The analysis of the calls of a process.

use super::block_chain::{BlockChain, BlockKey, ChainState};
use super::compose::compose;
use super::conversations::{Addition, Conversations, Keys, Place, Turn};
use super::hash::Seeds;
use super::item::{Item, ItemTool};
use super::lru::Lru;
use super::potential::{CachePotential, Potentials};
use super::prompt_break::{Compared, prompt_break};
use super::retries::Retries;
use super::scope::{Scope, ScopeHashes};
use super::turn::{Change, Sequence, TurnItem, change};
use std::sync::Arc;
use std::time::Instant;
use tokengauge_core::call::{CallRecord, Dialect, Outcome};
use tokengauge_core::dimension::model_of;
use tokengauge_core::prompt::{PromptPart, PromptParts, Wait, WaitKind};
use tokengauge_core::prompt_cache::CachedTurn;
use tokengauge_wire::{Part, Section, request_sections};

/// A request with more sections is not analyzed.
const MAX_SECTIONS: usize = 50_000;
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
    seeds: Seeds,
    key: BlockKey,
    limit: usize,
    known: Lru<u128, Arc<Item>>,
    conversations: Conversations,
    retries: Retries,
    potentials: Potentials,
    /// Upstreams that cached a prompt of a model.
    caching: Lru<u64, ()>,
    counts: AnalysisCounts,
}

/// A prompt that was read, before the result of its call is known.
pub struct Prompt {
    parts: PromptParts,
    /// A hash of the request.
    request: u64,
    keys: Keys,
    /// The turn before, and the number of sections that both turns begin with.
    after: Option<(Place, usize)>,
    wait: Option<Wait>,
    before: Option<Before>,
    items: Vec<TurnItem>,
    blocks: Vec<u64>,
    results: Vec<(u32, u64)>,
    length: usize,
    started: Instant,
}

/// The turn whose cache the prompt could have used.
struct Before {
    turn: Turn,
    change: Option<Change>,
    mark: Option<u64>,
    shows_cache: bool,
}

impl Prompt {
    /// The parts of the prompt.
    pub fn parts(&self) -> &PromptParts {
        &self.parts
    }
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

    /// Changes the limit in bytes. What exceeds it is forgotten with the next call.
    pub fn resize(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// Forgets what was not used for longest until at most `bytes` bytes are held.
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

    /// What caches would have saved, by upstream.
    pub fn potentials(&self) -> Vec<CachePotential> {
        self.potentials.all()
    }

    /// Reads the prompt of a request that began at `started`. Sections of earlier calls are not read
    /// again. `None` if the body has no prompt. Calls `pause` about every ten microseconds.
    pub fn read(
        &mut self,
        dialect: Dialect,
        body: &[u8],
        scope: &Scope<'_>,
        started: Instant,
        pause: &mut dyn FnMut(),
    ) -> Option<Prompt> {
        let sections = self.sections(dialect, body)?;
        let items = sections.iter().map(|section| self.item(section, pause));
        let items: Vec<Arc<Item>> = items.collect();
        let sequence = Sequence::new(sections.iter().zip(items));
        let scope = scope.hashes(&self.seeds);
        let request = sequence.whole(&self.seeds);
        let (keys, after) = self.link(&sequence, scope, started);
        let (from, state) = self.known_beginning(&sequence, after);
        let mut chain = BlockChain::new(&self.key, state);
        let items = self.chain(&sequence, from, &mut chain, after, pause);
        let blocks = chain.blocks;
        let before = after.and_then(|link| self.before(&sequence, link, &blocks));
        let (parts, wait) = self.compose(&sequence, after, started);
        Some(Prompt {
            parts,
            request: self.seeds.short((scope.request, request)),
            keys,
            after,
            wait,
            before,
            results: results_after(&sequence, from),
            items,
            blocks,
            length: sequence.items.len(),
            started,
        })
    }

    /// Sets what is known about a call from its prompt. `price` is the cost of the call if this
    /// number of its input tokens had come from the cache.
    pub fn finish(
        &mut self,
        prompt: Prompt,
        record: &mut CallRecord,
        ended: Instant,
        price: impl Fn(&CallRecord, u64) -> Option<f64>,
    ) {
        let cache = CachedTurn::of(record);
        let model = self.seeds.short(model_of(record));
        let place = self.seeds.short((&record.upstream, &record.endpoint));
        let caching = self.seeds.short((place, model));
        if cache.is_some_and(|cache| cache.shows) {
            self.caching.insert(caching, (), 0);
        }
        let counted = prompt.parts.total();
        let before = prompt.before.as_ref();
        if let Some((before, cache)) = before.zip(cache) {
            let compared = Compared {
                before: &before.turn,
                change: before.change.as_ref(),
                mark: before.mark,
                in_use: before.shows_cache,
                upstream_caches: self.caching.peek(&caching).is_some(),
                model,
                place,
                idle: prompt.started.saturating_duration_since(before.turn.ended),
                counted,
                cache,
                agent: record.agent.as_deref(),
            };
            if let Some((mut found, expected)) = prompt_break(&compared) {
                let paid = price(record, cache.cached).zip(price(record, expected));
                found.cost_usd = paid.map(|(paid, possible)| (paid - possible).max(0.0));
                record.cache_break = Some(Box::new(found));
            }
        }
        let earlier = self.retries.before(prompt.request, prompt.started);
        record.retry_of = earlier.map(str::to_owned);
        let failed = record.outcome != Outcome::Complete;
        self.retries
            .ended(prompt.request, &record.id, ended, failed);
        record.wait = prompt.wait.clone().map(Box::new);
        record.prompt = Some(Box::new(prompt.parts.clone()));
        if let Some(cache) = cache {
            let known = prompt.after;
            let known = known.and_then(|link| common_blocks(&self.conversations, link));
            let blocks = known
                .unwrap_or_default()
                .iter()
                .chain(&prompt.blocks)
                .copied();
            let reported = (cache.input, cache.cached);
            self.potentials.prompt(&record.upstream, blocks, reported);
        }
        let turn = Turn {
            number: 0,
            items: prompt.length,
            ended,
            complete: !failed,
            cache,
            model,
            place,
            keys: prompt.keys,
        };
        self.conversations.add(Addition {
            after: prompt.after,
            items: prompt.items,
            blocks: prompt.blocks,
            results: prompt.results,
            turn,
        });
        self.shrink();
    }

    /// The hashes of all blocks of a prompt.
    pub fn blocks(&self, prompt: &Prompt) -> Vec<u64> {
        let known = prompt.after;
        let known = known.and_then(|link| common_blocks(&self.conversations, link));
        let known = known.unwrap_or_default().iter();
        known.chain(&prompt.blocks).copied().collect()
    }

    /// The sections in the order in which a model reads them.
    fn sections<'b>(&mut self, dialect: Dialect, body: &'b [u8]) -> Option<Vec<Section<'b>>> {
        let mut sections = Vec::new();
        let mut is_too_long = false;
        request_sections(dialect, body, &mut |section| {
            is_too_long = sections.len() >= MAX_SECTIONS;
            if !is_too_long {
                sections.push(section);
            }
        });
        self.counts.skipped += u64::from(is_too_long);
        sections.sort_by_key(Section::order);
        Some(sections).filter(|sections| !is_too_long && !sections.is_empty())
    }

    fn item(&mut self, section: &Section<'_>, pause: &mut dyn FnMut()) -> Arc<Item> {
        let named = (section.json(), section.order(), section.text_kind());
        let hash = self.seeds.long(named);
        if let Some(known) = self.known.get(&hash) {
            self.counts.known_sections += 1;
            return Arc::clone(known);
        }
        self.counts.read_sections += 1;
        let item = Arc::new(Item::read(section, &self.seeds, pause));
        self.known
            .insert(hash, Arc::clone(&item), item.heap_bytes());
        item
    }

    /// The names of the turn, and the turn before: the last one whose messages this prompt begins
    /// with, otherwise the last one of the session and the agent.
    fn link(
        &self,
        sequence: &Sequence<'_>,
        scope: ScopeHashes,
        started: Instant,
    ) -> (Keys, Option<(Place, usize)>) {
        let seeds = &self.seeds;
        let beginning = sequence.beginning(seeds);
        let loose = sequence.message_chain(seeds, scope.messages);
        let strict = |loose: &u64| seeds.short((beginning, *loose));
        let exact = loose.iter().rev().map(strict);
        let keys = exact
            .chain(loose.iter().rev().copied())
            .chain(scope.session);
        let place = self.conversations.find(keys, started);
        let after = place.and_then(|place| {
            let (conversation, _) = self.conversations.get(place)?;
            Some((place, sequence.common(&conversation.items)))
        });
        let keys = Keys {
            strict: loose.last().map(strict),
            loose: loose.last().copied(),
            session: scope.session,
        };
        (keys, after)
    }

    /// The number of sections whose blocks are known, and the state after them.
    fn known_beginning(
        &self,
        sequence: &Sequence<'_>,
        after: Option<(Place, usize)>,
    ) -> (usize, ChainState) {
        let known = after.and_then(|(place, common)| {
            let (conversation, _) = self.conversations.get(place)?;
            let last = conversation.items.get(common.checked_sub(1)?)?;
            Some((common.min(sequence.items.len()), last.state))
        });
        known.unwrap_or_default()
    }

    /// Hashes the blocks of the sections after the first `from`.
    fn chain(
        &self,
        sequence: &Sequence<'_>,
        from: usize,
        chain: &mut BlockChain<'_>,
        after: Option<(Place, usize)>,
        pause: &mut dyn FnMut(),
    ) -> Vec<TurnItem> {
        let conversation = after.and_then(|(place, _)| self.conversations.get(place));
        let last = conversation.zip(from.checked_sub(1));
        let mut end = last.map_or(0, |((conversation, _), last)| conversation.items[last].end);
        let all = sequence.items.iter().zip(&sequence.kinds).enumerate();
        let rest = all.skip(from).map(|(number, (item, kind))| {
            sequence.sections[number].parts(&mut |part| match part {
                Part::Text { kind, text } => {
                    chain.text(kind, text, pause);
                }
                Part::ToolCall { name, .. } => chain.call(name),
                Part::Media { data, .. } => chain.media(data, pause),
                Part::Tool { .. } | Part::ToolResult { .. } => {}
            });
            end += item.total();
            TurnItem {
                content: item.content,
                name: item
                    .definition()
                    .map_or(0, |name| self.seeds.short(&**name)),
                kind: *kind,
                end,
                state: chain.state(),
                is_marked: sequence.marks[number],
            }
        });
        rest.collect()
    }

    /// The last turn of the conversation that tells about a cache, and what changed since.
    fn before(
        &self,
        sequence: &Sequence<'_>,
        (place, common): (Place, usize),
        new_blocks: &[u64],
    ) -> Option<Before> {
        let (conversation, _) = self.conversations.get(place)?;
        let turn = conversation.cached_before(place.number)?;
        let items = &conversation.items[..turn.items.min(conversation.items.len())];
        let known = (items, conversation.blocks_of(items.len()));
        let change = (common < items.len()).then(|| {
            let same = conversation.blocks_of(common);
            let blocks: Vec<u64> = same.iter().chain(new_blocks).copied().collect();
            change(&self.seeds, sequence, common, known, &blocks)
        });
        let marked = |item: &&TurnItem| item.is_marked;
        let marks = items.iter().any(|item| item.is_marked);
        let readable = items[..common.min(items.len())].iter().rev().find(marked);
        Some(Before {
            turn: turn.clone(),
            change: change.flatten(),
            mark: marks.then(|| readable.map_or(0, |item| item.end)),
            shows_cache: conversation.shows_cache(),
        })
    }

    /// The parts of the prompt, and who took the time since the turn before.
    fn compose(
        &self,
        sequence: &Sequence<'_>,
        after: Option<(Place, usize)>,
        started: Instant,
    ) -> (PromptParts, Option<Wait>) {
        let linked = after.and_then(|(place, common)| {
            let (conversation, turn) = self.conversations.get(place)?;
            Some((conversation, turn, common))
        });
        let Some((conversation, turn, common)) = linked else {
            return (compose(sequence, |_| false).parts, None);
        };
        let known = |(item, _): &&(u32, u64)| (*item as usize) < turn.items;
        let known = conversation.results.iter().filter(known);
        let known: tokengauge_core::hash::FastSet<u64> = known.map(|(_, key)| *key).collect();
        let composition = compose(sequence, |key| known.contains(&key));
        let new = &sequence.items[common.min(turn.items).min(sequence.items.len())..];
        let is_asked = new.iter().any(|item| item.has(PromptPart::User));
        let kind = if !composition.new_results.is_empty() {
            WaitKind::Tools
        } else if is_asked && turn.complete {
            WaitKind::Human
        } else {
            WaitKind::Other
        };
        let waited = started.saturating_duration_since(turn.ended);
        let tools = composition.new_results.iter().map(ToString::to_string);
        let wait = Wait {
            kind,
            seconds: waited.as_secs_f64(),
            tools: tools.collect(),
        };
        (composition.parts, Some(wait))
    }

    fn held_bytes(&self) -> usize {
        let caches = self.known.bytes() + self.conversations.bytes() + self.caching.bytes();
        caches + self.retries.bytes() + self.potentials.bytes()
    }

    /// Forgets what was not used for longest until the limit holds. Potentials take a quarter at
    /// most, and conversations half of the rest.
    fn shrink(&mut self) {
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

fn common_blocks(all: &Conversations, (place, common): (Place, usize)) -> Option<&[u64]> {
    let (conversation, _) = all.get(place)?;
    Some(conversation.blocks_of(common))
}

/// The results of tools in the sections after the first `from`.
fn results_after(sequence: &Sequence<'_>, from: usize) -> Vec<(u32, u64)> {
    let mut results = Vec::new();
    for (number, item) in (0..).zip(&sequence.items).skip(from) {
        for tool in &item.tools {
            if let ItemTool::Result { key, .. } = tool {
                results.push((number, *key));
            }
        }
    }
    results
}
