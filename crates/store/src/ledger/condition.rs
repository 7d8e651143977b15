//! The condition of the ledger's file: what the writer, the readers and the sinks tell each other.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Why it cannot be written to before it was opened.
const STARTING: &str = "starting";

/// Shared by the writer, its readers and the sinks.
#[derive(Debug)]
pub(super) struct Condition {
    /// Why the file cannot be written to.
    unwritable: Mutex<Option<&'static str>>,
    /// Rises whenever the file is opened. What was read before may be of another file.
    opened: AtomicU64,
    /// A reader has found damage.
    suspect: AtomicBool,
    /// Calls that sinks did not have yet when their file was lost, by sink.
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
    /// Why the file cannot be written to, as a label of [`WriteError::REASONS`](super::WriteError::REASONS); `None` while
    /// it can.
    pub(super) fn unwritable(&self) -> Option<&'static str> {
        *self.unwritable.lock()
    }

    /// Returns whether that is new.
    pub(super) fn set_unwritable(&self, reason: Option<&'static str>) -> bool {
        std::mem::replace(&mut *self.unwritable.lock(), reason) != reason
    }

    /// How many times the file was opened.
    pub(super) fn opened(&self) -> u64 {
        self.opened.load(Ordering::Acquire)
    }

    pub(super) fn has_opened(&self) {
        self.opened.fetch_add(1, Ordering::Release);
    }

    /// The file may be damaged.
    pub(super) fn suspect(&self) {
        self.suspect.store(true, Ordering::Relaxed);
    }

    /// Whether a reader has found damage since this was last asked.
    pub(super) fn take_suspicion(&self) -> bool {
        self.suspect.swap(false, Ordering::Relaxed)
    }

    /// Calls that this sink will never have, because they were in files that are lost.
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
