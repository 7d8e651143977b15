//! Metrics of the analysis of prompts.

use super::families;

families! {
    /// Calls whose prompt was not analyzed because the background queue was full, memory was short, or
    /// the request was too large.
    ANALYSIS_SKIPPED_CALLS: Counter[] = "tokengauge_analysis_skipped_calls_total", Count;
    /// Messages, definitions of tools, conversations and failed requests that the analysis of prompts
    /// forgot because its memory was full.
    ANALYSIS_FORGOTTEN: Counter[] = "tokengauge_analysis_forgotten_total", Count;
    /// Bytes that the analysis of prompts holds, bounded by `analysis.memory_bytes`.
    ANALYSIS_BYTES: Gauge[] = "tokengauge_analysis_bytes", Bytes;
    /// Share of input tokens from a prompt cache since the start, by cache: `provider` as reported, and
    /// simulated caches of 1M tokens, 10M tokens and infinite size.
    PROMPT_CACHE_POTENTIAL: Gauge[ByCache] = "tokengauge_prompt_cache_potential_ratio", Ratio;
}
