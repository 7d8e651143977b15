//! Reports which configuration is in use, in metrics and health checks.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use tokengauge_admin::{Readiness, Running};
use tokengauge_config::Config;
use tokengauge_telemetry::export::prometheus::Prometheus;
use tokengauge_telemetry::export::registry::{Counter, Gauge};
use tokengauge_telemetry::export::{labels, names};

pub(crate) struct Reloads {
    prometheus: Arc<Prometheus>,
    readiness: Arc<Readiness>,
    pub(crate) applied: Counter,
    pub(crate) refused: Counter,
    successful: Gauge,
    at: Gauge,
    digest: String,
}

impl Reloads {
    pub(crate) fn new(
        prometheus: &Arc<Prometheus>,
        readiness: &Arc<Readiness>,
        config: &Config,
    ) -> Reloads {
        let registry = prometheus.registry();
        let reloads =
            |result| registry.series(&names::CONFIG_RELOADS, &labels::ByResult { result });
        let mut status = Reloads {
            prometheus: Arc::clone(prometheus),
            readiness: Arc::clone(readiness),
            applied: reloads("applied"),
            refused: reloads("refused"),
            successful: registry.series(&names::CONFIG_LAST_RELOAD_SUCCESSFUL, &()),
            at: registry.series(&names::CONFIG_LAST_RELOAD_SUCCESS_SECONDS, &()),
            digest: String::new(),
        };
        status.runs(&config.digest);
        status
    }

    pub(crate) fn runs(&mut self, digest: &str) {
        let registry = self.prometheus.registry();
        let labels = labels::Digest { digest };
        registry.series(&names::CONFIG_INFO, &labels).set(1.0);
        if self.digest != digest {
            let before = labels::Digest {
                digest: &self.digest,
            };
            registry.forget(&names::CONFIG_INFO, &before);
            digest.clone_into(&mut self.digest);
        }
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        self.at.set(since.unwrap_or_default().as_secs_f64());
        self.is(Running::Configured);
    }

    pub(crate) fn is(&self, running: Running) {
        let successful = running == Running::Configured;
        self.successful.set(f64::from(u8::from(successful)));
        let registry = self.prometheus.registry();
        for (calls, of) in [
            ("forwarded", Running::Fallback),
            ("refused", Running::Refusing),
        ] {
            let labels = labels::FallbackCalls { calls };
            let gauge = registry.series(&names::CONFIG_FALLBACK, &labels);
            gauge.set(f64::from(u8::from(running == of)));
        }
        self.readiness.runs_by(running);
    }
}
