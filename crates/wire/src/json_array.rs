//! A JSON array whose elements arrive one by one: Gemini's stream without `alt=sse`.

use super::framing::{Item, Splitter};
use super::{DecodeError, Limits, buffer};
use memchr::memchr2;
use std::sync::Arc;
use tokengauge_core::memory::{Buffer, Memory};

pub(super) struct JsonArray {
    limit: usize,
    element: Buffer,
    position: Position,
    depth: u32,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Position {
    Before,
    Between,
    Element,
    Text,
    Escape,
    After,
}

impl JsonArray {
    pub(super) fn new(limits: &Limits, memory: &Arc<Memory>) -> Self {
        let limit = limits.event_bytes;
        let element = buffer(memory, limit);
        JsonArray {
            limit,
            element,
            position: Position::Before,
            depth: 0,
        }
    }

    /// Returns the position after `byte`, and whether an element ends before or with `byte`.
    fn step(&mut self, byte: u8) -> (Position, End) {
        match (self.position, byte) {
            (Position::Before, b'[') => (Position::Between, End::No),
            (Position::Between, b']') => (Position::After, End::No),
            (Position::Between, b',' | b' ' | b'\t' | b'\r' | b'\n') => {
                (Position::Between, End::No)
            }
            (Position::Between | Position::Element, b'"') => (Position::Text, End::No),
            (Position::Between | Position::Element, b'{' | b'[') => {
                self.depth = self.depth.saturating_add(1);
                (Position::Element, End::No)
            }
            (Position::Element, b']') if self.depth == 0 => (Position::After, End::Before),
            (Position::Element, b',') if self.depth == 0 => (Position::Between, End::Before),
            (Position::Element, b'}' | b']') => {
                self.depth = self.depth.saturating_sub(1);
                match self.depth {
                    0 => (Position::Between, End::With),
                    _ => (Position::Element, End::No),
                }
            }
            (Position::Between, _) => (Position::Element, End::No),
            (Position::Text, b'\\') => (Position::Escape, End::No),
            (Position::Text, b'"') => (Position::Element, End::No),
            (Position::Escape, _) => (Position::Text, End::No),
            (position, _) => (position, End::No),
        }
    }
}

#[derive(PartialEq, Eq)]
enum End {
    No,
    Before,
    With,
}

impl Splitter for JsonArray {
    fn push(&mut self, bytes: &[u8], each: &mut dyn FnMut(Item<'_>)) -> Result<(), DecodeError> {
        let mut start = 0;
        let mut next = 0;
        while next < bytes.len() {
            if self.position == Position::Text {
                let skipped = memchr2(b'"', b'\\', &bytes[next..]);
                next = skipped.map_or(bytes.len(), |skipped| next + skipped);
            }
            let Some(byte) = bytes.get(next) else { break };
            let at = next;
            next += 1;
            let was_between = matches!(self.position, Position::Before | Position::Between);
            let (position, end) = self.step(*byte);
            self.position = position;
            if was_between {
                start = at;
            }
            if end == End::No {
                continue;
            }
            let stop = if end == End::With { at + 1 } else { at };
            // The limit applies to the whole element, independent of chunks.
            if self.element.len() + (stop - start) > self.limit {
                return Err(DecodeError::TooLarge);
            }
            if self.element.is_empty() {
                each(Item::Event {
                    name: "",
                    payload: bytes[start..stop].trim_ascii(),
                });
            } else {
                self.element.extend(&bytes[start..stop])?;
                each(Item::Event {
                    name: "",
                    payload: self.element.as_slice().trim_ascii(),
                });
                self.element.clear();
            }
            start = stop;
        }
        if matches!(
            self.position,
            Position::Element | Position::Text | Position::Escape
        ) {
            self.element.extend(&bytes[start..])?;
        }
        if self.element.len() > self.limit {
            return Err(DecodeError::TooLarge);
        }
        Ok(())
    }

    fn finish(&mut self, each: &mut dyn FnMut(Item<'_>)) {
        if !self.element.is_empty() {
            each(Item::Event {
                name: "",
                payload: self.element.as_slice(),
            });
            self.element.clear();
        }
    }
}
