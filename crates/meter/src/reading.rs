//! How the response body of a call is read: inline, deferred, or not at all.

use super::backlog::Backlog;
use std::sync::Arc;
use std::time::Instant;
use tokengauge_core::memory::Memory;
use tokengauge_wire::Decoder;

/// The longest compressed piece that is read inline; a longer one and what follows is deferred.
const COMPRESSED_INLINE: usize = 64 * 1024;
/// The longest first piece that is read inline of a body that is not a stream, since it may show
/// that the body is one after all.
const SNIFF: usize = 64 * 1024;

#[derive(Default)]
pub(crate) enum Reading {
    /// Nothing is read: there is no body yet, its format is unknown, or it could not be read.
    #[default]
    Nothing,
    /// Events are read as chunks arrive.
    Inline {
        decoder: Box<Decoder>,
        compressed: bool,
        /// Whether nothing has been read yet.
        fresh: bool,
    },
    /// Everything from here on is read at the end.
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

    /// Defers the body if a piece of `length` must not be read inline.
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

    /// Buffers a chunk if the body is deferred; `false` if there is no room.
    #[must_use]
    pub(crate) fn buffer(&mut self, at: Instant, bytes: &[u8]) -> bool {
        match self {
            Reading::Deferred { backlog, .. } => backlog.push(at, bytes),
            Reading::Nothing | Reading::Inline { .. } => true,
        }
    }
}
