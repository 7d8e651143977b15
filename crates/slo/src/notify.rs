//! Alerts without a Prometheus: they use the tiers of the Prometheus rules, and go to an
//! Alertmanager or a webhook.
//!
//! [`FiringAlerts`] decides which alerts fire, [`Outbox`] which are sent to a receiver, and
//! `message` formats them. None of them reads a clock or opens a socket.

mod delivery_state;
mod firing;
mod message;
mod outbox;

use super::windows::Severity;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::Duration;

pub use delivery_state::DeliveryState;
pub use firing::FiringAlerts;
pub use message::{Message, alert_name, messages};
pub use outbox::Outbox;

#[derive(Clone, Debug, PartialEq)]
pub struct Receiver {
    /// The receiver's name in logs and in the saved state.
    pub name: String,
    pub kind: ReceiverKind,
    pub url: Destination,
    /// The file with PagerDuty's integration key.
    pub routing_key_file: Option<PathBuf>,
    /// Only alerts of this severity are sent.
    pub severity: Option<Severity>,
    /// How often an alert that keeps firing is sent again.
    pub repeat: Duration,
}

/// A URL, or a file with the URL, because Slack's URLs are secrets.
#[derive(Clone, PartialEq)]
pub enum Destination {
    Url(String),
    /// A file that contains the URL.
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

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, strum::IntoStaticStr)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum ReceiverKind {
    Alertmanager,
    /// JSON in tokengauge's format.
    Webhook,
    Slack,
    PagerDuty,
}

impl ReceiverKind {
    /// Default interval for sending an alert that keeps firing again. An Alertmanager needs one
    /// minute, because it resolves alerts that are not repeated.
    pub fn repeat(self) -> Duration {
        match self {
            ReceiverKind::Alertmanager => Duration::from_secs(60),
            _ => Duration::from_secs(4 * 3600),
        }
    }

    /// The value in the configuration and in labels.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}
