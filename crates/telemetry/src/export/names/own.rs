//! What the proxy tells of itself.

use super::{Kind, Metric, Unit, counter, gauge, metric};

const OVERHEAD: &[f64] = &[
    0.000_001, 0.000_002, 0.000_005, 0.000_01, 0.000_02, 0.000_05, 0.000_1, 0.000_2, 0.000_5,
    0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1,
];

/// What the proxy costs.
pub const PROXY_OVERHEAD: Metric = metric(
    "tokengauge_proxy_overhead_seconds",
    Kind::Histogram,
    Unit::Seconds,
    &["phase"],
    OVERHEAD,
    "Time from one socket to the other: of both heads together, and of a call's slowest chunk.",
);
/// Frames forwarded but not measured, for want of time or memory.
pub const METER_LAGGED_FRAMES: Metric = counter(
    "tokengauge_meter_lagged_frames_total",
    Unit::Count,
    &[],
    "Frames forwarded but not measured, for want of time or memory.",
);
/// Bodies forwarded but not measured: over a bound, or the background was full.
pub const METER_SKIPPED_BODIES: Metric = counter(
    "tokengauge_meter_skipped_bodies_total",
    Unit::Count,
    &[],
    "Bodies forwarded but not measured: over a bound, or the background was full.",
);
/// Finished calls that reached no exporter because too many waited.
pub const METER_DROPPED_CALLS: Metric = counter(
    "tokengauge_meter_dropped_calls_total",
    Unit::Count,
    &[],
    "Finished calls that reached no exporter because too many waited.",
);
/// Panics while measuring; each cost one call its measurement.
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
/// Bytes that measuring holds, bounded by `measure.memory_bytes`: bodies, unfinished events,
/// windows and tables of decompressors.
pub const METER_QUEUE_BYTES: Metric = gauge(
    "tokengauge_meter_queue_bytes",
    Unit::Bytes,
    &[],
    "Bytes that measuring holds, bounded by `measure.memory_bytes`: bodies, unfinished events, windows and tables of decompressors.",
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
/// Configurations read again while running: applied, or refused so that the one before stayed.
pub const CONFIG_RELOADS: Metric = counter(
    "tokengauge_config_reloads_total",
    Unit::Count,
    &["result"],
    "Configurations read again while running: applied, or refused so that the one before stayed.",
);
/// How the last one went.
pub const CONFIG_LAST_RELOAD_SUCCESSFUL: Metric = gauge(
    "tokengauge_config_last_reload_successful",
    Unit::Count,
    &[],
    "1 where the last configuration that was read is in use, 0 where it was refused.",
);
/// None could be used at the start.
pub const CONFIG_FALLBACK: Metric = gauge(
    "tokengauge_config_fallback",
    Unit::Count,
    &["calls"],
    "1 where a sidecar's configuration was missing or refused at its start and the fallback is in use, by what becomes of calls: forwarded or refused.",
);
/// When one was taken.
pub const CONFIG_LAST_RELOAD_SUCCESS_SECONDS: Metric = gauge(
    "tokengauge_config_last_reload_success_timestamp_seconds",
    Unit::Seconds,
    &[],
    "When the configuration in use was read, in seconds since 1970.",
);
/// Always 1; the first 16 digits of the SHA-256 of the configuration in use are the label.
pub const CONFIG_INFO: Metric = gauge(
    "tokengauge_config_info",
    Unit::Count,
    &["digest"],
    "Always 1; the first 16 digits of the SHA-256 of the configuration in use are the label.",
);
/// Call records in committed batches of the ledger.
pub const LEDGER_RECORDS: Metric = counter(
    "tokengauge_ledger_records_total",
    Unit::Count,
    &[],
    "Call records in committed batches of the ledger.",
);
/// Call records that the ledger could not take, by reason.
pub const LEDGER_LOST_RECORDS: Metric = counter(
    "tokengauge_ledger_lost_records_total",
    Unit::Count,
    &["reason"],
    "Call records that the ledger could not take, by reason.",
);
/// The bound on names.
pub const LEDGER_COLLAPSED_NAMES: Metric = counter(
    "tokengauge_ledger_collapsed_names_total",
    Unit::Count,
    &[],
    "Names in call records that the ledger keeps as other because too many were seen.",
);
/// Size of the ledger's file and its log.
pub const LEDGER_BYTES: Metric = gauge(
    "tokengauge_ledger_bytes",
    Unit::Bytes,
    &[],
    "Size of the ledger's file and its log.",
);
/// Pods that the webhook saw.
pub const INJECTIONS: Metric = counter(
    "tokengauge_injections_total",
    Unit::Count,
    &["result"],
    "Pods that the injector was asked about: injected, left alone, refused, or unreadable.",
);
/// Always 1; the version is the label.
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
/// User and system CPU time of the process.
pub const PROCESS_CPU_SECONDS: Metric = counter(
    "process_cpu_seconds_total",
    Unit::Seconds,
    &[],
    "User and system CPU time of the process.",
);
/// Resident memory of the process.
pub const PROCESS_RESIDENT_MEMORY: Metric = gauge(
    "process_resident_memory_bytes",
    Unit::Bytes,
    &[],
    "Resident memory of the process.",
);
/// Open file descriptors.
pub const PROCESS_OPEN_FDS: Metric = gauge(
    "process_open_fds",
    Unit::Count,
    &[],
    "Open file descriptors.",
);
/// Threads of the process.
pub const PROCESS_THREADS: Metric = gauge(
    "process_threads",
    Unit::Count,
    &[],
    "Threads of the process.",
);
/// Open connections to the admin address.
pub const ADMIN_CONNECTIONS: Metric = gauge(
    "tokengauge_admin_connections",
    Unit::Count,
    &[],
    "Open connections to the admin address.",
);
/// Connections of operators that were closed.
pub const ADMIN_CONNECTIONS_CLOSED: Metric = counter(
    "tokengauge_admin_connections_closed_total",
    Unit::Count,
    &["reason"],
    "Connections to the admin address that were closed: to make room for others, because no request came or no answer was read in time, or because all others had requests under way.",
);
/// Listeners at /api/v1/events.
pub const EVENT_LISTENERS: Metric = gauge(
    "tokengauge_event_listeners",
    Unit::Count,
    &[],
    "Listeners at /api/v1/events.",
);
/// Who was turned away.
pub const EVENT_LISTENERS_REFUSED: Metric = counter(
    "tokengauge_event_listeners_refused_total",
    Unit::Count,
    &[],
    "Listeners turned away from /api/v1/events because there were too many.",
);
/// Who was too slow.
pub const EVENTS_LOST: Metric = counter(
    "tokengauge_events_lost_total",
    Unit::Count,
    &[],
    "Events at /api/v1/events that listeners were too slow for.",
);
