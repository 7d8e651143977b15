//! The causes that were found for missed objectives.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokengauge_cause::Cause;

/// How long a cause is taken for current.
const CURRENT: Duration = Duration::from_secs(15);

#[derive(Debug, Default)]
pub struct Causes {
    pub(super) found: Mutex<BTreeMap<Arc<str>, Found>>,
    /// Held while causes are looked for, so that only one thread does.
    pub(super) looking: Mutex<()>,
}

#[derive(Clone, Debug)]
pub struct Found {
    pub at: Instant,
    /// Whether an alert fired at that time.
    pub firing: bool,
    pub cause: Arc<Cause>,
}

impl Causes {
    pub fn of(&self, objective: &str) -> Option<Arc<Cause>> {
        let found = self.found.lock();
        found.get(objective).map(|found| Arc::clone(&found.cause))
    }

    /// Whether there is one that is not old. It is worked out again when an alert begins to fire.
    pub fn is_current(&self, burning: &Burning, now: Instant) -> bool {
        let found = self.found.lock();
        found.get(&burning.objective).is_some_and(|found| {
            let age = now.saturating_duration_since(found.at);
            age < CURRENT && found.firing == burning.firing
        })
    }
}

/// An objective whose budget burns.
pub struct Burning {
    pub objective: Arc<str>,
    pub firing: bool,
}
