//! Changing the configuration of a running proxy: on SIGHUP, and when its file changes.

use super::live::Live;
use crate::Error;
use crate::config::Config;
use crate::config::reload::Watched;
use crate::export::names;
use crate::export::prometheus::Prometheus;
use crate::export::registry::{Counter, Gauge};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::MissedTickBehavior;

/// How often the file is looked at; a change has to be there twice.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// How often what was refused is tried again: a certificate or an address may have come.
const RETRY_EVERY: Duration = Duration::from_secs(30);

/// Where a configuration comes from, again and again.
pub(super) struct Source {
    read: Box<dyn Fn() -> Result<Config, Error> + Send + Sync>,
    file: Option<Watched>,
    hangup: Signal,
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
        })
    }
}

/// What is told of reloads.
pub(super) struct Reloads {
    prometheus: Arc<Prometheus>,
    applied: Counter,
    refused: Counter,
    successful: Gauge,
    at: Gauge,
    digest: String,
}

impl Reloads {
    /// `config` was used at the start.
    pub(super) fn new(prometheus: &Arc<Prometheus>, config: &Config) -> Reloads {
        let registry = prometheus.registry();
        let reloads = |result| registry.counter(&names::CONFIG_RELOADS, &[result]);
        let mut told = Reloads {
            prometheus: Arc::clone(prometheus),
            applied: reloads("applied"),
            refused: reloads("refused"),
            successful: registry.gauge(&names::CONFIG_LAST_RELOAD_SUCCESSFUL, &[]),
            at: registry.gauge(&names::CONFIG_LAST_RELOAD_SUCCESS_SECONDS, &[]),
            digest: String::new(),
        };
        told.runs(&config.digest);
        told
    }

    fn runs(&mut self, digest: &str) {
        let registry = self.prometheus.registry();
        registry.gauge(&names::CONFIG_INFO, &[digest]).set(1.0);
        if self.digest != digest {
            registry.forget(&names::CONFIG_INFO, &[&self.digest]);
            digest.clone_into(&mut self.digest);
        }
        self.successful.set(1.0);
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        self.at.set(since.unwrap_or_default().as_secs_f64());
    }
}

/// Changes a running proxy.
pub(super) struct Reload {
    live: Live,
    read: Box<dyn Fn() -> Result<Config, Error> + Send + Sync>,
    told: Reloads,
    /// Why the last one was refused, and when that was.
    refused: Option<(String, Instant)>,
}

/// Why a configuration is read.
#[derive(Clone, Copy, PartialEq)]
enum Because {
    Signal,
    Changed,
    /// It was refused before.
    Again,
}

/// Changes `live` whenever `source` says so, for ever.
pub(super) async fn run(live: Live, source: Source, told: Reloads) {
    let Source {
        read,
        mut file,
        mut hangup,
    } = source;
    let mut reload = Reload {
        live,
        read,
        told,
        refused: None,
    };
    let mut ticks = tokio::time::interval(LOOK_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let signalled = tokio::select! {
            signal = hangup.recv() => signal.is_some(),
            _ = ticks.tick() => false,
        };
        // Reading, parsing and binding block, so they are beside the traffic.
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
            return self.reload(Because::Signal);
        }
        if file.is_some_and(Watched::changed) {
            return self.reload(Because::Changed);
        }
        let due = |(_, at): &(String, Instant)| at.elapsed() >= RETRY_EVERY;
        if self.refused.as_ref().is_some_and(due) {
            self.reload(Because::Again);
        }
    }

    fn reload(&mut self, because: Because) {
        let changed = (self.read)().and_then(|config| {
            let digest = config.digest.clone();
            self.live.change(config).map(|()| digest)
        });
        match changed {
            Ok(digest) => {
                self.refused = None;
                self.told.applied.increment(1);
                self.told.runs(&digest);
                tracing::info!(
                    digest,
                    "the configuration was read again and is in use; what is under way ends under the old one"
                );
            }
            Err(error) => self.refuse(because, &error),
        }
    }

    fn refuse(&mut self, because: Because, error: &Error) {
        let reason = error.to_string();
        let known = self
            .refused
            .as_ref()
            .is_some_and(|(known, _)| *known == reason);
        self.refused = Some((reason.clone(), Instant::now()));
        if because == Because::Again && known {
            return;
        }
        self.told.refused.increment(1);
        self.told.successful.set(0.0);
        let reason = reason.replace('\n', "; ");
        tracing::error!(
            reason,
            "the configuration was refused; the one before stays in use"
        );
    }
}
