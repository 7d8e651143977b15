//! One JSON value per line.

use super::decoder::{Item, Splitter};
use super::{Broken, Limits};
use memchr::memchr;

/// Cuts a stream into its lines.
pub(super) struct Ndjson {
    limit: usize,
    line: Vec<u8>,
}

impl Ndjson {
    pub(super) fn new(limits: &Limits) -> Self {
        Ndjson {
            limit: limits.event_bytes,
            line: Vec::new(),
        }
    }

    /// A line is no longer than the bound, whether it came in one piece or in many.
    fn check(&self, more: usize) -> Result<(), Broken> {
        if self.line.len() + more > self.limit {
            return Err(Broken::TooLarge);
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
    fn push(&mut self, bytes: &[u8], each: &mut dyn FnMut(Item<'_>)) -> Result<(), Broken> {
        let mut rest = bytes;
        while let Some(end) = memchr(b'\n', rest) {
            self.check(end)?;
            if self.line.is_empty() {
                give(&rest[..end], each);
            } else {
                self.line.extend_from_slice(&rest[..end]);
                give(&self.line, each);
                self.line.clear();
            }
            rest = &rest[end + 1..];
        }
        self.line.extend_from_slice(rest);
        self.check(0)
    }

    fn finish(&mut self, each: &mut dyn FnMut(Item<'_>)) {
        give(&self.line, each);
        self.line.clear();
    }
}
