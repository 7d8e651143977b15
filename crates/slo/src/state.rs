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
/// A clock by which the last process ended longer ago, in seconds, may be wrong. A shorter error expires few counts.
const DOUBTFUL: f64 = 86_400.0;

/// The folder with the saved state.
#[derive(Debug)]
pub struct StateFolder {
    folder: PathBuf,
    file: StateFile,
}

impl StateFolder {
    /// Creates the folder where it is missing.
    ///
    /// # Errors
    /// Where that is impossible.
    pub fn open(folder: &Path) -> io::Result<StateFolder> {
        Ok(StateFolder {
            folder: folder.to_owned(),
            file: StateFile::open(folder, STATE)?,
        })
    }

    /// Whether [`StateFolder::open`] would succeed, and changes could be written into the audit log. Leaves nothing behind.
    ///
    /// # Errors
    /// Why not.
    pub fn check(folder: &Path) -> io::Result<()> {
        StateFile::check(folder, STATE)?;
        private::check_append(&folder.join(AUDIT))
    }

    /// The saved state; empty where there is none. A damaged file is renamed; one that cannot be
    /// read is logged.
    pub fn load(&self) -> SavedState {
        let kept = self.file.read().unwrap_or_else(|error| {
            tracing::error!(%error, file = STATE, "what was counted before cannot be read");
            None
        });
        kept.unwrap_or_default()
    }

    /// Saves the state, and returns when it is on the disk. `false` where another process holds
    /// the lock.
    ///
    /// # Errors
    /// Where the disk refuses.
    pub fn save(&mut self, kept: &SavedState) -> io::Result<bool> {
        self.file.write(kept)
    }

    /// Appends lines to the audit log.
    ///
    /// # Errors
    /// Where the disk refuses.
    pub fn audit(&self, lines: &[String]) -> io::Result<()> {
        audit::append(&self.folder.join(AUDIT), lines)
    }
}

impl Slos {
    /// Restores the saved state. Counts of an objective whose judgement changed are dropped; those
    /// of one that is not configured any more are retained for its window, in case it comes back.
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
                "the clock went back since the counts were kept; they keep their age"
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

    /// The state to save; `None` if nothing changed since the last time. `now` and `wall` are the same moment on two clocks.
    pub fn kept(&self, now: Instant, wall: SystemTime) -> Option<SavedState> {
        let mut state = self.state();
        // Counts are dated by the clock that dates the file.
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

    /// Notes that saving failed, so that the state is saved again.
    pub fn keep_again(&self) {
        self.state().changed = true;
    }
}

fn restore(tracker: &mut Tracker, kept: &SavedTracker, dated: f64, now: f64) {
    if dated != now {
        // Made for the kept time, then moved to ours as a whole.
        *tracker = Tracker::new(&tracker.objective, dated as u64);
    }
    tracker.restore(dated as u64, kept);
    if dated != now {
        tracker.redate((now - dated).round() as i64);
    }
}
