//! The blocks of prompts in traces. Their keyed hashes are numbered, so that a trace shows only
//! which prompts share a beginning.

use std::collections::HashMap;
use tokengauge_core::call::{CallRecord, OperationClass};

/// Tokens of a block.
pub(super) const BLOCK: u64 = 64;
/// Hashes that are remembered. Beyond it all are forgotten, and later prompts share nothing with
/// earlier ones.
const MAX_KNOWN: usize = 1 << 24;

/// The numbers of blocks, dense from 0. guidellm reads them as 32-bit integers.
#[derive(Default)]
pub(super) struct BlockNumbers {
    known: HashMap<u64, u32>,
    next: u32,
}

impl BlockNumbers {
    /// The prompt of a call as numbered blocks; `None` without hashes. The last number may stand
    /// for a block that is not full, as Mooncake's format requires.
    pub(super) fn prompt(&mut self, record: &CallRecord) -> Option<BlockedPrompt> {
        let hashes = record.prompt_blocks.as_deref()?;
        let tokens = tokens(record, hashes.len() as u64);
        let mut ids: Vec<_> = hashes.iter().map(|hash| self.of(*hash)).collect();
        if tokens.div_ceil(BLOCK) > ids.len() as u64 {
            ids.push(self.fresh());
        }
        (tokens > 0).then_some(BlockedPrompt { tokens, ids })
    }

    fn of(&mut self, hash: u64) -> u32 {
        if let Some(number) = self.known.get(&hash) {
            return *number;
        }
        if self.known.len() >= MAX_KNOWN {
            self.known.clear();
        }
        let number = self.fresh();
        self.known.insert(hash, number);
        number
    }

    /// A number that is used once. Numbers begin again at 0 after the largest 31-bit integer.
    fn fresh(&mut self) -> u32 {
        let number = self.next;
        self.next = (self.next + 1) % (1 << 31);
        number
    }
}

/// A prompt as a trace has it.
pub(super) struct BlockedPrompt {
    /// The o200k_base tokens of the blocks.
    pub(super) tokens: u64,
    /// A number for each block, also for the last block if it is not full.
    pub(super) ids: Vec<u32>,
}

/// The counted tokens of a prompt of `blocks` blocks. Without a count that fits, the tokens of full
/// blocks.
fn tokens(record: &CallRecord, blocks: u64) -> u64 {
    let counted = record.prompt.as_ref().map(|prompt| prompt.total());
    let known = [
        counted,
        record.tokens.normalised.input,
        record.tokens.reported.input,
    ];
    let fits = |tokens: &u64| [tokens / BLOCK, tokens.div_ceil(BLOCK)].contains(&blocks);
    let found = known.into_iter().flatten().find(fits);
    found.unwrap_or(blocks * BLOCK)
}

/// Tokens of input and output of a generation; `None` if a trace cannot contain the call.
pub(super) fn lengths(record: &CallRecord) -> Option<(u64, u64)> {
    let (reported, normalised) = (&record.tokens.reported, &record.tokens.normalised);
    let input = reported.input.or(normalised.input)?;
    let output = reported.output.or(normalised.output)?;
    let generates = record.operation_class == OperationClass::Generation;
    (generates && input > 0 && output > 0).then_some((input, output))
}
