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
    /// Calls that ended, by outcome, whether the answer was streamed, class of status, and class of
    /// operation: generation, embedding, retrieve (something stored is read), other.
    REQUESTS: Counter[Request] = "tokengauge_requests_total", Count;
    /// From the request head to the first chunk with generated text, by length of the prompt.
    TIME_TO_FIRST_TOKEN: Histogram[ModelContext] = "tokengauge_time_to_first_token_seconds", Seconds, FIRST_TOKEN;
    /// From the last byte of the request to the first chunk with generated text.
    TIME_TO_FIRST_TOKEN_UPSTREAM: Histogram[Model] = "tokengauge_time_to_first_token_upstream_seconds", Seconds, FIRST_TOKEN;
    /// From the request head to the first chunk with text other than reasoning.
    TIME_TO_FIRST_ANSWER: Histogram[Model] = "tokengauge_time_to_first_answer_seconds", Seconds, FIRST_TOKEN;
    /// Decode speed of a call, prefill excluded, by streams in flight on its upstream when it began.
    OUTPUT_TOKENS_PER_SECOND: Histogram[ModelConcurrency] = "tokengauge_output_tokens_per_second", TokensPerSecond, SPEED;
    /// Decode speed of a call in the tokens that the provider reports, as benchmarks count them that
    /// go by usage.
    REPORTED_TOKENS_PER_SECOND: Histogram[Model] = "tokengauge_reported_output_tokens_per_second", TokensPerSecond, SPEED;
    /// Gap before a chunk over its tokens, counted once for each of them.
    INTER_TOKEN_LATENCY: Histogram[Model] = "tokengauge_inter_token_latency_seconds", Seconds, &INTER_TOKEN_BOUNDS;
    /// One over the decode speed of a call.
    TIME_PER_OUTPUT_TOKEN: Histogram[Model] = "tokengauge_time_per_output_token_seconds", Seconds, &INTER_TOKEN_BOUNDS;
    /// From the request head to the end of the response.
    REQUEST_DURATION: Histogram[ModelOutcome] = "tokengauge_request_duration_seconds", Seconds, DURATION;
    /// Tokens: counted output as it arrives, reported and input tokens when the call ends;
    /// cached_input is part of input; channel is any where it is not reported. Counted minus
    /// retracted output is what the records have.
    TOKENS: Counter[ModelTokens] = "tokengauge_tokens_total", Tokens;
    /// Tokens after the first chunk of calls that have a decode speed; over decode_seconds_total it
    /// is the mean speed of the fleet.
    DECODE_TOKENS: Counter[Model] = "tokengauge_decode_tokens_total", Tokens;
    /// Seconds from the first chunk with tokens to the last of calls that have a decode speed.
    DECODE_SECONDS: Sum[Model] = "tokengauge_decode_seconds_total", Seconds;
    /// Calls without a decode speed, by reason.
    TPS_UNAVAILABLE: Counter[ModelReason] = "tokengauge_tps_unavailable_total", Count;
    /// Generations and embeddings whose answer could not be read, so that its tokens are not known.
    UNPARSED_CALLS: Counter[Model] = "tokengauge_unparsed_calls_total", Count;
    /// Gaps between chunks with tokens over the stall threshold.
    STALLS: Counter[Model] = "tokengauge_stalls_total", Count;
    /// Reported over normalised output tokens of complete calls.
    TOKEN_RATIO: Histogram[Model] = "tokengauge_token_ratio", Ratio, RATIO;
    /// Calls under way.
    STREAMS_IN_FLIGHT: Gauge[Route] = "tokengauge_streams_in_flight", Count;
    /// Calls under way whose last token is longer ago than the stall threshold.
    STREAMS_STALLED: Gauge[Route] = "tokengauge_streams_stalled", Count;
    /// Output tokens of streams over the last 10 seconds that are measured, up to 3 seconds ago, by
    /// the second in which they came; whole answers are left out.
    OUTPUT_TOKENS_PER_SECOND_NOW: Gauge[Model] = "tokengauge_output_tokens_per_second_now", TokensPerSecond;
    /// Largest of that over 10 seconds on end within the last 5 minutes, of this series: the peak of
    /// several is that of their sum,
    /// `max_over_time(sum(tokengauge_output_tokens_per_second_now)[5m:])`.
    OUTPUT_TOKENS_PER_SECOND_PEAK: Gauge[Model] = "tokengauge_output_tokens_per_second_peak", TokensPerSecond;
    /// Mean of that over the last 5 minutes, or since the first call where that is less.
    OUTPUT_TOKENS_PER_SECOND_SUSTAINED: Gauge[Model] = "tokengauge_output_tokens_per_second_sustained", TokensPerSecond;
    /// Cost of calls whose price is known, in US dollars, by where their token counts come from and
    /// whose price it is (list, configured, gpu).
    COST_USD: Sum[ModelCost] = "tokengauge_cost_usd_total", Dollars;
    /// Output tokens of generations whose cost is known, as they are billed: reported, else counted.
    /// Cost per million output tokens is the cost of generations over it.
    PRICED_OUTPUT_TOKENS: Counter[Model] = "tokengauge_priced_output_tokens_total", Tokens;
    /// Calls refused by the limit of requests per minute.
    RATE_LIMITED: Counter[Route] = "tokengauge_rate_limited_total", Count;
}
