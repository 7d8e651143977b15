//! An alert, as receivers get it.

use serde::{Deserialize, Serialize};

/// What an alert is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AlertSubject {
    /// An objective, whose error budget burns.
    #[default]
    Objective,
    /// A spending budget.
    Budget,
    /// Sessions that run away.
    Runaway,
}

/// An alert as a receiver gets it. Times are seconds since 1970.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AlertNotification {
    /// What it is about.
    #[serde(default)]
    pub about: AlertSubject,
    /// The objective, or the budget; `sessions` of those that run away.
    pub slo: String,
    /// `page` or `ticket`.
    pub severity: String,
    /// Whether it fires; else it is over.
    pub firing: bool,
    /// Since when it fires.
    pub since: f64,
    /// A summary of one line.
    pub summary: String,
    /// What is known beyond it.
    pub description: String,
    /// Why it fires, in a sentence, where that was looked for.
    #[serde(default)]
    pub cause: Option<String>,
    /// Whether that sentence says why, and not that it is not known.
    #[serde(default)]
    pub cause_known: bool,
    /// The view of the live page that shows what the alert is about: path and query, relative to the
    /// page's own address.
    #[serde(default)]
    pub view: String,
    /// The URL of that view, or how to open it.
    #[serde(default)]
    pub page: Option<String>,
    /// What to do about it.
    pub runbook_url: Option<String>,
    /// The URL of a dashboard.
    pub dashboard_url: Option<String>,
}

impl AlertNotification {
    /// The name under which processes agree who sends it again with its cause.
    pub fn cause_key(&self) -> String {
        format!("{}/cause", self.key())
    }

    /// What makes two notices one alert.
    pub fn key(&self) -> String {
        match self.about {
            AlertSubject::Objective => format!("{}/{}", self.slo, self.severity),
            AlertSubject::Budget => format!("budget {}/{}", self.slo, self.severity),
            AlertSubject::Runaway => format!("runaway {}/{}", self.slo, self.severity),
        }
    }
}
