//! A fast path for common events. The events of a stream mostly differ in one text only: once
//! a reader has parsed one, the next that differs in nothing else needs no parsing. Comparing
//! is several times faster than parsing.
//!
//! Nothing is guessed: an event takes the fast path only if it equals the one that was parsed,
//! byte for byte, except for the string of its text, for values of members that the reader
//! never reads, and for numbers of tokens so far.

use super::{Malformed, Reader, Sink};
use memchr::{memchr2, memmem};
use std::borrow::Cow;
use std::ops::Range;
use tokengauge_core::call::{Channel, Event, Segment, Usage};

/// After this many templates in a row that matched no event, templates are made more rarely.
const MAX_UNUSED_TEMPLATES: u32 = 16;
/// Then one in so many is learnt.
const RATION: u32 = 32;
/// Larger events are not worth remembering.
const MAX_EVENT: usize = 4096;

/// What was learnt from the last event.
pub(super) struct Repeat {
    template: Option<&'static Template>,
    name: String,
    event: Vec<u8>,
    holes: Vec<Hole>,
    segment: Option<Segment>,
    has_usage: bool,
    unused: u32,
}

/// A value of the event that may differ.
#[derive(Clone, Debug)]
struct Hole {
    at: Range<usize>,
    value: Value,
}

/// What a value is to the reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Value {
    /// The new text.
    Text,
    /// Nothing.
    Unread,
    /// One of the counts of a usage.
    Count(u8),
}

/// What an event that matches the template says.
struct Said<'p> {
    text: Cow<'p, str>,
    counts: Counts,
}

/// The numbers that a usage is made of, where they are known.
pub type Counts = [Option<u64>; 5];

/// The counts that a dialect sends with every event.
pub struct Counted {
    /// The members that they are in, with quotes and colon.
    pub keys: [&'static str; 5],
    /// What they make.
    pub usage: fn(Counts) -> Usage,
}

/// How the events of a dialect repeat each other.
pub struct Template {
    /// Members that its reader never reads, at any depth, and that differ from event to event;
    /// with quotes and colon.
    pub unread: &'static [&'static str],
    /// The counts that it sends with every event.
    pub counted: Option<Counted>,
    /// Whether a second event like one with a tool call goes on with that call.
    pub tool_calls: bool,
}

impl Template {
    /// Events that differ in their text alone.
    pub const PLAIN: Template = Template {
        unread: &[],
        counted: None,
        tool_calls: true,
    };
}

impl Repeat {
    /// Learns events of a dialect with `template`; none where there is no template.
    pub(super) fn new(template: Option<&'static Template>) -> Self {
        Repeat {
            template,
            name: String::new(),
            event: Vec::new(),
            holes: Vec::new(),
            segment: None,
            has_usage: false,
            unused: 0,
        }
    }

    /// Emits the events of a payload that matches the template; `false` where it does not match.
    pub(super) fn give(&mut self, name: &str, payload: &[u8], sink: Sink<'_>) -> bool {
        let Some(segment) = self.segment else {
            return false;
        };
        let said = (self.name == name).then(|| self.said(payload)).flatten();
        let Some(said) = said else {
            self.segment = None;
            return false;
        };
        self.unused = 0;
        let text = &*said.text;
        sink(Event::Delta { segment, text });
        if let Some(counted) = self.counted().filter(|_| self.has_usage) {
            sink(Event::Usage((counted.usage)(said.counts)));
        }
        true
    }

    fn counted(&self) -> Option<&'static Counted> {
        self.template?.counted.as_ref()
    }

    fn said<'p>(&self, payload: &'p [u8]) -> Option<Said<'p>> {
        let (mut rest, mut from) = (payload, 0);
        let (mut text, mut counts) = (None, Counts::default());
        for hole in &self.holes {
            rest = rest.strip_prefix(&self.event[from..hole.at.start])?;
            let (value, behind) = rest.split_at_checked(value_end(rest)?)?;
            match hole.value {
                Value::Text => text = Some(string(value)?),
                Value::Count(of) => *counts.get_mut(usize::from(of))? = Some(number(value)?),
                Value::Unread => {}
            }
            rest = behind;
            from = hole.at.end;
        }
        if rest != &self.event[from..] {
            return None;
        }
        let text = text.filter(|text| !text.is_empty())?;
        Some(Said { text, counts })
    }

    /// Has an event read that does not repeat the last, and learns from it.
    pub(super) fn read(
        &mut self,
        reader: &mut dyn Reader,
        name: &str,
        payload: &[u8],
        sink: Sink<'_>,
    ) -> Result<(), Malformed> {
        if !self.wants_to_learn() {
            return reader.event(name, payload, sink);
        }
        let mut seen = Seen::default();
        let result = reader.event(name, payload, &mut |event| {
            seen.note(&event, payload);
            sink(event);
        });
        self.learn(name, payload, &seen);
        result
    }

    /// Whether watching the reader of the next event is worth it.
    fn wants_to_learn(&mut self) -> bool {
        self.unused = self.unused.saturating_add(1);
        self.template.is_some()
            && (self.unused < MAX_UNUSED_TEMPLATES || self.unused.is_multiple_of(RATION))
    }

    /// Remembers an event that a reader has read.
    fn learn(&mut self, name: &str, payload: &[u8], seen: &Seen) {
        self.segment = None;
        let Some((segment, text)) = seen.only_text() else {
            return;
        };
        let Some(template) = self.template else {
            return;
        };
        if payload.len() > MAX_EVENT
            || (!template.tool_calls && segment.channel == Channel::ToolCall)
        {
            return;
        }
        self.holes.clear();
        self.holes.push(Hole {
            at: text.clone(),
            value: Value::Text,
        });
        for key in template.unread {
            let others = values(payload, key, &text);
            let others = others.map(|at| (at, Value::Unread));
            self.holes
                .extend(others.map(|(at, value)| Hole { at, value }));
        }
        self.has_usage = seen.usage.is_some();
        if let Some(usage) = seen.usage
            && !self.learn_counts(payload, &text, usage)
        {
            return;
        }
        self.holes.sort_by_key(|hole| hole.at.start);
        name.clone_into(&mut self.name);
        payload.clone_into(&mut self.event);
        self.segment = Some(segment);
    }

    /// Finds the numbers that `usage` was made of; `false` where others went into it.
    fn learn_counts(&mut self, payload: &[u8], text: &Range<usize>, usage: Usage) -> bool {
        let Some(counted) = self.counted() else {
            return false;
        };
        let mut counts = Counts::default();
        for ((key, count), of) in counted.keys.iter().zip(&mut counts).zip(0..) {
            let mut found = values(payload, key, text);
            let Some(at) = found.next() else { continue };
            *count = number(&payload[at.clone()]);
            if count.is_none() || found.next().is_some() {
                return false;
            }
            let value = Value::Count(of);
            self.holes.push(Hole { at, value });
        }
        (counted.usage)(counts) == usage
    }
}

/// Where the values of the members called `key` lie in `payload`, outside `text`.
fn values<'p>(
    payload: &'p [u8],
    key: &'p str,
    text: &Range<usize>,
) -> impl Iterator<Item = Range<usize>> + use<'p> {
    let text = text.clone();
    memmem::find_iter(payload, key).filter_map(move |found| {
        let start = found + key.len();
        let spaces = payload[start..].iter().take_while(|byte| **byte == b' ');
        let start = start + spaces.count();
        let end = start + value_end(&payload[start..])?;
        (end <= text.start || start >= text.end).then_some(start..end)
    })
}

/// What a reader gave for one event.
#[derive(Default)]
struct Seen {
    only: Option<(Segment, Range<usize>)>,
    usage: Option<Usage>,
    others: bool,
}

impl Seen {
    /// Takes note of an event that was read from `payload`. Usage has to come last, as it
    /// does when it is given from memory.
    fn note(&mut self, event: &Event<'_>, payload: &[u8]) {
        if let (Event::Usage(usage), None, Some(_)) = (event, self.usage, &self.only) {
            self.usage = Some(*usage);
            return;
        }
        let place = match event {
            Event::Delta { segment, text } if self.only.is_none() => {
                literal(payload, text).map(|at| (*segment, at))
            }
            _ => None,
        };
        self.others |= place.is_none() || self.usage.is_some();
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

/// A whole number as JSON writes it.
fn number(literal: &[u8]) -> Option<u64> {
    let plain =
        literal.iter().all(u8::is_ascii_digit) && (literal.len() == 1 || literal[0] != b'0');
    let digits = str::from_utf8(literal).ok().filter(|_| plain)?;
    digits.parse().ok()
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

#[cfg(test)]
mod tests;
