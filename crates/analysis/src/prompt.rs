//! A prompt between the reading of its request and the end of its call.

use super::conversations::{Keys, Place, Turn};
use super::turn::{Change, TurnItem};
use std::time::Instant;
use tokengauge_core::prompt::{PromptParts, Wait};

/// A prompt that was read, before the result of its call is known.
pub struct Prompt {
    pub(crate) parts: PromptParts,
    /// A hash of the request.
    pub(crate) request: u64,
    pub(crate) keys: Keys,
    /// The previous turn, and the number of sections that both turns begin with.
    pub(crate) after: Option<(Place, usize)>,
    pub(crate) wait: Option<Wait>,
    pub(crate) before: Option<Before>,
    pub(crate) items: Vec<TurnItem>,
    pub(crate) blocks: Vec<u64>,
    pub(crate) results: Vec<(u32, u64)>,
    pub(crate) length: usize,
    pub(crate) started: Instant,
}

/// The turn whose cache the prompt could have used.
pub(crate) struct Before {
    pub(crate) turn: Turn,
    pub(crate) change: Option<Change>,
    pub(crate) mark: Option<u64>,
    pub(crate) shows_cache: bool,
}

impl Prompt {
    /// The parts of the prompt.
    pub fn parts(&self) -> &PromptParts {
        &self.parts
    }
}
