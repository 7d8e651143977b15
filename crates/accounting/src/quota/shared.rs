//! The usage of a quota that several processes share: a lease for each name, and the limits of this
//! process for times when the quota store does not respond.

use super::lease::{LeaseResponse, OwnShare, RateLease, RateReport, SlotLease, SlotReport};
use super::rate::MINUTE;
use super::{Quota, Resource};
use crate::sharing::{OnError, QuotaStoreState, Sharing};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// When to retry a call that was refused because the quota store does not respond or no slot is
/// free.
const RETRY_AFTER: Duration = Duration::from_secs(1);

pub(super) type Shortage = (Resource, Duration);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LimitId {
    pub quota: Arc<str>,
    pub resource: Resource,
    /// The session, user, key or other name. The quota store gets only a hash of it.
    pub name: Arc<str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitReport {
    Rate(RateReport),
    Slots(SlotReport),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// Only the reports that cannot wait for the next interval are due.
    Urgent,
    All,
    /// A report for everything that is held, because the process ends and gives it back.
    End,
}

/// The remaining amount of one limit for one name, for display and headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remaining {
    pub resource: Resource,
    pub limit: u64,
    /// The remaining amount, as far as this process knows.
    pub remaining: u64,
    /// How long until more is available; `None` if some is available now.
    pub reset: Option<Duration>,
}

#[derive(Debug, Default)]
struct NameLeases {
    requests: Option<RateLease>,
    tokens: Option<RateLease>,
    slots: Option<SlotLease>,
    urgent: bool,
}

#[derive(Debug)]
pub(super) struct SharedUsage {
    sharing: Arc<Sharing>,
    names: Mutex<HashMap<Arc<str>, NameLeases>>,
    own_requests: Option<OwnShare>,
    own_tokens: Option<OwnShare>,
    own_slots: Option<u32>,
}

impl SharedUsage {
    pub(super) fn new(quota: &Quota, sharing: &Arc<Sharing>) -> SharedUsage {
        let settings = *sharing.settings();
        let own = |limit| OwnShare {
            per_minute: settings.own_share(limit),
            replicas: settings.replicas,
        };
        let slots = |most| NonZeroU32::new(most).map_or(0, |most| settings.own_share(most).get());
        SharedUsage {
            sharing: Arc::clone(sharing),
            names: Mutex::default(),
            own_requests: quota.requests_per_minute.map(own),
            own_tokens: quota.tokens_per_minute.map(own),
            own_slots: quota.concurrent.map(slots),
        }
    }

    pub(super) fn enforces(&self) -> bool {
        self.sharing.enforces()
    }

    /// Takes a slot, a token and a request for `name`, all or none of them. Reads only memory.
    pub(super) fn take(&self, quota: &Quota, name: &Arc<str>) -> Result<(), Shortage> {
        let now = self.sharing.now();
        let (taken, wake) = {
            let mut names = self.names.lock();
            let leases = names.entry(Arc::clone(name));
            let leases = leases.or_insert_with(|| self.leases(quota, now));
            let taken = match self.sharing.state(now) {
                QuotaStoreState::Reachable => leases.take(now),
                QuotaStoreState::Away(on_error) => {
                    self.sharing.count_fallback();
                    self.take_alone(leases, on_error, now)
                }
            };
            let wake = !leases.urgent && leases.runs_low(now);
            leases.urgent |= wake;
            (taken, wake)
        };
        if wake {
            self.sharing.wake();
        }
        taken
    }

    fn leases(&self, quota: &Quota, now: Instant) -> NameLeases {
        let lease = self.sharing.settings().lease;
        let rate = |limit| RateLease::new(limit, lease, now);
        NameLeases {
            requests: quota.requests_per_minute.map(rate),
            tokens: quota.tokens_per_minute.map(rate),
            slots: quota
                .concurrent
                .map(|most| SlotLease::new(most, lease, now)),
            urgent: false,
        }
    }

    /// Decides without the quota store, which is told later.
    fn take_alone(
        &self,
        leases: &mut NameLeases,
        on_error: OnError,
        now: Instant,
    ) -> Result<(), Shortage> {
        match on_error {
            OnError::Open => {}
            OnError::Closed => return Err((Resource::QuotaStore, RETRY_AFTER)),
            OnError::Local => {
                let own = self.own_slots.unwrap_or(0);
                let slots = leases.slots.as_ref();
                if slots.is_some_and(|slots| !slots.is_available_alone(own)) {
                    return Err((Resource::Concurrent, RETRY_AFTER));
                }
                let mut rates = [
                    (Resource::Tokens, &mut leases.tokens, self.own_tokens),
                    (Resource::Requests, &mut leases.requests, self.own_requests),
                ];
                for (resource, lease, share) in &rates {
                    if let (Some(lease), Some(share)) = (lease, share)
                        && let Some(wait) = lease.wait_alone(*share, now)
                    {
                        return Err((*resource, wait));
                    }
                }
                for (_, lease, share) in &mut rates {
                    if let (Some(lease), Some(share)) = (lease, share) {
                        lease.ask(1, now);
                        lease.take_alone(*share, 1, now);
                    }
                }
            }
        }
        if let Some(slots) = &mut leases.slots {
            slots.take();
        }
        Ok(())
    }

    /// Charges `tokens` to `name`, even if fewer are available.
    pub(super) fn charge(&self, name: &Arc<str>, tokens: u64) {
        let now = self.sharing.now();
        let mut names = self.names.lock();
        let leases = names.get_mut(name);
        let Some(lease) = leases.and_then(|leases| leases.tokens.as_mut()) else {
            return;
        };
        match (self.sharing.state(now), self.own_tokens) {
            (QuotaStoreState::Away(OnError::Open), _) => {}
            (QuotaStoreState::Away(OnError::Local), Some(share)) => {
                lease.take_alone(share, tokens, now);
            }
            _ => {
                lease.ask(tokens, now);
                lease.take(tokens);
            }
        }
    }

    pub(super) fn release(&self, name: &Arc<str>) {
        let mut names = self.names.lock();
        let slots = names.get_mut(name).and_then(|leases| leases.slots.as_mut());
        if let Some(slots) = slots {
            slots.release();
        }
    }

    /// Whether `name` has a state that must not be forgotten.
    pub(super) fn knows(&self, name: &str) -> bool {
        self.names.lock().contains_key(name)
    }

    /// Collects the reports that are due at `now`, and forgets names that hold nothing.
    pub(super) fn reports(
        &self,
        quota: &Arc<str>,
        due: Due,
        reports: &mut Vec<(LimitId, LimitReport)>,
    ) {
        let now = self.sharing.now();
        let ending = due == Due::End;
        let mut names = self.names.lock();
        if due != Due::Urgent {
            names.retain(|_, leases| leases.is_kept(now));
        }
        for (name, leases) in names.iter_mut() {
            let wanted = match due {
                Due::Urgent => leases.urgent,
                Due::All | Due::End => leases.is_due(now),
            };
            if !wanted {
                continue;
            }
            leases.urgent = false;
            let id = |resource| LimitId {
                quota: Arc::clone(quota),
                resource,
                name: Arc::clone(name),
            };
            if let Some(lease) = &mut leases.requests {
                let report = LimitReport::Rate(lease.report(now, ending));
                reports.push((id(Resource::Requests), report));
            }
            if let Some(lease) = &mut leases.tokens {
                let report = LimitReport::Rate(lease.report(now, ending));
                reports.push((id(Resource::Tokens), report));
            }
            if let Some(slots) = &leases.slots {
                let report = LimitReport::Slots(slots.report(now, ending));
                reports.push((id(Resource::Concurrent), report));
            }
        }
    }

    pub(super) fn answered(
        &self,
        id: &LimitId,
        report: &LimitReport,
        response: LeaseResponse,
        sent: Instant,
    ) {
        let valid_for = self.sharing.settings().valid_for();
        let mut names = self.names.lock();
        let Some(leases) = names.get_mut(&id.name) else {
            return;
        };
        match (report, id.resource) {
            (LimitReport::Rate(report), Resource::Requests) => {
                if let Some(lease) = &mut leases.requests {
                    lease.answered(report, response, sent, valid_for);
                }
            }
            (LimitReport::Rate(report), _) => {
                if let Some(lease) = &mut leases.tokens {
                    lease.answered(report, response, sent, valid_for);
                }
            }
            (LimitReport::Slots(_), _) => {
                if let Some(slots) = &mut leases.slots {
                    slots.answered(response, sent, valid_for);
                }
            }
        }
    }

    /// The remaining amounts of `name`. An unused name has the full amounts. While the quota store
    /// does not respond, these are amounts of this process's share, and none if there is no share.
    pub(super) fn remaining(&self, quota: &Quota, name: &str) -> Vec<Remaining> {
        let now = self.sharing.now();
        match self.sharing.state(now) {
            QuotaStoreState::Reachable => {}
            QuotaStoreState::Away(OnError::Local) => return self.remaining_alone(quota, name, now),
            QuotaStoreState::Away(OnError::Open | OnError::Closed) => return Vec::new(),
        }
        match self.names.lock().get(name) {
            Some(leases) => leases.remaining(quota, now),
            None => self.leases(quota, now).remaining(quota, now),
        }
    }

    fn remaining_alone(&self, quota: &Quota, name: &str, now: Instant) -> Vec<Remaining> {
        let names = self.names.lock();
        let unused = self.leases(quota, now);
        let leases = names.get(name).unwrap_or(&unused);
        let rate = |resource, share: Option<OwnShare>, lease: &Option<RateLease>| {
            let (share, lease) = (share?, lease.as_ref()?);
            let remaining = lease.remaining_alone(share, now);
            Some(Remaining {
                resource,
                limit: share.per_minute.get().into(),
                remaining,
                reset: (remaining == 0).then(|| MINUTE / share.per_minute.get()),
            })
        };
        let requests = rate(Resource::Requests, self.own_requests, &leases.requests);
        let tokens = rate(Resource::Tokens, self.own_tokens, &leases.tokens);
        let in_use = leases.slots.as_ref().map_or(0, SlotLease::in_use);
        let slots = self.own_slots.map(|own| Remaining {
            resource: Resource::Concurrent,
            limit: own.into(),
            remaining: own.saturating_sub(in_use).into(),
            reset: None,
        });
        [requests, tokens, slots].into_iter().flatten().collect()
    }

    pub(super) fn limit_now(&self, resource: Resource) -> Option<u32> {
        if self.sharing.state(self.sharing.now()) == QuotaStoreState::Reachable {
            return None;
        }
        match resource {
            Resource::Requests => self.own_requests.map(|own| own.per_minute.get()),
            Resource::Tokens => self.own_tokens.map(|own| own.per_minute.get()),
            _ => self.own_slots,
        }
    }

    pub(super) fn least_remaining(&self, quota: &Quota) -> Vec<Remaining> {
        let now = self.sharing.now();
        // If no name is in use, everything remains.
        let mut least = self.leases(quota, now).remaining(quota, now);
        for leases in self.names.lock().values() {
            for left in leases.remaining(quota, now) {
                match least.iter_mut().find(|one| one.resource == left.resource) {
                    Some(one) if one.remaining <= left.remaining => {}
                    Some(one) => *one = left,
                    None => least.push(left),
                }
            }
        }
        least
    }
}

impl NameLeases {
    fn take(&mut self, now: Instant) -> Result<(), Shortage> {
        if let Some(slots) = &mut self.slots {
            slots.ask(now);
        }
        if let Some(lease) = &mut self.tokens {
            lease.ask(1, now);
        }
        if let Some(lease) = &mut self.requests {
            lease.ask(1, now);
        }
        if self
            .slots
            .as_ref()
            .is_some_and(|slots| !slots.is_available(now))
        {
            return Err((Resource::Concurrent, RETRY_AFTER));
        }
        for (resource, lease) in [
            (Resource::Tokens, &self.tokens),
            (Resource::Requests, &self.requests),
        ] {
            if let Some(lease) = lease
                && lease.available(now) < 1
            {
                return Err((resource, lease.wait(now)));
            }
        }
        if let Some(slots) = &mut self.slots {
            slots.take();
        }
        for lease in [&mut self.tokens, &mut self.requests].into_iter().flatten() {
            lease.take(1);
        }
        Ok(())
    }

    fn rates(&self) -> impl Iterator<Item = &RateLease> {
        [&self.requests, &self.tokens].into_iter().flatten()
    }

    fn runs_low(&self, now: Instant) -> bool {
        self.rates().any(|lease| lease.runs_low(now))
            || self.slots.as_ref().is_some_and(|slots| slots.runs_low(now))
    }

    fn is_due(&self, now: Instant) -> bool {
        self.rates().any(|lease| lease.is_due(now))
            || self.slots.as_ref().is_some_and(|slots| slots.is_due(now))
    }

    fn is_kept(&self, now: Instant) -> bool {
        self.rates().any(|lease| lease.is_kept(now)) || self.is_due(now)
    }

    fn remaining(&self, quota: &Quota, now: Instant) -> Vec<Remaining> {
        let rate = |resource, limit: Option<NonZeroU32>, lease: &RateLease| {
            let remaining = lease.remaining();
            Remaining {
                resource,
                limit: limit.map_or(0, |limit| u64::from(limit.get())),
                remaining,
                reset: (remaining == 0).then(|| lease.wait(now)),
            }
        };
        let requests = self.requests.as_ref();
        let requests =
            requests.map(|lease| rate(Resource::Requests, quota.requests_per_minute, lease));
        let tokens = self.tokens.as_ref();
        let tokens = tokens.map(|lease| rate(Resource::Tokens, quota.tokens_per_minute, lease));
        let slots = self.slots.as_ref().map(|slots| Remaining {
            resource: Resource::Concurrent,
            limit: u64::from(quota.concurrent.unwrap_or(0)),
            remaining: slots.remaining(),
            reset: None,
        });
        [requests, tokens, slots].into_iter().flatten().collect()
    }
}
