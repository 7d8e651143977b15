//! A prompt between the reading of its request and the end of its call.

use super::conversations::{Before, Keys, Place};
use super::turn::TurnItem;
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

impl Prompt {
    /// The parts of the prompt.
    pub fn parts(&self) -> &PromptParts {
        &self.parts
    }
}
