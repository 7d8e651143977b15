//! Evaluates `[[gate]]` entries in the background of a running proxy and exports the verdicts as gauges.

use crate::periodic::Periodic;
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};
use std::time::Duration;
use strum::IntoEnumIterator;
use tokengauge_admin::{Gates, Services};
use tokengauge_config::Config;
use tokengauge_gate::{Asked, Gate, GateVerdict, evaluate_calls};
use tokengauge_store::stored_calls::StoredCalls;
use tokengauge_telemetry::export::registry::Registry;
use tokengauge_telemetry::export::{labels, names};

/// Delay of the first evaluation, because the ledger may still have to be created.
const FIRST_AFTER: Duration = Duration::from_secs(5);
const EVERY: Duration = Duration::from_secs(60);

struct Evaluation {
    calls: StoredCalls,
    services: Services,
    last: Mutex<HashMap<String, GateVerdict>>,
}

pub(crate) fn start(services: &Services) -> Option<Periodic> {
    let evaluation = Evaluation {
        calls: services.call_source.stored()?.clone(),
        services: services.clone(),
        last: Mutex::default(),
    };
    Some(Periodic::start("gates", FIRST_AFTER, EVERY, move || {
        evaluation.run()
    }))
}

impl Evaluation {
    fn run(&self) {
        let registry = self.services.prometheus.registry();
        let failures = registry.series(&names::GATE_FAILURES, &());
        let configured = self.services.verdicts.gates.load_full();
        if configured.gates.is_empty() && self.last.lock().is_empty() {
            return;
        }
        let names: HashSet<&str> = configured.gates.iter().map(|gate| &*gate.name).collect();
        registry.retain(|labels| labels.of("gate").is_none_or(|gate| names.contains(gate)));
        self.last
            .lock()
            .retain(|name, _| names.contains(name.as_str()));
        for gate in &configured.gates {
            let verdict = self.verdict(gate, &configured);
            if verdict.is_none() {
                failures.increment(1);
            }
            export(
                registry,
                &gate.name,
                verdict.unwrap_or(GateVerdict::Inconclusive),
            );
        }
    }

    /// Returns the verdict of a gate and appends it to the verdict log if it has changed. `None` if the ledger does not
    /// answer.
    fn verdict(&self, gate: &Gate, configured: &Gates) -> Option<GateVerdict> {
        let now = (self.services.wall)();
        let asked = Asked {
            now,
            since: None,
            config_sha256: configured.digest.clone(),
        };
        let report = evaluate_calls(gate, &asked, &self.calls);
        let report = match report {
            Ok(report) => report,
            Err(error) => {
                tracing::warn!(%error, gate = %gate.name, "a gate cannot be evaluated");
                return None;
            }
        };
        let last = self.last.lock().insert(gate.name.clone(), report.verdict);
        if last != Some(report.verdict) {
            let (audit, clock) = (&self.services.verdicts.gate_audit, (self.services.clock)());
            audit.note(&report, "gauge", false, clock);
        }
        Some(report.verdict)
    }
}

pub(crate) fn configured(config: &Config) -> Gates {
    Gates {
        gates: config.gates.clone(),
        digest: config.digest.clone(),
    }
}

/// Sets the gauges of a gate. At most one of them is 1 at any time.
fn export(registry: &Registry, gate: &str, verdict: GateVerdict) {
    let set = |one: GateVerdict, value: f64| {
        let verdict = one.into();
        let labels = labels::GateVerdictLabels { gate, verdict };
        registry.series(&names::GATE_VERDICT, &labels).set(value);
    };
    let others = GateVerdict::iter().filter(|one| *one != verdict);
    others.for_each(|one| set(one, 0.0));
    set(verdict, 1.0);
}
