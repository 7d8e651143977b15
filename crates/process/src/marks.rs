//! Marks that the process adds automatically: reloads, price changes, restarts and warm-ups of upstreams, alerts. The
//! marks of drift are added by its evaluation.

use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use tokengauge_accounting::cost::budget::Budgets;
use tokengauge_core::time::{since_1970, whole_seconds_since_1970};
use tokengauge_core::warm_ups;
use tokengauge_meter::{FinishedCall, Subscriber};
use tokengauge_sessions::SessionWatch;
use tokengauge_slo::{AlertNotification, FiringAlerts, Slos, Status};
use tokengauge_store::ledger::{Ledger, Reader};
use tokengauge_store::marks::{MarkMetrics, Marks};
use tokengauge_store::query::{Mark, MarkKind, MarkQuery, MarkSubject, NewMark};
use tokengauge_telemetry::export::prometheus::Prometheus;
use tokengauge_telemetry::export::{labels, names};

const LOOK_EVERY: Duration = Duration::from_secs(5);
/// Tags of the marks at the start and the end of an alert.
const BEGIN: &str = "begin";
const END: &str = "end";

pub(crate) fn open(
    ledger: Option<Arc<Ledger>>,
    reader: Option<Arc<Reader>>,
    prometheus: &Prometheus,
) -> Arc<Marks> {
    let registry = prometheus.registry();
    let added = |kind: MarkKind| {
        let kind = kind.as_str();
        registry.series(&names::MARKS, &labels::ByKind { kind })
    };
    let metrics = MarkMetrics::new(added, registry.series(&names::MARKS_LOST, &()));
    Marks::new(ledger.zip(reader), metrics)
}

pub(crate) fn now(marks: &Marks, kind: MarkKind, text: String, subject: MarkSubject) {
    marks.add(NewMark {
        at: SystemTime::now(),
        kind,
        text,
        tags: Vec::new(),
        subject,
    });
}

fn upstream(name: &str) -> MarkSubject {
    MarkSubject {
        upstream: Some(name.to_owned()),
        ..MarkSubject::default()
    }
}

/// Marks each engine restart that the engine's own metrics show.
pub(crate) fn restarts(marks: &Arc<Marks>) -> tokengauge_telemetry::engine::RestartHook {
    let marks = Arc::clone(marks);
    Arc::new(move |name| {
        let text = format!("{name} restarted, according to its own metrics");
        now(&marks, MarkKind::Restart, text, upstream(name));
    })
}

/// Marks each time an upstream warms up again after calls outside of a warm-up.
pub(crate) struct WarmUps {
    marks: Arc<Marks>,
    seen: Mutex<warm_ups::WarmUps>,
}

impl WarmUps {
    pub(crate) fn new(marks: &Arc<Marks>) -> Arc<WarmUps> {
        Arc::new(WarmUps {
            marks: Arc::clone(marks),
            seen: Mutex::default(),
        })
    }
}

impl Subscriber for WarmUps {
    fn finished(&self, finished_call: &Arc<FinishedCall>) {
        let record = &finished_call.record;
        let started = finished_call.timestamps.started_at;
        // A call that did not reach the upstream says nothing about a warm-up.
        let reached = record.status.is_some();
        let name = &record.upstream;
        if reached && self.seen.lock().began(name, record.warm_up, started) {
            self.marks.add(NewMark {
                at: started,
                kind: MarkKind::WarmUp,
                text: format!("{name} warms up again; its next calls do not count in speeds"),
                tags: Vec::new(),
                subject: upstream(name),
            });
        }
    }
}

/// Marks the start and end of alerts on objectives, budgets and runaway sessions.
pub(crate) struct AlertMarks {
    marks: Arc<Marks>,
    slos: Arc<Slos>,
    budgets: Arc<Budgets>,
    session_watch: Arc<SessionWatch>,
    firing: FiringAlerts,
    /// Alerts that have started and not ended. `None` until the marks from before a restart are read.
    open: Option<BTreeSet<String>>,
}

impl AlertMarks {
    /// Watches the alerts as long as the process runs. Needs a runtime and uses one of its blocking threads.
    pub(crate) fn start(
        marks: &Arc<Marks>,
        slos: &Arc<Slos>,
        budgets: &Arc<Budgets>,
        session_watch: &Arc<SessionWatch>,
    ) {
        let this = AlertMarks {
            marks: Arc::clone(marks),
            slos: Arc::clone(slos),
            budgets: Arc::clone(budgets),
            session_watch: Arc::clone(session_watch),
            firing: FiringAlerts::default(),
            open: None,
        };
        tokio::spawn(again(this));
    }

    fn look(&mut self) {
        let wall = SystemTime::now();
        let statuses = self.slos.status(Instant::now());
        let mut firing = self.firing.step(since_1970(wall), &statuses);
        firing.extend(self.budgets.notifications(whole_seconds_since_1970(wall)));
        firing.extend(self.session_watch.notification(Instant::now()));
        if self.open.is_none() {
            self.open = self.begun_before();
        }
        let Some(open) = &mut self.open else { return };
        let firing: BTreeMap<_, _> = firing.iter().map(|one| (one.key(), one)).collect();
        for (key, alert) in &firing {
            if open.insert(key.clone()) {
                self.marks.add(mark(wall, key, Some(alert), &statuses));
            }
        }
        open.retain(|key| {
            let fires = firing.contains_key(key);
            if !fires {
                self.marks.add(mark(wall, key, None, &statuses));
            }
            fires
        });
    }

    /// The alerts that had started and not ended when the last process ended. `None` if the ledger does not answer.
    fn begun_before(&self) -> Option<BTreeSet<String>> {
        let query = MarkQuery {
            kind: Some(MarkKind::Alert),
            limit: 1_000,
            ..MarkQuery::default()
        };
        let marks = self.marks.find(&query).ok()?;
        let mut last: BTreeMap<String, bool> = BTreeMap::new();
        // The newest marks come first.
        for Mark { tags, .. } in marks {
            if let [key, end] = &tags[..] {
                last.entry(key.clone()).or_insert(end == BEGIN);
            }
        }
        let open = last.into_iter().filter(|(_, open)| *open);
        Some(open.map(|(key, _)| key).collect())
    }
}

async fn again(mut this: AlertMarks) {
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let step = move || {
            this.look();
            this
        };
        match tokio::task::spawn_blocking(step).await {
            Ok(back) => this = back,
            Err(error) => {
                tracing::error!(%error, "alerts are no longer marked; they are still sent");
                return;
            }
        }
    }
}

/// The mark for the start of an alert or, without a status, for its end.
fn mark(
    at: SystemTime,
    key: &str,
    begins: Option<&AlertNotification>,
    statuses: &[Status],
) -> NewMark {
    let (text, end) = match begins {
        Some(alert) => (
            format!("alert ({}): {}", alert.severity, alert.summary),
            BEGIN,
        ),
        None => (format!("alert resolved: {key}"), END),
    };
    NewMark {
        at,
        kind: MarkKind::Alert,
        text,
        tags: vec![key.to_owned(), end.to_owned()],
        subject: subject(key, statuses),
    }
}

/// The calls that the objective of an alert selects. A pattern that matches several models is not used as a name.
fn subject(alert: &str, statuses: &[Status]) -> MarkSubject {
    let objective = alert.rsplit_once('/').map(|(name, _)| name);
    let mut all = statuses.iter();
    let Some(status) = all.find(|status| Some(&*status.name) == objective) else {
        return MarkSubject::default();
    };
    let select = &status.select;
    let model = select.model.as_ref().map(|model| model.as_str().to_owned());
    MarkSubject {
        model: model.filter(|model| !model.contains('*')),
        upstream: select.upstream.clone(),
        route: select.route.clone(),
        workload: select.workload.clone(),
    }
}
