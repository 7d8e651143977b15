//! The status of objectives, for the API, the command line and the metrics.

use super::budget;
use super::engine::Slos;
use super::months::Attainment;
use super::objective::{Objective, Sli, Weight};
use super::reason::CallVerdict;
use super::tracker::{Alert, Spent, Tracker};
use super::windows::{Severity, label};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokengauge_cause::Cause;
use tokengauge_core::pod::PodName;
use tokengauge_core::selector::Selector;

/// The status of an objective. Unknown and infinite values are `null`.
#[derive(Clone, Debug, JsonSchema, Serialize)]
#[schemars(rename = "Slo")]
pub struct Status {
    /// Its name.
    pub name: Arc<str>,
    /// The objective in words.
    pub promise: String,
    /// The indicator, by its key in the configuration, such as `ttft`.
    pub indicator: &'static str,
    /// Its threshold: seconds, tokens per second, US dollars or a count; none for availability.
    pub threshold: Option<f64>,
    /// What it is about.
    pub description: Option<String>,
    /// The share of good events promised.
    pub objective: f64,
    /// Over which time, such as `30d`.
    pub window: String,
    /// What an event is: `request`, `token`, or a slice such as `5m`.
    pub event: String,
    /// Which calls count.
    pub select: Selector,
    /// Good events of the window.
    pub good: f64,
    /// Bad events of the window.
    pub bad: f64,
    /// The share of good ones.
    pub ratio: Option<f64>,
    /// What is left: 1 untouched, 0 spent, below 0 overspent.
    pub budget_remaining: f64,
    /// Seconds until the budget is spent, at the pace of the last hour (of the shortest
    /// long window of its alerts).
    pub exhausted_in_seconds: Option<f64>,
    /// How fast the budget is spent, by window, shortest first; 1 spends it exactly.
    pub burn: Vec<Burn>,
    /// The pairs of windows that alerts look at.
    pub alerts: Vec<Alert>,
    /// Why it is missed; `null` while its budget does not burn.
    pub cause: Option<Arc<Cause>>,
    /// Events since the process started, by verdict and reason.
    pub events: BTreeMap<&'static str, BTreeMap<&'static str, u64>>,
    /// The last calls that spent budget, newest first.
    pub spent_by: Vec<Spent>,
    /// Every calendar month with events, oldest first: 13 that are over, and this one.
    pub months: Vec<Attainment>,
    /// The pod whose own counts these are; only where those of several are together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod: Option<Arc<PodName>>,
    /// The objective itself, for rules.
    #[serde(skip)]
    pub definition: Arc<Objective>,
}

/// A window and how fast the budget was spent in it.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct Burn {
    /// The window, such as `1h`.
    pub window: String,
    /// 1 spends the budget exactly in its period.
    pub rate: f64,
}

impl Slos {
    /// The status of every objective at `now`, in the order of the configuration.
    pub fn status(&self, now: Instant) -> Vec<Status> {
        let state = self.state();
        let seconds = state.calendar.seconds(now);
        let trackers = state.trackers.iter();
        trackers
            .map(|tracker| Status {
                cause: self.causes.of(&tracker.objective.name),
                ..status(tracker, seconds)
            })
            .collect()
    }

    pub fn objective(&self, name: &str) -> Option<Arc<Objective>> {
        let state = self.state();
        let mut objectives = state.trackers.iter().map(|tracker| &tracker.objective);
        objectives
            .find(|known| &*known.name == name)
            .map(Arc::clone)
    }

    /// The objectives with a firing page at `now`, by this process's counts.
    pub fn paging(&self, now: Instant) -> Vec<Arc<str>> {
        let state = self.state();
        let seconds = state.calendar.seconds(now);
        let pages = |alert: &Alert| alert.firing && alert.tier.severity == Severity::Page;
        let trackers = state.trackers.iter();
        let paging = trackers.filter(|tracker| tracker.alerts(seconds).iter().any(pages));
        paging
            .map(|tracker| Arc::clone(&tracker.objective.name))
            .collect()
    }
}

fn status(tracker: &Tracker, now: f64) -> Status {
    let objective = &tracker.objective;
    let judgement = &objective.judgement;
    let sum = tracker.period(now);
    let remaining = tracker.remaining(now);
    let pace = tracker.tiers.iter().map(|tier| tier.long).min();
    let pace = tracker.burn(now, pace.unwrap_or(Duration::from_secs(3600)));
    let left = budget::exhausted_in(remaining, pace, objective.window);
    let mut events: BTreeMap<_, BTreeMap<_, _>> = BTreeMap::new();
    for ((verdict, reason), count) in tracker.totals() {
        let of_verdict = events.entry(CallVerdict::as_str(*verdict)).or_default();
        of_verdict.insert(reason.as_str(), *count);
    }
    let windows = tracker.windows().into_iter();
    Status {
        name: Arc::clone(&objective.name),
        promise: judgement.sli.in_words(),
        indicator: judgement.sli.as_str(),
        threshold: judgement.sli.threshold(),
        description: objective.description.clone(),
        objective: objective.objective,
        window: objective.window_label(),
        event: match (judgement.slice, judgement.weight) {
            (Some(slice), _) => label(slice.every),
            _ if matches!(judgement.sli, Sli::Throughput(_)) => "1m".to_owned(),
            (None, Weight::Token) => "token".to_owned(),
            (None, Weight::Request) => "request".to_owned(),
        },
        select: judgement.select.clone(),
        good: sum.good,
        bad: sum.bad,
        ratio: budget::ratio(sum),
        budget_remaining: remaining,
        exhausted_in_seconds: left.map(|left| left.as_secs_f64()),
        burn: windows
            .map(|window| Burn {
                window: label(window),
                rate: tracker.burn(now, window),
            })
            .collect(),
        alerts: tracker.alerts(now),
        cause: None,
        events,
        spent_by: tracker.spent().iter().rev().cloned().collect(),
        months: tracker.attained(now),
        pod: None,
        definition: Arc::clone(objective),
    }
}
