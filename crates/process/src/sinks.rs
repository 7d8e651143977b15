use crate::ProcessError;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use tokengauge_config::Config;
use tokengauge_sink::{AnySink, Origin, SinkMetrics, SinkQueues, Sinks};
use tokengauge_store::ledger::Ledger;
use tokengauge_telemetry::export::otlp;
use tokengauge_telemetry::export::prometheus::Prometheus;
use tokengauge_telemetry::export::{labels, names};

/// Time limit for one read of the ledger. It is long, because a sink's thread may have to wait for a core.
const READ_WITHIN: Duration = Duration::from_secs(60);

pub(crate) fn start(
    config: &Config,
    queues: &SinkQueues,
    ledger: Option<&Arc<Ledger>>,
    prometheus: &Prometheus,
) -> Result<Arc<Sinks>, ProcessError> {
    // Sinks do not use the API's reader, whose connections are reserved for short interactive queries.
    let ledger = ledger.map(|ledger| {
        let reader = ledger.reader(Instant::now, READ_WITHIN);
        (Arc::clone(ledger), reader)
    });
    let metrics = |sink: &str| metrics(prometheus, sink);
    let (settings, wall) = (&config.sinks, SystemTime::now);
    let sinks = Sinks::start(settings, queues, ledger, &origin(), metrics, wall);
    sinks
        .map(Arc::new)
        .map_err(|error| ProcessError::Configuration(error.to_string()))
}

/// Checks that the settings of the sinks can be used. Does not connect.
pub(crate) fn check(config: &Config) -> Result<(), ProcessError> {
    let origin = origin();
    let mut sinks = config.sinks.iter();
    sinks
        .try_for_each(|sink| AnySink::named(sink, &origin).map(drop))
        .map_err(|error| ProcessError::Configuration(error.to_string()))
}

/// This proxy process, as the origin of the calls in sinks, identified by the attributes that OTLP uses.
pub fn origin() -> Origin {
    let variables = |name: &str| std::env::var(name).ok();
    let attribute = |key| otlp::resource_attribute(&variables, key);
    Origin {
        cluster: attribute("k8s.cluster.name"),
        namespace: attribute("k8s.namespace.name"),
        pod: attribute("k8s.pod.name"),
        instance: attribute("service.instance.id").or_else(host),
    }
}

/// The host name, used if nothing else names the process.
fn host() -> Option<String> {
    let name = rustix::system::uname();
    Some(name.nodename().to_string_lossy().into_owned())
}

fn metrics(prometheus: &Prometheus, sink: &str) -> SinkMetrics {
    let registry = prometheus.registry();
    let labels = labels::BySink { sink };
    SinkMetrics::new(
        (
            registry.series(&names::SINK_WAITING, &labels),
            registry.series(&names::SINK_IN_MEMORY, &labels),
            registry.series(&names::SINK_LAG, &labels),
        ),
        (
            registry.series(&names::SINK_BATCHES, &labels),
            registry.series(&names::SINK_RECORDS, &labels),
        ),
        |reason| {
            registry.series(
                &names::SINK_FAILURES,
                &labels::BySinkReason { sink, reason },
            )
        },
        |reason| {
            let labels = labels::BySinkReason { sink, reason };
            registry.series(&names::SINK_LOST_RECORDS, &labels)
        },
    )
}
