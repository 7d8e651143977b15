//! Evaluates `[[drift]]` in the background of a running proxy.

use crate::admin::{Admin, Drifts};
use crate::config::Config;
use crate::drift::{Entry, Settings, SignalName, State, evaluate};
use crate::export::registry::Registry;
use crate::export::{labels, names};
use crate::ledger::Reader;
use arc_swap::ArcSwap;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

/// How often it is evaluated. The ledger has distributions by hour, so that more often says little more.
const EVERY: Duration = Duration::from_secs(300);
/// How long an evaluation of all entries may take before further series are left out.
const TIME_LIMIT: Duration = Duration::from_secs(20);
const STATES: [State; 3] = [State::Learning, State::Stable, State::Drifted];

/// The evaluation in the background.
pub(in crate::command) struct DriftWatch {
    changed: Arc<Notify>,
}

/// What an evaluation needs.
struct Evaluation {
    reader: Arc<Reader>,
    admin: Admin,
    config: Arc<ArcSwap<Config>>,
}

impl DriftWatch {
    /// Starts it; without a ledger there is nothing to evaluate. Needs a runtime, of which it uses a blocking thread.
    pub(in crate::command) fn start(config: &Arc<ArcSwap<Config>>, admin: &Admin) -> DriftWatch {
        let changed = Arc::new(Notify::new());
        if let Some(reader) = &admin.ledger {
            let evaluation = Arc::new(Evaluation {
                reader: Arc::clone(reader),
                admin: admin.clone(),
                config: Arc::clone(config),
            });
            tokio::spawn(again(evaluation, Arc::clone(&changed)));
        }
        DriftWatch { changed }
    }

    /// Evaluates again soon, since the configuration has changed.
    pub(in crate::command) fn look_again(&self) {
        self.changed.notify_one();
    }
}

async fn again(evaluation: Arc<Evaluation>, changed: Arc<Notify>) {
    loop {
        let this = Arc::clone(&evaluation);
        // A panic has been logged already.
        let _ = tokio::task::spawn_blocking(move || this.run()).await;
        let _ = tokio::time::timeout(EVERY, changed.notified()).await;
    }
}

impl Evaluation {
    /// Evaluates every entry. Blocks.
    fn run(&self) {
        let registry = self.admin.prometheus.registry();
        let config = self.config.load_full();
        if config.drifts.is_empty() {
            forget(registry, &[]);
            self.admin.drifts.store(Arc::default());
            return;
        }
        let began = (self.admin.clock)();
        let spent = || (self.admin.clock)().saturating_duration_since(began);
        let found = self.entries(&config.drifts, &|| spent() < TIME_LIMIT);
        registry
            .series(&names::DRIFT_EVALUATION_SECONDS, &())
            .set(spent().as_secs_f64());
        let failures = registry.series(&names::DRIFT_FAILURES, &());
        if let Some(error) = &found.error {
            failures.increment(1);
            tracing::warn!(error, "drift cannot be evaluated");
        }
        forget(registry, &found.drifts);
        found
            .drifts
            .iter()
            .for_each(|entry| export(registry, entry));
        self.admin.drifts.store(Arc::new(found));
    }

    fn entries(&self, settings: &[Settings], time_left: &dyn Fn() -> bool) -> Drifts {
        let now = (self.admin.wall)();
        let mut answer = Drifts {
            evaluated_at: Some(humantime::format_rfc3339_seconds(now).to_string()),
            ..Drifts::default()
        };
        for one in settings {
            match evaluate(&self.reader, one, now, time_left) {
                Ok(entry) => answer.drifts.push(entry),
                Err(error) => answer.error = Some(error.to_string()),
            }
        }
        answer
    }
}

/// Sets the gauges of an entry.
fn export(registry: &Registry, entry: &Entry) {
    let drift = entry.name.as_str();
    registry
        .series(&names::DRIFT_SERIES_LEFT_OUT, &labels::DriftEntry { drift })
        .set(entry.series_left_out as f64);
    for signal in SignalName::ALL {
        let (distance, states) = of_signal(entry, signal);
        let signal = signal.as_str();
        if let Some(distance) = distance {
            registry
                .series(&names::DRIFT_DISTANCE, &labels::Drift { drift, signal })
                .set(distance);
        }
        for one in STATES {
            let state = one.into();
            let labels = labels::DriftState {
                drift,
                signal,
                state,
            };
            let series = states.get(&one).copied().unwrap_or_default();
            registry.series(&names::DRIFT_SERIES, &labels).set(series);
        }
    }
}

/// The largest distance of a signal over all classes, and the series by state: that of the class that is furthest.
fn of_signal(entry: &Entry, signal: SignalName) -> (Option<f64>, BTreeMap<State, f64>) {
    let mut distance: Option<f64> = None;
    let mut states: BTreeMap<State, f64> = BTreeMap::new();
    for series in &entry.series {
        let cells = || series.signals.iter().filter(|one| one.signal == signal);
        let far = cells()
            .filter(|one| one.bucket.is_none())
            .filter_map(|one| one.distance);
        distance = far.chain(distance).max_by(f64::total_cmp);
        if let Some(state) = cells().map(|one| one.state).max() {
            *states.entry(state).or_default() += 1.0;
        }
    }
    (distance, states)
}

/// Removes the series of entries and distances that are not there any more.
fn forget(registry: &Registry, entries: &[Entry]) {
    let names: HashSet<&str> = entries.iter().map(|entry| entry.name.as_str()).collect();
    let distances: HashSet<(&str, &str)> = entries
        .iter()
        .flat_map(|entry| {
            let known = |signal: &SignalName| of_signal(entry, *signal).0.is_some();
            let signals = SignalName::ALL.into_iter().filter(known);
            signals.map(|signal| (entry.name.as_str(), signal.as_str()))
        })
        .collect();
    registry.retain(|labels| {
        let Some(drift) = labels.of("drift") else {
            return true;
        };
        let distance = labels.of("signal").filter(|_| labels.of("state").is_none());
        names.contains(drift) && distance.is_none_or(|signal| distances.contains(&(drift, signal)))
    });
}
