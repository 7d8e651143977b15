//! Alerts without a Prometheus: the same tiers, told to an Alertmanager or a webhook.
//!
//! [`Watch`] decides what fires, [`Outbox`] what a receiver has to be told, `message`
//! in which words. None of them reads a clock or opens a socket.

mod message;
mod outbox;
mod told;
mod watch;

use super::windows::Severity;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::Duration;

pub use message::{Message, messages};
pub use outbox::Outbox;
pub use told::Told;
pub use watch::Watch;

/// Who is told.
#[derive(Clone, Debug, PartialEq)]
pub struct Receiver {
    /// Its name in logs and in what is kept.
    pub name: String,
    /// What it understands.
    pub kind: Kind,
    /// Where it is, or the file that says so.
    pub url: Place,
    /// The file with PagerDuty's integration key.
    pub routing_key_file: Option<PathBuf>,
    /// Only alerts of this severity.
    pub severity: Option<Severity>,
    /// How often it is told again of what goes on firing.
    pub repeat: Duration,
}

/// A URL; Slack's are secrets, so that they can lie in a file.
#[derive(Clone, PartialEq)]
pub enum Place {
    /// The URL itself.
    Url(String),
    /// A file that holds it.
    File(PathBuf),
}

impl std::fmt::Debug for Place {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Place::Url(_) => formatter.write_str("Url(…)"),
            Place::File(path) => formatter.debug_tuple("File").field(path).finish(),
        }
    }
}

/// What a receiver understands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Alertmanager's API v2.
    Alertmanager,
    /// JSON of our own.
    Webhook,
    /// Slack's incoming webhooks.
    Slack,
    /// PagerDuty's Events API v2.
    PagerDuty,
}

impl Kind {
    /// How often it is told again when nothing is named: an Alertmanager forgets what it
    /// is not told of again, people do not.
    pub fn repeat(self) -> Duration {
        match self {
            Kind::Alertmanager => Duration::from_secs(60),
            _ => Duration::from_secs(4 * 3600),
        }
    }

    /// Its word in the configuration and in labels.
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::Alertmanager => "alertmanager",
            Kind::Webhook => "webhook",
            Kind::Slack => "slack",
            Kind::PagerDuty => "pagerduty",
        }
    }
}

/// What an alert is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum About {
    /// An objective, whose error budget burns.
    #[default]
    Objective,
    /// A spending budget.
    Budget,
}

/// An alert as a receiver is told of it. Times are seconds since 1970.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Notice {
    /// What it is about.
    #[serde(default)]
    pub about: About,
    /// The objective, or the budget.
    pub slo: String,
    /// `page` or `ticket`.
    pub severity: String,
    /// Whether it fires; else it is over.
    pub firing: bool,
    /// Since when it fires.
    pub since: f64,
    /// One line.
    pub summary: String,
    /// What is known beyond it.
    pub description: String,
    /// What to do about it.
    pub runbook_url: Option<String>,
    /// Where to look.
    pub dashboard_url: Option<String>,
}

impl Notice {
    /// What makes two notices one alert.
    pub fn key(&self) -> String {
        match self.about {
            About::Objective => format!("{}/{}", self.slo, self.severity),
            About::Budget => format!("budget {}/{}", self.slo, self.severity),
        }
    }
}
