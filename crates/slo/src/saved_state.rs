use super::tracker::SavedTracker;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A file dated further ahead than this, in seconds, was written with a wrong clock.
pub(super) const AHEAD: f64 = 60.0;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SavedState {
    pub(super) version: u32,
    /// Seconds since 1970.
    pub(super) saved_at: f64,
    pub(super) slos: BTreeMap<String, SavedTracker>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) doubted: Option<Doubted>,
}

/// The state before a start with a clock that may be far ahead.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Doubted {
    /// The start in seconds since 1970. It moves with the clock, as counts do.
    pub(super) since: i64,
    pub(super) state: Box<SavedState>,
}
