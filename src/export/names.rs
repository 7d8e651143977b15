//! The one table of metrics: names, kinds, labels, buckets, help. Both exporters, the
//! rules, the dashboards' test and the reference in the README read it.

use crate::meter::INTER_TOKEN_BOUNDS;

/// How a metric behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Only rises.
    Counter,
    /// Rises and falls.
    Gauge,
    /// Counts observations by size.
    Histogram,
}

/// What a metric is measured in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// A number of things.
    Count,
    /// Seconds.
    Seconds,
    /// Bytes.
    Bytes,
    /// Tokens.
    Tokens,
    /// Tokens per second.
    TokensPerSecond,
    /// A ratio; 1 is equal.
    Ratio,
    /// US dollars.
    Dollars,
}

impl Unit {
    /// The word for it at the end of a name; `None` where things are counted.
    fn word(self) -> Option<&'static str> {
        match self {
            Unit::Count => None,
            Unit::Seconds => Some("seconds"),
            Unit::Bytes => Some("bytes"),
            Unit::Tokens => Some("tokens"),
            Unit::TokensPerSecond => Some("tokens_per_second"),
            Unit::Ratio => Some("ratio"),
            Unit::Dollars => Some("usd"),
        }
    }
}

/// One metric.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Metric {
    /// Its name, prefix included.
    pub name: &'static str,
    /// How it behaves.
    pub kind: Kind,
    /// What it is measured in.
    pub unit: Unit,
    /// Its labels.
    pub labels: &'static [&'static str],
    /// Upper bounds of a histogram's buckets, ascending; empty for the others.
    pub buckets: &'static [f64],
    /// One sentence.
    pub help: &'static str,
}

impl Metric {
    /// The unit, where the name ends with it: only then may OpenMetrics tell it.
    pub fn unit_in_name(&self) -> Option<&'static str> {
        let family = self.name.trim_end_matches("_total");
        let before = |word: &&str| family.strip_suffix(word).is_some_and(|b| b.ends_with('_'));
        self.unit.word().filter(before)
    }
}

/// The upper bounds of a histogram's buckets: those of the table and `more`, ascending.
pub fn buckets(metric: &Metric, more: &[f64]) -> Vec<f64> {
    let usable = more.iter().filter(|bound| bound.is_finite());
    let mut bounds: Vec<f64> = metric.buckets.iter().chain(usable).copied().collect();
    bounds.sort_by(f64::total_cmp);
    bounds.dedup();
    bounds
}

const fn counter(
    name: &'static str,
    unit: Unit,
    labels: &'static [&'static str],
    help: &'static str,
) -> Metric {
    metric(name, Kind::Counter, unit, labels, &[], help)
}

const fn gauge(
    name: &'static str,
    unit: Unit,
    labels: &'static [&'static str],
    help: &'static str,
) -> Metric {
    metric(name, Kind::Gauge, unit, labels, &[], help)
}

const fn metric(
    name: &'static str,
    kind: Kind,
    unit: Unit,
    labels: &'static [&'static str],
    buckets: &'static [f64],
    help: &'static str,
) -> Metric {
    Metric {
        name,
        kind,
        unit,
        labels,
        buckets,
        help,
    }
}

/// The labels of what is known per model.
pub(crate) const MODEL: &[&str] = &["upstream", "route", "model", "workload"];

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
const OVERHEAD: &[f64] = &[
    0.000_001, 0.000_002, 0.000_005, 0.000_01, 0.000_02, 0.000_05, 0.000_1, 0.000_2, 0.000_5,
    0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1,
];

/// Calls, by how they ended.
pub const REQUESTS: Metric = counter(
    "tokengauge_requests_total",
    Unit::Count,
    &[
        "upstream", "route", "model", "workload", "outcome", "streamed", "status",
    ],
    "Calls that ended, by outcome, whether the answer was streamed, and class of status.",
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
/// After reasoning.
pub const TIME_TO_FIRST_ANSWER: Metric = metric(
    "tokengauge_time_to_first_answer_seconds",
    Kind::Histogram,
    Unit::Seconds,
    MODEL,
    FIRST_TOKEN,
    "From the request head to the first frame with text other than reasoning.",
);
/// The TPS.
pub const OUTPUT_TOKENS_PER_SECOND: Metric = metric(
    "tokengauge_output_tokens_per_second",
    Kind::Histogram,
    Unit::TokensPerSecond,
    &["upstream", "route", "model", "workload", "concurrency"],
    SPEED,
    "Decode speed of a call, prefill excluded, by streams in flight on its upstream when it began.",
);
/// Token-weighted.
pub const INTER_TOKEN_LATENCY: Metric = metric(
    "tokengauge_inter_token_latency_seconds",
    Kind::Histogram,
    Unit::Seconds,
    MODEL,
    &INTER_TOKEN_BOUNDS,
    "Gap before a frame over its tokens, counted once for each of them.",
);
/// Request-weighted.
pub const TIME_PER_OUTPUT_TOKEN: Metric = metric(
    "tokengauge_time_per_output_token_seconds",
    Kind::Histogram,
    Unit::Seconds,
    MODEL,
    &INTER_TOKEN_BOUNDS,
    "One over the decode speed of a call.",
);
/// End to end.
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
/// For fleet means.
pub const DECODE_TOKENS: Metric = counter(
    "tokengauge_decode_tokens_total",
    Unit::Tokens,
    MODEL,
    "Tokens after the first frame of calls that have a decode speed; over decode_seconds_total it is the mean speed of the fleet.",
);
/// For fleet means.
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
/// Concurrency.
pub const STREAMS_IN_FLIGHT: Metric = gauge(
    "tokengauge_streams_in_flight",
    Unit::Count,
    &["upstream", "route"],
    "Calls under way.",
);
/// Silence.
pub const STREAMS_STALLED: Metric = gauge(
    "tokengauge_streams_stalled",
    Unit::Count,
    &["upstream", "route"],
    "Calls under way whose last token is longer ago than the stall threshold.",
);
/// System throughput.
pub const OUTPUT_TOKENS_PER_SECOND_NOW: Metric = gauge(
    "tokengauge_output_tokens_per_second_now",
    Unit::TokensPerSecond,
    MODEL,
    "Output tokens of all streams over the last 10 seconds, as they arrived.",
);
/// The best of the recent past.
pub const OUTPUT_TOKENS_PER_SECOND_PEAK: Metric = gauge(
    "tokengauge_output_tokens_per_second_peak",
    Unit::TokensPerSecond,
    MODEL,
    "Largest throughput of all streams over 10 seconds on end within the last 5 minutes.",
);
/// The mean of the recent past.
pub const OUTPUT_TOKENS_PER_SECOND_SUSTAINED: Metric = gauge(
    "tokengauge_output_tokens_per_second_sustained",
    Unit::TokensPerSecond,
    MODEL,
    "Mean throughput of all streams over the last 5 minutes, or since the start where that is less.",
);
/// What calls cost.
pub const COST_USD: Metric = counter(
    "tokengauge_cost_usd_total",
    Unit::Dollars,
    &["upstream", "route", "model", "workload", "source"],
    "Cost of calls whose price is known, in US dollars, by where their token counts come from.",
);
/// Our own limit.
pub const RATE_LIMITED: Metric = counter(
    "tokengauge_rate_limited_total",
    Unit::Count,
    &["upstream", "route"],
    "Calls refused by the limit of requests per minute.",
);
/// The upstream's own view.
pub const UPSTREAM_UP: Metric = gauge(
    "tokengauge_upstream_up",
    Unit::Count,
    &["upstream"],
    "1 where the upstream's own metrics could be read last time, 0 where not.",
);
/// Cold caches.
pub const UPSTREAM_WARMING: Metric = gauge(
    "tokengauge_upstream_warming",
    Unit::Count,
    &["upstream"],
    "1 where a call to the upstream would be marked as warm-up now, 0 where not.",
);
/// The upstream's own view.
pub const UPSTREAM_QUEUE_DEPTH: Metric = gauge(
    "tokengauge_upstream_queue_depth",
    Unit::Count,
    &["upstream"],
    "Requests that wait in the upstream, by its own metrics.",
);
/// The upstream's own view.
pub const UPSTREAM_RUNNING: Metric = gauge(
    "tokengauge_upstream_running",
    Unit::Count,
    &["upstream"],
    "Requests that the upstream works on, by its own metrics.",
);
/// The upstream's own view.
pub const UPSTREAM_KV_CACHE: Metric = gauge(
    "tokengauge_upstream_kv_cache_ratio",
    Unit::Ratio,
    &["upstream"],
    "Share of the upstream's KV cache that is in use, by its own metrics; 1 is full.",
);
/// The upstream's share of TTFT, before it begins.
pub const UPSTREAM_QUEUE_SECONDS: Metric = gauge(
    "tokengauge_upstream_queue_seconds",
    Unit::Seconds,
    &["upstream"],
    "Mean time in the upstream's queue, by its own metrics, since they were read before.",
);
/// The upstream's share of TTFT, while it reads the prompt.
pub const UPSTREAM_PREFILL_SECONDS: Metric = gauge(
    "tokengauge_upstream_prefill_seconds",
    Unit::Seconds,
    &["upstream"],
    "Mean time of prefill in the upstream, by its own metrics, since they were read before.",
);
/// What could not be read.
pub const UPSTREAM_SCRAPE_FAILURES: Metric = counter(
    "tokengauge_upstream_scrape_failures_total",
    Unit::Count,
    &["upstream", "reason"],
    "Times the upstream's own metrics could not be read, by reason.",
);
/// What the proxy costs.
pub const PROXY_OVERHEAD: Metric = metric(
    "tokengauge_proxy_overhead_seconds",
    Kind::Histogram,
    Unit::Seconds,
    &["phase"],
    OVERHEAD,
    "Time from one socket to the other: of both heads together, and of a call's slowest chunk.",
);
/// Not measured.
pub const METER_LAGGED_FRAMES: Metric = counter(
    "tokengauge_meter_lagged_frames_total",
    Unit::Count,
    &[],
    "Frames forwarded but not measured, for want of time or memory.",
);
/// Not measured.
pub const METER_SKIPPED_BODIES: Metric = counter(
    "tokengauge_meter_skipped_bodies_total",
    Unit::Count,
    &[],
    "Bodies forwarded but not measured: over a bound, or the background was full.",
);
/// Not recorded.
pub const METER_DROPPED_CALLS: Metric = counter(
    "tokengauge_meter_dropped_calls_total",
    Unit::Count,
    &[],
    "Finished calls that reached no exporter because too many waited.",
);
/// Our own mistakes.
pub const METER_PANICS: Metric = counter(
    "tokengauge_meter_panics_total",
    Unit::Count,
    &[],
    "Panics while measuring; each cost one call its measurement.",
);
/// Our own mistakes, seen from the forwarding side.
pub const OBSERVER_PANICS: Metric = counter(
    "tokengauge_observer_panics_total",
    Unit::Count,
    &[],
    "Panics behind the forwarding that the proxy caught; each cost one call its measurement.",
);
/// Memory held.
pub const METER_QUEUE_BYTES: Metric = gauge(
    "tokengauge_meter_queue_bytes",
    Unit::Bytes,
    &[],
    "Bytes of bodies held for measuring.",
);
/// The bound on models.
pub const SERIES_COLLAPSED: Metric = counter(
    "tokengauge_series_collapsed_total",
    Unit::Count,
    &[],
    "Calls labelled with the model other because too many models were seen.",
);
/// What an exporter lost.
pub const EXPORT_FAILURES: Metric = counter(
    "tokengauge_export_failures_total",
    Unit::Count,
    &["exporter", "reason"],
    "Calls, spans or points that an exporter could not deliver, or dropped because too many waited.",
);
/// Which build runs.
pub const BUILD_INFO: Metric = gauge(
    "tokengauge_build_info",
    Unit::Count,
    &["version"],
    "Always 1; the version is the label.",
);
/// Threads of a runtime.
pub const RUNTIME_WORKERS: Metric = gauge(
    "tokengauge_runtime_workers",
    Unit::Count,
    &["runtime"],
    "Worker threads of the tokio runtime.",
);
/// Tasks of a runtime.
pub const RUNTIME_ALIVE_TASKS: Metric = gauge(
    "tokengauge_runtime_alive_tasks",
    Unit::Count,
    &["runtime"],
    "Tasks of the tokio runtime that have not ended.",
);
/// Tasks that wait for a thread.
pub const RUNTIME_GLOBAL_QUEUE_DEPTH: Metric = gauge(
    "tokengauge_runtime_global_queue_depth",
    Unit::Count,
    &["runtime"],
    "Tasks in the shared queue of the tokio runtime.",
);
/// The promises, event by event.
pub const SLO_EVENTS: Metric = counter(
    "tokengauge_slo_events_total",
    Unit::Count,
    &["slo", "verdict", "reason"],
    "Events of an objective, calls or tokens or slices of time, by verdict and reason.",
);
/// What is promised.
pub const SLO_OBJECTIVE_RATIO: Metric = gauge(
    "tokengauge_slo_objective_ratio",
    Unit::Ratio,
    &["slo"],
    "The share of events that is promised to be good.",
);
/// What is left.
pub const SLO_ERROR_BUDGET_REMAINING: Metric = gauge(
    "tokengauge_slo_error_budget_remaining_ratio",
    Unit::Ratio,
    &["slo"],
    "What is left of the error budget by this process's own counts: 1 untouched, 0 spent, below 0 overspent.",
);
/// How fast it goes.
pub const SLO_BURN_RATE: Metric = gauge(
    "tokengauge_slo_burn_rate",
    Unit::Ratio,
    &["slo", "window"],
    "How fast the error budget is spent by this process's own counts; 1 spends it exactly.",
);
/// CPU time.
pub const PROCESS_CPU_SECONDS: Metric = counter(
    "process_cpu_seconds_total",
    Unit::Seconds,
    &[],
    "User and system CPU time of the process.",
);
/// Resident memory.
pub const PROCESS_RESIDENT_MEMORY: Metric = gauge(
    "process_resident_memory_bytes",
    Unit::Bytes,
    &[],
    "Resident memory of the process.",
);
/// Open files.
pub const PROCESS_OPEN_FDS: Metric = gauge(
    "process_open_fds",
    Unit::Count,
    &[],
    "Open file descriptors.",
);
/// Threads.
pub const PROCESS_THREADS: Metric = gauge(
    "process_threads",
    Unit::Count,
    &[],
    "Threads of the process.",
);

/// Every metric there is.
pub const ALL: &[Metric] = &[
    REQUESTS,
    TIME_TO_FIRST_TOKEN,
    TIME_TO_FIRST_TOKEN_UPSTREAM,
    TIME_TO_FIRST_ANSWER,
    OUTPUT_TOKENS_PER_SECOND,
    INTER_TOKEN_LATENCY,
    TIME_PER_OUTPUT_TOKEN,
    REQUEST_DURATION,
    TOKENS,
    DECODE_TOKENS,
    DECODE_SECONDS,
    TPS_UNAVAILABLE,
    STALLS,
    TOKEN_RATIO,
    COST_USD,
    STREAMS_IN_FLIGHT,
    STREAMS_STALLED,
    OUTPUT_TOKENS_PER_SECOND_NOW,
    OUTPUT_TOKENS_PER_SECOND_PEAK,
    OUTPUT_TOKENS_PER_SECOND_SUSTAINED,
    RATE_LIMITED,
    UPSTREAM_UP,
    UPSTREAM_WARMING,
    UPSTREAM_QUEUE_DEPTH,
    UPSTREAM_RUNNING,
    UPSTREAM_KV_CACHE,
    UPSTREAM_QUEUE_SECONDS,
    UPSTREAM_PREFILL_SECONDS,
    UPSTREAM_SCRAPE_FAILURES,
    PROXY_OVERHEAD,
    METER_LAGGED_FRAMES,
    METER_SKIPPED_BODIES,
    METER_DROPPED_CALLS,
    METER_PANICS,
    OBSERVER_PANICS,
    METER_QUEUE_BYTES,
    SERIES_COLLAPSED,
    EXPORT_FAILURES,
    BUILD_INFO,
    RUNTIME_WORKERS,
    RUNTIME_ALIVE_TASKS,
    RUNTIME_GLOBAL_QUEUE_DEPTH,
    SLO_EVENTS,
    SLO_OBJECTIVE_RATIO,
    SLO_ERROR_BUDGET_REMAINING,
    SLO_BURN_RATE,
    PROCESS_CPU_SECONDS,
    PROCESS_RESIDENT_MEMORY,
    PROCESS_OPEN_FDS,
    PROCESS_THREADS,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_the_rules_that_promtool_checks() {
        for metric in ALL {
            let (name, counter) = (metric.name, metric.kind == Kind::Counter);
            assert!(
                name.starts_with("tokengauge_") || name.starts_with("process_"),
                "{name}"
            );
            assert_eq!(name.ends_with("_total"), counter, "{name}");
            let base = name.trim_end_matches("_total");
            assert_eq!(
                base.ends_with("_seconds"),
                metric.unit == Unit::Seconds,
                "{name}"
            );
            assert_eq!(
                base.ends_with("_bytes"),
                metric.unit == Unit::Bytes,
                "{name}"
            );
            assert!(metric.help.ends_with('.'), "{name}");
            assert!(!metric.help.contains(['\\', '"', '\n']), "{name}");
            assert_eq!(
                ALL.iter().filter(|other| other.name == name).count(),
                1,
                "{name}"
            );
        }
    }

    #[test]
    fn every_histogram_has_ascending_buckets_and_nothing_else_has_any() {
        for metric in ALL {
            let histogram = metric.kind == Kind::Histogram;
            assert_eq!(!metric.buckets.is_empty(), histogram, "{}", metric.name);
            assert!(
                metric.buckets.is_sorted_by(|one, next| one < next),
                "{}",
                metric.name
            );
        }
    }
}
