//! How the response body of a call is read: inline, later, or not at all.

use super::backlog::Backlog;
use std::sync::Arc;
use std::time::Instant;
use tokengauge_core::memory::Memory;
use tokengauge_wire::Decoder;

/// A compressed piece above this is bulk: it and what follows is read later.
const COMPRESSED_INLINE: usize = 64 * 1024;
/// The first piece of a body that is not a stream is read inline up to this, since
/// it may show that the body is one after all.
const SNIFF: usize = 64 * 1024;

/// How the body is read.
#[derive(Default)]
pub(crate) enum Reading {
    /// Nothing is read: there is no body yet, nobody knows its shape, or it broke.
    #[default]
    Nothing,
    /// Events come out as frames come in.
    Inline {
        decoder: Box<Decoder>,
        /// Whether the body is compressed.
        compressed: bool,
        /// Whether nothing has been read yet.
        fresh: bool,
    },
    /// Everything from here on waits for the end.
    Deferred {
        decoder: Box<Decoder>,
        backlog: Box<Backlog>,
    },
}

impl Reading {
    pub(crate) fn new(decoder: Decoder, compressed: bool) -> Reading {
        Reading::Inline {
            decoder: Box::new(decoder),
            compressed,
            fresh: true,
        }
    }

    pub(crate) fn decoder(&self) -> Option<&Decoder> {
        match self {
            Reading::Nothing => None,
            Reading::Inline { decoder, .. } | Reading::Deferred { decoder, .. } => Some(decoder),
        }
    }

    /// Puts the body off where a piece of `length` must not be read inline.
    pub(crate) fn prepare(&mut self, length: usize, memory: &Arc<Memory>, limit: usize) {
        if let Reading::Inline {
            decoder,
            compressed,
            fresh,
        } = self
        {
            let bulk = *compressed && length > COMPRESSED_INLINE;
            let sniffed = *fresh && length <= SNIFF;
            *fresh = false;
            if bulk || !(decoder.is_stream() || sniffed) {
                self.defer(memory, limit);
            }
        }
    }

    fn defer(&mut self, memory: &Arc<Memory>, limit: usize) {
        if let Reading::Inline { decoder, .. } = std::mem::take(self) {
            *self = Reading::Deferred {
                decoder,
                backlog: Box::new(Backlog::new(memory, limit)),
            };
        }
    }

    /// Keeps a frame, where frames are kept for later; `false` where there is no room.
    #[must_use]
    pub(crate) fn buffer(&mut self, at: Instant, bytes: &[u8]) -> bool {
        match self {
            Reading::Deferred { backlog, .. } => backlog.push(at, bytes),
            Reading::Nothing | Reading::Inline { .. } => true,
        }
    }
}
