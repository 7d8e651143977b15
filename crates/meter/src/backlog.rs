//! Chunks that are read later: a whole body, or a large amount of compressed data.

use std::sync::Arc;
use std::time::Instant;
use tokengauge_core::memory::{Buffer, Memory, Share};

const MAX_CHUNKS: usize = 64 * 1024;

#[derive(Debug)]
pub(crate) struct Backlog {
    bytes: Buffer,
    /// The end offset and instant of each chunk. Chunks with an equal instant are merged.
    ends: Vec<(usize, Instant)>,
    share: Share,
}

impl Backlog {
    pub(crate) fn new(memory: &Arc<Memory>, limit: usize) -> Backlog {
        Backlog {
            bytes: Buffer::new(memory, limit),
            ends: Vec::new(),
            share: Share::empty(memory),
        }
    }

    /// Returns `false` if the chunk would exceed a limit.
    #[must_use]
    pub(crate) fn push(&mut self, at: Instant, bytes: &[u8]) -> bool {
        if self.bytes.extend(bytes).is_err() {
            return false;
        }
        let end = self.bytes.len();
        if let Some((last, instant)) = self.ends.last_mut()
            && *instant == at
        {
            *last = end;
            return true;
        }
        let fits = self.ends.len() < MAX_CHUNKS && self.has_room();
        if fits {
            self.ends.push((end, at));
        }
        fits
    }

    /// Returns `false` if one more end would exceed the memory limit.
    fn has_room(&mut self) -> bool {
        if self.ends.len() < self.ends.capacity() {
            return true;
        }
        let room = (2 * self.ends.len()).max(16);
        let allowed = self.share.resize(room * size_of::<(usize, Instant)>());
        if allowed {
            self.ends.reserve_exact(room - self.ends.len());
        }
        allowed
    }

    pub(crate) fn chunks(&self) -> impl Iterator<Item = (Instant, &[u8])> {
        let bytes = self.bytes.as_slice();
        let starts = std::iter::once(0).chain(self.ends.iter().map(|(end, _)| *end));
        let chunks = starts.zip(&self.ends);
        chunks.map(|(start, (end, at))| (*at, &bytes[start..*end]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn chunks_come_out_as_they_went_in_with_their_instants() {
        let memory = Memory::new(1000);
        let start = Instant::now();
        let later = start + Duration::from_millis(5);
        let mut backlog = Backlog::new(&memory, 100);
        assert!(
            backlog.push(start, b"ab") && backlog.push(start, b"c") && backlog.push(later, b"d")
        );
        let chunks: Vec<_> = backlog.chunks().collect();
        assert_eq!(chunks, [(start, &b"abc"[..]), (later, &b"d"[..])]);
        assert!(!backlog.push(later, &[0; 100]));
    }
}
