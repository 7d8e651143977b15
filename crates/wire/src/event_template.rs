//! A fast path for common events. Most events of a stream differ only in the new text. Once a reader
//! has parsed an event, the next event that differs in nothing else need not be parsed. Comparing
//! is several times faster than parsing.
//!
//! Nothing is guessed. An event takes the fast path only if it equals the parsed event byte for
//! byte, except for the string of its text, copies of that text, values of members that the reader
//! ignores, token counts, and spaces before the last brace.

use super::repair::repair;
use super::{Malformed, Reader, Sink};
use memchr::memchr2;
use memchr::memmem::Finder;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;
use tokengauge_core::call::{Channel, Event, Segment, Usage};
use tokengauge_core::hash::FastMap;

/// After this many consecutive templates that matched no event, templates are made less often.
const MAX_UNUSED_TEMPLATES: u32 = 16;
/// One in this many events is then made into a template.
const RATION: u32 = 32;
const MAX_EVENT: usize = 4096;
const MAX_MEMBERS: usize = 16;
/// The number of bytes of a string that are searched one by one, which is faster for short strings.
const SHORT_STRING: usize = 16;
const MAX_NUMBER: usize = 64;

pub(super) struct EventCache {
    template: Option<&'static Template>,
    name: String,
    event: Vec<u8>,
    fields: Vec<VariableField>,
    segment: Option<Segment>,
    has_usage: bool,
    state: TemplateState,
    unused: u32,
}

/// Whether the template may be used. The output of a reader may depend on earlier events: the index
/// of a part increases, a repeated text is emitted once. So the first event that matches is also
/// parsed, and the template is used only if the reader emitted what the template would have
/// emitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TemplateState {
    Empty,
    Learnt,
    /// The current event matches and is being parsed.
    Matched,
    /// A second event was parsed with the result that the template predicts.
    Confirmed,
}

#[derive(Clone, Debug)]
struct VariableField {
    at: Range<usize>,
    value: FieldKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FieldKind {
    /// The member has the new text.
    Text,
    /// The member has a copy of the new text.
    Copy,
    /// The reader ignores the member.
    Ignored,
    /// The reader ignores the member if it is a string.
    IgnoredText,
    /// The member is a count of the usage, by index.
    Count(u8),
}

/// The text and the counts of an event that matches the template.
struct MatchedEvent<'p> {
    text: Cow<'p, str>,
    counts: Counts,
}

/// The counts of a usage. `None` if unknown.
pub type Counts = [Option<u64>; 5];

/// The JSON literals of the counts in an event.
pub type CountLiterals<'p> = [Option<&'p RawValue>; 5];

/// The counts that a dialect sends with every event.
pub struct CountFields {
    /// Finds the counts at the places where the reader reads them.
    pub literals: fn(&[u8]) -> Option<CountLiterals<'_>>,
    /// Makes a usage from the counts.
    pub usage: fn(Counts) -> Usage,
}

/// How the events of a dialect may differ from each other.
pub struct Template {
    /// Members, with quotes and colon, that the reader ignores at any depth in events with only a
    /// text, and that differ between events.
    pub unread: &'static [&'static str],
    /// Finds another string that the reader ignores, given the range of the event's text.
    pub unread_beside: fn(&[u8], &Range<usize>) -> Option<Range<usize>>,
    /// Members, with quotes and colon, in which some servers repeat the text.
    pub copies: &'static [&'static str],
    /// The counts in every event.
    pub counts: Option<CountFields>,
    /// Whether a second event like one with a tool call continues that call.
    pub tool_calls: bool,
}

impl Template {
    /// Events that differ only in their text.
    pub const PLAIN: Template = Template {
        unread: &[],
        unread_beside: |_, _| None,
        copies: &[],
        counts: None,
        tool_calls: true,
    };
}

impl EventCache {
    /// A cache for the events of a dialect. Unused if `template` is `None`.
    pub(super) fn new(template: Option<&'static Template>) -> Self {
        EventCache {
            template,
            name: String::new(),
            event: Vec::new(),
            fields: Vec::new(),
            segment: None,
            has_usage: false,
            state: TemplateState::Empty,
            unused: 0,
        }
    }

    /// Emits the events of a payload that matches the template. Returns `false` if it does not
    /// match.
    pub(super) fn emit_cached(&mut self, name: &str, payload: &[u8], sink: Sink<'_>) -> bool {
        if self.state == TemplateState::Empty {
            return false;
        }
        let matched = (self.name == name)
            .then(|| self.match_payload(payload))
            .flatten();
        let Some(matched) = matched else {
            self.state = TemplateState::Empty;
            return false;
        };
        if self.state != TemplateState::Confirmed {
            self.state = TemplateState::Matched;
            return false;
        }
        let Some(segment) = self.segment else {
            return false;
        };
        self.unused = 0;
        let text = &*matched.text;
        sink(Event::Delta { segment, text });
        if let Some(counted) = self.count_fields().filter(|_| self.has_usage) {
            sink(Event::Usage((counted.usage)(matched.counts)));
        }
        true
    }

    fn count_fields(&self) -> Option<&'static CountFields> {
        self.template?.counts.as_ref()
    }

    fn match_payload<'p>(&self, payload: &'p [u8]) -> Option<MatchedEvent<'p>> {
        let (mut rest, mut from) = (payload, 0);
        let (mut text, mut copy, mut counts) = (None, None, Counts::default());
        for field in &self.fields {
            rest = rest.strip_prefix(&self.event[from..field.at.start])?;
            let (value, behind) = rest.split_at_checked(value_end(rest)?)?;
            match field.value {
                FieldKind::Text => text = Some(value),
                FieldKind::Copy if copy.is_some_and(|other| other != value) => return None,
                FieldKind::Copy => copy = Some(value),
                FieldKind::Count(of) => *counts.get_mut(usize::from(of))? = Some(number(value)?),
                FieldKind::Ignored => is_valid(value).then_some(())?,
                FieldKind::IgnoredText => is_string(value).then_some(())?,
            }
            rest = behind;
            from = field.at.end;
        }
        if !ends_alike(rest, &self.event[from..]) || copy.is_some_and(|copy| Some(copy) != text) {
            return None;
        }
        let text = string(text?).filter(|text| !text.is_empty())?;
        Some(MatchedEvent { text, counts })
    }

    /// Parses an event that did not match, and makes a template from it.
    pub(super) fn read_and_learn(
        &mut self,
        reader: &mut dyn Reader,
        name: &str,
        payload: &[u8],
        sink: Sink<'_>,
    ) -> Result<(), Malformed> {
        if !self.wants_to_learn() {
            return reader.event(name, payload, sink);
        }
        let mut seen = RecordedEvents::default();
        let result = reader.event(name, payload, &mut |event| {
            seen.note(&event, payload);
            sink(event);
        });
        self.learn(name, payload, &seen);
        result
    }

    fn wants_to_learn(&mut self) -> bool {
        self.unused = self.unused.saturating_add(1);
        self.template.is_some()
            && (self.state == TemplateState::Matched
                || self.unused < MAX_UNUSED_TEMPLATES
                || self.unused.is_multiple_of(RATION))
    }

    fn learn(&mut self, name: &str, payload: &[u8], seen: &RecordedEvents) {
        let before = std::mem::replace(&mut self.state, TemplateState::Empty);
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
        let place = self.place_of_text();
        self.fields.clear();
        let mut add = |at, value| self.fields.push(VariableField { at, value });
        add(text.clone(), FieldKind::Text);
        for key in template.copies {
            let copies = values(payload, key, &text)
                .filter(|at| payload[at.clone()] == payload[text.clone()]);
            copies.for_each(|at| add(at, FieldKind::Copy));
        }
        for key in template.unread {
            values(payload, key, &text).for_each(|at| add(at, FieldKind::Ignored));
        }
        if let Some(at) = (template.unread_beside)(payload, &text) {
            add(at, FieldKind::IgnoredText);
        }
        let has_usage = seen.usage.is_some();
        if let Some(usage) = seen.usage
            && !self.learn_counts(payload, usage)
        {
            return;
        }
        self.order_fields();
        let alike = (self.segment, self.has_usage) == (Some(segment), has_usage);
        self.state = match before {
            TemplateState::Matched if alike && place == self.place_of_text() => {
                TemplateState::Confirmed
            }
            _ => TemplateState::Learnt,
        };
        name.clone_into(&mut self.name);
        payload.clone_into(&mut self.event);
        (self.segment, self.has_usage) = (Some(segment), has_usage);
    }

    fn place_of_text(&self) -> Option<usize> {
        let mut fields = self.fields.iter();
        fields.position(|field| field.value == FieldKind::Text)
    }

    /// Sorts the fields by position and drops fields inside other fields. Counts are never inside
    /// other fields.
    fn order_fields(&mut self) {
        self.fields.sort_by_key(|field| field.at.start);
        let mut end = 0;
        self.fields.retain(|field| {
            let is_inside = field.at.start < end;
            end = end.max(field.at.end);
            !is_inside
        });
    }

    /// Finds the counts of `usage`. Returns `false` if `usage` contains anything else.
    fn learn_counts(&mut self, payload: &[u8], usage: Usage) -> bool {
        let Some(counted) = self.count_fields() else {
            return false;
        };
        let Some(literals) = (counted.literals)(payload) else {
            return false;
        };
        let mut counts = Counts::default();
        for ((literal, count), of) in literals.into_iter().zip(&mut counts).zip(0..) {
            let Some(literal) = literal.map(RawValue::get) else {
                continue;
            };
            let (number, at) = (number(literal.as_bytes()), range_in(payload, literal));
            let (Some(number), Some(at)) = (number, at) else {
                return false;
            };
            *count = Some(number);
            let value = FieldKind::Count(of);
            self.fields.push(VariableField { at, value });
        }
        (counted.usage)(counts) == usage
    }
}

thread_local! {
    /// Cached, because making a finder is more expensive than using it.
    static FINDERS: RefCell<FastMap<&'static str, Rc<Finder<'static>>>> = RefCell::default();
}

fn finder(key: &'static str) -> Rc<Finder<'static>> {
    FINDERS.with_borrow_mut(|finders| {
        let finder = finders.entry(key);
        Rc::clone(finder.or_insert_with(|| Rc::new(Finder::new(key))))
    })
}

/// The ranges of the values of the members `key` in `payload`, outside of `text`.
fn values<'p>(
    payload: &'p [u8],
    key: &'static str,
    text: &Range<usize>,
) -> impl Iterator<Item = Range<usize>> + use<'p> {
    let (text, finder) = (text.clone(), finder(key));
    let mut from = 0;
    let found = std::iter::from_fn(move || {
        let found = from + finder.find(&payload[from..])?;
        from = found + key.len();
        Some(found)
    });
    found.take(MAX_MEMBERS).filter_map(move |found| {
        let start = found + key.len();
        let spaces = payload[start..].iter().take_while(|byte| **byte == b' ');
        let start = start + spaces.count();
        let end = start + value_end(&payload[start..])?;
        (end <= text.start || start >= text.end).then_some(start..end)
    })
}

/// The events that a reader emitted for one wire event.
#[derive(Default)]
struct RecordedEvents {
    only: Option<(Segment, Range<usize>)>,
    usage: Option<Usage>,
    others: bool,
}

impl RecordedEvents {
    /// Records an event that was read from `payload`. Usage must come last, because a template
    /// emits it last.
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

/// The range of `part` in `payload`. `None` if `part` does not point into `payload`.
pub(super) fn range_in(payload: &[u8], part: &str) -> Option<Range<usize>> {
    let start = (part.as_ptr() as usize).checked_sub(payload.as_ptr() as usize)?;
    let end = start.checked_add(part.len())?;
    (end <= payload.len()).then_some(start..end)
}

/// The range of `text` in `payload` with its quotes, if it is a complete string there.
fn literal(payload: &[u8], text: &str) -> Option<Range<usize>> {
    let inside = range_in(payload, text)?;
    let quoted = inside.start.checked_sub(1)?..inside.end + 1;
    match payload.get(quoted.clone())? {
        [b'"', .., b'"'] => Some(quoted),
        _ => None,
    }
}

/// Whether two ends of events are equal except for spaces before the last brace. Anthropic adds
/// such padding, so that observers of the encrypted traffic cannot see the length of the text.
fn ends_alike(one: &[u8], other: &[u8]) -> bool {
    one == other || without_padding(one).is_some_and(|one| Some(one) == without_padding(other))
}

/// The bytes before the last brace and its padding.
fn without_padding(mut end: &[u8]) -> Option<&[u8]> {
    end = end.strip_suffix(b"}")?;
    while let Some(shorter) = end.strip_suffix(b" ") {
        end = shorter;
    }
    Some(end)
}

/// The length of the JSON value at the start of `bytes`. `None` for `true`, `false`, `null` and
/// anything invalid.
fn value_end(bytes: &[u8]) -> Option<usize> {
    if matches!(bytes.first()?, b'[' | b'{') {
        let mut values = serde_json::Deserializer::from_slice(bytes).into_iter::<IgnoredAny>();
        values.next()?.ok()?;
        return Some(values.byte_offset());
    }
    if bytes.first() != Some(&b'"') {
        return number_end(bytes);
    }
    let mut at = 1;
    loop {
        at += quote_or_backslash(bytes.get(at..)?)?;
        if bytes[at] == b'"' {
            return Some(at + 1);
        }
        at += 2;
    }
}

fn quote_or_backslash(bytes: &[u8]) -> Option<usize> {
    let start = &bytes[..bytes.len().min(SHORT_STRING)];
    let found = start.iter().position(|byte| matches!(byte, b'"' | b'\\'));
    found.or_else(|| Some(start.len() + memchr2(b'"', b'\\', &bytes[start.len()..])?))
}

/// The length of the number at the start of `bytes`. `None` if it has an exponent, because a parser
/// rejects numbers that are too large.
fn number_end(bytes: &[u8]) -> Option<usize> {
    let digits = |from: usize| {
        let digits = bytes[from..]
            .iter()
            .take_while(|byte| byte.is_ascii_digit());
        Some(digits.count()).filter(|digits| *digits > 0)
    };
    let start = usize::from(bytes.first() == Some(&b'-'));
    let whole = digits(start)?;
    let mut end = start + whole;
    if bytes.get(end) == Some(&b'.') {
        end += 1 + digits(end + 1)?;
    }
    let padded = whole > 1 && bytes[start] == b'0';
    let goes_on = matches!(bytes.get(end), Some(b'e' | b'E'));
    (!padded && !goes_on && end <= MAX_NUMBER).then_some(end)
}

/// Whether an ignored value is valid JSON. [`value_end`] has already checked numbers, lists and
/// objects.
fn is_valid(value: &[u8]) -> bool {
    value.first() != Some(&b'"') || is_string(value)
}

fn number(literal: &[u8]) -> Option<u64> {
    let plain =
        literal.iter().all(u8::is_ascii_digit) && (literal.len() == 1 || literal[0] != b'0');
    let digits = str::from_utf8(literal).ok().filter(|_| plain)?;
    digits.parse().ok()
}

/// The text of a string literal, if it is valid.
fn string(literal: &[u8]) -> Option<Cow<'_, str>> {
    let inside = inside_of_quotes(literal)?;
    if is_plain(inside) {
        return str::from_utf8(inside).ok().map(Cow::Borrowed);
    }
    serde_json::from_slice::<String>(literal)
        .ok()
        .map(Cow::Owned)
}

/// Whether [`string`] would return `Some` for `literal`, without copying the string.
fn is_string(literal: &[u8]) -> bool {
    let Some(inside) = inside_of_quotes(literal) else {
        return false;
    };
    if is_plain(inside) {
        return str::from_utf8(inside).is_ok();
    }
    repair(inside).is_none() && serde_json::from_slice::<IgnoredAny>(literal).is_ok()
}

fn inside_of_quotes(literal: &[u8]) -> Option<&[u8]> {
    match literal {
        [b'"', inside @ .., b'"'] => Some(inside),
        _ => None,
    }
}

/// Whether a string contains no escapes and no characters that need one. Without an early exit, the
/// compiler can vectorize the loop.
fn is_plain(inside: &[u8]) -> bool {
    let is_escape = |byte: u8| byte < 0x20 || byte == b'\\';
    !inside
        .iter()
        .fold(false, |any, byte| any | is_escape(*byte))
}

#[cfg(test)]
mod tests;
