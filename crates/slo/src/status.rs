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
    /// The name of the objective.
    pub name: Arc<str>,
    /// The objective in words.
    pub promise: String,
    /// The indicator, by its key in the configuration, such as `ttft`.
    pub indicator: &'static str,
    /// The threshold of the indicator: seconds, tokens per second, US dollars or a count; `null`
    /// for availability.
    pub threshold: Option<f64>,
    /// The description from the configuration.
    pub description: Option<String>,
    /// The share of events that must be good.
    pub objective: f64,
    /// The window of the objective, such as `30d`.
    pub window: String,
    /// The unit of events: `request`, `token`, or a slice such as `5m`.
    pub event: String,
    /// The calls that count.
    pub select: Selector,
    /// Good events in the window.
    pub good: f64,
    /// Bad events in the window.
    pub bad: f64,
    /// The share of good events in the window.
    pub ratio: Option<f64>,
    /// The remaining share of the error budget: 1 untouched, 0 spent, below 0 overspent.
    pub budget_remaining: f64,
    /// Seconds until the error budget is spent, at the burn rate of the last hour (the shortest
    /// long window of its alerts).
    pub exhausted_in_seconds: Option<f64>,
    /// Burn rates by window, shortest first. A rate of 1 spends the budget exactly in its period.
    pub burn: Vec<Burn>,
    /// The pairs of windows that alerts use.
    pub alerts: Vec<Alert>,
    /// Why the objective is missed; `null` while its budget does not burn.
    pub cause: Option<Arc<Cause>>,
    /// Events since the process started, by verdict and reason.
    pub events: BTreeMap<&'static str, BTreeMap<&'static str, u64>>,
    /// The last calls that spent budget, newest first.
    pub spent_by: Vec<Spent>,
    /// Every calendar month with events, oldest first: up to 13 past months, and the current month.
    pub months: Vec<Attainment>,
    /// The pod that these counts are from. Present only if objectives of several pods are listed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod: Option<Arc<PodName>>,
    /// The definition of the objective, for rules.
    #[serde(skip)]
    pub definition: Arc<Objective>,
}

/// The burn rate in one window.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct Burn {
    /// The window, such as `1h`.
    pub window: String,
    /// The burn rate; 1 spends the budget exactly in its period.
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

    /// The objectives with a firing page at `now`, by the counts of this process.
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
