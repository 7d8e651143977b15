//! One quota and its usage.

use super::lease::LeaseResponse;
use super::rate::Rate;
use super::shared::{Due, LimitId, LimitReport, Remaining, SharedUsage, Shortage};
use super::tokens::Tokens;
use super::{MAX_NAMES, Quota, QuotaScope, QuotaStatus, Resource, SharedReason};
use crate::sharing::Sharing;
use arc_swap::ArcSwap;
use parking_lot::{Mutex, MutexGuard};
use std::collections::{HashMap, HashSet};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokengauge_core::caller::{Caller, KnownName, LimitMatch, Mode, OnUnreadable, Refusal, SHARED};

/// A name is forgotten after this number of seconds without a request. Its buckets are full again
/// by then.
const FORGET_AFTER: u64 = 120;

/// When to retry a call beyond the limit of concurrent calls. It is unknown when a call ends.
const SLOT_RETRY_AFTER: Duration = Duration::from_secs(1);

/// Seconds between two log lines about the calls that a quota in shadow mode would refuse.
const SHADOW_LOG_EVERY: u64 = 60;

#[derive(Debug)]
pub(super) struct QuotaState {
    pub(super) quota: Quota,
    usage: Arc<QuotaUsage>,
}

#[derive(Debug)]
struct QuotaUsage {
    /// Whether the quota applies now. It is false while its objective does not burn, or while no
    /// session is a runaway.
    active: AtomicBool,
    runaway: ArcSwap<HashSet<Arc<str>>>,
    requests: Option<Rate>,
    tokens: Option<Tokens>,
    leased: Option<SharedUsage>,
    in_flight: Mutex<HashMap<Arc<str>, u32>>,
    /// When each name was last seen, in seconds since the start.
    names: Mutex<HashMap<Arc<str>, u64>>,
    second: AtomicU64,
    refused: [AtomicU64; Resource::ALL.len()],
    shadow_refused: [AtomicU64; Resource::ALL.len()],
    shared: [AtomicU64; 3],
    next_log_at: AtomicU64,
}

impl QuotaState {
    pub(super) fn new(quota: &Quota, sharing: Option<&Arc<Sharing>>) -> QuotaState {
        let usage = QuotaUsage {
            active: AtomicBool::new(quota.while_burning.is_none() && !quota.while_runaway),
            runaway: ArcSwap::default(),
            requests: quota.requests_per_minute.map(Rate::new),
            tokens: quota.tokens_per_minute.map(Tokens::new),
            leased: sharing.map(|sharing| SharedUsage::new(quota, sharing)),
            in_flight: Mutex::default(),
            names: Mutex::default(),
            second: AtomicU64::new(0),
            refused: Default::default(),
            shadow_refused: Default::default(),
            shared: Default::default(),
            next_log_at: AtomicU64::new(0),
        };
        QuotaState {
            quota: quota.clone(),
            usage: Arc::new(usage),
        }
    }

    /// Whether both quotas count the same usage, because they differ at most in their mode.
    pub(super) fn shares_usage_with(&self, other: &QuotaState) -> bool {
        let Quota {
            mode,
            on_unreadable,
            ..
        } = other.quota;
        let same = Quota {
            mode,
            on_unreadable,
            ..self.quota.clone()
        };
        same == other.quota
    }

    pub(super) fn reconfigured(&self, quota: &Quota) -> QuotaState {
        QuotaState {
            quota: quota.clone(),
            usage: Arc::clone(&self.usage),
        }
    }

    pub(super) fn limit_match<'a>(&self, caller: &Caller<'a>) -> LimitMatch<'a> {
        if !self.usage.active.load(Ordering::Relaxed) {
            return LimitMatch::Excluded;
        }
        let known = caller.limit_match(&self.quota.select, self.quota.per.limit_key(caller));
        if self.quota.while_runaway {
            self.of_runaway(caller.session, known)
        } else {
            known
        }
    }

    /// Restricts a match to calls of runaway sessions.
    fn of_runaway<'a>(&self, session: KnownName<'_>, known: LimitMatch<'a>) -> LimitMatch<'a> {
        let runaway = self.usage.runaway.load();
        let runs_away = match session {
            KnownName::Named(session) => runaway.contains(session),
            KnownName::Several(sessions) => sessions
                .iter()
                .any(|session| runaway.contains(session.as_str())),
            KnownName::Absent => false,
            KnownName::Unread if matches!(known, LimitMatch::Excluded) => false,
            KnownName::Unread => return LimitMatch::DependsOnBody,
        };
        if runs_away {
            known
        } else {
            LimitMatch::Excluded
        }
    }

    /// Takes a slot and a request under each name of the call. In shadow mode a call that would be
    /// refused takes nothing.
    pub(super) fn admit(
        &self,
        caller: &Caller<'_>,
        leases: &mut Vec<QuotaLease>,
    ) -> Result<(), Refusal> {
        let usage = &self.usage;
        let mut unread = None;
        let names = match self.limit_match(caller) {
            LimitMatch::Excluded => return Ok(()),
            LimitMatch::Names(names) => {
                if names == [SHARED] {
                    usage.count_shared(SharedReason::Nameless);
                }
                names
            }
            LimitMatch::DependsOnBody if self.quota.on_unreadable == OnUnreadable::Refuse => {
                let refusal = || {
                    let what = format!("quota {}", self.quota.name);
                    Refusal::unreadable(&what, caller.unread)
                };
                return self.refuse(Resource::ReadableBody, refusal);
            }
            LimitMatch::DependsOnBody => {
                usage.count_shared(SharedReason::UnreadableBody);
                unread = caller.unread;
                self.quota.per.limit_key(caller).without_body()
            }
        };
        let mut new: Vec<QuotaLease> = Vec::with_capacity(names.len());
        for name in names {
            let name = usage.tracked_name(name);
            if new.iter().any(|lease| lease.name == name) {
                continue;
            }
            match usage.take(&self.quota, &name) {
                Ok(lease) => new.push(lease),
                Err(shortage) => {
                    let refusal = || self.refusal(shortage, &name).for_lack_of_memory(unread);
                    return self.refuse(shortage.0, refusal);
                }
            }
        }
        leases.append(&mut new);
        Ok(())
    }

    fn refuse(&self, resource: Resource, refusal: impl FnOnce() -> Refusal) -> Result<(), Refusal> {
        let counts = match self.quota.mode {
            Mode::Enforce => &self.usage.refused,
            Mode::Shadow => &self.usage.shadow_refused,
        };
        counts[resource as usize].fetch_add(1, Ordering::Relaxed);
        if self.quota.mode == Mode::Enforce {
            return Err(refusal());
        }
        let second = self.usage.second.load(Ordering::Relaxed);
        let next = second + SHADOW_LOG_EVERY;
        if self.usage.next_log_at.fetch_max(next, Ordering::Relaxed) <= second {
            let (quota, lack) = (&self.quota.name, resource.as_str());
            tracing::warn!(%quota, lack, "a quota in shadow mode would refuse calls; its metrics count them");
        }
        Ok(())
    }
}

impl QuotaUsage {
    fn take(self: &Arc<Self>, quota: &Quota, name: &Arc<str>) -> Result<QuotaLease, Shortage> {
        let Some(shared) = &self.leased else {
            return self.take_own(quota, name);
        };
        if shared.enforces() {
            shared.take(quota, name)?;
            let mut lease = QuotaLease::new(self, name);
            lease.shared_slot = AtomicBool::new(quota.concurrent.is_some());
            return Ok(lease);
        }
        let mut lease = self.take_own(quota, name)?;
        match shared.take(quota, name) {
            Ok(()) => lease.shared_slot = AtomicBool::new(quota.concurrent.is_some()),
            Err((resource, _)) => {
                self.shadow_refused[resource as usize].fetch_add(1, Ordering::Relaxed);
            }
        }
        Ok(lease)
    }

    fn take_own(self: &Arc<Self>, quota: &Quota, name: &Arc<str>) -> Result<QuotaLease, Shortage> {
        let most = quota.concurrent;
        if !acquire_slot(&mut self.in_flight(), name, most) {
            return Err((Resource::Concurrent, SLOT_RETRY_AFTER));
        }
        let mut lease = QuotaLease::new(self, name);
        lease.slot = AtomicBool::new(most.is_some());
        let tokens = self.tokens.as_ref();
        if let Some(wait) = tokens.and_then(|tokens| tokens.wait(&lease.name)) {
            return Err((Resource::Tokens, wait));
        }
        let requests = self.requests.as_ref();
        if let Some(Err(wait)) =
            requests.map(|requests| requests.take(&lease.name, NonZeroU32::MIN))
        {
            return Err((Resource::Requests, wait));
        }
        Ok(lease)
    }

    fn count_shared(&self, why: SharedReason) {
        self.shared[why as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// `name`, or [`SHARED`] if too many names are tracked already.
    fn tracked_name(&self, name: &str) -> Arc<str> {
        let second = self.second.load(Ordering::Relaxed);
        let mut names = self.names();
        if let Some((known, _)) = names.get_key_value(name) {
            let known = Arc::clone(known);
            names.insert(Arc::clone(&known), second);
            return known;
        }
        if names.len() >= MAX_NAMES && name != SHARED {
            self.count_shared(SharedReason::TooManyNames);
            return Arc::from(SHARED);
        }
        let new: Arc<str> = Arc::from(name);
        names.insert(Arc::clone(&new), second);
        new
    }

    /// Forgets names that were idle for long, owe no tokens and have no call in flight.
    fn forget_idle_names(&self) {
        let second = self.second.fetch_add(1, Ordering::Relaxed);
        if !second.is_multiple_of(FORGET_AFTER / 4) {
            return;
        }
        let in_flight: HashSet<_> = self.in_flight().keys().cloned().collect();
        self.names().retain(|name, seen| {
            let owes = self.tokens.as_ref().is_some_and(|tokens| tokens.owes(name));
            let leased = self
                .leased
                .as_ref()
                .is_some_and(|shared| shared.knows(name));
            owes || leased || in_flight.contains(name) || *seen + FORGET_AFTER >= second
        });
    }

    fn names(&self) -> MutexGuard<'_, HashMap<Arc<str>, u64>> {
        self.names.lock()
    }

    fn in_flight(&self) -> MutexGuard<'_, HashMap<Arc<str>, u32>> {
        self.in_flight.lock()
    }
}

impl QuotaState {
    fn refusal(&self, (resource, wait): Shortage, name: &str) -> Refusal {
        let quota = &self.quota;
        let subject = match quota.per {
            QuotaScope::All => String::new(),
            per => {
                let kind = per.as_str().replace('_', " ");
                match name {
                    SHARED => format!(" for all calls without a known {kind}"),
                    _ => format!(" for this {kind}"),
                }
            }
        };
        let number = |most: Option<NonZeroU32>| most.map_or(0, NonZeroU32::get);
        if resource == Resource::QuotaStore {
            return Refusal {
                message: format!(
                    "quota {} of this proxy is shared with other processes, and their quota store does not answer; \
                     try again after `retry-after`, or ask the operator of this proxy",
                    quota.name
                ),
                retry_after: Some(wait),
                unread: None,
            };
        }
        let (most, what) = match resource {
            Resource::Requests => (number(quota.requests_per_minute), "requests a minute"),
            Resource::Tokens => (number(quota.tokens_per_minute), "tokens a minute"),
            _ => (quota.concurrent.unwrap_or(0), "concurrent calls"),
        };
        let shared = self.usage.leased.as_ref();
        let alone = shared.and_then(|shared| shared.limit_now(resource));
        let (most, share) = match alone {
            Some(alone) => (
                alone,
                " (the share of this process while the quota store does not answer)",
            ),
            None => (most, ""),
        };
        let why = quota
            .while_burning
            .as_ref()
            .map_or_else(String::new, |slo| {
                format!(" while objective {slo} is missed")
            });
        let runaway = if quota.while_runaway {
            " while this session runs away"
        } else {
            ""
        };
        let name = &quota.name;
        let message = format!(
            "quota {name} of this proxy: {most} {what}{share}{subject}{why}{runaway}; try again after `retry-after`, or ask the operator of this proxy"
        );
        Refusal {
            message,
            retry_after: Some(wait),
            unread: None,
        }
    }

    pub(super) fn refresh(&self, burning: &[Arc<str>], runaway: &Arc<HashSet<Arc<str>>>) {
        let bound = self.quota.while_burning.as_ref();
        let burns = bound.is_none_or(|objective| burning.contains(objective));
        let holds = burns && (!self.quota.while_runaway || !runaway.is_empty());
        if self.quota.while_runaway {
            self.usage.runaway.store(Arc::clone(runaway));
        }
        if self.usage.active.swap(holds, Ordering::Relaxed) != holds {
            let (quota, runaway) = (&self.quota.name, self.quota.while_runaway);
            let objective = bound.map_or("", |objective| objective);
            tracing::warn!(%quota, objective, runaway, holds, "a conditional quota was switched on or off; `holds` shows its state");
        }
        if let Some(requests) = &self.usage.requests {
            requests.retain_recent();
        }
        if let Some(tokens) = &self.usage.tokens {
            tokens.pay_debts();
        }
        self.usage.forget_idle_names();
    }

    pub(super) fn left(&self, name: &str) -> Vec<Remaining> {
        let (quota, usage) = (&self.quota, &self.usage);
        if let Some(shared) = usage.leased.as_ref().filter(|shared| shared.enforces()) {
            return shared.remaining(quota, name);
        }
        let left = |resource, limit: u32, remaining: u32| Remaining {
            resource,
            limit: limit.into(),
            remaining: remaining.into(),
            reset: None,
        };
        let requests = quota.requests_per_minute.zip(usage.requests.as_ref());
        let requests =
            requests.map(|(most, rate)| left(Resource::Requests, most.get(), rate.left(name)));
        let tokens = quota.tokens_per_minute.zip(usage.tokens.as_ref());
        let tokens =
            tokens.map(|(most, tokens)| left(Resource::Tokens, most.get(), tokens.left(name)));
        let slots = quota.concurrent.map(|most| {
            let now = usage.in_flight().get(name).copied().unwrap_or(0);
            left(Resource::Concurrent, most, most.saturating_sub(now))
        });
        [requests, tokens, slots].into_iter().flatten().collect()
    }

    pub(super) fn status(&self) -> QuotaStatus {
        let usage = &self.usage;
        let of = |counts: &[AtomicU64; Resource::ALL.len()]| {
            Resource::ALL
                .map(|resource| (resource, counts[resource as usize].load(Ordering::Relaxed)))
        };
        let shared = |why: SharedReason| usage.shared[why as usize].load(Ordering::Relaxed);
        QuotaStatus {
            name: Arc::clone(&self.quota.name),
            active: usage.active.load(Ordering::Relaxed),
            refused: of(&usage.refused),
            shadow_refused: of(&usage.shadow_refused),
            shared: SharedReason::ALL.map(|why| (why, shared(why))),
            least_remaining: self
                .usage
                .leased
                .as_ref()
                .map_or(Vec::new(), |shared| shared.least_remaining(&self.quota)),
        }
    }

    pub(super) fn reports(&self, due: Due, reports: &mut Vec<(LimitId, LimitReport)>) {
        if let Some(shared) = &self.usage.leased {
            shared.reports(&self.quota.name, due, reports);
        }
    }

    pub(super) fn answered(
        &self,
        id: &LimitId,
        report: &LimitReport,
        response: LeaseResponse,
        sent: Instant,
    ) {
        if let Some(shared) = &self.usage.leased {
            shared.answered(id, report, response, sent);
        }
    }
}

fn acquire_slot(
    in_flight: &mut HashMap<Arc<str>, u32>,
    name: &Arc<str>,
    most: Option<u32>,
) -> bool {
    let Some(most) = most else { return true };
    let now = in_flight.get(name).copied().unwrap_or(0);
    if now >= most {
        return false;
    }
    in_flight.insert(Arc::clone(name), now + 1);
    true
}

/// The slots and charges that one call holds in one quota. Dropping the lease releases the slots.
#[derive(Debug)]
pub(super) struct QuotaLease {
    usage: Arc<QuotaUsage>,
    name: Arc<str>,
    /// Whether the call holds a slot of this process's limit on concurrent calls.
    slot: AtomicBool,
    /// Whether the call holds a slot of the shared limit on concurrent calls.
    shared_slot: AtomicBool,
}

impl QuotaLease {
    fn new(usage: &Arc<QuotaUsage>, name: &Arc<str>) -> QuotaLease {
        QuotaLease {
            usage: Arc::clone(usage),
            name: Arc::clone(name),
            slot: AtomicBool::new(false),
            shared_slot: AtomicBool::new(false),
        }
    }

    pub(super) fn is_of(&self, state: &QuotaState) -> bool {
        Arc::ptr_eq(&self.usage, &state.usage)
    }

    pub(super) fn charge(&self, tokens: u64) {
        let usage = &self.usage;
        if let Some(shared) = &usage.leased {
            shared.charge(&self.name, tokens);
            if shared.enforces() {
                return;
            }
        }
        if let Some(bucket) = &usage.tokens {
            bucket.charge(&self.name, tokens);
        }
    }

    pub(super) fn remaining(&self, quota: &Quota) -> Vec<Remaining> {
        let shared = self.usage.leased.as_ref();
        shared.map_or(Vec::new(), |shared| shared.remaining(quota, &self.name))
    }

    pub(super) fn release_slot(&self) {
        if self.shared_slot.swap(false, Ordering::Relaxed)
            && let Some(shared) = &self.usage.leased
        {
            shared.release(&self.name);
        }
        if !self.slot.swap(false, Ordering::Relaxed) {
            return;
        }
        let mut in_flight = self.usage.in_flight();
        if let Some(count) = in_flight.get_mut(&self.name) {
            *count -= 1;
            if *count == 0 {
                in_flight.remove(&self.name);
            }
        }
    }
}

impl Drop for QuotaLease {
    fn drop(&mut self) {
        self.release_slot();
    }
}
