//! Amazon's binary event stream: frames with a length, headers, a payload and two checksums.

mod frame;

use super::framing::{Item, Splitter};
use super::{DecodeError, Limits, buffer};
use frame::{Frame, KnownHeader, Prelude};
use std::sync::Arc;
use tokengauge_core::memory::{Buffer, Memory};

/// Maximum number of bytes that are read at once after the beginning of a frame.
const FRAME_BYTES: usize = 64 * 1024;

pub(super) struct EventStream {
    limit: usize,
    held: Buffer,
}

impl EventStream {
    pub(super) fn new(limits: &Limits, memory: &Arc<Memory>) -> Self {
        EventStream {
            limit: limits.event_bytes,
            held: buffer(memory, limits.event_bytes + FRAME_BYTES),
        }
    }

    /// Emits every complete frame and returns their total length in bytes.
    fn frames(&self, bytes: &[u8], each: &mut dyn FnMut(Item<'_>)) -> Result<usize, DecodeError> {
        let mut taken = 0;
        while let Some(prelude) = Prelude::of(&bytes[taken..]) {
            let length = prelude.frame_length(self.limit)?;
            let Some(frame) = bytes.get(taken..taken + length) else {
                break;
            };
            each(Frame::read(frame).map_or(Item::Unparsed, item));
            taken += length;
        }
        Ok(taken)
    }
}

fn item(frame: Frame<'_>) -> Item<'_> {
    let named = |header, other| Item::Exception(frame.text(header).unwrap_or(other));
    match frame.text(KnownHeader::MessageType) {
        Some("exception") => named(KnownHeader::ExceptionType, "exception"),
        Some("error") => named(KnownHeader::ErrorCode, "error"),
        _ => Item::Event {
            name: frame.text(KnownHeader::EventType).unwrap_or_default(),
            payload: frame.payload,
        },
    }
}

impl Splitter for EventStream {
    fn push(&mut self, bytes: &[u8], each: &mut dyn FnMut(Item<'_>)) -> Result<(), DecodeError> {
        if self.held.is_empty() {
            let taken = self.frames(bytes, each)?;
            return Ok(self.held.extend(&bytes[taken..])?);
        }
        let mut rest = bytes;
        while !rest.is_empty() {
            let (now, later) = rest.split_at(rest.len().min(FRAME_BYTES));
            self.held.extend(now)?;
            let taken = self.frames(self.held.as_slice(), each)?;
            self.held.drop_front(taken);
            rest = later;
        }
        Ok(())
    }

    fn finish(&mut self, each: &mut dyn FnMut(Item<'_>)) {
        if !self.held.is_empty() {
            each(Item::Unparsed);
            self.held.clear();
        }
    }
}
