//! Metrics of agents' sessions.

use super::families;

families! {
    /// Session turns whose prompt should have come from the provider's cache but did not, by cause:
    /// other_model, other_upstream, idle, prefix_changed, evicted.
    PROMPT_CACHE_BREAKS: Counter[ByCause] = "tokengauge_prompt_cache_breaks_total", Count;
    /// Additional cost in US dollars of prompts that should have come from the provider's cache but
    /// did not, if their price is known.
    PROMPT_CACHE_BREAK_USD: Sum[ByCause] = "tokengauge_prompt_cache_break_usd_total", Dollars;
    /// Sessions that are running away now, by reason: tokens, dollars, same_tool_call.
    RUNAWAY_SESSIONS: Gauge[ByReason] = "tokengauge_runaway_sessions", Count;
    /// Sessions that started to run away, by reason. A session with several initial reasons counts once
    /// for each of them.
    RUNAWAY_SESSIONS_FOUND: Counter[ByReason] = "tokengauge_runaway_sessions_found_total", Count;
    /// Sessions and conversations that are no longer watched for prompt-cache breaks and runaways
    /// because there were too many.
    SESSIONS_FORGOTTEN: Counter[] = "tokengauge_sessions_forgotten_total", Count;
}
