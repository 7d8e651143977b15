//! Metrics of agents' sessions.

use super::families;

families! {
    /// Turns of sessions whose prompt should have come from the provider's cache and did not, by the
    /// probable cause: other_model, other_upstream, idle, prefix_changed.
    PROMPT_CACHE_BREAKS: Counter[ByCause] = "tokengauge_prompt_cache_breaks_total", Count;
    /// What those turns cost more than they would have from the cache, where their price is known.
    PROMPT_CACHE_BREAK_USD: Sum[ByCause] = "tokengauge_prompt_cache_break_usd_total", Dollars;
    /// Sessions that run away now, by each reason: tokens, dollars, same_tool_call.
    RUNAWAY_SESSIONS: Gauge[ByReason] = "tokengauge_runaway_sessions", Count;
    /// Sessions that began to run away, by each reason that they began with.
    RUNAWAY_SESSIONS_FOUND: Counter[ByReason] = "tokengauge_runaway_sessions_found_total", Count;
    /// Sessions and conversations of agents that are not followed any more, for breaks and runaways,
    /// because there were too many.
    SESSIONS_FORGOTTEN: Counter[] = "tokengauge_sessions_forgotten_total", Count;
}
