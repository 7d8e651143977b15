//! What upstreams tell of themselves.

use super::{Metric, Unit, counter, gauge};

/// The upstream's own view.
pub const UPSTREAM_UP: Metric = gauge(
    "tokengauge_upstream_up",
    Unit::Count,
    &["upstream"],
    "1 where the upstream's own metrics can be read, 0 where nobody listens or three readings in a row failed.",
);
/// What an upstream is, for joins.
pub const UPSTREAM_INFO: Metric = gauge(
    "tokengauge_upstream_info",
    Unit::Count,
    &[
        "upstream",
        "hardware",
        "quantization",
        "batch_size",
        "engine",
        "engine_version",
        "model_version",
    ],
    "1, with what `[upstream.facts]` says of the upstream as labels: to be joined by `upstream`.",
);
/// Descriptors that the upstream costs.
pub const UPSTREAM_CONNECTIONS: Metric = gauge(
    "tokengauge_upstream_connections",
    Unit::Count,
    &["upstream"],
    "Connections that are open to the upstream, idle ones included.",
);
/// An upstream at its limit.
pub const UPSTREAM_PENDING: Metric = gauge(
    "tokengauge_upstream_pending_requests",
    Unit::Count,
    &["upstream"],
    "Requests that wait for a connection to the upstream because all that may be open (`max_connections`, or its share of the descriptors) are in use.",
);
/// An upstream beyond its limit.
pub const UPSTREAM_REFUSED: Metric = counter(
    "tokengauge_upstream_refused_requests_total",
    Unit::Count,
    &["upstream"],
    "Requests refused with 503 because no connection to the upstream was free: more than `max_pending` waited, or one waited too long.",
);
/// 1 where a call to the upstream would be marked as warm-up now, 0 where not.
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
pub const UPSTREAM_QUEUE_SECONDS: Metric = counter(
    "tokengauge_upstream_queue_seconds_total",
    Unit::Seconds,
    &["upstream"],
    "Seconds that requests spent in the upstream's queue, by its own metrics, since they were first read; over `tokengauge_upstream_queue_requests_total` it is the mean.",
);
/// Who waited so long.
pub const UPSTREAM_QUEUE_REQUESTS: Metric = counter(
    "tokengauge_upstream_queue_requests_total",
    Unit::Count,
    &["upstream"],
    "Requests that left the upstream's queue, by its own metrics, since they were first read.",
);
/// The upstream's share of TTFT, while it reads the prompt.
pub const UPSTREAM_PREFILL_SECONDS: Metric = counter(
    "tokengauge_upstream_prefill_seconds_total",
    Unit::Seconds,
    &["upstream"],
    "Seconds of prefill in the upstream, by its own metrics, since they were first read; over `tokengauge_upstream_prefill_requests_total` it is the mean.",
);
/// Whose prompts they were.
pub const UPSTREAM_PREFILL_REQUESTS: Metric = counter(
    "tokengauge_upstream_prefill_requests_total",
    Unit::Count,
    &["upstream"],
    "Requests that were prefilled in the upstream (batches with TGI), by its own metrics, since they were first read.",
);
/// What could not be read.
pub const UPSTREAM_SCRAPE_FAILURES: Metric = counter(
    "tokengauge_upstream_scrape_failures_total",
    Unit::Count,
    &["upstream", "reason"],
    "Times the upstream's own metrics could not be read, by reason.",
);
