//! One JSON value per line.

use super::framing::{Item, Splitter};
use super::{DecodeError, Limits, buffer};
use memchr::memchr;
use std::sync::Arc;
use tokengauge_core::memory::{Buffer, Memory};

pub(super) struct Ndjson {
    limit: usize,
    line: Buffer,
}

impl Ndjson {
    pub(super) fn new(limits: &Limits, memory: &Arc<Memory>) -> Self {
        Ndjson {
            limit: limits.event_bytes,
            line: buffer(memory, limits.event_bytes),
        }
    }

    /// Checks that a line is within the limit, independent of chunks.
    fn check(&self, more: usize) -> Result<(), DecodeError> {
        if self.line.len() + more > self.limit {
            return Err(DecodeError::TooLarge);
        }
        Ok(())
    }
}

fn give(line: &[u8], each: &mut dyn FnMut(Item<'_>)) {
    let payload = line.trim_ascii();
    if !payload.is_empty() {
        each(Item::Event { name: "", payload });
    }
}

impl Splitter for Ndjson {
    fn push(&mut self, bytes: &[u8], each: &mut dyn FnMut(Item<'_>)) -> Result<(), DecodeError> {
        let mut rest = bytes;
        while let Some(end) = memchr(b'\n', rest) {
            self.check(end)?;
            if self.line.is_empty() {
                give(&rest[..end], each);
            } else {
                self.line.extend(&rest[..end])?;
                give(self.line.as_slice(), each);
                self.line.clear();
            }
            rest = &rest[end + 1..];
        }
        self.line.extend(rest)?;
        self.check(0)
    }

    fn finish(&mut self, each: &mut dyn FnMut(Item<'_>)) {
        give(self.line.as_slice(), each);
        self.line.clear();
    }
}
