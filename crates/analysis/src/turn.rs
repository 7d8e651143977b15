//! A prompt as a list of sections in the order in which a model reads them.

use super::block_chain::{BLOCK_TOKENS, ChainState};
use super::hash::Seeds;
use super::item::Item;
use std::sync::Arc;
use tokengauge_wire::{Section, SectionKind};

/// What is kept of a section of the last turn of a conversation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TurnItem {
    pub(crate) content: u64,
    /// A hash of the name of a tool that the section defines.
    pub(crate) name: u64,
    pub(crate) kind: SectionKind,
    /// Tokens of the prompt up to the end of the section.
    pub(crate) end: u64,
    pub(crate) state: ChainState,
    /// Whether the agent asks the provider to cache the prompt up to here.
    pub(crate) is_marked: bool,
}

/// The sections of a prompt that have parts, in the order in which a model reads them, with what is
/// known about each.
pub(crate) struct Sequence<'s> {
    pub(crate) sections: Vec<&'s Section<'s>>,
    pub(crate) items: Vec<Arc<Item>>,
    /// The kind of each section. Instructions before the first message belong to the system prompt.
    pub(crate) kinds: Vec<SectionKind>,
    /// Whether the agent asks the provider to cache the prompt up to the end of each section.
    pub(crate) marks: Vec<bool>,
}

impl<'s> Sequence<'s> {
    pub(crate) fn new(all: impl Iterator<Item = (&'s Section<'s>, Arc<Item>)>) -> Sequence<'s> {
        let mut sequence = Sequence {
            sections: Vec::new(),
            items: Vec::new(),
            kinds: Vec::new(),
            marks: Vec::new(),
        };
        let mut leads = true;
        for (section, item) in all {
            if item.is_empty() {
                // In Bedrock, a mark is a separate section.
                if let Some(last) = sequence.marks.last_mut() {
                    *last |= item.is_marked;
                }
                continue;
            }
            leads &= item.kind != SectionKind::Message || item.is_instruction;
            let leads = leads && item.kind == SectionKind::Message;
            sequence.kinds.push(if leads {
                SectionKind::System
            } else {
                item.kind
            });
            sequence.marks.push(item.is_marked);
            sequence.sections.push(section);
            sequence.items.push(item);
        }
        sequence
    }

    /// A hash of the messages up to each message, with `scope` as the start. Turns of one
    /// conversation have hashes in common.
    pub(crate) fn message_chain(&self, seeds: &Seeds, scope: u64) -> Vec<u64> {
        let mut hash = scope;
        let messages = self.items.iter().zip(&self.kinds);
        let messages = messages.filter(|(_, kind)| **kind == SectionKind::Message);
        let chain = messages.map(|(item, _)| {
            hash = seeds.short((hash, item.content));
            hash
        });
        chain.collect()
    }

    /// A hash of everything before the messages.
    pub(crate) fn beginning(&self, seeds: &Seeds) -> u64 {
        let items = self.items.iter().zip(&self.kinds);
        let before = items.filter(|(_, kind)| **kind != SectionKind::Message);
        before.fold(0, |hash, (item, _)| seeds.short((hash, item.content)))
    }

    /// A hash of the whole prompt.
    pub(crate) fn whole(&self, seeds: &Seeds) -> u64 {
        let contents = self.items.iter().map(|item| item.content);
        contents.fold(0, |hash, content| seeds.short((hash, content)))
    }

    /// The number of sections at the beginning that are equal to `known`.
    pub(crate) fn common(&self, known: &[TurnItem]) -> usize {
        let both = self.items.iter().zip(&self.kinds).zip(known);
        let is_equal = |((item, kind), known): &((&Arc<Item>, &SectionKind), &TurnItem)| {
            item.content == known.content && **kind == known.kind
        };
        both.take_while(is_equal).count()
    }
}

/// The first difference between two turns.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Change {
    pub(crate) section: String,
    /// Tokens of the prompt before the difference.
    pub(crate) tokens: u64,
    /// Index of the first block that differs.
    pub(crate) block: u64,
}

/// The first difference between the beginning of a prompt and an earlier turn; `None` if one begins
/// like the other. The first `common` sections are equal.
pub(crate) fn change(
    seeds: &Seeds,
    sequence: &Sequence<'_>,
    common: usize,
    before: (&[TurnItem], &[u64]),
    blocks: &[u64],
) -> Option<Change> {
    let (items, known_blocks) = before;
    let (old, new) = (items.get(common)?, sequence.items.get(common)?);
    let kinds = (old.kind, *sequence.kinds.get(common)?);
    let is_message = |kind: &&SectionKind| **kind == SectionKind::Message;
    let messages = sequence.kinds[..common].iter().filter(is_message).count();
    let section = match kinds {
        (SectionKind::Tool, SectionKind::Tool) => match new.definition() {
            Some(name) if seeds.short(&**name) == old.name => format!("tool {name}"),
            _ => "tools".to_owned(),
        },
        (SectionKind::Tool, _) | (_, SectionKind::Tool) => "tools".to_owned(),
        (SectionKind::System, _) | (_, SectionKind::System) => "system".to_owned(),
        (SectionKind::Other, _) | (_, SectionKind::Other) => "documents".to_owned(),
        (SectionKind::Message, SectionKind::Message) => format!("message {}", messages + 1),
    };
    let start = common.checked_sub(1).map_or(0, |last| items[last].end);
    let begins = (start / BLOCK_TOKENS) as usize;
    let rest = known_blocks.iter().zip(blocks).skip(begins);
    let same = rest.take_while(|(one, other)| one == other).count();
    let block = (begins + same) as u64;
    Some(Change {
        section,
        tokens: start.max(block * BLOCK_TOKENS),
        block,
    })
}
