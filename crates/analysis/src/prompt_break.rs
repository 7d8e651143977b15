//! Why a prompt could not come from the provider's cache.

use super::conversations::Turn;
use super::turn::Change;
use sha2::{Digest, Sha256};
use std::time::Duration;
use tokengauge_core::prompt::{PromptBreak, PromptBreakCause};
use tokengauge_core::prompt_cache::{CachedTurn, KEPT_FOR, is_break};

/// Providers count tokens differently, add a template, and cache in steps. So the end of what was
/// cached is compared with this tolerance, in tokens and as a share.
const TOLERANCE: (f64, f64) = (1024.0, 0.2);

/// The previous turn, and the report of the provider about this one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Compared<'a> {
    pub(crate) before: &'a Turn,
    pub(crate) change: Option<&'a Change>,
    /// Tokens up to the last mark before the change, if the agent marks the ends of prefixes to cache.
    /// More could not be read.
    pub(crate) mark: Option<u64>,
    /// Whether the provider cached an earlier turn of the conversation.
    pub(crate) in_use: bool,
    /// Whether the upstream caches prompts of this model.
    pub(crate) upstream_caches: bool,
    pub(crate) model: u64,
    pub(crate) place: u64,
    pub(crate) idle: Duration,
    /// Our count of the prompt, to convert tokens to the provider's count.
    pub(crate) counted: u64,
    pub(crate) cache: CachedTurn,
    pub(crate) agent: Option<&'a str>,
}

/// The break, without its cost, and the tokens that could have come from the cache.
pub(crate) fn prompt_break(compared: &Compared<'_>) -> Option<(PromptBreak, u64)> {
    let before = compared.before.cache?;
    let cached = compared.cache.cached;
    let expected = before.kept.min(compared.cache.input);
    let cause = cause(compared, expected);
    let is_changed = cause == PromptBreakCause::Changed;
    let uses_cache = compared.in_use || is_changed && compared.upstream_caches;
    if !uses_cache || !is_break(expected, cached) || is_shorter(compared, before) {
        return None;
    }
    let change = compared.change.filter(|_| is_changed);
    let found = PromptBreak {
        cause,
        section: change.map(|change| change.section.clone()),
        tokens: expected - cached,
        cost_usd: None,
        block: change.map(|change| change.block),
        change: change.map(|change| change_id(compared.agent, &change.section)),
    };
    Some((found, expected))
}

/// Whether the agent shortened the conversation, such as by a summary. That is intended.
fn is_shorter(compared: &Compared<'_>, before: CachedTurn) -> bool {
    let of_messages = |change: &Change| change.section.starts_with("message");
    compared.cache.input < before.input && compared.change.is_some_and(of_messages)
}

fn cause(compared: &Compared<'_>, expected: u64) -> PromptBreakCause {
    let before = compared.before;
    if before.model != compared.model {
        PromptBreakCause::OtherModel
    } else if before.place != compared.place {
        PromptBreakCause::OtherUpstream
    } else if is_at_change(compared, expected) {
        PromptBreakCause::Changed
    } else if compared.idle > KEPT_FOR {
        PromptBreakCause::Idle
    } else {
        PromptBreakCause::Evicted
    }
}

/// Whether the cache was read up to about the point where the prompt changed. If the provider read
/// less, it had lost the prompt before that point.
fn is_at_change(compared: &Compared<'_>, expected: u64) -> bool {
    let Some(change) = compared.change else {
        return false;
    };
    let scale = compared.cache.input as f64 / compared.counted.max(1) as f64;
    let changed_at = change.tokens as f64 * scale;
    let readable = compared.mark.map_or(changed_at, |mark| mark as f64 * scale);
    let (tokens, share) = TOLERANCE;
    let cached = compared.cache.cached as f64;
    changed_at < expected as f64 && cached + tokens + readable * share >= readable
}

/// A hash of an agent and a section, which is equal in each process. Positions of messages are left
/// out, because they differ between sessions.
fn change_id(agent: Option<&str>, section: &str) -> String {
    let kind = match section.split_once(' ') {
        Some(("message", _)) => "message",
        _ => section,
    };
    let hasher = Sha256::new_with_prefix(agent.unwrap_or_default());
    let hash: [u8; 32] = hasher
        .chain_update([0])
        .chain_update(kind)
        .finalize()
        .into();
    let [a, b, c, d, e, f, g, h, ..] = hash;
    format!("{:016x}", u64::from_be_bytes([a, b, c, d, e, f, g, h]))
}
