//! The condition of the ledger's file, shared by the writer, its readers and the sinks.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const STARTING: &str = "starting";

#[derive(Debug)]
pub(super) struct Condition {
    unwritable: Mutex<Option<&'static str>>,
    /// Increases whenever the file is opened. Data that was read earlier may be from another file.
    opened: AtomicU64,
    suspect: AtomicBool,
    lost: Mutex<HashMap<String, u64>>,
}

impl Default for Condition {
    fn default() -> Condition {
        Condition {
            unwritable: Mutex::new(Some(STARTING)),
            opened: AtomicU64::new(0),
            suspect: AtomicBool::new(false),
            lost: Mutex::default(),
        }
    }
}

impl Condition {
    /// Why the file cannot be written to, as a label of
    /// [`WriteError::REASONS`](super::WriteError::REASONS); `None` while it can.
    pub(super) fn unwritable(&self) -> Option<&'static str> {
        *self.unwritable.lock()
    }

    /// Returns whether the reason is new.
    pub(super) fn set_unwritable(&self, reason: Option<&'static str>) -> bool {
        std::mem::replace(&mut *self.unwritable.lock(), reason) != reason
    }

    pub(super) fn opened(&self) -> u64 {
        self.opened.load(Ordering::Acquire)
    }

    pub(super) fn has_opened(&self) {
        self.opened.fetch_add(1, Ordering::Release);
    }

    pub(super) fn suspect(&self) {
        self.suspect.store(true, Ordering::Relaxed);
    }

    /// Whether a reader has found damage since the last call.
    pub(super) fn take_suspicion(&self) -> bool {
        self.suspect.swap(false, Ordering::Relaxed)
    }

    /// Number of calls that this sink never gets, because they were in files that are lost.
    pub(super) fn lost(&self, sink: &str) -> u64 {
        self.lost.lock().get(sink).copied().unwrap_or(0)
    }

    pub(super) fn lose(&self, calls: HashMap<String, u64>) {
        let mut lost = self.lost.lock();
        for (sink, calls) in calls {
            *lost.entry(sink).or_default() += calls;
        }
    }
}
