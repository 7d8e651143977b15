//! One quota and what was taken of it.

use super::tokens::Tokens;
use super::{Caller, MAX_NAMES, Per, Quota, Refusal, Resource, Standing};
use governor::clock::{Clock, DefaultClock};
use governor::state::keyed::HashMapStateStore;
use governor::{Quota as Pace, RateLimiter};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// So many of something a minute for each name.
pub(super) type Rate = RateLimiter<Arc<str>, HashMapStateStore<Arc<str>>, DefaultClock>;

/// Seconds without a request after which a name is forgotten: all it took of a minute is
/// back by then.
const FORGET_AFTER: u64 = 120;

/// When a place among the calls at once is worth another try: nobody knows when one ends.
const PLACE_AGAIN: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Line {
    pub(super) quota: Quota,
    /// Whether it holds just now.
    holds: AtomicBool,
    requests: Option<Rate>,
    tokens: Option<Tokens>,
    open: Mutex<HashMap<Arc<str>, u32>>,
    /// When each name was last seen, in seconds since the start.
    names: Mutex<HashMap<Arc<str>, u64>>,
    second: AtomicU64,
    refused: [AtomicU64; 3],
    unlimited: AtomicU64,
}

impl Line {
    pub(super) fn new(quota: &Quota) -> Line {
        let requests = quota.requests_per_minute.map(Pace::per_minute);
        Line {
            quota: quota.clone(),
            holds: AtomicBool::new(quota.while_burning.is_none()),
            requests: requests.map(RateLimiter::hashmap),
            tokens: quota.tokens_per_minute.map(Tokens::new),
            open: Mutex::default(),
            names: Mutex::default(),
            second: AtomicU64::new(0),
            refused: Default::default(),
            unlimited: AtomicU64::new(0),
        }
    }

    /// Whose quota a call falls under, if it does.
    pub(super) fn name(&self, caller: &Caller<'_>) -> Option<Arc<str>> {
        let quota = &self.quota;
        let applies = self.holds.load(Ordering::Relaxed) && quota.select.matches(&caller.names);
        let name = applies.then(|| quota.per.name(caller)).flatten();
        name.map(Arc::from)
    }

    /// Whether the body may tell what decides.
    pub(super) fn depends_on_body(&self, known: &Caller<'_>) -> bool {
        let Quota { per, select, .. } = &self.quota;
        let asks_model = select.model.is_some()
            || select.workload.is_some()
            || matches!(per, Per::Workload | Per::Model);
        let of_head = *per == Per::Key;
        (asks_model && known.names.model.is_none())
            || (!of_head && per.name(known).is_none())
            || (select.agent.is_some() && known.names.agent.is_none())
    }

    /// Takes a place and a request, where there are any; `None` where too many names are
    /// known to remember another.
    pub(super) fn take(self: &Arc<Self>, name: Arc<str>) -> Result<Option<Held>, Refusal> {
        if !self.remembers(&name) {
            self.unlimited.fetch_add(1, Ordering::Relaxed);
            return Ok(None);
        }
        let most = self.quota.concurrent;
        if !enter(&mut self.open(), &name, most) {
            return Err(self.refuse(Resource::Concurrent, PLACE_AGAIN));
        }
        let held = Held {
            line: Arc::clone(self),
            name,
        };
        if let Some(wait) = self
            .tokens
            .as_ref()
            .and_then(|tokens| tokens.wait(&held.name))
        {
            return Err(self.refuse(Resource::Tokens, wait));
        }
        let requests = self.requests.as_ref();
        if let Some(Err(until)) = requests.map(|requests| requests.check_key(&held.name)) {
            let wait = until.wait_time_from(DefaultClock::default().now());
            return Err(self.refuse(Resource::Requests, wait));
        }
        Ok(Some(held))
    }

    fn remembers(&self, name: &Arc<str>) -> bool {
        let second = self.second.load(Ordering::Relaxed);
        let mut names = self.names();
        if let Some(seen) = names.get_mut(name) {
            *seen = second;
            return true;
        }
        let room = names.len() < MAX_NAMES;
        if room {
            names.insert(Arc::clone(name), second);
        }
        room
    }

    /// Forgets names that were not seen for long and owe nothing.
    fn forget(&self) {
        let second = self.second.fetch_add(1, Ordering::Relaxed);
        if !second.is_multiple_of(FORGET_AFTER / 4) {
            return;
        }
        self.names().retain(|name, seen| {
            let owes = self.tokens.as_ref().is_some_and(|tokens| tokens.owes(name));
            owes || *seen + FORGET_AFTER >= second
        });
    }

    fn refuse(&self, resource: Resource, retry_after: Duration) -> Refusal {
        self.refused[resource as usize].fetch_add(1, Ordering::Relaxed);
        let quota = &self.quota;
        let whose = match quota.per {
            Per::All => String::new(),
            per => format!(" for this {}", per.as_str()),
        };
        let most = match resource {
            Resource::Requests => quota.requests_per_minute.map_or(0, u32::from),
            Resource::Tokens => quota.tokens_per_minute.map_or(0, u32::from),
            Resource::Concurrent => quota.concurrent.unwrap_or(0),
        };
        let what = match resource {
            Resource::Requests => "requests a minute",
            Resource::Tokens => "tokens a minute",
            Resource::Concurrent => "calls at once",
        };
        let why = quota
            .while_burning
            .as_ref()
            .map_or_else(String::new, |slo| {
                format!(" while objective {slo} is missed")
            });
        let name = &quota.name;
        let message = format!(
            "quota {name} of this proxy: {most} {what}{whose}{why}; try again after `retry-after`, or ask its operator"
        );
        Refusal {
            message,
            retry_after,
        }
    }

    pub(super) fn follow(&self, burning: &[Arc<str>]) {
        if let Some(objective) = &self.quota.while_burning {
            let holds = burning.contains(objective);
            if self.holds.swap(holds, Ordering::Relaxed) != holds {
                let quota = &self.quota.name;
                tracing::warn!(%quota, %objective, holds, "a quota follows its objective");
            }
        }
        if let Some(requests) = &self.requests {
            requests.retain_recent();
        }
        if let Some(tokens) = &self.tokens {
            tokens.tidy();
        }
        self.forget();
    }

    pub(super) fn standing(&self) -> Standing {
        let count = |resource: Resource| self.refused[resource as usize].load(Ordering::Relaxed);
        Standing {
            name: Arc::clone(&self.quota.name),
            holds: self.holds.load(Ordering::Relaxed),
            refused: Resource::ALL.map(|resource| (resource, count(resource))),
            unlimited: self.unlimited.load(Ordering::Relaxed),
        }
    }

    fn names(&self) -> MutexGuard<'_, HashMap<Arc<str>, u64>> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open(&self) -> MutexGuard<'_, HashMap<Arc<str>, u32>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One more for `name`, unless there are `most` already.
fn enter(open: &mut HashMap<Arc<str>, u32>, name: &Arc<str>, most: Option<u32>) -> bool {
    let Some(most) = most else { return true };
    let now = open.get(name).copied().unwrap_or(0);
    if now >= most {
        return false;
    }
    open.insert(Arc::clone(name), now + 1);
    true
}

/// What one call has of one quota.
#[derive(Debug)]
pub(super) struct Held {
    line: Arc<Line>,
    name: Arc<str>,
}

impl Held {
    pub(super) fn charge(&self, tokens: u64) {
        if let Some(bucket) = &self.line.tokens {
            bucket.charge(&self.name, tokens);
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if self.line.quota.concurrent.is_none() {
            return;
        }
        let mut open = self.line.open();
        if let Some(count) = open.get_mut(&self.name) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.name);
            }
        }
    }
}
