//! Quotas of calls: requests and tokens per minute, and concurrent calls, for each route,
//! workload, session or key. Off unless configured. Tokens are charged as they stream, so an
//! admitted call may go into debt, and the next one has to wait until that is paid. A quota
//! that is bound to an objective applies only while that objective burns: this sheds calls of
//! low priority in favour of important ones. One that is for sessions that run away applies to
//! their calls alone. One in shadow mode only counts what it would have
//! refused. Time is an argument, except for `governor`.

mod headers;
mod lease;
mod rate;
mod shared;
mod state;
#[cfg(test)]
mod tests;
mod tokens;

use crate::sharing::Sharing;
pub(crate) use headers::fields as header_fields;
pub use lease::{LeaseResponse, RateReport, SlotReport};
pub use shared::{Due, LimitId, LimitReport, Remaining};
use state::QuotaState;
use std::collections::HashSet;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Instant;
use tokengauge_core::caller::{
    Caller, LimitKey, LimitMatch, Mode, OnUnreadable, Refusal, depends_on_bodies,
};
use tokengauge_core::selector::Selector;

pub const MAX_QUOTAS: usize = 32;
/// The most sessions, keys or other names that one quota tracks; all others share one entry.
pub const MAX_NAMES: usize = 10_000;

#[derive(Clone, Debug, PartialEq)]
pub struct Quota {
    /// Its name; the `quota` label.
    pub name: Arc<str>,
    /// By what it counts: each of these has the full amount.
    pub per: QuotaScope,
    pub select: Selector,
    /// Requests per minute; also the burst.
    pub requests_per_minute: Option<NonZeroU32>,
    /// Tokens of input and output per minute; also the burst.
    pub tokens_per_minute: Option<NonZeroU32>,
    /// Concurrent calls; 0 refuses all.
    pub concurrent: Option<u32>,
    /// The objective that has to burn for it to apply.
    pub while_burning: Option<Arc<str>>,
    /// Whether it applies to sessions that run away only.
    pub while_runaway: bool,
    pub mode: Mode,
    /// What is done with a call whose body cannot be read if the quota depends on it.
    pub on_unreadable: OnUnreadable,
}

/// By what a quota counts calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
#[serde(rename_all = "snake_case")]
pub enum QuotaScope {
    /// All calls together.
    #[default]
    All,
    Route,
    Workload,
    Session,
    Agent,
    User,
    /// Each model, by the name that was asked for.
    Model,
    /// Each key that requests carry for the provider.
    Key,
    Team,
    CostCenter,
    Tenant,
}

impl QuotaScope {
    /// Its name in the configuration.
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    fn limit_key<'a>(self, caller: &Caller<'a>) -> LimitKey<'a> {
        match self {
            QuotaScope::All => LimitKey::Fixed("all"),
            QuotaScope::Route => LimitKey::Fixed(caller.route),
            QuotaScope::Workload => LimitKey::Name(caller.workload),
            QuotaScope::Session => LimitKey::Name(caller.session),
            QuotaScope::Agent => LimitKey::Name(caller.agent),
            QuotaScope::User => LimitKey::Name(caller.user),
            QuotaScope::Model => LimitKey::Name(caller.model),
            QuotaScope::Key => LimitKey::EachOf(caller.keys),
            QuotaScope::Team => LimitKey::Name(caller.team),
            QuotaScope::CostCenter => LimitKey::Name(caller.cost_center),
            QuotaScope::Tenant => LimitKey::Name(caller.tenant),
        }
    }
}

/// The resource for want of which a quota refused a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum Resource {
    /// Requests per minute.
    Requests,
    /// Tokens per minute.
    Tokens,
    Concurrent,
    ReadableBody,
    /// An answer of the quota store.
    QuotaStore,
}

impl Resource {
    pub const ALL: [Resource; 5] = [
        Resource::Requests,
        Resource::Tokens,
        Resource::Concurrent,
        Resource::ReadableBody,
        Resource::QuotaStore,
    ];

    /// The label value.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// Why a call counted under the shared name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum SharedReason {
    Nameless,
    TooManyNames,
    UnreadableBody,
}

impl SharedReason {
    pub const ALL: [SharedReason; 3] = [
        SharedReason::Nameless,
        SharedReason::TooManyNames,
        SharedReason::UnreadableBody,
    ];

    /// The label value.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct QuotaStatus {
    pub name: Arc<str>,
    pub active: bool,
    /// Calls refused, by the exhausted resource.
    pub refused: [(Resource, u64); Resource::ALL.len()],
    /// Calls that would have been refused if it were not in shadow mode.
    pub shadow_refused: [(Resource, u64); Resource::ALL.len()],
    /// Calls that counted under the shared name, by reason.
    pub shared: [(SharedReason, u64); 3],
    /// The least that any name has left of what processes share; nothing without a quota store.
    pub least_remaining: Vec<Remaining>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct LeftOfQuota {
    pub quota: Arc<str>,
    pub left: Vec<Remaining>,
}

#[derive(Debug, Default)]
pub struct Quotas(Vec<Arc<QuotaState>>);

impl Quotas {
    pub fn new(quotas: &[Quota]) -> Arc<Quotas> {
        Quotas::shared(quotas, None)
    }

    /// The same, shared with other processes where `sharing` is given.
    pub fn shared(quotas: &[Quota], sharing: Option<&Arc<Sharing>>) -> Arc<Quotas> {
        let states = quotas.iter();
        let states = states.map(|quota| Arc::new(QuotaState::new(quota, sharing)));
        Arc::new(Quotas(states.collect()))
    }

    /// These quotas as successors of `known`: those that changed in their mode at most keep
    /// their usage.
    pub fn carry_over(&self, known: &Quotas) -> Arc<Quotas> {
        let states = self.0.iter().map(|state| {
            let kept = known.0.iter().find(|known| known.shares_usage_with(state));
            let kept = kept.map(|kept| Arc::new(kept.reconfigured(&state.quota)));
            kept.unwrap_or_else(|| Arc::clone(state))
        });
        Arc::new(Quotas(states.collect()))
    }

    pub fn all(&self) -> impl Iterator<Item = &Quota> {
        self.0.iter().map(|state| &state.quota)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn need_keys(&self) -> bool {
        self.0
            .iter()
            .any(|state| state.quota.per == QuotaScope::Key)
    }

    pub fn may_depend_on_bodies(&self) -> bool {
        self.all().any(|quota| {
            let of_head = matches!(
                quota.per,
                QuotaScope::All
                    | QuotaScope::Route
                    | QuotaScope::Key
                    | QuotaScope::Team
                    | QuotaScope::CostCenter
                    | QuotaScope::Tenant
            );
            !of_head || quota.while_runaway || depends_on_bodies(&quota.select)
        })
    }

    /// Whether it depends on the body if some of them apply to the call.
    pub fn depend_on_body(&self, caller: &Caller<'_>) -> bool {
        let mut states = self.0.iter();
        states.any(|state| state.limit_match(caller) == LimitMatch::DependsOnBody)
    }

    /// Takes a request and a slot of every quota that applies to the call. What is unknown of
    /// the call now counts as unreadable.
    ///
    /// # Errors
    ///
    /// If one of them is exhausted, or refuses what cannot be read.
    pub fn admit(&self, caller: &Caller<'_>) -> Result<Permit, Refusal> {
        let mut permit = Permit::default();
        for state in &self.0 {
            state.admit(caller, &mut permit.0)?;
        }
        Ok(permit)
    }

    /// To be called once a second: switches the quotas that are bound to `burning` objectives or
    /// to sessions that run away on and off, and forgets idle names.
    pub fn refresh(&self, burning: &[Arc<str>], runaway: &Arc<HashSet<Arc<str>>>) {
        self.0
            .iter()
            .for_each(|state| state.refresh(burning, runaway));
    }

    /// What is left to a key, by its digest, of quotas that count by key and refuse calls. A key that was never used
    /// has all of it.
    pub fn left_to_key(&self, key: &str) -> Vec<LeftOfQuota> {
        let by_key = self.0.iter().filter(|state| {
            state.quota.per == QuotaScope::Key && state.quota.mode == Mode::Enforce
        });
        let left = by_key.map(|state| LeftOfQuota {
            quota: Arc::clone(&state.quota.name),
            left: state.left(key),
        });
        left.collect()
    }

    pub fn reports(&self, due: Due) -> Vec<(LimitId, LimitReport)> {
        let mut reports = Vec::new();
        self.0
            .iter()
            .for_each(|state| state.reports(due, &mut reports));
        reports
    }

    /// Takes over the quota store's answer to a report that was sent at `sent`.
    pub fn answered(
        &self,
        id: &LimitId,
        report: &LimitReport,
        response: LeaseResponse,
        sent: Instant,
    ) {
        let state = self.0.iter().find(|state| state.quota.name == id.quota);
        if let Some(state) = state {
            state.answered(id, report, response, sent);
        }
    }

    pub fn statuses(&self) -> Vec<QuotaStatus> {
        self.0.iter().map(|state| state.status()).collect()
    }
}

/// What one call holds of all quotas. Releases its slots when dropped.
#[derive(Debug, Default)]
pub struct Permit(Vec<state::QuotaLease>);

impl Permit {
    pub fn charge(&self, tokens: u64) {
        self.0.iter().for_each(|lease| lease.charge(tokens));
    }

    /// What is left to the call's names, where processes share the quotas.
    pub fn remaining(&self, quotas: &Quotas) -> Vec<Remaining> {
        let left = self.0.iter().flat_map(|lease| {
            let quota = quotas.0.iter().find(|state| lease.is_of(state));
            quota.map_or(Vec::new(), |state| lease.remaining(&state.quota))
        });
        left.collect()
    }

    /// Releases its slots, before the record of the call is written.
    pub fn release_slots(&self) {
        self.0.iter().for_each(state::QuotaLease::release_slot);
    }
}
