//! Alerts without a Prometheus: the same tiers, sent to an Alertmanager or a webhook.
//!
//! [`Watch`] decides what fires, [`Outbox`] what a receiver has to be sent, `message`
//! in which words. None of them reads a clock or opens a socket.

mod delivery_state;
mod message;
mod outbox;
mod watch;

use super::windows::Severity;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::Duration;

pub use delivery_state::DeliveryState;
pub use message::{Message, messages};
pub use outbox::Outbox;
pub use watch::Watch;

/// Who receives alerts.
#[derive(Clone, Debug, PartialEq)]
pub struct Receiver {
    /// Its name in logs and in what is kept.
    pub name: String,
    /// What it understands.
    pub kind: Kind,
    /// Where it is, or the file that says so.
    pub url: Destination,
    /// The file with PagerDuty's integration key.
    pub routing_key_file: Option<PathBuf>,
    /// Only alerts of this severity.
    pub severity: Option<Severity>,
    /// How often what goes on firing is sent again.
    pub repeat: Duration,
}

/// A URL; Slack's are secrets, so that they can lie in a file.
#[derive(Clone, PartialEq)]
pub enum Destination {
    /// The URL itself.
    Url(String),
    /// A file that holds it.
    File(PathBuf),
}

impl std::fmt::Debug for Destination {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Destination::Url(_) => formatter.write_str("Url(…)"),
            Destination::File(path) => formatter.debug_tuple("File").field(path).finish(),
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
    /// How often what goes on firing is sent again when nothing is named: an Alertmanager forgets
    /// what is not sent again, people do not.
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
