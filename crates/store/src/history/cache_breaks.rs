use super::timed_call::TimedCall;
use crate::query::{CacheBreakCause, CacheBreakSums, CacheBreaks};

/// The prompt-cache misses of `calls` by their cause.
pub fn cache_breaks<'a>(calls: impl Iterator<Item = TimedCall<'a>>) -> Vec<CacheBreaks> {
    let mut sums = CacheBreakSums::default();
    for call in calls {
        let Some(missed) = call.record.cache_break.as_deref() else {
            continue;
        };
        sums.add(CacheBreaks {
            of: CacheBreakCause {
                agent: call.record.agent.clone(),
                cause: missed.cause,
                section: missed.section.clone(),
                change: missed.change.clone(),
            },
            calls: 1,
            tokens: missed.tokens,
            cost_usd: missed.cost_usd,
            first_at: call.record.started_at,
            last_at: call.record.started_at,
        });
    }
    sums.rows()
}
