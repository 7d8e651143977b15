//! A token bucket that is charged afterwards, because the length of a stream is not known in
//! advance. A name that used more than it had goes into debt, and is refused until the debt is
//! paid.

use super::rate::Rate;
use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

#[derive(Debug)]
pub(super) struct Tokens {
    per_minute: NonZeroU32,
    bucket: Rate,
    owed: Mutex<HashMap<Arc<str>, u64>>,
}

impl Tokens {
    pub(super) fn new(per_minute: NonZeroU32) -> Tokens {
        Tokens {
            per_minute,
            bucket: Rate::new(per_minute),
            owed: Mutex::default(),
        }
    }

    pub(super) fn owes(&self, name: &str) -> bool {
        self.owed().contains_key(name)
    }

    pub(super) fn left(&self, name: &str) -> u32 {
        if self.owes(name) {
            0
        } else {
            self.bucket.left(name)
        }
    }

    pub(super) fn charge(&self, name: &Arc<str>, tokens: u64) {
        let mut owed = self.owed();
        let all = owed.remove(name).unwrap_or(0).saturating_add(tokens);
        let (left, _) = self.pay(name, all);
        if left > 0 {
            owed.insert(Arc::clone(name), left);
        }
    }

    /// How long until `name` has no debt and one token. Takes that token if there is no wait.
    pub(super) fn wait(&self, name: &Arc<str>) -> Option<Duration> {
        let mut owed = self.owed();
        let all = owed.remove(name).unwrap_or(0).saturating_add(1);
        let (left, wait) = self.pay(name, all);
        // A refused call does not owe its token.
        if left > 1 {
            owed.insert(Arc::clone(name), left - 1);
        }
        wait
    }

    /// Pays as much as possible. Returns the rest, and how long until the rest can be paid.
    fn pay(&self, name: &Arc<str>, mut owed: u64) -> (u64, Option<Duration>) {
        let most = u64::from(self.per_minute.get());
        while let Some(part) = NonZeroU32::new(owed.min(most) as u32) {
            let Err(wait) = self.bucket.take(name, part) else {
                owed -= u64::from(part.get());
                continue;
            };
            // Take everything that is available, so that tokens that return from now on pay the
            // rest.
            let missing = (wait.as_secs_f64() / 60.0 * most as f64).ceil() as u32;
            let there = NonZeroU32::new(part.get().saturating_sub(missing));
            if let Some(there) = there.filter(|there| self.bucket.take(name, *there).is_ok()) {
                owed -= u64::from(there.get());
            }
            let behind = owed.saturating_sub(most) as f64 / most as f64;
            return (owed, Some(wait + Duration::from_secs_f64(behind * 60.0)));
        }
        (0, None)
    }

    /// Pays debts as far as possible, and forgets names whose bucket is full.
    pub(super) fn pay_debts(&self) {
        self.owed().retain(|name, owed| {
            *owed = self.pay(name, *owed).0;
            *owed > 0
        });
        self.bucket.retain_recent();
    }

    fn owed(&self) -> MutexGuard<'_, HashMap<Arc<str>, u64>> {
        self.owed.lock()
    }
}
