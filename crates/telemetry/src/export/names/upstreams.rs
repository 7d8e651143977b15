//! Metrics that upstreams report.

use super::families;

families! {
    /// 1 where the upstream's own metrics can be read, 0 where nothing listens or three readings in a
    /// row failed.
    UPSTREAM_UP: Gauge[Upstream] = "tokengauge_upstream_up", Count;
    /// 1, with what `[upstream.facts]` says of the upstream as labels: to be joined by `upstream`.
    UPSTREAM_INFO: Gauge[UpstreamInfo] = "tokengauge_upstream_info", Count;
    /// Connections that are open to the upstream, idle ones included.
    UPSTREAM_CONNECTIONS: Gauge[Upstream] = "tokengauge_upstream_connections", Count;
    /// Requests that wait for a connection to the upstream because all that may be open
    /// (`max_connections`, or its share of the descriptors) are in use.
    UPSTREAM_PENDING: Gauge[Upstream] = "tokengauge_upstream_pending_requests", Count;
    /// Requests refused with 503 because no connection to the upstream was free: more than
    /// `max_pending` waited, or one waited too long.
    UPSTREAM_REFUSED: Counter[Upstream] = "tokengauge_upstream_refused_requests_total", Count;
    /// Requests that were sent once more, over a new connection, because a reused one was lost before any of the response
    /// came (`resend_bytes`).
    UPSTREAM_RESENT: Counter[Upstream] = "tokengauge_upstream_resent_requests_total", Count;
    /// 1 where a call to the upstream would be marked as warm-up now, 0 where not.
    UPSTREAM_WARMING: Gauge[Upstream] = "tokengauge_upstream_warming", Count;
    /// Requests that wait in the upstream, by its own metrics.
    UPSTREAM_QUEUE_DEPTH: Gauge[Upstream] = "tokengauge_upstream_queue_depth", Count;
    /// Requests that the upstream works on, by its own metrics.
    UPSTREAM_RUNNING: Gauge[Upstream] = "tokengauge_upstream_running", Count;
    /// Share of the upstream's KV cache that is in use, by its own metrics; 1 is full.
    UPSTREAM_KV_CACHE: Gauge[Upstream] = "tokengauge_upstream_kv_cache_ratio", Ratio;
    /// Seconds that requests spent in the upstream's queue, by its own metrics, since they were first
    /// read; over `tokengauge_upstream_queue_requests_total` it is the mean.
    UPSTREAM_QUEUE_SECONDS: Sum[Upstream] = "tokengauge_upstream_queue_seconds_total", Seconds;
    /// Requests that left the upstream's queue, by its own metrics, since they were first read.
    UPSTREAM_QUEUE_REQUESTS: Sum[Upstream] = "tokengauge_upstream_queue_requests_total", Count;
    /// Seconds of prefill in the upstream, by its own metrics, since they were first read; over
    /// `tokengauge_upstream_prefill_requests_total` it is the mean.
    UPSTREAM_PREFILL_SECONDS: Sum[Upstream] = "tokengauge_upstream_prefill_seconds_total", Seconds;
    /// Requests that were prefilled in the upstream (batches with TGI), by its own metrics, since
    /// they were first read.
    UPSTREAM_PREFILL_REQUESTS: Sum[Upstream] = "tokengauge_upstream_prefill_requests_total", Count;
    /// Times the upstream's own metrics could not be read, by reason.
    UPSTREAM_SCRAPE_FAILURES: Counter[UpstreamReason] = "tokengauge_upstream_scrape_failures_total", Count;
}
