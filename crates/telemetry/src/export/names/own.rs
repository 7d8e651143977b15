//! Metrics of the proxy itself.

use super::families;

const OVERHEAD: &[f64] = &[
    0.000_001, 0.000_002, 0.000_005, 0.000_01, 0.000_02, 0.000_05, 0.000_1, 0.000_2, 0.000_5,
    0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1,
];

families! {
    /// Seconds that the proxy adds between its sockets: for the request head and response head
    /// together, and for the slowest chunk of a call.
    PROXY_OVERHEAD: Histogram[Phase] = "tokengauge_proxy_overhead_seconds", Seconds, OVERHEAD;
    /// Chunks that were forwarded but not measured because of a lack of time or memory.
    METER_LAGGED_CHUNKS: Counter[] = "tokengauge_meter_lagged_frames_total", Count;
    /// Bodies that were forwarded but not measured because they exceeded a limit or the background
    /// queue was full.
    METER_SKIPPED_BODIES: Counter[] = "tokengauge_meter_skipped_bodies_total", Count;
    /// Calls whose usage contains a number under an unknown name. The log reports each name once.
    METER_UNKNOWN_USAGE: Counter[] = "tokengauge_meter_unknown_usage_total", Count;
    /// Texts of answers that were not searched for repetitions to their end, because memory was short
    /// or a response had more than 8 at once.
    METER_UNSEARCHED_TEXTS: Counter[] = "tokengauge_meter_unsearched_texts_total", Count;
    /// Finished calls that were dropped before they were recorded, because the queue was full.
    METER_DROPPED_CALLS: Counter[] = "tokengauge_meter_dropped_calls_total", Count;
    /// Panics while measuring. Each panic lost the measurement of one call.
    METER_PANICS: Counter[] = "tokengauge_meter_panics_total", Count;
    /// Panics in observers of a call that the proxy caught. Each panic lost the measurement of one
    /// call.
    OBSERVER_PANICS: Counter[] = "tokengauge_observer_panics_total", Count;
    /// Bytes held for measuring, bounded by `measure.memory_bytes`: bodies, unfinished events,
    /// decompression windows and tables.
    METER_QUEUE_BYTES: Gauge[] = "tokengauge_meter_queue_bytes", Bytes;
    /// Calls that have the model label `other` because too many models were seen.
    SERIES_COLLAPSED: Counter[] = "tokengauge_series_collapsed_total", Count;
    /// Calls, spans, data points or alert messages that an exporter could not deliver or dropped
    /// because its queue was full.
    EXPORT_FAILURES: Counter[ExportFailure] = "tokengauge_export_failures_total", Count;
    /// Configuration reloads, by result: applied, or refused so that the previous configuration
    /// stayed in use.
    CONFIG_RELOADS: Counter[ByResult] = "tokengauge_config_reloads_total", Count;
    /// 1 if the last configuration that was read is in use, 0 if it was refused.
    CONFIG_LAST_RELOAD_SUCCESSFUL: Gauge[] = "tokengauge_config_last_reload_successful", Count;
    /// 1 if a sidecar uses the fallback because its configuration was missing or refused at
    /// startup, by how it handles calls: forwarded or refused.
    CONFIG_FALLBACK: Gauge[FallbackCalls] = "tokengauge_config_fallback", Count;
    /// Time at which the configuration in use was read, in seconds since 1970.
    CONFIG_LAST_RELOAD_SUCCESS_SECONDS: Gauge[] = "tokengauge_config_last_reload_success_timestamp_seconds", Seconds;
    /// Always 1. The label is the first 16 digits of the SHA-256 of the configuration in use.
    CONFIG_INFO: Gauge[Digest] = "tokengauge_config_info", Count;
    /// Call records in committed batches of the ledger.
    LEDGER_RECORDS: Counter[] = "tokengauge_ledger_records_total", Count;
    /// Seconds from the end of the oldest call in the ledger's last batch until the batch was
    /// committed.
    LEDGER_COMMIT_DELAY: Gauge[] = "tokengauge_ledger_commit_delay_seconds", Seconds;
    /// Call records that are missing from the ledger because it could not store them or its file
    /// was lost, by reason.
    LEDGER_LOST_RECORDS: Counter[ByReason] = "tokengauge_ledger_lost_records_total", Count;
    /// Names in call records that the ledger stored as `other` because too many were seen.
    LEDGER_COLLAPSED_NAMES: Counter[] = "tokengauge_ledger_collapsed_names_total", Count;
    /// Size in bytes of the ledger's file and write-ahead log.
    LEDGER_BYTES: Gauge[] = "tokengauge_ledger_bytes", Bytes;
    /// 1 while the ledger's file can be written to, 0 while calls are not stored in it.
    LEDGER_WRITABLE: Gauge[] = "tokengauge_ledger_writable", Count;
    /// Marks that were added, by kind.
    MARKS: Counter[ByKind] = "tokengauge_marks_total", Count;
    /// Marks that could not be added because the ledger was not writable or its queue was full.
    MARKS_LOST: Counter[] = "tokengauge_marks_lost_total", Count;
    /// Scores from outside that were stored, by name of the score. After 50 names, the others are `other`.
    SCORES: Counter[ByScore] = "tokengauge_scores_total", Count;
    /// Requests with scores that were refused, by reason: `invalid`, `too_many` or `too_large`.
    SCORES_REJECTED: Counter[ByReason] = "tokengauge_score_requests_rejected_total", Count;
    /// Scores that could not be stored because the ledger was not writable or its queue was full.
    SCORES_LOST: Counter[] = "tokengauge_scores_lost_total", Count;
    /// Call records that wait for delivery to the sink.
    SINK_WAITING: Gauge[BySink] = "tokengauge_sink_waiting_records", Count;
    /// Call records that wait for delivery to the sink and exist only in memory, because there is
    /// no ledger or it cannot be written.
    SINK_IN_MEMORY: Gauge[BySink] = "tokengauge_sink_in_memory_records", Count;
    /// Age in seconds of the oldest call that has not been delivered to the sink.
    SINK_LAG: Gauge[BySink] = "tokengauge_sink_lag_seconds", Seconds;
    /// Batches that were delivered to the sink.
    SINK_BATCHES: Counter[BySink] = "tokengauge_sink_batches_total", Count;
    /// Call records that were delivered to the sink.
    SINK_RECORDS: Counter[BySink] = "tokengauge_sink_records_total", Count;
    /// Batches that could not be delivered to the sink and will be retried, by reason.
    SINK_FAILURES: Counter[BySinkReason] = "tokengauge_sink_failures_total", Count;
    /// Call records that will never be delivered to the sink, by reason.
    SINK_LOST_RECORDS: Counter[BySinkReason] = "tokengauge_sink_lost_records_total", Count;
    /// Requests to the quota store, by result: answered or failed.
    QUOTA_STORE_REQUESTS: Counter[ByResult] = "tokengauge_quota_store_requests_total", Count;
    /// Age in seconds of the leases: time since the last answered request to the quota store was
    /// sent.
    QUOTA_STORE_LEASE_AGE: Gauge[] = "tokengauge_quota_store_lease_age_seconds", Seconds;
    /// 1 while limits are decided without the quota store because it does not respond, otherwise 0.
    QUOTA_STORE_FALLBACK: Gauge[] = "tokengauge_quota_store_fallback", Count;
    /// Seconds in which limits were decided without the quota store, by how: the value of
    /// `quota_store.on_error`, or shadow, which refuses nothing.
    QUOTA_STORE_AWAY_SECONDS: Sum[QuotaStoreOnError] = "tokengauge_quota_store_away_seconds_total", Seconds;
    /// Decisions of quotas and blocking budgets while the quota store did not respond.
    QUOTA_STORE_FALLBACK_DECISIONS: Counter[] = "tokengauge_quota_store_fallback_decisions_total", Count;
    /// Times that spending was counted only in this process because too many names were known to
    /// share it.
    QUOTA_STORE_UNTRACKED: Counter[] = "tokengauge_quota_store_untracked_total", Count;
    /// Alert messages that were due, by result: claimed by this process, delivered by another
    /// process, or sent by each process because the quota store did not respond.
    QUOTA_STORE_ALERTS: Counter[ByResult] = "tokengauge_quota_store_alerts_total", Count;
    /// Alerts whose messages this process sends for all processes that share the quota store.
    QUOTA_STORE_ELECTED: Gauge[] = "tokengauge_quota_store_elected_alerts", Count;
    /// Pods that the injector was asked about, by result: injected, left alone, refused, or
    /// unreadable.
    INJECTIONS: Counter[ByResult] = "tokengauge_injections_total", Count;
    /// Always 1. The label is the version of tokengauge.
    BUILD_INFO: Gauge[Version] = "tokengauge_build_info", Count;
    /// Worker threads of the tokio runtime.
    RUNTIME_WORKERS: Gauge[Runtime] = "tokengauge_runtime_workers", Count;
    /// Tasks of the tokio runtime that are alive.
    RUNTIME_ALIVE_TASKS: Gauge[Runtime] = "tokengauge_runtime_alive_tasks", Count;
    /// Tasks in the shared queue of the tokio runtime.
    RUNTIME_GLOBAL_QUEUE_DEPTH: Gauge[Runtime] = "tokengauge_runtime_global_queue_depth", Count;
    /// User and system CPU time of the process in seconds.
    PROCESS_CPU_SECONDS: Sum[] = "process_cpu_seconds_total", Seconds;
    /// Resident memory of the process in bytes.
    PROCESS_RESIDENT_MEMORY: Gauge[] = "process_resident_memory_bytes", Bytes;
    /// Open file descriptors of the process.
    PROCESS_OPEN_FDS: Gauge[] = "process_open_fds", Count;
    /// The largest number of file descriptors that the process may have open.
    PROCESS_MAX_FDS: Gauge[] = "process_max_fds", Count;
    /// When the process started, in seconds since 1970 (Unix time).
    PROCESS_START_TIME: Gauge[] = "process_start_time_seconds", Seconds;
    /// Threads of the process.
    PROCESS_THREADS: Gauge[] = "process_threads", Count;
    /// Idle agent connections that were closed to make room for others.
    AGENT_IDLE_CONNECTIONS_CLOSED: Counter[] = "tokengauge_agent_idle_connections_closed_total", Count;
    /// HTTP/2 streams of agents that were refused because too many streams were open.
    AGENT_STREAMS_REFUSED: Counter[] = "tokengauge_agent_streams_refused_total", Count;
    /// Open connections to the admin address.
    ADMIN_CONNECTIONS: Gauge[] = "tokengauge_admin_connections", Count;
    /// Connections to the admin address that were closed, by reason. The reasons: to make room for
    /// others, a request or the reading of a response that took too long, or requests in progress
    /// on all other connections.
    ADMIN_CONNECTIONS_CLOSED: Counter[ByReason] = "tokengauge_admin_connections_closed_total", Count;
    /// Clients that listen to /api/v1/events.
    EVENT_LISTENERS: Gauge[] = "tokengauge_event_listeners", Count;
    /// Clients that were refused at /api/v1/events because there were too many listeners.
    EVENT_LISTENERS_REFUSED: Counter[] = "tokengauge_event_listeners_refused_total", Count;
    /// Events at /api/v1/events that were dropped because a listener was too slow.
    EVENTS_LOST: Counter[] = "tokengauge_events_lost_total", Count;
}
