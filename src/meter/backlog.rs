//! Frames that are read later: a body that came whole, or compressed bulk.

use super::memory::{Copy, Memory};
use std::sync::Arc;
use std::time::Instant;

/// Frames of different instants that one backlog keeps apart.
const MAX_FRAMES: usize = 64 * 1024;

/// The bytes of frames and when each came.
#[derive(Debug)]
pub(crate) struct Backlog {
    copy: Copy,
    /// Where each frame ends, and its instant. Frames of one instant are one.
    ends: Vec<(usize, Instant)>,
}

impl Backlog {
    pub(crate) fn new(memory: &Arc<Memory>, limit: usize) -> Backlog {
        Backlog {
            copy: Copy::new(memory, limit),
            ends: Vec::new(),
        }
    }

    /// Keeps a frame; `false` where a bound does not allow it.
    #[must_use]
    pub(crate) fn push(&mut self, at: Instant, bytes: &[u8]) -> bool {
        if !self.copy.extend(bytes) {
            return false;
        }
        let end = self.copy.length();
        let full = self.ends.len() >= MAX_FRAMES;
        match self.ends.last_mut() {
            Some((last, instant)) if *instant == at => *last = end,
            _ if full => return false,
            _ => self.ends.push((end, at)),
        }
        true
    }

    /// The frames in their order. To lay long ones together takes its time.
    pub(crate) fn frames(&mut self) -> impl Iterator<Item = (Instant, &[u8])> {
        let bytes = self.copy.joined();
        let starts = std::iter::once(0).chain(self.ends.iter().map(|(end, _)| *end));
        let frames = starts.zip(&self.ends);
        frames.map(|(start, (end, at))| (*at, &bytes[start..*end]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn frames_come_out_as_they_went_in_with_their_instants() {
        let memory = Memory::new(100);
        let start = Instant::now();
        let later = start + Duration::from_millis(5);
        let mut backlog = Backlog::new(&memory, 100);
        assert!(
            backlog.push(start, b"ab") && backlog.push(start, b"c") && backlog.push(later, b"d")
        );
        let frames: Vec<_> = backlog.frames().collect();
        assert_eq!(frames, [(start, &b"abc"[..]), (later, &b"d"[..])]);
        assert!(!backlog.push(later, &[0; 100]));
    }
}
