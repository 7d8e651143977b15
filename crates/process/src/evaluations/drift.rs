//! Evaluates `[[drift]]` entries in the background of a running proxy.

use crate::periodic::Periodic;
use arc_swap::ArcSwap;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;
use tokengauge_admin::{Drifts, Services};
use tokengauge_config::Config;
use tokengauge_core::time::Timestamp;
use tokengauge_drift::{ChangePoint, DriftState, Entry, Series, Settings, SignalName, evaluate};
use tokengauge_store::ledger::QueryError;
use tokengauge_store::query::{MarkKind, MarkQuery, MarkSubject, NewMark};
use tokengauge_store::stored_calls::StoredCalls;
use tokengauge_telemetry::export::registry::Registry;
use tokengauge_telemetry::export::{labels, names};

/// Interval between evaluations. The ledger has hourly distributions, so a shorter interval gains little.
const EVERY: Duration = Duration::from_secs(300);
/// Time limit for all entries together. Series that are not reached within it are skipped.
const TIME_LIMIT: Duration = Duration::from_secs(20);
/// With more calls, a change point may move by some hours. Two change points this close are one change.
const SAME_CHANGE: Duration = Duration::from_secs(12 * 3_600);
const STATES: [DriftState; 3] = [
    DriftState::Learning,
    DriftState::Stable,
    DriftState::Drifted,
];

struct Evaluation {
    calls: StoredCalls,
    services: Services,
    config: Arc<ArcSwap<Config>>,
}

pub(crate) fn start(config: &Arc<ArcSwap<Config>>, services: &Services) -> Option<Periodic> {
    let evaluation = Evaluation {
        calls: services.call_source.stored()?.clone(),
        services: services.clone(),
        config: Arc::clone(config),
    };
    Some(Periodic::start("drift", Duration::ZERO, EVERY, move || {
        evaluation.run()
    }))
}

impl Evaluation {
    fn run(&self) {
        let registry = self.services.prometheus.registry();
        let config = self.config.load_full();
        if config.drifts.is_empty() {
            forget(registry, &[]);
            self.services.verdicts.drifts.store(Arc::default());
            return;
        }
        let began = (self.services.clock)();
        let spent = || (self.services.clock)().saturating_duration_since(began);
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
        if let Err(error) = self.mark(&found) {
            tracing::warn!(%error, "change points cannot be marked");
        }
        self.services.verdicts.drifts.store(Arc::new(found));
    }

    fn mark(&self, found: &Drifts) -> Result<(), QueryError> {
        let series = found.drifts.iter().flat_map(|entry| &entry.series);
        let marks = series.flat_map(|one| one.change_points.iter().map(|point| mark(one, point)));
        for mark in marks {
            let near = MarkQuery {
                from: mark.at.checked_sub(SAME_CHANGE),
                to: mark.at.checked_add(SAME_CHANGE),
                kind: Some(MarkKind::Drift),
                limit: usize::MAX,
                ..MarkQuery::default()
            };
            let subject = &mark.subject;
            let known = self.services.marks.find(&near)?.into_iter().any(|known| {
                known.tags == mark.tags
                    && known.model == subject.model
                    && known.route == subject.route
                    && known.workload == subject.workload
            });
            if !known {
                // If adding a mark fails, the failure is counted and the next evaluation adds the mark. Waiting keeps
                // two entries from marking the same change.
                self.services.marks.add_and_wait(mark).ok();
            }
        }
        Ok(())
    }

    fn entries(&self, settings: &[Settings], time_left: &dyn Fn() -> bool) -> Drifts {
        let now = (self.services.wall)();
        let mut evaluated = Drifts {
            evaluated_at: Some(Timestamp::seconds(now)),
            ..Drifts::default()
        };
        for one in settings {
            match evaluate(&self.calls, one, now, time_left) {
                Ok(entry) => evaluated.drifts.push(entry),
                Err(error) => evaluated.error = Some(error.to_string()),
            }
        }
        evaluated
    }
}

fn mark(series: &Series, point: &ChangePoint) -> NewMark {
    NewMark {
        at: point.at.time(),
        kind: MarkKind::Drift,
        text: point.sentence(),
        tags: vec![point.signal.as_str().to_owned()],
        subject: MarkSubject {
            model: series.model.clone(),
            upstream: None,
            route: series.route.clone(),
            workload: series.workload.clone(),
        },
    }
}

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
            let labels = labels::DriftStateLabels {
                drift,
                signal,
                state,
            };
            let series = states.get(&one).copied().unwrap_or_default();
            registry.series(&names::DRIFT_SERIES, &labels).set(series);
        }
    }
    let replaced = |one: &&Series| one.replaced.is_some() && one.state == DriftState::Drifted;
    let labels = labels::DriftStateLabels {
        drift,
        signal: "model",
        state: DriftState::Drifted.into(),
    };
    let replaced = entry.series.iter().filter(replaced).count();
    registry
        .series(&names::DRIFT_SERIES, &labels)
        .set(replaced as f64);
}

/// Returns the largest distance of a signal over all classes, and the number of series in each state. The class with the
/// largest deviation gives the state of a series.
fn of_signal(entry: &Entry, signal: SignalName) -> (Option<f64>, BTreeMap<DriftState, f64>) {
    let mut distance: Option<f64> = None;
    let mut states: BTreeMap<DriftState, f64> = BTreeMap::new();
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

/// Removes the metric series of entries and distances that no longer exist.
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
