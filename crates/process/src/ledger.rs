//! The ledger of a running proxy: its writer thread, metrics and reader.

use crate::SystemError;
use rustix::time::{ClockId, clock_gettime};
use std::path::Path;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant, SystemTime};
use tokengauge_config::Config;
use tokengauge_files::private as private_file;
use tokengauge_meter::{Meter, Subscriber};
use tokengauge_store::ledger::{Ledger, LedgerMetrics, Limits, Reader, Settings, TIME_LIMIT};
use tokengauge_telemetry::export::prometheus::Prometheus;
use tokengauge_telemetry::export::{labels, names};

/// `unwritten` receives the calls that the ledger cannot write.
pub(crate) fn start(
    config: &Config,
    prometheus: &Prometheus,
    unwritten: Vec<Arc<dyn Subscriber>>,
) -> Result<Option<Arc<Ledger>>, SystemError> {
    let Some(wanted) = &config.ledger else {
        return Ok(None);
    };
    let registry = prometheus.registry();
    let figures = LedgerMetrics::new(
        (
            registry.series(&names::LEDGER_RECORDS, &()),
            registry.series(&names::LEDGER_COMMIT_DELAY, &()),
        ),
        |reason| registry.series(&names::LEDGER_LOST_RECORDS, &labels::ByReason { reason }),
        registry.series(&names::LEDGER_COLLAPSED_NAMES, &()),
        registry.series(&names::LEDGER_BYTES, &()),
        registry.series(&names::LEDGER_WRITABLE, &()),
    );
    let settings = Settings {
        path: wanted.path.clone(),
        limits: Limits {
            age: wanted.retention_age,
            bytes: wanted.retention_bytes,
        },
        sinks: config.sinks.iter().map(|sink| sink.name.clone()).collect(),
        clock: Instant::now,
        wall: SystemTime::now,
    };
    let started = Ledger::start(settings, figures, unwritten);
    let failed = |error| SystemError::Task("start the ledger's thread", error);
    started.map(Some).map_err(failed)
}

/// Why the configured ledger cannot be written to. A proxy would run without it. Leaves nothing behind.
pub fn unwritable(config: &Config) -> Option<String> {
    let path = &config.ledger.as_ref()?.path;
    let folder = path.parent().filter(|folder| *folder != Path::new(""));
    let writable = private_file::check_folder(folder.unwrap_or(Path::new(".")))
        .and_then(|()| private_file::check_append(path));
    let error = writable.err()?;
    let path = path.display();
    Some(format!(
        "ledger {path}: {error}: finished calls cannot be stored; set another path or make this one writable"
    ))
}

pub(crate) fn look(ledger: Option<&Arc<Ledger>>, meter: &Arc<Meter>) {
    if let Some(Err(error)) = ledger.map(|ledger| ledger.look_at(meter)) {
        tracing::error!(%error, "cannot start the ledger's capacity thread, so the ledger records no capacity of upstreams");
    }
}

pub(crate) fn reader(ledger: &Ledger) -> Arc<Reader> {
    ledger.reader(work_clock, TIME_LIMIT)
}

/// A clock that measures the cost of a query: the processor time of the thread plus a tenth of the wall time. A query
/// is therefore not refused because other programs used the processor, and yet no query waits longer than ten times its
/// limit.
pub fn work_clock() -> Instant {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    let spent = clock_gettime(ClockId::ThreadCPUTime);
    let seconds = Duration::try_from(spent).unwrap_or_default();
    *START + seconds + START.elapsed() / 10
}
