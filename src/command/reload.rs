//! Changing the configuration of a running proxy: on SIGHUP, and when its file changes.

use super::fallback::{Fallback, running};
use super::reload_status::Reloads;
use super::running_proxy::RunningProxy;
use crate::Error;
use crate::admin::Running;
use crate::config::Config;
use crate::config::reload::Watched;
use std::path::Path;
use std::time::{Duration, Instant};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::MissedTickBehavior;

/// How often the file is looked at; a change has to be there twice.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// How often what was refused is tried again: a certificate or an address may have come.
const RETRY_EVERY: Duration = Duration::from_secs(30);

/// How often the log says again that the fallback is in use.
const REMIND_EVERY: Duration = Duration::from_secs(600);

/// Where a configuration comes from, again and again.
pub(super) struct Source {
    read: Box<dyn Fn() -> Result<Config, Error> + Send + Sync>,
    file: Option<Watched>,
    hangup: Signal,
    /// What is in use until the configuration can be, and why it was refused.
    fallback: Option<(Fallback, String)>,
}

impl Source {
    /// Reads by `read`, when `file` changes and on SIGHUP from now on. Needs a runtime.
    pub(super) fn new(
        file: Option<&Path>,
        read: impl Fn() -> Result<Config, Error> + Send + Sync + 'static,
    ) -> Result<Source, Error> {
        let hangup = signal(SignalKind::hangup())
            .map_err(|error| Error::Failed(format!("cannot listen for SIGHUP: {error}")))?;
        Ok(Source {
            read: Box::new(read),
            file: file.map(Watched::new),
            hangup,
            fallback: None,
        })
    }

    /// `fallback` is in use: what is read was refused for this reason.
    pub(super) fn instead_of(mut self, fallback: Option<(Fallback, String)>) -> Source {
        self.fallback = fallback;
        self
    }
}

/// Changes a running proxy.
pub(super) struct Reload {
    live: RunningProxy,
    read: Box<dyn Fn() -> Result<Config, Error> + Send + Sync>,
    status: Reloads,
    /// Why the last one was refused, and when that was.
    refused: Option<(String, Instant)>,
    /// What is in use until one can be, and when the log said so.
    fallback: Option<(Fallback, Instant)>,
}

/// Why a configuration is read.
#[derive(Clone, Copy, PartialEq)]
enum ReloadTrigger {
    Signal,
    Changed,
    /// It was refused before.
    Again,
}

/// Changes `live` whenever `source` says so, for ever.
pub(super) async fn run(live: RunningProxy, source: Source, status: Reloads) {
    let Source {
        read,
        mut file,
        mut hangup,
        fallback,
    } = source;
    let now = Instant::now();
    let refused = fallback.as_ref().map(|(_, reason)| (reason.clone(), now));
    if fallback.is_some() {
        status.is(running(&live.config.load()));
    }
    let mut reload = Reload {
        live,
        read,
        status,
        refused,
        fallback: fallback.map(|(fallback, _)| (fallback, now)),
    };
    let mut ticks = tokio::time::interval(LOOK_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let signalled = tokio::select! {
            signal = hangup.recv() => signal.is_some(),
            _ = ticks.tick() => false,
        };
        // Reading, parsing and binding block, so they are done where no traffic waits for them.
        let step = tokio::task::spawn_blocking(move || {
            reload.step(signalled, file.as_mut());
            (reload, file)
        });
        match step.await {
            Ok(back) => (reload, file) = back,
            Err(error) => {
                tracing::error!(%error, "reloading is over; the proxy goes on as it is");
                return;
            }
        }
    }
}

impl Reload {
    fn step(&mut self, signalled: bool, mut file: Option<&mut Watched>) {
        if signalled {
            if let Some(file) = &mut file {
                file.taken();
            }
            return self.reload(ReloadTrigger::Signal);
        }
        if file.is_some_and(Watched::changed) {
            return self.reload(ReloadTrigger::Changed);
        }
        let due = |(_, at): &(String, Instant)| at.elapsed() >= RETRY_EVERY;
        if self.refused.as_ref().is_some_and(due) {
            self.reload(ReloadTrigger::Again);
        }
    }

    fn reload(&mut self, because: ReloadTrigger) {
        let changed = (self.read)().and_then(|config| {
            let digest = config.digest.clone();
            self.live.change(config).map(|()| digest)
        });
        match changed {
            Ok(digest) => {
                self.refused = None;
                self.fallback = None;
                self.status.applied.increment(1);
                self.status.runs(&digest);
                tracing::info!(
                    digest,
                    "the configuration was read again and is in use; what is under way ends under the old one"
                );
            }
            Err(error) => self.refuse(because, &error),
        }
    }

    fn refuse(&mut self, because: ReloadTrigger, error: &Error) {
        if let Some((fallback, reminded)) = self.fallback.take() {
            return self.fall_back(because, error, fallback, reminded);
        }
        let reason = error.to_string();
        let known = self
            .refused
            .as_ref()
            .is_some_and(|(known, _)| *known == reason);
        self.refused = Some((reason.clone(), Instant::now()));
        if because == ReloadTrigger::Again && known {
            return;
        }
        self.status.refused.increment(1);
        self.status.is(Running::Previous);
        let reason = reason.replace('\n', "; ");
        tracing::error!(
            reason,
            "the configuration was refused; the one before stays in use"
        );
    }

    /// There is none before: what was refused decides whether calls are, too.
    fn fall_back(
        &mut self,
        because: ReloadTrigger,
        error: &Error,
        fallback: Fallback,
        reminded: Instant,
    ) {
        let now = Instant::now();
        let known = self.refused.take().map(|(known, _)| known);
        let reason = match (because, known) {
            // What was refused is the same as before.
            (ReloadTrigger::Again, Some(known)) => known,
            _ => {
                self.status.refused.increment(1);
                error.to_string()
            }
        };
        let mut config = fallback.config();
        // Fixed while the process runs.
        config.admin = self.live.config.load().admin.clone();
        let mut remind = because != ReloadTrigger::Again || now - reminded >= REMIND_EVERY;
        if config.refusal != self.live.config.load().refusal {
            remind = true;
            if let Err(error) = self.live.change(config) {
                tracing::error!(%error, "the fallback stays as it is");
            }
        }
        let state = running(&self.live.config.load());
        self.status.is(state);
        if remind {
            fallback.tell(&reason, state);
        }
        self.refused = Some((reason, now));
        self.fallback = Some((fallback, if remind { now } else { reminded }));
    }
}
