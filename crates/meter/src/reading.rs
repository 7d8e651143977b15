//! How the response body of a call is read: inline, deferred or not at all.

use super::backlog::Backlog;
use std::sync::Arc;
use std::time::Instant;
use tokengauge_core::memory::Memory;
use tokengauge_wire::Decoder;

/// The longest compressed piece that is read inline, in bytes. A longer piece and all later ones
/// are deferred.
const COMPRESSED_INLINE: usize = 64 * 1024;
/// The longest first piece that is read inline if the body is not declared as a stream, in bytes.
/// That piece may show that the body is a stream after all.
const SNIFF: usize = 64 * 1024;

#[derive(Default)]
pub(crate) enum Reading {
    /// Nothing is read, because there is no body yet, its format is unknown, or it could not be
    /// read.
    #[default]
    Nothing,
    Inline {
        decoder: Box<Decoder>,
        compressed: bool,
        fresh: bool,
    },
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

    /// Defers the body if a piece of `length` bytes is too long to read inline.
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

    #[must_use]
    pub(crate) fn buffer(&mut self, at: Instant, bytes: &[u8]) -> bool {
        match self {
            Reading::Deferred { backlog, .. } => backlog.push(at, bytes),
            Reading::Nothing | Reading::Inline { .. } => true,
        }
    }
}
