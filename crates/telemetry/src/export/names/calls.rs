//! Metrics of calls: requests, tokens, speed, cost.

use super::families;
use tokengauge_meter::INTER_TOKEN_BOUNDS;

/// The bounds of vLLM, so that panels line up.
const FIRST_TOKEN: &[f64] = &[
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
    20.0, 40.0, 80.0, 160.0, 640.0, 2560.0,
];
const SPEED: &[f64] = &[
    1.0, 2.0, 5.0, 10.0, 15.0, 20.0, 25.0, 30.0, 40.0, 50.0, 60.0, 75.0, 100.0, 125.0, 150.0,
    200.0, 250.0, 300.0, 400.0, 500.0, 750.0, 1000.0, 2000.0, 5000.0,
];
const DURATION: &[f64] = &[
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0,
    480.0, 960.0, 1920.0, 7680.0,
];
const RATIO: &[f64] = &[
    0.25, 0.5, 0.75, 0.9, 0.95, 1.0, 1.05, 1.1, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0,
];

families! {
    /// Calls that ended, by outcome, whether the answer was streamed, status class and operation
    /// class: generation, embedding, retrieve (a stored object is read) or other.
    REQUESTS: Counter[Request] = "tokengauge_requests_total", Count;
    /// Seconds from the request head to the first chunk with generated text, by class of prompt
    /// length.
    TIME_TO_FIRST_TOKEN: Histogram[ModelContext] = "tokengauge_time_to_first_token_seconds", Seconds, FIRST_TOKEN;
    /// Seconds from the last byte of the request to the first chunk with generated text.
    TIME_TO_FIRST_TOKEN_UPSTREAM: Histogram[Model] = "tokengauge_time_to_first_token_upstream_seconds", Seconds, FIRST_TOKEN;
    /// Seconds from the request head to the first chunk with text other than reasoning.
    TIME_TO_FIRST_ANSWER: Histogram[Model] = "tokengauge_time_to_first_answer_seconds", Seconds, FIRST_TOKEN;
    /// Decode speed of a call in output tokens per second, without prefill, by the number of
    /// streams in flight on the upstream when the call began.
    OUTPUT_TOKENS_PER_SECOND: Histogram[ModelConcurrency] = "tokengauge_output_tokens_per_second", TokensPerSecond, SPEED;
    /// Decode speed of a call in output tokens per second as counted by the provider. Compare it
    /// with benchmarks that use the reported usage.
    REPORTED_TOKENS_PER_SECOND: Histogram[Model] = "tokengauge_reported_output_tokens_per_second", TokensPerSecond, SPEED;
    /// Seconds between chunks with tokens, divided by the number of tokens in the later chunk and
    /// counted once per token.
    INTER_TOKEN_LATENCY: Histogram[Model] = "tokengauge_inter_token_latency_seconds", Seconds, &INTER_TOKEN_BOUNDS;
    /// Average seconds per output token of a call: the reciprocal of its decode speed.
    TIME_PER_OUTPUT_TOKEN: Histogram[Model] = "tokengauge_time_per_output_token_seconds", Seconds, &INTER_TOKEN_BOUNDS;
    /// Seconds from the request head to the end of the response.
    REQUEST_DURATION: Histogram[ModelOutcome] = "tokengauge_request_duration_seconds", Seconds, DURATION;
    /// Tokens. Counted output tokens are added as they arrive; input tokens and reported tokens are
    /// added when the call ends. The direction cached_input is a part of input. The channel is any
    /// if it is not reported. Counted minus retracted output equals the output in call records.
    TOKENS: Counter[ModelTokens] = "tokengauge_tokens_total", Tokens;
    /// Tokens of prompts by the count of the proxy, by the part of the prompt: system,
    /// tool_schemas, user, assistant, reasoning, tool_calls, tool_results or other. Only prompts
    /// that were analyzed count.
    PROMPT_TOKENS: Counter[ModelPromptPart] = "tokengauge_prompt_tokens_total", Tokens;
    /// Output tokens after the first chunk, of calls with a decode speed. Divided by
    /// tokengauge_decode_seconds_total, this is the average decode speed.
    DECODE_TOKENS: Counter[Model] = "tokengauge_decode_tokens_total", Tokens;
    /// Seconds from the first to the last chunk with tokens, of calls with a decode speed.
    DECODE_SECONDS: Sum[Model] = "tokengauge_decode_seconds_total", Seconds;
    /// Calls without a decode speed, by reason.
    TPS_UNAVAILABLE: Counter[ModelReason] = "tokengauge_tps_unavailable_total", Count;
    /// Generations and embeddings whose tokens are unknown because the answer could not be parsed.
    UNPARSED_CALLS: Counter[Model] = "tokengauge_unparsed_calls_total", Count;
    /// Gaps between chunks with tokens that exceeded the stall threshold.
    STALLS: Counter[Model] = "tokengauge_stalls_total", Count;
    /// Calls whose output repeats the same text of at most 256 tokens for at least 350 tokens.
    REPEATING_CALLS: Counter[Model] = "tokengauge_repeating_calls_total", Count;
    /// Output tokens that only repeat the text before them, in calls that repeat themselves.
    REPEATED_TOKENS: Counter[Model] = "tokengauge_repeated_tokens_total", Count;
    /// Reported output tokens divided by normalised output tokens of a complete call.
    TOKEN_RATIO: Histogram[Model] = "tokengauge_token_ratio", Ratio, RATIO;
    /// Calls in progress.
    STREAMS_IN_FLIGHT: Gauge[Route] = "tokengauge_streams_in_flight", Count;
    /// Calls in progress whose last token arrived longer ago than the stall threshold.
    STREAMS_STALLED: Gauge[Route] = "tokengauge_streams_stalled", Count;
    /// Output tokens per second of all streams over 10 seconds that ended up to 3 seconds ago, by
    /// arrival time. Answers that are not streamed are left out.
    OUTPUT_TOKENS_PER_SECOND_NOW: Gauge[Model] = "tokengauge_output_tokens_per_second_now", TokensPerSecond;
    /// Highest 10-second average of output tokens per second in the last 5 minutes, for this
    /// upstream, route, model and workload. For the peak of several series, use
    /// `max_over_time(sum(tokengauge_output_tokens_per_second_now)[5m:])`.
    OUTPUT_TOKENS_PER_SECOND_PEAK: Gauge[Model] = "tokengauge_output_tokens_per_second_peak", TokensPerSecond;
    /// Average output tokens per second of all streams in the last 5 minutes, or since the first
    /// call if that is less.
    OUTPUT_TOKENS_PER_SECOND_SUSTAINED: Gauge[Model] = "tokengauge_output_tokens_per_second_sustained", TokensPerSecond;
    /// Cost in US dollars of calls with a known price, by source of the token counts and source of
    /// the price (list, configured, gpu).
    COST_USD: Sum[ModelCost] = "tokengauge_cost_usd_total", Dollars;
    /// Billed output tokens of generations with a known cost: reported, otherwise counted. Divide
    /// the cost of generations by it for the cost per output token.
    PRICED_OUTPUT_TOKENS: Counter[Model] = "tokengauge_priced_output_tokens_total", Tokens;
    /// Calls refused because the route exceeded its limit of requests per minute.
    RATE_LIMITED: Counter[Route] = "tokengauge_rate_limited_total", Count;
}
