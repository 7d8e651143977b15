//! What survives a restart: a file that is replaced as a whole, so that whoever is
//! killed leaves either the old one or the new one behind.

use super::calendar::since_1970;
use super::engine::Slos;
use super::tracker::{KeptTracker, Tracker};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

const STATE: &str = "slo-state.json";
const LOCK: &str = "slo-state.lock";
const AUDIT: &str = "slo-audit.jsonl";
/// Objectives of which only the counts are left.
pub(super) const MAX_RETIRED: usize = 100;
/// A file from later than this is one of a clock that was wrong.
const AHEAD: f64 = 60.0;

/// Everything that is kept.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Kept {
    version: u32,
    /// Seconds since 1970.
    saved_at: f64,
    pub(super) slos: BTreeMap<String, KeptTracker>,
}

/// The folder that it is kept in.
#[derive(Debug)]
pub struct Store {
    folder: PathBuf,
    /// Held by the one process that writes.
    lock: Option<File>,
}

impl Store {
    /// Makes the folder where it is missing.
    ///
    /// # Errors
    /// Where that is impossible.
    pub fn open(folder: &Path) -> io::Result<Store> {
        std::fs::create_dir_all(folder)?;
        let mut store = Store {
            folder: folder.to_owned(),
            lock: None,
        };
        store.locked()?;
        Ok(store)
    }

    /// What was kept; nothing where nothing was. A file that cannot be read is put
    /// aside under another name, and told.
    pub fn load(&self) -> Kept {
        let path = self.folder.join(STATE);
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Kept::default(),
            Err(error) => {
                tracing::error!(%error, file = %path.display(), "what was counted before cannot be read");
                return Kept::default();
            }
        };
        serde_json::from_str(&text).unwrap_or_else(|error| {
            let aside = path.with_extension("json.unreadable");
            let moved = std::fs::rename(&path, &aside).is_ok();
            tracing::error!(%error, file = %path.display(), moved, "what was counted before is damaged; counting anew");
            Kept::default()
        })
    }

    /// Replaces what was kept, and is back when it is on the disk. `false` where another
    /// process holds the folder.
    ///
    /// # Errors
    /// Where the disk refuses.
    pub fn save(&mut self, kept: &Kept) -> io::Result<bool> {
        if !self.locked()? {
            return Ok(false);
        }
        let (path, fresh) = (
            self.folder.join(STATE),
            self.folder.join("slo-state.json.new"),
        );
        let text = serde_json::to_vec(kept)?;
        let mut file = File::create(&fresh)?;
        file.write_all(&text)?;
        file.sync_all()?;
        std::fs::rename(&fresh, &path)?;
        // The rename itself must reach the disk too.
        File::open(&self.folder)?.sync_all()?;
        Ok(true)
    }

    /// Appends lines to the audit log.
    ///
    /// # Errors
    /// Where the disk refuses.
    pub fn audit(&self, lines: &[String]) -> io::Result<()> {
        if lines.is_empty() {
            return Ok(());
        }
        let path = self.folder.join(AUDIT);
        let mut file = OpenOptions::new().create(true).append(true).open(path)?;
        file.write_all((lines.join("\n") + "\n").as_bytes())?;
        file.sync_all()
    }

    fn locked(&mut self) -> io::Result<bool> {
        if self.lock.is_some() {
            return Ok(true);
        }
        let file = File::create(self.folder.join(LOCK))?;
        match file.try_lock() {
            Ok(()) => {
                self.lock = Some(file);
                Ok(true)
            }
            Err(TryLockError::WouldBlock) => Ok(false),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }
}

impl Slos {
    /// Goes on from what was kept. Counts of an objective whose judgement changed are
    /// left behind; those of one that is not configured any more wait for its window,
    /// in case it comes back.
    pub fn restore(&self, kept: &Kept, wall: SystemTime) {
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
        let configured = |name: &str| state.trackers.iter().any(|t| &*t.objective.name == name);
        let retired = kept.slos.iter().filter(|(name, slo)| {
            let over = Duration::from_secs(slo.kept_at) + slo.window;
            !configured(name) && over.as_secs_f64() > now
        });
        state.retired = retired
            .take(MAX_RETIRED)
            .map(|(name, slo)| (name.clone(), slo.clone().retire()))
            .collect();
    }

    /// What is to be kept at `wall`; `None` where nothing changed since the last time.
    pub fn kept(&self, wall: SystemTime) -> Option<Kept> {
        let mut state = self.state();
        if !std::mem::take(&mut state.changed) {
            return None;
        }
        let now = since_1970(wall);
        let mut slos = state.retired.clone();
        for tracker in &state.trackers {
            let name = tracker.objective.name.to_string();
            slos.insert(name, tracker.kept(now as u64));
        }
        Some(Kept {
            version: 1,
            saved_at: now,
            slos,
        })
    }

    /// What was taken to be kept was not: it must be taken again.
    pub fn keep_again(&self) {
        self.state().changed = true;
    }
}

fn restore(tracker: &mut Tracker, kept: &KeptTracker, dated: f64, now: f64) {
    if dated != now {
        // Made for the kept time, then moved to ours as a whole.
        *tracker = Tracker::new(&tracker.objective, dated as u64);
    }
    tracker.restore(dated as u64, kept);
    if dated != now {
        tracker.redate((now - dated).round() as i64);
    }
}
