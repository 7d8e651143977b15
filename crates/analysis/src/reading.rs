//! Reads the prompts of requests. Sections of earlier calls are not read again.

use super::block_chain::{BlockChain, ChainState};
use super::compose::compose;
use super::conversations::{Before, Conversation, Keys, Place};
use super::item::{Item, ItemTool};
use super::prompt::Prompt;
use super::scope::{Scope, ScopeHashes};
use super::state::Analysis;
use super::turn::{Sequence, TurnItem, change};
use std::sync::Arc;
use std::time::Instant;
use tokengauge_core::call::Dialect;
use tokengauge_core::hash::FastSet;
use tokengauge_core::prompt::{PromptPart, PromptParts, Wait, WaitKind};
use tokengauge_wire::{Part, Section, request_sections};

/// A request with more sections is not analyzed.
const MAX_SECTIONS: usize = 50_000;

impl Analysis {
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

    /// The names of the turn, and the previous turn. It is the last one whose messages this prompt
    /// begins with, otherwise the last one of the session and the agent.
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
            let common = sequence.common(&conversation.items);
            let number = conversation
                .last_before(started)
                .filter(|_| goes_on(sequence, conversation, common))
                .unwrap_or(place.number);
            Some((Place { number, ..place }, common))
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

    /// The parts of the prompt, and who took the time since the previous turn.
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
        let composed = |items: usize| {
            let known = |(item, _): &&(u32, u64)| (*item as usize) < items;
            let known = conversation.results.iter().filter(known);
            let known: FastSet<u64> = known.map(|(_, key)| *key).collect();
            compose(sequence, |key| known.contains(&key))
        };
        let composition = composed(turn.items);
        // Nobody processed the prompt of a failed turn, so its results are still new.
        let parts = if turn.complete {
            composition.parts
        } else {
            composed(conversation.complete_before(turn.number)).parts
        };
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
        (parts, Some(wait))
    }
}

/// Whether a prompt is the next turn of a conversation although it changed after the first `common`
/// sections. Otherwise it continues an earlier turn in another way.
fn goes_on(sequence: &Sequence<'_>, conversation: &Conversation, common: usize) -> bool {
    let rest = conversation.items.get(common + 1..).unwrap_or_default();
    let new = sequence.items.get(common..).unwrap_or_default();
    let new: FastSet<u64> = new.iter().map(|item| item.content).collect();
    let kept = rest.iter().filter(|item| new.contains(&item.content));
    kept.count() * 2 >= rest.len()
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
