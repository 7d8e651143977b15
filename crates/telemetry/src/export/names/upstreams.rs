//! Metrics that upstreams report.

use super::families;

families! {
    /// 1 if the upstream's own metrics can be read. 0 if nothing listens or three consecutive
    /// scrapes failed.
    UPSTREAM_UP: Gauge[Upstream] = "tokengauge_upstream_up", Count;
    /// Always 1. The labels are the facts of the upstream from `[upstream.facts]`; join other
    /// metrics with it on `upstream`.
    UPSTREAM_INFO: Gauge[UpstreamInfo] = "tokengauge_upstream_info", Count;
    /// Open connections to the upstream, including idle ones.
    UPSTREAM_CONNECTIONS: Gauge[Upstream] = "tokengauge_upstream_connections", Count;
    /// Requests that wait for a connection to the upstream because all allowed connections
    /// (`max_connections`, or the upstream's share of the file descriptors) are in use.
    UPSTREAM_PENDING: Gauge[Upstream] = "tokengauge_upstream_pending_requests", Count;
    /// Requests refused with status 503 because no connection to the upstream was free: more than
    /// `max_pending` requests waited, or the request waited too long.
    UPSTREAM_REFUSED: Counter[Upstream] = "tokengauge_upstream_refused_requests_total", Count;
    /// Requests that were retried on a new connection because a reused connection was lost before
    /// any byte of the response arrived (`resend_bytes`).
    UPSTREAM_RESENT: Counter[Upstream] = "tokengauge_upstream_resent_requests_total", Count;
    /// 1 if a call to the upstream would be marked as warm-up now, otherwise 0.
    UPSTREAM_WARMING: Gauge[Upstream] = "tokengauge_upstream_warming", Count;
    /// Requests that wait in the upstream, from the upstream's own metrics.
    UPSTREAM_QUEUE_DEPTH: Gauge[Upstream] = "tokengauge_upstream_queue_depth", Count;
    /// Requests that the upstream is processing, from the upstream's own metrics.
    UPSTREAM_RUNNING: Gauge[Upstream] = "tokengauge_upstream_running", Count;
    /// Share of the upstream's KV cache in use, from the upstream's own metrics. 1 is full.
    UPSTREAM_KV_CACHE: Gauge[Upstream] = "tokengauge_upstream_kv_cache_ratio", Ratio;
    /// Seconds that requests spent in the upstream's queue since the first scrape, from the
    /// upstream's own metrics. Divide it by `tokengauge_upstream_queue_requests_total` for the
    /// average.
    UPSTREAM_QUEUE_SECONDS: Sum[Upstream] = "tokengauge_upstream_queue_seconds_total", Seconds;
    /// Requests that left the upstream's queue since the first scrape, from the upstream's own
    /// metrics.
    UPSTREAM_QUEUE_REQUESTS: Sum[Upstream] = "tokengauge_upstream_queue_requests_total", Count;
    /// Seconds of prefill in the upstream since the first scrape, from the upstream's own metrics.
    /// Divide it by `tokengauge_upstream_prefill_requests_total` for the average.
    UPSTREAM_PREFILL_SECONDS: Sum[Upstream] = "tokengauge_upstream_prefill_seconds_total", Seconds;
    /// Requests (batches with TGI) that the upstream prefilled since the first scrape, from the
    /// upstream's own metrics.
    UPSTREAM_PREFILL_REQUESTS: Sum[Upstream] = "tokengauge_upstream_prefill_requests_total", Count;
    /// Failed scrapes of the upstream's own metrics, by reason.
    UPSTREAM_SCRAPE_FAILURES: Counter[UpstreamReason] = "tokengauge_upstream_scrape_failures_total", Count;
}
