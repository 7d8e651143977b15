//! Recording and alerting rules for Prometheus, generated from the configured objectives, and the
//! alerts on the proxy. [`Group`]s are data; [`yaml`] writes them.

mod objective;
mod proxy_alerts;
pub mod yaml;

use super::Objective;
use std::sync::Arc;
use std::time::Duration;

/// The counter of an objective's events by verdict and reason.
pub const EVENTS_METRIC: &str = "tokengauge_slo_events_total";

/// The Prometheus and Grafana settings that rules depend on.
#[derive(Clone, Debug)]
pub struct RulesContext {
    /// The `job` label of the proxies in Prometheus.
    pub job: String,
    /// The URL of the runbooks, without the anchor.
    pub runbooks: String,
    /// The URL of Grafana, without the path of a dashboard.
    pub grafana: String,
    /// The time that one recorded increase covers.
    pub resolution: Duration,
    /// Labels that separate budgets and alerts.
    pub by: Vec<String>,
}

/// Rules that are evaluated in sequence.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// The name, unique in its file.
    pub name: String,
    /// Comments in the file.
    pub notes: Vec<String>,
    /// Evaluation interval; `None` uses Prometheus' default.
    pub interval: Option<Duration>,
    pub rules: Vec<Rule>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    pub kind: RuleKind,
    /// PromQL, possibly with several lines.
    pub expr: String,
    pub labels: Vec<(&'static str, String)>,
    pub annotations: Vec<(&'static str, String)>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum RuleKind {
    Record(String),
    Alert(&'static str, Duration),
}

/// The alert on an error budget that burns too fast.
pub(super) const BURN: &str = "SloErrorBudgetBurn";

pub fn groups(objectives: &[Arc<Objective>], place: &RulesContext) -> Vec<Group> {
    let of_objectives = objectives
        .iter()
        .flat_map(|objective| objective::groups(objective, place));
    let own = proxy_alerts::groups(place).into_iter();
    own.chain(of_objectives).collect()
}

impl RulesContext {
    /// The labels that a sum keeps: `first`, and the labels that separate budgets.
    fn labels(&self, first: &str) -> String {
        let mut labels: Vec<&str> = first.split(", ").collect();
        labels.retain(|label| !self.by.iter().any(|by| by == label));
        labels.extend(self.by.iter().map(String::as_str));
        labels.join(", ")
    }

    fn runbook(&self, alert: &str) -> String {
        format!("{}#{}", self.runbooks, alert.to_lowercase())
    }
}

/// The inhibition rules for Alertmanager: a page suppresses the ticket for the same budget. The
/// labels `by` separate budgets.
pub fn inhibition(by: &[String]) -> String {
    let equal = std::iter::once("slo")
        .chain(by.iter().map(String::as_str))
        .collect::<Vec<&str>>()
        .join(", ");
    format!(
        "# Part of Alertmanager's configuration: while a page is out for a budget, its ticket is silent.\n\
         inhibit_rules:\n\
         {0:2}- source_matchers: ['alertname = {BURN}', 'severity = page']\n\
         {0:4}target_matchers: ['alertname = {BURN}', 'severity = ticket']\n\
         {0:4}equal: [{equal}]\n",
        ""
    )
}
