//! Destinations of finished calls: metrics, events, the call log, the ledger and the sinks.

use crate::ledger;
use crate::marks::{self, WarmUps};
use crate::output;
use crate::{ProcessError, SystemError};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;
use tokengauge_admin::EventBus;
use tokengauge_config::Config;
use tokengauge_meter::{RecentCalls, Subscriber};
use tokengauge_sink::{SinkQueues, Sinks};
use tokengauge_store::ledger::{Ledger, Reader};
use tokengauge_store::marks::Marks;
use tokengauge_store::scores::Scores;
use tokengauge_telemetry::export::log::{CallLog, Losses, Target};
use tokengauge_telemetry::export::prometheus::Prometheus;
use tokengauge_telemetry::export::slo;

pub(crate) struct FinishedCalls {
    /// The subscribers, in the order in which they receive each finished call.
    pub(crate) subscribers: Vec<Arc<dyn Subscriber>>,
    pub(crate) prometheus: Arc<Prometheus>,
    pub(crate) recent: Arc<RecentCalls>,
    pub(crate) event_bus: Arc<EventBus>,
    pub(crate) ledger: Option<Arc<Ledger>>,
    pub(crate) reader: Option<Arc<Reader>>,
    pub(crate) marks: Arc<Marks>,
    pub(crate) scores: Arc<Scores>,
    pub(crate) sinks: Arc<Sinks>,
}

impl FinishedCalls {
    pub(crate) fn open(
        config: &Config,
        call_log: Option<&Path>,
    ) -> Result<FinishedCalls, ProcessError> {
        let prometheus = exporter(config);
        let recent = RecentCalls::new(config.measure.recent_calls);
        let event_bus = EventBus::new();
        let mut subscribers: Vec<Arc<dyn Subscriber>> =
            vec![prometheus.clone(), recent.clone(), event_bus.clone()];
        if let Some(path) = call_log {
            subscribers.push(open_call_log(path, &prometheus)?);
        }
        let queues = SinkQueues::new(&config.sinks);
        let ledger = ledger::start(config, &prometheus, queues.subscribers())?;
        match &ledger {
            Some(ledger) => subscribers.push(Arc::clone(ledger) as _),
            None => subscribers.extend(queues.subscribers()),
        }
        let reader = ledger.as_deref().map(ledger::reader);
        let marks = marks::open(ledger.clone(), reader.clone(), &prometheus);
        subscribers.push(WarmUps::new(&marks));
        let scores = crate::scores::open(ledger.clone(), &prometheus);
        let sinks = crate::sinks::start(config, &queues, ledger.as_ref(), &prometheus)?;
        Ok(FinishedCalls {
            subscribers,
            prometheus,
            recent,
            event_bus,
            ledger,
            reader,
            marks,
            scores,
            sinks,
        })
    }
}

fn exporter(config: &Config) -> Arc<Prometheus> {
    let thresholds = slo::thresholds(&config.slos);
    let prometheus = Prometheus::with_thresholds(&config.routes, &config.measure, &thresholds);
    prometheus.set_classic_histograms(!config.admin.native_histograms_alone);
    prometheus
}

fn open_call_log(path: &Path, prometheus: &Prometheus) -> Result<Arc<CallLog>, SystemError> {
    let losses = Losses {
        failed: prometheus.export_failures("call_log", "write"),
        dropped: prometheus.export_failures("call_log", "full"),
    };
    let target = match path.to_str() {
        Some("-") => Target::Stream(output::stdout()),
        _ => Target::File(path.to_owned()),
    };
    CallLog::open(target, losses, Instant::now)
        .map_err(|error| SystemError::CallLog(path.to_owned(), error))
}
