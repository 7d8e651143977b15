//! Recording and alerting rules for Prometheus, made of the configuration's objectives,
//! and the alerts on the proxy itself. [`Group`]s are data; [`yaml`] writes them.

mod objective;
mod proxy_alerts;
pub mod yaml;

use super::Objective;
use std::sync::Arc;
use std::time::Duration;

/// The counter of an objective's events, by verdict and reason.
pub const EVENTS_METRIC: &str = "tokengauge_slo_events_total";

/// The settings of the Prometheus and Grafana for which rules are made.
#[derive(Clone, Debug)]
pub struct RulesContext {
    /// The `job` label that Prometheus gives the proxies.
    pub job: String,
    /// The URL of the runbooks, without the anchor.
    pub runbooks: String,
    /// The URL of Grafana, without the path of a dashboard.
    pub grafana: String,
    /// The time that one recorded increase covers.
    pub resolution: Duration,
    /// Labels by which budgets and alerts are kept apart.
    pub by: Vec<String>,
}

/// Rules that are evaluated together, one after the other.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// Unique in its file.
    pub name: String,
    /// Comments for the reader.
    pub notes: Vec<String>,
    /// How often; as Prometheus is configured where there is none.
    pub interval: Option<Duration>,
    /// Its rules, in order of evaluation.
    pub rules: Vec<Rule>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    pub kind: RuleKind,
    /// PromQL; may have several lines.
    pub expr: String,
    /// In the order they are written.
    pub labels: Vec<(&'static str, String)>,
    /// In the order they are written; a recording has none.
    pub annotations: Vec<(&'static str, String)>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum RuleKind {
    /// A series of this name.
    Record(String),
    /// An alert of this name, once it has held for this long.
    Alert(&'static str, Duration),
}

/// The alert on a budget that burns too fast.
pub(super) const BURN: &str = "SloErrorBudgetBurn";

pub fn groups(objectives: &[Arc<Objective>], place: &RulesContext) -> Vec<Group> {
    let of_objectives = objectives
        .iter()
        .flat_map(|objective| objective::groups(objective, place));
    std::iter::once(proxy_alerts::group(place))
        .chain(of_objectives)
        .collect()
}

impl RulesContext {
    /// The labels that a sum keeps: `first`, and those that budgets are kept apart by.
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

/// The inhibition rules for Alertmanager: a page suppresses the ticket for the same budget.
/// Budgets are separated by the labels `by`.
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
