//! What calls tell: requests, tokens, speed, cost.

use super::{Kind, MODEL, Metric, Unit, counter, gauge, metric};
use tokengauge_meter::INTER_TOKEN_BOUNDS;

/// vLLM's, so that panels line up.
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

/// Calls, by how they ended.
pub const REQUESTS: Metric = counter(
    "tokengauge_requests_total",
    Unit::Count,
    &[
        "upstream",
        "route",
        "model",
        "workload",
        "outcome",
        "streamed",
        "status",
        "operation_class",
    ],
    "Calls that ended, by outcome, whether the answer was streamed, class of status, and class of operation: generation, embedding, retrieve (something stored is read), other.",
);
/// What the agent felt.
pub const TIME_TO_FIRST_TOKEN: Metric = metric(
    "tokengauge_time_to_first_token_seconds",
    Kind::Histogram,
    Unit::Seconds,
    &["upstream", "route", "model", "workload", "context"],
    FIRST_TOKEN,
    "From the request head to the first frame with generated text, by length of the prompt.",
);
/// The backend's share of it.
pub const TIME_TO_FIRST_TOKEN_UPSTREAM: Metric = metric(
    "tokengauge_time_to_first_token_upstream_seconds",
    Kind::Histogram,
    Unit::Seconds,
    MODEL,
    FIRST_TOKEN,
    "From the last byte of the request to the first frame with generated text.",
);
/// From the request head to the first frame with text other than reasoning.
pub const TIME_TO_FIRST_ANSWER: Metric = metric(
    "tokengauge_time_to_first_answer_seconds",
    Kind::Histogram,
    Unit::Seconds,
    MODEL,
    FIRST_TOKEN,
    "From the request head to the first frame with text other than reasoning.",
);
/// Decode speed of a call, prefill excluded, by streams in flight on its upstream when it began.
pub const OUTPUT_TOKENS_PER_SECOND: Metric = metric(
    "tokengauge_output_tokens_per_second",
    Kind::Histogram,
    Unit::TokensPerSecond,
    &["upstream", "route", "model", "workload", "concurrency"],
    SPEED,
    "Decode speed of a call, prefill excluded, by streams in flight on its upstream when it began.",
);
/// The same in the provider's tokens.
pub const REPORTED_TOKENS_PER_SECOND: Metric = metric(
    "tokengauge_reported_output_tokens_per_second",
    Kind::Histogram,
    Unit::TokensPerSecond,
    MODEL,
    SPEED,
    "Decode speed of a call in the tokens that the provider reports, as benchmarks count them that go by usage.",
);
/// Gap before a frame over its tokens, counted once for each of them.
pub const INTER_TOKEN_LATENCY: Metric = metric(
    "tokengauge_inter_token_latency_seconds",
    Kind::Histogram,
    Unit::Seconds,
    MODEL,
    &INTER_TOKEN_BOUNDS,
    "Gap before a frame over its tokens, counted once for each of them.",
);
/// One over the decode speed of a call.
pub const TIME_PER_OUTPUT_TOKEN: Metric = metric(
    "tokengauge_time_per_output_token_seconds",
    Kind::Histogram,
    Unit::Seconds,
    MODEL,
    &INTER_TOKEN_BOUNDS,
    "One over the decode speed of a call.",
);
/// From the request head to the end of the response.
pub const REQUEST_DURATION: Metric = metric(
    "tokengauge_request_duration_seconds",
    Kind::Histogram,
    Unit::Seconds,
    &["upstream", "route", "model", "workload", "outcome"],
    DURATION,
    "From the request head to the end of the response.",
);
/// Tokens as they come.
pub const TOKENS: Metric = counter(
    "tokengauge_tokens_total",
    Unit::Tokens,
    &[
        "upstream",
        "route",
        "model",
        "workload",
        "direction",
        "channel",
        "source",
    ],
    "Tokens: counted output as it arrives, reported and input tokens when the call ends; cached_input is part of input; channel is any where nobody tells it.",
);
/// Tokens after the first frame of calls that have a decode speed; over decode_seconds_total it
/// is the mean speed of the fleet.
pub const DECODE_TOKENS: Metric = counter(
    "tokengauge_decode_tokens_total",
    Unit::Tokens,
    MODEL,
    "Tokens after the first frame of calls that have a decode speed; over decode_seconds_total it is the mean speed of the fleet.",
);
/// Seconds from the first frame with tokens to the last of calls that have a decode speed.
pub const DECODE_SECONDS: Metric = counter(
    "tokengauge_decode_seconds_total",
    Unit::Seconds,
    MODEL,
    "Seconds from the first frame with tokens to the last of calls that have a decode speed.",
);
/// A wrong number is worse than none.
pub const TPS_UNAVAILABLE: Metric = counter(
    "tokengauge_tps_unavailable_total",
    Unit::Count,
    &["upstream", "route", "model", "workload", "reason"],
    "Calls without a decode speed, by reason.",
);
/// Gaps over the threshold.
pub const STALLS: Metric = counter(
    "tokengauge_stalls_total",
    Unit::Count,
    MODEL,
    "Gaps between frames with tokens over the stall threshold.",
);
/// Drift of the provider's tokenizer.
pub const TOKEN_RATIO: Metric = metric(
    "tokengauge_token_ratio",
    Kind::Histogram,
    Unit::Ratio,
    MODEL,
    RATIO,
    "Reported over normalised output tokens of complete calls.",
);
/// Calls under way.
pub const STREAMS_IN_FLIGHT: Metric = gauge(
    "tokengauge_streams_in_flight",
    Unit::Count,
    &["upstream", "route"],
    "Calls under way.",
);
/// Calls under way whose last token is longer ago than the stall threshold.
pub const STREAMS_STALLED: Metric = gauge(
    "tokengauge_streams_stalled",
    Unit::Count,
    &["upstream", "route"],
    "Calls under way whose last token is longer ago than the stall threshold.",
);
/// Output tokens of streams over the last 10 seconds that are measured, up to 3 seconds ago, by
/// the second in which they came; whole answers are left out.
pub const OUTPUT_TOKENS_PER_SECOND_NOW: Metric = gauge(
    "tokengauge_output_tokens_per_second_now",
    Unit::TokensPerSecond,
    MODEL,
    "Output tokens of streams over the last 10 seconds that are measured, up to 3 seconds ago, by the second in which they came; whole answers are left out.",
);
/// The best of the recent past.
pub const OUTPUT_TOKENS_PER_SECOND_PEAK: Metric = gauge(
    "tokengauge_output_tokens_per_second_peak",
    Unit::TokensPerSecond,
    MODEL,
    "Largest of that over 10 seconds on end within the last 5 minutes, of this series: the peak of several is that of their sum, `max_over_time(sum(tokengauge_output_tokens_per_second_now)[5m:])`.",
);
/// The mean of the recent past.
pub const OUTPUT_TOKENS_PER_SECOND_SUSTAINED: Metric = gauge(
    "tokengauge_output_tokens_per_second_sustained",
    Unit::TokensPerSecond,
    MODEL,
    "Mean of that over the last 5 minutes, or since the first call where that is less.",
);
/// Cost of calls whose price is known, in US dollars, by where their token counts come from and
/// whose price it is (list, configured, gpu).
pub const COST_USD: Metric = counter(
    "tokengauge_cost_usd_total",
    Unit::Dollars,
    &[
        "upstream",
        "route",
        "model",
        "workload",
        "operation_class",
        "source",
        "price",
    ],
    "Cost of calls whose price is known, in US dollars, by where their token counts come from and whose price it is (list, configured, gpu).",
);
/// What the cost of a million tokens is over.
pub const PRICED_OUTPUT_TOKENS: Metric = counter(
    "tokengauge_priced_output_tokens_total",
    Unit::Tokens,
    MODEL,
    "Output tokens of generations whose cost is known, as they are billed: reported, else counted. Cost per million output tokens is the cost of generations over it.",
);
/// Calls refused by the limit of requests per minute.
pub const RATE_LIMITED: Metric = counter(
    "tokengauge_rate_limited_total",
    Unit::Count,
    &["upstream", "route"],
    "Calls refused by the limit of requests per minute.",
);
