use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokengauge_cause::Cause;

/// How long a cause counts as current.
const CURRENT: Duration = Duration::from_secs(15);

#[derive(Debug, Default)]
pub struct Causes {
    pub(super) found: Mutex<BTreeMap<Arc<str>, Found>>,
    /// Held while causes are searched, so that only one thread does it.
    pub(super) looking: Mutex<()>,
}

#[derive(Clone, Debug)]
pub struct Found {
    pub at: Instant,
    pub firing: bool,
    pub cause: Arc<Cause>,
}

impl Causes {
    pub fn of(&self, objective: &str) -> Option<Arc<Cause>> {
        let found = self.found.lock();
        found.get(objective).map(|found| Arc::clone(&found.cause))
    }

    /// Whether a recent cause is known. A cause is searched again when an alert begins to fire.
    pub fn is_current(&self, burning: &Burning, now: Instant) -> bool {
        let found = self.found.lock();
        found.get(&burning.objective).is_some_and(|found| {
            let age = now.saturating_duration_since(found.at);
            age < CURRENT && found.firing == burning.firing
        })
    }
}

pub struct Burning {
    pub objective: Arc<str>,
    pub firing: bool,
}
