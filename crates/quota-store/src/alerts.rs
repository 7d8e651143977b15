//! Decides which of the processes that share a quota store sends an alert. Every process that sees an alert firing
//! reports it, and one of them claims it. A claim is renewed at each check and expires, so that another process takes
//! over from one that was killed.

use crate::client::{Client, ClientError, Invocation, Script, numbers};
use crate::keys;
use crate::settings::Settings;
use parking_lot::Mutex;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How long a resolved alert is remembered, so that other processes learn of it.
const KEEP_RESOLVED: Duration = Duration::from_secs(600);
/// The maximum number of alerts for which this process remembers that it sends them.
const MAX_HELD: usize = 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    Send,
    /// Another process sends the notification, or the alert still fires in another process. No delivery is known yet.
    Wait,
    Delivered,
    /// The quota store does not answer, so every process sends the notification.
    Alone,
}

/// The state of an alert in one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AlertState<'a> {
    pub receiver: &'a str,
    pub alert: &'a str,
    pub fires: bool,
    pub due: bool,
    /// Whether this process delivered a notification while the alert fired.
    pub delivered: bool,
    /// Time after which a firing alert is sent again.
    pub repeat: Duration,
    pub holds: Duration,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClaimCounts {
    pub claimed: u64,
    pub delivered_elsewhere: u64,
    /// Notifications that were due while the quota store did not answer.
    pub alone: u64,
    /// Alerts for which this process holds the claim.
    pub elected: u64,
}

#[derive(Debug)]
pub struct AlertClaims {
    client: Client,
    settings: Arc<Settings>,
    process: String,
    held: Mutex<HashSet<String>>,
    claimed: AtomicU64,
    delivered_elsewhere: AtomicU64,
    alone: AtomicU64,
}

impl AlertClaims {
    pub(crate) fn new(client: Client, settings: Arc<Settings>, process: String) -> AlertClaims {
        AlertClaims {
            client,
            settings,
            process,
            held: Mutex::default(),
            claimed: AtomicU64::new(0),
            delivered_elsewhere: AtomicU64::new(0),
            alone: AtomicU64::new(0),
        }
    }

    /// Reports the state of an alert in this process and returns what to do with the notification. Needs a runtime.
    pub async fn claim(&self, state: AlertState<'_>) -> Claim {
        let response = self.ask(&state).await;
        let (claim, elected) = response.unwrap_or_else(|error| {
            tracing::debug!(%error, "cannot ask the quota store which process sends an alert");
            (Claim::Alone, false)
        });
        let key = keys::alert("", state.receiver, state.alert);
        let mut held = self.held.lock();
        if elected && held.len() < MAX_HELD {
            held.insert(key);
        } else {
            held.remove(&key);
        }
        let count = match claim {
            _ if !state.due => return claim,
            Claim::Send => &self.claimed,
            Claim::Delivered => &self.delivered_elsewhere,
            Claim::Alone => &self.alone,
            Claim::Wait => return claim,
        };
        count.fetch_add(1, Ordering::Relaxed);
        claim
    }

    /// Returns and counts [`Claim::Alone`], for a quota store that is known to be unreachable.
    pub fn alone(&self, due: bool) -> Claim {
        self.alone.fetch_add(u64::from(due), Ordering::Relaxed);
        Claim::Alone
    }

    async fn ask(&self, state: &AlertState<'_>) -> Result<(Claim, bool), ClientError> {
        let flag = |is: bool| u8::from(is).to_string();
        let run = Invocation {
            script: Script::Claim,
            key: keys::alert(&self.settings.prefix, state.receiver, state.alert),
            arguments: vec![
                self.process.clone(),
                flag(state.fires),
                flag(state.due),
                flag(state.delivered),
                state.repeat.as_millis().to_string(),
                state.holds.as_millis().to_string(),
            ],
        };
        let answers = self.client.run(&[run]).await?;
        let response = answers.first().ok_or(ClientError::Response("nothing"))?;
        let [decision, elected] = numbers(response)?;
        let claim = match decision {
            1 => Claim::Send,
            2 => Claim::Delivered,
            _ => Claim::Wait,
        };
        Ok((claim, elected == 1))
    }

    /// Reports that a notification was delivered, so that no other process sends it. Needs a runtime.
    pub async fn delivered(&self, receiver: &str, alert: &str, fires: bool) {
        let run = Invocation {
            script: Script::Sent,
            key: keys::alert(&self.settings.prefix, receiver, alert),
            arguments: vec![
                u8::from(fires).to_string(),
                KEEP_RESOLVED.as_millis().to_string(),
            ],
        };
        if let Err(error) = self.client.run(&[run]).await {
            tracing::debug!(%error, "cannot report a delivered alert to the quota store");
        }
    }

    pub fn counts(&self) -> ClaimCounts {
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        ClaimCounts {
            claimed: count(&self.claimed),
            delivered_elsewhere: count(&self.delivered_elsewhere),
            alone: count(&self.alone),
            elected: self.held.lock().len() as u64,
        }
    }
}
