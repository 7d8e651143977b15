//! Threads of the objectives: one evaluates every second, one looks for causes, one saves the counts.

use crate::ProcessError;
use parking_lot::Mutex;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};
use tokengauge_config::Config;
use tokengauge_core::background::{self, BackgroundWork};
use tokengauge_core::time::rfc3339_seconds;
use tokengauge_meter::Meter;
use tokengauge_sessions::SessionWatch;
use tokengauge_slo::{Circumstances, Slos, StateFolder, changes};

const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How often the thread checks whether it must look for a cause.
const CAUSES_EVERY: Duration = Duration::from_secs(5);
/// How often the counts are saved. A kill may lose twice this time, because saving on a slow disk may take as long
/// again.
const KEEP_EVERY: Duration = Duration::from_secs(5);

pub(crate) struct Objectives {
    stop: Vec<Sender<()>>,
    threads: Vec<JoinHandle<()>>,
}

pub(crate) fn open(config: &Config) -> Result<(Arc<Slos>, Option<StateFolder>), ProcessError> {
    let (now, wall) = (Instant::now(), SystemTime::now());
    let slos = Slos::new(&config.slos, &config.measure, now, wall);
    let Some(folder) = config.state_dir.as_deref() else {
        return Ok((slos, None));
    };
    let failed = |error| unusable(folder, &error);
    let state_folder = StateFolder::open(folder).map_err(failed)?;
    let kept = state_folder.load();
    state_folder
        .audit(&changes(&kept, &config.slos, &under(config, wall)))
        .map_err(failed)?;
    slos.restore(&kept, wall);
    // Saved at once, so that a restart after a kill does not write the same changes to the audit log again.
    slos.keep_again();
    Ok((slos, Some(state_folder)))
}

pub(crate) fn check(config: &Config) -> Result<(), ProcessError> {
    config.state_dir.as_deref().map_or(Ok(()), |folder| {
        StateFolder::check(folder).map_err(|error| unusable(folder, &error))
    })
}

fn unusable(folder: &Path, error: &io::Error) -> ProcessError {
    let folder = folder.display();
    ProcessError::Configuration(format!(
        "state_dir {folder}: {error}; it must be a writable directory"
    ))
}

fn under(config: &Config, wall: SystemTime) -> Circumstances {
    Circumstances {
        at: rfc3339_seconds(wall).to_string(),
        who: who(),
        config: config.origin.clone(),
        digest: config.digest.clone(),
    }
}

/// Writes the changes that `config` makes to the objectives to the audit log. A write error is logged and does not
/// prevent the change.
pub(crate) fn audit(state_folder: &Mutex<StateFolder>, slos: &Slos, config: &Config) {
    let wall = SystemTime::now();
    slos.keep_again();
    let Some(kept) = slos.kept(Instant::now(), wall) else {
        return;
    };
    slos.keep_again();
    let lines = changes(&kept, &config.slos, &under(config, wall));
    let state_folder = state_folder.lock();
    if let Err(error) = state_folder.audit(&lines) {
        tracing::error!(%error, "cannot write a change of the objectives to the audit log");
    }
}

fn who() -> String {
    let variable = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
    let user = variable("USER").or_else(|| variable("LOGNAME"));
    let user = user.unwrap_or_else(|| match uid() {
        Some(uid) => format!("uid {uid}"),
        None => "unknown".to_owned(),
    });
    let machine = std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let machine = machine.or_else(|| variable("HOSTNAME")).unwrap_or_default();
    format!("{user}@{}", machine.trim())
}

#[cfg(unix)]
fn uid() -> Option<u32> {
    use std::os::unix::fs::MetadataExt;
    Some(std::fs::metadata("/proc/self").ok()?.uid())
}

#[cfg(not(unix))]
fn uid() -> Option<u32> {
    None
}

impl Objectives {
    pub(crate) fn start(
        slos: &Arc<Slos>,
        state_folder: Option<&Arc<Mutex<StateFolder>>>,
        meter: &Arc<Meter>,
        session_watch: &Arc<SessionWatch>,
    ) -> Objectives {
        let mut started = Objectives {
            stop: Vec::new(),
            threads: Vec::new(),
        };
        let (objectives, meter) = (Arc::clone(slos), Arc::clone(meter));
        let session_watch = Arc::clone(session_watch);
        started.thread("slo", move |stop| {
            every(LOOK_EVERY, &stop, || {
                let now = Instant::now();
                objectives.tick(now, SystemTime::now(), &meter);
                let quotas = &meter.accounting().quotas;
                if !quotas.is_empty() {
                    quotas.refresh(&objectives.paging(now), &session_watch.runaway_ids(now));
                }
            });
        });
        let objectives = Arc::clone(slos);
        started.thread("slo-cause", move |stop| {
            every(CAUSES_EVERY, &stop, || {
                objectives.look_for_causes(Instant::now(), SystemTime::now());
            });
        });
        if let Some(state_folder) = state_folder {
            let (state_folder, objectives) = (Arc::clone(state_folder), Arc::clone(slos));
            started.thread("slo-state", move |stop| {
                keep(&state_folder, &objectives);
                every(KEEP_EVERY, &stop, || keep(&state_folder, &objectives));
                keep(&state_folder, &objectives);
            });
        }
        started
    }

    fn thread(&mut self, name: &str, run: impl FnOnce(Receiver<()>) + Send + 'static) {
        let (stop, stopped) = channel();
        match background::spawn(name, BackgroundWork::Steady, move || run(stopped)) {
            Ok(thread) => {
                self.stop.push(stop);
                self.threads.push(thread);
            }
            Err(error) => {
                tracing::error!(%error, name, "cannot start a thread; objectives are not updated")
            }
        }
    }

    /// Saves the counts and ends the threads. Blocks.
    pub(crate) fn stop(self) {
        drop(self.stop);
        for thread in self.threads {
            if thread.join().is_err() {
                tracing::error!(
                    "a thread that updates the objectives panicked, so the last counts of the objectives may not be saved; \
                     please report this bug of tokengauge"
                );
            }
        }
    }
}

/// Calls `act` at intervals until it is stopped. After a panic, the next call still happens.
fn every(pause: Duration, stop: &Receiver<()>, mut act: impl FnMut()) {
    while stop.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
        let act = std::panic::AssertUnwindSafe(&mut act);
        if std::panic::catch_unwind(act).is_err() {
            tracing::error!("a task of the objectives panicked; the task runs again as scheduled");
        }
    }
}

fn keep(state_folder: &Mutex<StateFolder>, slos: &Slos) {
    let Some(kept) = slos.kept(Instant::now(), SystemTime::now()) else {
        return;
    };
    let mut state_folder = state_folder.lock();
    match state_folder.save(&kept) {
        Ok(true) => {}
        Ok(false) => {
            tracing::warn!(
                "another process uses state_dir, so the objective counts of this process are not saved; give each process \
                 its own state_dir"
            );
            slos.keep_again();
        }
        Err(error) => {
            tracing::error!(%error, "cannot save the counts of the objectives");
            slos.keep_again();
        }
    }
}
