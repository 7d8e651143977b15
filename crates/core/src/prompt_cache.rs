//! When a prompt should have come from a provider's cache and did not.

use crate::call::{CallRecord, OperationClass, Outcome};
use std::time::Duration;

/// Providers keep a prompt for at least five minutes. Anthropic keeps it for exactly that long
/// unless an hour is requested, and OpenAI for five to ten minutes.
pub const KEPT_FOR: Duration = Duration::from_secs(5 * 60);
/// The shortest prompt that OpenAI, Anthropic and Gemini cache, and therefore the smallest amount
/// that a break can miss.
const LEAST_TOKENS: u64 = 1024;

/// What a provider reported about the cache of a call, in its tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CachedTurn {
    /// Input tokens of the call.
    pub input: u64,
    /// Input tokens that came from the cache.
    pub cached: u64,
    /// Input tokens that the cache contained afterwards.
    pub kept: u64,
    /// Whether the call shows that the provider uses a cache.
    pub shows: bool,
}

impl CachedTurn {
    /// The report of a complete generation; `None` if it says nothing about caches.
    pub fn of(record: &CallRecord) -> Option<CachedTurn> {
        if record.operation_class != OperationClass::Generation
            || record.outcome != Outcome::Complete
        {
            return None;
        }
        let reported = &record.tokens.reported;
        let (input, cached) = (reported.input?, reported.cached_input?);
        // OpenAI and Gemini store every prompt that is long enough, and do not report it.
        let kept = match reported.cache_write {
            Some(written) => cached.saturating_add(written),
            None => input,
        };
        Some(CachedTurn {
            input,
            cached,
            kept: kept.min(input),
            shows: cached > 0 || reported.cache_write.unwrap_or(0) > 0,
        })
    }
}

/// Whether the cache was missed: less than half of the `expected` tokens came from it, and what is
/// missing is long enough to be cached.
pub fn is_break(expected: u64, cached: u64) -> bool {
    let missed = expected.saturating_sub(cached);
    cached.saturating_mul(2) < expected && missed >= LEAST_TOKENS
}
