//! Quotas of calls: requests per minute, tokens per minute and concurrent calls, for each route,
//! workload, session or key. There are none unless configured.
//!
//! Tokens are charged as they stream, so an admitted call may go into debt. The next call must wait
//! until the debt is paid. A quota that is bound to an objective applies only while that objective
//! burns, which sheds calls of low priority in favour of important ones. A quota for runaway
//! sessions applies only to their calls. In shadow mode a quota only counts the calls that it would
//! refuse. Functions take the time as an argument, except in `governor`.

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
/// The limit for sessions, keys or other names that one quota tracks. All others share one entry.
pub const MAX_NAMES: usize = 10_000;

#[derive(Clone, Debug, PartialEq)]
pub struct Quota {
    /// The name, which is also the `quota` label.
    pub name: Arc<str>,
    /// How calls are grouped. Each group has the full amount.
    pub per: QuotaScope,
    pub select: Selector,
    /// Also the burst.
    pub requests_per_minute: Option<NonZeroU32>,
    /// Tokens of input and output per minute, which is also the burst.
    pub tokens_per_minute: Option<NonZeroU32>,
    /// Concurrent calls; 0 refuses all calls.
    pub concurrent: Option<u32>,
    pub while_burning: Option<Arc<str>>,
    /// Whether the quota applies only to runaway sessions.
    pub while_runaway: bool,
    pub mode: Mode,
    /// How to treat a call whose body cannot be read, if the quota depends on the body.
    pub on_unreadable: OnUnreadable,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
#[serde(rename_all = "snake_case")]
pub enum QuotaScope {
    #[default]
    All,
    Route,
    Workload,
    Session,
    Agent,
    User,
    /// Each model, by the requested name.
    Model,
    /// Each key for the provider in requests.
    Key,
    Team,
    CostCenter,
    Tenant,
}

impl QuotaScope {
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

/// The exhausted resource for which a quota refused a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum Resource {
    Requests,
    Tokens,
    Concurrent,
    ReadableBody,
    /// The quota store did not respond.
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

    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct QuotaStatus {
    pub name: Arc<str>,
    pub active: bool,
    pub refused: [(Resource, u64); Resource::ALL.len()],
    /// Calls that would have been refused without shadow mode, by the exhausted resource.
    pub shadow_refused: [(Resource, u64); Resource::ALL.len()],
    pub shared: [(SharedReason, u64); 3],
    /// The smallest remaining amount of any name in shared quotas; empty without a quota store.
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

    pub fn shared(quotas: &[Quota], sharing: Option<&Arc<Sharing>>) -> Arc<Quotas> {
        let states = quotas.iter();
        let states = states.map(|quota| Arc::new(QuotaState::new(quota, sharing)));
        Arc::new(Quotas(states.collect()))
    }

    /// Takes over the usage of `known` quotas that are unchanged except for their mode.
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

    /// Whether the body decides if a quota applies to the call.
    pub fn depend_on_body(&self, caller: &Caller<'_>) -> bool {
        let mut states = self.0.iter();
        states.any(|state| state.limit_match(caller) == LimitMatch::DependsOnBody)
    }

    /// Takes a request and a slot of every quota that applies to the call. Facts that are still
    /// unknown count as unreadable.
    ///
    /// # Errors
    ///
    /// Returns an error if a quota is exhausted, or refuses calls that cannot be read.
    pub fn admit(&self, caller: &Caller<'_>) -> Result<Permit, Refusal> {
        let mut permit = Permit::default();
        for state in &self.0 {
            state.admit(caller, &mut permit.0)?;
        }
        Ok(permit)
    }

    /// Must be called once a second. Switches the quotas that are bound to `burning` objectives or
    /// to runaway sessions on and off, and forgets idle names.
    pub fn refresh(&self, burning: &[Arc<str>], runaway: &Arc<HashSet<Arc<str>>>) {
        self.0
            .iter()
            .for_each(|state| state.refresh(burning, runaway));
    }

    /// The remaining amounts of a key, given by its digest, in quotas that count by key and refuse
    /// calls. An unused key has the full amounts.
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

/// The slots and charges that one call holds in all quotas. Dropping it releases the slots.
#[derive(Debug, Default)]
pub struct Permit(Vec<state::QuotaLease>);

impl Permit {
    pub fn charge(&self, tokens: u64) {
        self.0.iter().for_each(|lease| lease.charge(tokens));
    }

    pub fn remaining(&self, quotas: &Quotas) -> Vec<Remaining> {
        let left = self.0.iter().flat_map(|lease| {
            let quota = quotas.0.iter().find(|state| lease.is_of(state));
            quota.map_or(Vec::new(), |state| lease.remaining(&state.quota))
        });
        left.collect()
    }

    /// Releases the slots before the record of the call is written.
    pub fn release_slots(&self) {
        self.0.iter().for_each(state::QuotaLease::release_slot);
    }
}
