//! Which process sends which alert. Each one whose objectives say that an alert fires says so to the quota store, and
//! one of them claims it. A claim is renewed with each look and expires, so that another process takes over from one
//! that was killed.

use crate::client::{Client, ClientError, Invocation, Script, numbers};
use crate::keys;
use crate::settings::Settings;
use parking_lot::Mutex;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How long others learn that an alert is resolved.
const KEEP_RESOLVED: Duration = Duration::from_secs(600);
/// The most alerts of which it is remembered that this process sends them.
const MAX_HELD: usize = 1024;

/// What becomes of an alert's message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    Send,
    /// Another one sends it, or it still fires elsewhere: nothing is known to be delivered yet.
    Wait,
    /// It was delivered by another process.
    Delivered,
    /// The quota store does not answer: every process sends it.
    Alone,
}

/// An alert as one process sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AlertState<'a> {
    pub receiver: &'a str,
    pub alert: &'a str,
    pub fires: bool,
    pub due: bool,
    /// Whether it was delivered while it fired.
    pub delivered: bool,
    /// How often it is sent again while it fires.
    pub repeat: Duration,
    pub holds: Duration,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClaimCounts {
    pub claimed: u64,
    pub delivered_elsewhere: u64,
    /// Messages that were due while the quota store did not answer.
    pub alone: u64,
    /// Alerts for which this process is the one that sends.
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

    /// Says how an alert stands here, and learns what to do about its message. Needs a runtime.
    pub async fn claim(&self, state: AlertState<'_>) -> Claim {
        let response = self.ask(&state).await;
        let (claim, elected) = response.unwrap_or_else(|error| {
            tracing::debug!(%error, "the quota store was not asked who sends an alert");
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

    /// The same where the quota store is known to be away.
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

    /// Says that a message was delivered, so that no other process sends it. Needs a runtime.
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
            tracing::debug!(%error, "the quota store was not told of a delivered alert");
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
