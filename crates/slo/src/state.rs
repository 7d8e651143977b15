//! The state that survives a restart, in a file that is replaced atomically.

use super::engine::Slos;
use super::saved_state::{AHEAD, Doubted, SavedState};
use super::tracker::{SavedTracker, Tracker};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime};
use tokengauge_core::time::since_1970;
use tokengauge_files::state::StateFile;
use tokengauge_files::{audit, private};

const STATE: &str = "slo-state.json";
const AUDIT: &str = "slo-audit.jsonl";
/// If the clock says that the last process ended longer ago than this, in seconds, the clock may be
/// wrong. If the clock is wrong by less than this, only few counts expire too early.
const DOUBTFUL: f64 = 86_400.0;

#[derive(Debug)]
pub struct StateFolder {
    folder: PathBuf,
    file: StateFile,
}

impl StateFolder {
    /// Creates the folder if it is missing.
    ///
    /// # Errors
    /// Returns an error if the folder cannot be created.
    pub fn open(folder: &Path) -> io::Result<StateFolder> {
        Ok(StateFolder {
            folder: folder.to_owned(),
            file: StateFile::open(folder, STATE)?,
        })
    }

    /// Checks that [`StateFolder::open`] would succeed and that the audit log can be written,
    /// without leaving files.
    ///
    /// # Errors
    /// Returns an error if the folder or the audit log cannot be written.
    pub fn check(folder: &Path) -> io::Result<()> {
        StateFile::check(folder, STATE)?;
        private::check_append(&folder.join(AUDIT))
    }

    /// The saved state; empty if there is none. A damaged file is renamed; an unreadable file is
    /// logged.
    pub fn load(&self) -> SavedState {
        let kept = self.file.read().unwrap_or_else(|error| {
            tracing::error!(%error, file = STATE, "the saved counts of objectives cannot be read; \
                counting starts again");
            None
        });
        kept.unwrap_or_default()
    }

    /// Saves the state, and returns when it is on the disk. Returns `false` if another process
    /// holds the lock.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written.
    pub fn save(&mut self, kept: &SavedState) -> io::Result<bool> {
        self.file.write(kept)
    }

    /// Appends lines to the audit log.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written.
    pub fn audit(&self, lines: &[String]) -> io::Result<()> {
        audit::append(&self.folder.join(AUDIT), lines)
    }
}

impl Slos {
    /// Restores the saved state. Counts of an objective whose judgement changed are dropped. Counts
    /// of a removed objective are retained for its window, in case it comes back.
    pub fn restore(&self, kept: &SavedState, wall: SystemTime) {
        let now = since_1970(wall);
        let ahead = kept.saved_at - now;
        let dated = if ahead > AHEAD { kept.saved_at } else { now };
        let mut state = self.state();
        for tracker in &mut state.trackers {
            if let Some(kept) = kept.slos.get(&*tracker.objective.name) {
                restore(tracker, kept, dated, now);
            }
        }
        if ahead > AHEAD {
            tracing::warn!(
                seconds = ahead,
                "the clock was set back after the counts were saved; counts keep their age"
            );
        }
        state.restore_retired(&kept.slos, now);
        state.doubted.clone_from(&kept.doubted);
        if state.doubted.is_some() {
            state.follow_doubted((now - dated).round() as i64, now);
        } else if now - kept.saved_at > DOUBTFUL && !kept.slos.is_empty() {
            state.doubted = Some(Doubted {
                since: now as i64,
                state: Box::new(kept.clone()),
            });
        }
    }

    /// The state to save; `None` if nothing changed since the last save. `now` and `wall` are the
    /// same moment on two clocks.
    pub fn kept(&self, now: Instant, wall: SystemTime) -> Option<SavedState> {
        let mut state = self.state();
        // The clock that dates the file also dates the counts.
        state.follow(now, wall);
        if !std::mem::take(&mut state.changed) {
            return None;
        }
        let now = since_1970(wall);
        let mut slos = state.retired.clone();
        for tracker in &state.trackers {
            let name = tracker.objective.name.to_string();
            slos.insert(name, tracker.kept(now as u64));
        }
        Some(SavedState {
            version: 1,
            saved_at: now,
            slos,
            doubted: state.doubted.clone(),
        })
    }

    /// Marks the state as not saved, so that it is saved again.
    pub fn keep_again(&self) {
        self.state().changed = true;
    }
}

fn restore(tracker: &mut Tracker, kept: &SavedTracker, dated: f64, now: f64) {
    if dated != now {
        // The tracker is restored at the saved time, then moved to the current time as a whole.
        *tracker = Tracker::new(&tracker.objective, dated as u64);
    }
    tracker.restore(dated as u64, kept);
    if dated != now {
        tracker.redate((now - dated).round() as i64);
    }
}
