//! Metrics of the proxy itself.

use super::families;

const OVERHEAD: &[f64] = &[
    0.000_001, 0.000_002, 0.000_005, 0.000_01, 0.000_02, 0.000_05, 0.000_1, 0.000_2, 0.000_5,
    0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1,
];

families! {
    /// Time from one socket to the other: of both heads together, and of a call's slowest chunk.
    PROXY_OVERHEAD: Histogram[Phase] = "tokengauge_proxy_overhead_seconds", Seconds, OVERHEAD;
    /// Chunks forwarded but not measured, for want of time or memory.
    METER_LAGGED_CHUNKS: Counter[] = "tokengauge_meter_lagged_frames_total", Count;
    /// Bodies forwarded but not measured: over a bound, or the background was full.
    METER_SKIPPED_BODIES: Counter[] = "tokengauge_meter_skipped_bodies_total", Count;
    /// Calls whose usage has a number under a name that is not understood; the log names each once.
    METER_UNKNOWN_USAGE: Counter[] = "tokengauge_meter_unknown_usage_total", Count;
    /// Finished calls that reached no exporter because too many waited.
    METER_DROPPED_CALLS: Counter[] = "tokengauge_meter_dropped_calls_total", Count;
    /// Panics while measuring; each cost one call its measurement.
    METER_PANICS: Counter[] = "tokengauge_meter_panics_total", Count;
    /// Panics behind the forwarding that the proxy caught; each cost one call its measurement.
    OBSERVER_PANICS: Counter[] = "tokengauge_observer_panics_total", Count;
    /// Bytes that measuring holds, bounded by `measure.memory_bytes`: bodies, unfinished events,
    /// windows and tables of decompressors.
    METER_QUEUE_BYTES: Gauge[] = "tokengauge_meter_queue_bytes", Bytes;
    /// Calls labelled with the model other because too many models were seen.
    SERIES_COLLAPSED: Counter[] = "tokengauge_series_collapsed_total", Count;
    /// Calls, spans, points or messages about alerts that an exporter could not deliver, or dropped because too many waited.
    EXPORT_FAILURES: Counter[ExportFailure] = "tokengauge_export_failures_total", Count;
    /// Configurations read again while running: applied, or refused so that the one before stayed.
    CONFIG_RELOADS: Counter[ByResult] = "tokengauge_config_reloads_total", Count;
    /// 1 where the last configuration that was read is in use, 0 where it was refused.
    CONFIG_LAST_RELOAD_SUCCESSFUL: Gauge[] = "tokengauge_config_last_reload_successful", Count;
    /// 1 where a sidecar's configuration was missing or refused at its start and the fallback is in
    /// use, by what becomes of calls: forwarded or refused.
    CONFIG_FALLBACK: Gauge[FallbackCalls] = "tokengauge_config_fallback", Count;
    /// When the configuration in use was read, in seconds since 1970.
    CONFIG_LAST_RELOAD_SUCCESS_SECONDS: Gauge[] = "tokengauge_config_last_reload_success_timestamp_seconds", Seconds;
    /// Always 1; the first 16 digits of the SHA-256 of the configuration in use are the label.
    CONFIG_INFO: Gauge[Digest] = "tokengauge_config_info", Count;
    /// Call records in committed batches of the ledger.
    LEDGER_RECORDS: Counter[] = "tokengauge_ledger_records_total", Count;
    /// Seconds from the end of the oldest call of the ledger's last batch until the batch was committed.
    LEDGER_COMMIT_DELAY: Gauge[] = "tokengauge_ledger_commit_delay_seconds", Seconds;
    /// Call records that are not in the ledger: it could not take them, or its file was lost, by reason.
    LEDGER_LOST_RECORDS: Counter[ByReason] = "tokengauge_ledger_lost_records_total", Count;
    /// Names in call records that the ledger keeps as other because too many were seen.
    LEDGER_COLLAPSED_NAMES: Counter[] = "tokengauge_ledger_collapsed_names_total", Count;
    /// Size of the ledger's file and its log.
    LEDGER_BYTES: Gauge[] = "tokengauge_ledger_bytes", Bytes;
    /// 1 while the ledger's file can be written to, 0 while calls are not in it because it cannot.
    LEDGER_WRITABLE: Gauge[] = "tokengauge_ledger_writable", Count;
    /// Marks that were added, by what they are of.
    MARKS: Counter[ByKind] = "tokengauge_marks_total", Count;
    /// Marks that could not be added: the ledger was not writable, or too much waited for it.
    MARKS_LOST: Counter[] = "tokengauge_marks_lost_total", Count;
    /// Calls that wait to be stored by a sink.
    SINK_WAITING: Gauge[BySink] = "tokengauge_sink_waiting_records", Count;
    /// Calls that wait to be stored by a sink and are in memory only: there is no ledger, or it cannot be written.
    SINK_IN_MEMORY: Gauge[BySink] = "tokengauge_sink_in_memory_records", Count;
    /// Seconds since the oldest call ended that waits to be stored by a sink.
    SINK_LAG: Gauge[BySink] = "tokengauge_sink_lag_seconds", Seconds;
    /// Batches that a sink's store has.
    SINK_BATCHES: Counter[BySink] = "tokengauge_sink_batches_total", Count;
    /// Call records that a sink's store has.
    SINK_RECORDS: Counter[BySink] = "tokengauge_sink_records_total", Count;
    /// Batches that a sink's store did not take, by reason; they are sent again.
    SINK_FAILURES: Counter[BySinkReason] = "tokengauge_sink_failures_total", Count;
    /// Call records that never reach a sink's store, by reason.
    SINK_LOST_RECORDS: Counter[BySinkReason] = "tokengauge_sink_lost_records_total", Count;
    /// Requests to the quota store, by whether they were answered or failed.
    QUOTA_STORE_REQUESTS: Counter[ByResult] = "tokengauge_quota_store_requests_total", Count;
    /// Seconds since the last request to the quota store was sent that was answered: how old the leases are.
    QUOTA_STORE_LEASE_AGE: Gauge[] = "tokengauge_quota_store_lease_age_seconds", Seconds;
    /// 1 while limits are decided without the quota store, because it does not answer.
    QUOTA_STORE_FALLBACK: Gauge[] = "tokengauge_quota_store_fallback", Count;
    /// Time in which limits were decided without the quota store.
    QUOTA_STORE_AWAY_SECONDS: Sum[] = "tokengauge_quota_store_away_seconds_total", Seconds;
    /// Decisions of quotas and blocking budgets while the quota store did not answer.
    QUOTA_STORE_FALLBACK_DECISIONS: Counter[] = "tokengauge_quota_store_fallback_decisions_total", Count;
    /// Times that spending counted in this process alone, because too many names were known to share it.
    QUOTA_STORE_UNTRACKED: Counter[] = "tokengauge_quota_store_untracked_total", Count;
    /// Messages about alerts that were due: claimed by this process, delivered by another one, or sent by each process
    /// because the quota store did not answer.
    QUOTA_STORE_ALERTS: Counter[ByResult] = "tokengauge_quota_store_alerts_total", Count;
    /// Alerts of which this process sends the messages, for all that share the quota store.
    QUOTA_STORE_ELECTED: Gauge[] = "tokengauge_quota_store_elected_alerts", Count;
    /// Pods that the injector was asked about: injected, left alone, refused, or unreadable.
    INJECTIONS: Counter[ByResult] = "tokengauge_injections_total", Count;
    /// Always 1; the version is the label.
    BUILD_INFO: Gauge[Version] = "tokengauge_build_info", Count;
    /// Worker threads of the tokio runtime.
    RUNTIME_WORKERS: Gauge[Runtime] = "tokengauge_runtime_workers", Count;
    /// Tasks of the tokio runtime that have not ended.
    RUNTIME_ALIVE_TASKS: Gauge[Runtime] = "tokengauge_runtime_alive_tasks", Count;
    /// Tasks in the shared queue of the tokio runtime.
    RUNTIME_GLOBAL_QUEUE_DEPTH: Gauge[Runtime] = "tokengauge_runtime_global_queue_depth", Count;
    /// User and system CPU time of the process.
    PROCESS_CPU_SECONDS: Sum[] = "process_cpu_seconds_total", Seconds;
    /// Resident memory of the process.
    PROCESS_RESIDENT_MEMORY: Gauge[] = "process_resident_memory_bytes", Bytes;
    /// Open file descriptors.
    PROCESS_OPEN_FDS: Gauge[] = "process_open_fds", Count;
    /// Threads of the process.
    PROCESS_THREADS: Gauge[] = "process_threads", Count;
    /// Idle connections of agents that were closed to make room for others.
    AGENT_IDLE_CONNECTIONS_CLOSED: Counter[] = "tokengauge_agent_idle_connections_closed_total", Count;
    /// HTTP/2 streams of agents that were refused because too many were open.
    AGENT_STREAMS_REFUSED: Counter[] = "tokengauge_agent_streams_refused_total", Count;
    /// Open connections to the admin address.
    ADMIN_CONNECTIONS: Gauge[] = "tokengauge_admin_connections", Count;
    /// Connections to the admin address that were closed: to make room for others, because no request
    /// came or no answer was read in time, or because all others had requests under way.
    ADMIN_CONNECTIONS_CLOSED: Counter[ByReason] = "tokengauge_admin_connections_closed_total", Count;
    /// Listeners at /api/v1/events.
    EVENT_LISTENERS: Gauge[] = "tokengauge_event_listeners", Count;
    /// Listeners turned away from /api/v1/events because there were too many.
    EVENT_LISTENERS_REFUSED: Counter[] = "tokengauge_event_listeners_refused_total", Count;
    /// Events at /api/v1/events that listeners were too slow for.
    EVENTS_LOST: Counter[] = "tokengauge_events_lost_total", Count;
}
