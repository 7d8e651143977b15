//! Positions of the events in a recorded body, and runs of similar events.

use crate::recorded::Framing;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::ops::Range;

/// Bytes before the headers of Amazon's frames, which begin with the length.
const PRELUDE: usize = 12;

/// The ranges of the events, which cover the whole body.
pub fn split(framing: Framing, body: &[u8]) -> Vec<Range<usize>> {
    let mut events = Vec::new();
    let mut start = 0;
    while start < body.len() {
        let rest = &body[start..];
        let length = match framing {
            Framing::Sse => end_of_event(rest),
            Framing::Ndjson => memchr::memchr(b'\n', rest).map(|end| end + 1),
            Framing::EventStream => frame_length(rest),
            Framing::Pieces(size) => Some(size),
        };
        let length = length.unwrap_or(rest.len()).clamp(1, rest.len());
        events.push(start..start + length);
        start += length;
    }
    events
}

/// Position after the blank line.
fn end_of_event(rest: &[u8]) -> Option<usize> {
    let ends = [&b"\n\n"[..], b"\r\n\r\n"].into_iter().filter_map(|end| {
        let found = memchr::memmem::find(rest, end)?;
        Some(found + end.len())
    });
    ends.min()
}

fn frame_length(rest: &[u8]) -> Option<usize> {
    let length = rest.first_chunk::<4>()?;
    Some(u32::from_be_bytes(*length) as usize)
}

/// The longest run of events that differ only in texts, numbers and spaces.
pub fn longest_run(framing: Framing, body: &[u8], events: &[Range<usize>]) -> Range<usize> {
    let shapes: Vec<_> = events
        .iter()
        .map(|event| shape(framing, &body[event.clone()]))
        .collect();
    let (mut longest, mut start) = (0..0, 0);
    for index in 1..=shapes.len() {
        if shapes.get(index) == Some(&shapes[start]) {
            continue;
        }
        if index - start > longest.len() {
            longest = start..index;
        }
        start = index;
    }
    longest
}

/// An event without its texts and numbers, but with member names.
fn shape(framing: Framing, event: &[u8]) -> Vec<u8> {
    let Framing::EventStream = framing else {
        return shape_of(event);
    };
    let event = event.get(PRELUDE..event.len().saturating_sub(4));
    let event = event.unwrap_or_default();
    match inside(event) {
        Some(inside) => shape_of(&inside),
        None => shape_of(event),
    }
}

fn inside(event: &[u8]) -> Option<Vec<u8>> {
    const BYTES: &[u8] = b"{\"bytes\":\"";
    let start = memchr::memmem::find(event, BYTES)? + BYTES.len();
    let end = memchr::memchr(b'"', &event[start..])?;
    STANDARD.decode(&event[start..start + end]).ok()
}

fn shape_of(mut rest: &[u8]) -> Vec<u8> {
    let mut shape = Vec::new();
    while let [first, after @ ..] = rest {
        rest = after;
        match first {
            b'"' => {
                let end = end_of_text(rest);
                let (text, after) = rest.split_at(end);
                if after.starts_with(b"\":") {
                    shape.extend_from_slice(text);
                }
                shape.push(b'"');
                rest = after.get(1..).unwrap_or_default();
            }
            b'0'..=b'9' | b'-' | b'.' | b' ' => {}
            other => shape.push(*other),
        }
    }
    shape
}

fn end_of_text(rest: &[u8]) -> usize {
    let mut escaped = false;
    let end = rest.iter().position(|byte| {
        let ends = *byte == b'"' && !escaped;
        escaped = *byte == b'\\' && !escaped;
        ends
    });
    end.unwrap_or(rest.len())
}
