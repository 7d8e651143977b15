//! An alert as receivers get it.

use serde::{Deserialize, Serialize};

/// The subject of an alert.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AlertSubject {
    /// An objective whose error budget is burning.
    #[default]
    Objective,
    /// A spending budget.
    Budget,
    /// Runaway sessions.
    Runaway,
}

/// An alert as receivers get it. Times are seconds since 1970.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AlertNotification {
    /// The subject of the alert.
    #[serde(default)]
    pub about: AlertSubject,
    /// Name of the objective or of the budget, or `sessions` for runaway sessions.
    pub slo: String,
    /// Severity: `page` or `ticket`.
    pub severity: String,
    /// Whether the alert fires (`true`) or is resolved (`false`).
    pub firing: bool,
    /// When the alert started to fire.
    pub since: f64,
    /// One-line summary.
    pub summary: String,
    /// Further details.
    pub description: String,
    /// One sentence about the cause, if a cause was searched for.
    #[serde(default)]
    pub cause: Option<String>,
    /// Whether `cause` names a cause (`true`) or says that none was found (`false`).
    #[serde(default)]
    pub cause_known: bool,
    /// The view of the live page for this alert: path and query, relative to the address of the
    /// page.
    #[serde(default)]
    pub view: String,
    /// The URL of that view, or how to open it.
    #[serde(default)]
    pub page: Option<String>,
    /// URL of the runbook.
    pub runbook_url: Option<String>,
    /// URL of the dashboard.
    pub dashboard_url: Option<String>,
}

impl AlertNotification {
    /// The key by which processes agree on which of them sends the alert again with its cause.
    pub fn cause_key(&self) -> String {
        format!("{}/cause", self.key())
    }

    /// The key that identifies an alert. Notifications with the same key belong to the same alert.
    pub fn key(&self) -> String {
        match self.about {
            AlertSubject::Objective => format!("{}/{}", self.slo, self.severity),
            AlertSubject::Budget => format!("budget {}/{}", self.slo, self.severity),
            AlertSubject::Runaway => format!("runaway {}/{}", self.slo, self.severity),
        }
    }
}
