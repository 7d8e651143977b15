//! Reloads the configuration of a running proxy on SIGHUP and when its file changes.

use crate::fallback::{Fallback, running};
use crate::reload_status::Reloads;
use crate::running_proxy::RunningProxy;
use crate::{ProcessError, SystemError};
use std::path::Path;
use std::time::{Duration, Instant};
use tokengauge_admin::Running;
use tokengauge_config::Config;
use tokengauge_config::reload::WatchedFile;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::MissedTickBehavior;

/// How often the file is checked. A change must be seen in two checks.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// How often a refused configuration is tried again, because a missing certificate or address may be available by then.
const RETRY_EVERY: Duration = Duration::from_secs(30);

/// How often the log repeats that the fallback is in use.
const REMIND_EVERY: Duration = Duration::from_secs(600);

/// Reads the configuration, and says when to read it again.
pub struct Source {
    read: Box<dyn Fn() -> Result<Config, ProcessError> + Send + Sync>,
    file: Option<WatchedFile>,
    hangup: Signal,
    fallback: Option<(Fallback, String)>,
}

impl Source {
    /// Creates a source that calls `read` when `file` changes and on SIGHUP. Needs a runtime.
    pub fn new(
        file: Option<&Path>,
        read: impl Fn() -> Result<Config, ProcessError> + Send + Sync + 'static,
    ) -> Result<Source, ProcessError> {
        let hangup = signal(SignalKind::hangup())
            .map_err(|error| SystemError::Task("listen for SIGHUP", error))?;
        Ok(Source {
            read: Box::new(read),
            file: file.map(WatchedFile::new),
            hangup,
            fallback: None,
        })
    }

    /// Sets the fallback in use and why the configuration was refused.
    pub fn instead_of(mut self, fallback: Option<(Fallback, String)>) -> Source {
        self.fallback = fallback;
        self
    }
}

pub(crate) struct Reload {
    live: RunningProxy,
    read: Box<dyn Fn() -> Result<Config, ProcessError> + Send + Sync>,
    status: Reloads,
    /// Why and when the last configuration was refused.
    refused: Option<(String, Instant)>,
    /// The fallback in use, and when the log last mentioned it.
    fallback: Option<(Fallback, Instant)>,
}

#[derive(Clone, Copy, PartialEq)]
enum ReloadTrigger {
    Signal,
    Changed,
    /// A refused configuration is tried again.
    Again,
}

/// Reloads the configuration of `live` at each change of `source`. Never returns.
pub(crate) async fn run(live: RunningProxy, source: Source, status: Reloads) {
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
        // Reading, parsing and binding block, so they run on a blocking thread.
        let step = tokio::task::spawn_blocking(move || {
            reload.step(signalled, file.as_mut());
            (reload, file)
        });
        match step.await {
            Ok(back) => (reload, file) = back,
            Err(error) => {
                tracing::error!(%error, "reloading stopped; the proxy keeps its current configuration");
                return;
            }
        }
    }
}

impl Reload {
    fn step(&mut self, signalled: bool, mut file: Option<&mut WatchedFile>) {
        if signalled {
            if let Some(file) = &mut file {
                file.taken();
            }
            return self.reload(ReloadTrigger::Signal);
        }
        if file.is_some_and(WatchedFile::changed) {
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
                self.status.runs(&digest);
                self.status.applied.increment(1);
                tracing::info!(
                    digest,
                    "the configuration was reloaded; calls in flight end under the previous one"
                );
            }
            Err(error) => self.refuse(because, &error),
        }
    }

    fn refuse(&mut self, because: ReloadTrigger, error: &ProcessError) {
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
        self.status.is(Running::Previous);
        self.status.refused.increment(1);
        let reason = reason.replace('\n', "; ");
        tracing::error!(
            reason,
            "the configuration was refused; the previous one is kept"
        );
    }

    /// Updates the fallback, because no configuration has been usable since the start. The content of the refused file
    /// decides whether calls are refused.
    fn fall_back(
        &mut self,
        because: ReloadTrigger,
        error: &ProcessError,
        fallback: Fallback,
        reminded: Instant,
    ) {
        let now = Instant::now();
        let known = self.refused.take().map(|(known, _)| known);
        let reason = match (because, known) {
            // The same configuration was refused again for the same reason.
            (ReloadTrigger::Again, Some(known)) => known,
            _ => {
                self.status.refused.increment(1);
                error.to_string()
            }
        };
        let mut config = fallback.config();
        // The admin address cannot change while the process runs.
        config.admin = self.live.config.load().admin.clone();
        let mut remind = because != ReloadTrigger::Again || now - reminded >= REMIND_EVERY;
        if config.refusal != self.live.config.load().refusal {
            remind = true;
            if let Err(error) = self.live.change(config) {
                tracing::error!(%error, "the fallback cannot be updated");
            }
        }
        let state = running(&self.live.config.load());
        self.status.is(state);
        if remind {
            fallback.log(&reason, state);
        }
        self.refused = Some((reason, now));
        self.fallback = Some((fallback, if remind { now } else { reminded }));
    }
}
