//! The short way for the common event. The events of a stream mostly repeat each
//! other but for one text: once a reader has read one, the next that differs in
//! nothing else needs no reader. Comparing is several times faster than parsing.
//!
//! Exact because nothing is guessed: an event takes the short way only if it is,
//! byte for byte, the one just read, with another string in the place of its text
//! and other values in members that its reader never reads.

use crate::call::{Channel, Dialect, Event, Segment};
use memchr::{memchr2, memmem};
use std::borrow::Cow;
use std::ops::Range;

/// Events in a row that were learnt for nothing, after which learning is rationed.
const PATIENCE: u32 = 16;
/// Then one in so many is learnt.
const RATION: u32 = 32;
/// Larger events are not worth remembering.
const MAX_EVENT: usize = 4096;

/// What was learnt from the last event.
pub(super) struct Repeat {
    dialect: Dialect,
    unread: &'static [&'static str],
    name: String,
    event: Vec<u8>,
    holes: Vec<Hole>,
    segment: Option<Segment>,
    in_vain: u32,
}

/// A value of the event that may differ.
#[derive(Clone, Debug)]
struct Hole {
    at: Range<usize>,
    is_text: bool,
}

impl Repeat {
    pub(super) fn new(dialect: Dialect) -> Self {
        Repeat {
            dialect,
            unread: unread(dialect).unwrap_or_default(),
            name: String::new(),
            event: Vec::new(),
            holes: Vec::new(),
            segment: None,
            in_vain: 0,
        }
    }

    /// The text of an event that repeats the one learnt.
    pub(super) fn read<'p>(
        &mut self,
        name: &str,
        payload: &'p [u8],
    ) -> Option<(Segment, Cow<'p, str>)> {
        let segment = self.segment?;
        let text = if self.name == name {
            self.text(payload)
        } else {
            None
        };
        match text {
            Some(_) => self.in_vain = 0,
            None => self.segment = None,
        }
        text.map(|text| (segment, text))
    }

    fn text<'p>(&self, payload: &'p [u8]) -> Option<Cow<'p, str>> {
        let (mut rest, mut from, mut text) = (payload, 0, None);
        for hole in &self.holes {
            rest = rest.strip_prefix(&self.event[from..hole.at.start])?;
            let (value, behind) = rest.split_at_checked(value_end(rest)?)?;
            if hole.is_text {
                text = Some(string(value)?);
            }
            rest = behind;
            from = hole.at.end;
        }
        if rest != &self.event[from..] {
            return None;
        }
        text.filter(|text| !text.is_empty())
    }

    /// Whether watching the reader of the next event is worth it.
    pub(super) fn wants_to_learn(&mut self) -> bool {
        self.in_vain = self.in_vain.saturating_add(1);
        unread(self.dialect).is_some()
            && (self.in_vain < PATIENCE || self.in_vain.is_multiple_of(RATION))
    }

    /// Remembers an event that a reader has read.
    pub(super) fn learn(&mut self, name: &str, payload: &[u8], seen: &Seen) {
        self.segment = None;
        let Some((segment, text)) = seen.only_text() else {
            return;
        };
        if payload.len() > MAX_EVENT
            || (self.dialect == Dialect::Ollama && segment.channel == Channel::ToolCall)
        {
            return;
        }
        self.holes.clear();
        self.holes.push(Hole {
            at: text.clone(),
            is_text: true,
        });
        for key in self.unread {
            for found in memmem::find_iter(payload, key) {
                let start = found + key.len();
                let Some(length) = value_end(&payload[start..]) else {
                    continue;
                };
                if start + length <= text.start || start >= text.end {
                    self.holes.push(Hole {
                        at: start..start + length,
                        is_text: false,
                    });
                }
            }
        }
        self.holes.sort_by_key(|hole| hole.at.start);
        name.clone_into(&mut self.name);
        payload.clone_into(&mut self.event);
        self.segment = Some(segment);
    }
}

/// Members that the reader of a dialect never reads, at any depth, and that differ
/// from event to event; `None` where events do not repeat each other.
fn unread(dialect: Dialect) -> Option<&'static [&'static str]> {
    Some(match dialect {
        Dialect::OpenaiChat => &[
            "\"obfuscation\":",
            "\"created\":",
            "\"token_id\":",
            "\"p\":",
        ],
        Dialect::OpenaiCompletions => &["\"created\":"],
        Dialect::OpenaiResponses => &["\"sequence_number\":", "\"obfuscation\":"],
        Dialect::OpenaiRealtime => &["\"event_id\":"],
        Dialect::BedrockConverse => &["\"p\":"],
        Dialect::Ollama => &["\"created_at\":"],
        Dialect::Tgi => &["\"id\":", "\"logprob\":", "\"index\":"],
        Dialect::Anthropic | Dialect::CohereV2 => &[],
        _ => return None,
    })
}

/// What a reader gave for one event.
#[derive(Default)]
pub(super) struct Seen {
    only: Option<(Segment, Range<usize>)>,
    others: bool,
}

impl Seen {
    /// Takes note of an event that was read from `payload`.
    pub(super) fn note(&mut self, event: &Event<'_>, payload: &[u8]) {
        let place = match event {
            Event::Delta { segment, text } if self.only.is_none() => {
                literal(payload, text).map(|at| (*segment, at))
            }
            _ => None,
        };
        self.others |= place.is_none();
        self.only = self.only.take().or(place);
    }

    fn only_text(&self) -> Option<(Segment, Range<usize>)> {
        self.only.clone().filter(|_| !self.others)
    }
}

/// Where `text` lies in `payload` as a string of its own, quotes included.
fn literal(payload: &[u8], text: &str) -> Option<Range<usize>> {
    let start = (text.as_ptr() as usize).checked_sub(payload.as_ptr() as usize)?;
    let end = start.checked_add(text.len())?;
    let quoted = start.checked_sub(1)?..end.checked_add(1)?;
    match payload.get(quoted.clone())? {
        [b'"', .., b'"'] => Some(quoted),
        _ => None,
    }
}

/// The length of the string or number that `bytes` begins with.
fn value_end(bytes: &[u8]) -> Option<usize> {
    if bytes.first() != Some(&b'"') {
        let other = |byte: &u8| !(byte.is_ascii_digit() || b"+-.eE".contains(byte));
        return bytes.iter().position(other).filter(|end| *end > 0);
    }
    let mut at = 1;
    loop {
        at += memchr2(b'"', b'\\', bytes.get(at..)?)?;
        if bytes[at] == b'"' {
            return Some(at + 1);
        }
        at += 2;
    }
}

/// The text of a string literal, if it is a valid one.
fn string(literal: &[u8]) -> Option<Cow<'_, str>> {
    let [b'"', inside @ .., b'"'] = literal else {
        return None;
    };
    if inside.iter().all(|byte| *byte >= 0x20 && *byte != b'\\') {
        return str::from_utf8(inside).ok().map(Cow::Borrowed);
    }
    serde_json::from_slice::<String>(literal)
        .ok()
        .map(Cow::Owned)
}
