//! The firing alerts: one per objective and severity, without flapping.

use crate::windows::{Severity, label};
use crate::{Alert, Status};
use crate::{AlertNotification, AlertSubject};
use std::collections::BTreeMap;
use std::time::{Duration, UNIX_EPOCH};
use tokengauge_core::time::{rfc3339_seconds, span_text};

/// An alert is resolved after this many seconds without firing, because short windows fluctuate.
const HOLD: f64 = 300.0;

#[derive(Debug, Default)]
pub struct FiringAlerts {
    /// Alerts by objective and severity; bounded by the configuration.
    firing: BTreeMap<(String, Severity), Firing>,
}

#[derive(Debug)]
struct Firing {
    since: f64,
    last: f64,
    notice: AlertNotification,
}

impl FiringAlerts {
    /// The alerts that fire at `now`, in seconds since 1970, according to the status of the
    /// objectives. A page replaces the ticket of the same objective.
    pub fn step(&mut self, now: f64, statuses: &[Status]) -> Vec<AlertNotification> {
        for status in statuses {
            for severity in [Severity::Page, Severity::Ticket] {
                let mut alerts = status.alerts.iter();
                let fires = |alert: &&Alert| alert.firing && alert.tier.severity == severity;
                if let Some(alert) = alerts.find(fires) {
                    self.fires(now, status, alert);
                }
            }
        }
        self.firing.retain(|_, firing| now - firing.last < HOLD);
        let paged = |slo: &String| self.firing.contains_key(&(slo.clone(), Severity::Page));
        let due = self
            .firing
            .iter()
            .filter(|((slo, severity), _)| *severity == Severity::Page || !paged(slo));
        due.map(|(_, firing)| firing.notice.clone()).collect()
    }

    fn fires(&mut self, now: f64, status: &Status, alert: &Alert) {
        let key = (status.name.to_string(), alert.tier.severity);
        let since = self.firing.get(&key).map_or(now, |firing| firing.since);
        let notice = notice(since, status, alert);
        let firing = Firing {
            since,
            last: now,
            notice,
        };
        self.firing.insert(key, firing);
    }
}

/// The long window, and its observed part if it was not observed completely.
fn observed(alert: &Alert) -> String {
    let long = label(alert.tier.long);
    let seconds = alert.observed_seconds as u64;
    if seconds < alert.tier.long.as_secs() {
        let seen = span_text(Duration::from_secs(seconds));
        format!("{long} ({seen} of it observed)")
    } else {
        long
    }
}

/// The link to the calls that spent the budget, from the start of the alert's long window on.
fn view(since: f64, status: &Status, alert: &Alert) -> String {
    let from = (since - alert.tier.long.as_secs_f64()).max(0.0);
    let from = rfc3339_seconds(UNIX_EPOCH + Duration::from_secs(from as u64)).to_string();
    let select = &status.select;
    let names = [
        ("slo", Some(&*status.name)),
        ("workload", select.workload.as_deref()),
        ("route", select.route.as_deref()),
        ("upstream", select.upstream.as_deref()),
        ("team", select.team.as_deref()),
        ("cost_center", select.cost_center.as_deref()),
        ("tenant", select.tenant.as_deref()),
        ("from", Some(&*from)),
    ];
    let mut query = form_urlencoded::Serializer::new(String::new());
    for (name, value) in names {
        if let Some(value) = value {
            query.append_pair(name, value);
        }
    }
    format!("calls?{}", query.finish())
}

fn notice(since: f64, status: &Status, alert: &Alert) -> AlertNotification {
    let tier = &alert.tier;
    let definition = &status.definition;
    let (long, short) = (observed(alert), label(tier.short));
    let about = status.description.as_deref().unwrap_or(&status.promise);
    let left = status.budget_remaining * 100.0;
    let left = if left < 0.0 {
        format!("overdrawn by {:.0}%", -left)
    } else {
        format!("{left:.0}% left")
    };
    AlertNotification {
        about: AlertSubject::Objective,
        slo: status.name.to_string(),
        severity: tier.severity.as_str().to_owned(),
        firing: true,
        since,
        summary: format!(
            "{}: burn rate {:.1} over {long}, error budget {left}",
            status.name, alert.burn_long
        ),
        description: format!(
            "{about}. Objective: {} for {}% over {}. Burn rate {:.2} over {long} and {:.2} over {short}, alert above {:.2}.",
            status.promise,
            (status.objective * 1e6).round() / 1e4,
            status.window,
            alert.burn_long,
            alert.burn_short,
            tier.factor
        ),
        cause: status.cause.as_ref().map(|cause| cause.sentence.clone()),
        cause_known: status.cause.as_ref().is_some_and(|cause| cause.known),
        view: view(since, status, alert),
        page: None,
        runbook_url: definition.runbook_url.clone(),
        dashboard_url: definition.dashboard_url.clone(),
    }
}
