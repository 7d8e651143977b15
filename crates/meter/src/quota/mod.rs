//! Quotas of calls: requests and tokens per minute, and calls at once, for each route,
//! workload, session or key. Off unless configured. Tokens are charged as they stream, so
//! a call that is let in may go into debt, and the next one waits until it is paid. A quota
//! that is bound to an objective holds only while that objective burns: that sheds calls of
//! little priority for those that matter. One in shadow mode only counts what it would have
//! refused. Time is an argument but to `governor`.

mod key;
mod state;
#[cfg(test)]
mod tests;
mod tokens;

pub use key::keys_of;
use state::QuotaState;
use std::num::NonZeroU32;
use std::sync::Arc;
use tokengauge_core::caller::{
    Caller, LimitKey, LimitMatch, Mode, OnUnreadable, Refusal, depends_on_bodies,
};
use tokengauge_core::selector::Selector;

/// Quotas of one process.
pub const MAX_QUOTAS: usize = 32;
/// Sessions, keys or other names that one quota remembers; all others share one more.
pub const MAX_NAMES: usize = 10_000;

/// How much there is.
#[derive(Clone, Debug, PartialEq)]
pub struct Quota {
    /// Its name; the `quota` label.
    pub name: Arc<str>,
    /// Who has as much of their own.
    pub per: QuotaScope,
    /// Which calls count.
    pub select: Selector,
    /// Requests, at once or spread over a minute.
    pub requests_per_minute: Option<NonZeroU32>,
    /// Tokens of input and output, at once or spread over a minute.
    pub tokens_per_minute: Option<NonZeroU32>,
    /// Calls under way at once; 0 refuses all.
    pub concurrent: Option<u32>,
    /// The objective that has to burn for it to hold.
    pub while_burning: Option<Arc<str>>,
    /// Whether it refuses.
    pub mode: Mode,
    /// What becomes of a call whose body decides and cannot be read.
    pub on_unreadable: OnUnreadable,
}

/// Who has a quota of their own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
#[serde(rename_all = "snake_case")]
pub enum QuotaScope {
    /// Nobody: it is for all calls together.
    #[default]
    All,
    /// Each route.
    Route,
    /// Each workload.
    Workload,
    /// Each session.
    Session,
    /// Each agent.
    Agent,
    /// Each user.
    User,
    /// Each model, by the name that was asked for.
    Model,
    /// Each key that requests carry for the provider.
    Key,
}

impl QuotaScope {
    /// Its word in the configuration.
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
        }
    }
}

/// What a call that a quota refused lacked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum Resource {
    /// Requests of this minute.
    Requests,
    /// Tokens of this minute.
    Tokens,
    /// Calls at once.
    Concurrent,
    /// A body that can be read.
    ReadableBody,
}

impl Resource {
    /// All resources.
    pub const ALL: [Resource; 4] = [
        Resource::Requests,
        Resource::Tokens,
        Resource::Concurrent,
        Resource::ReadableBody,
    ];

    /// The word used in labels.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// Why calls counted together with others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum SharedReason {
    /// They named nobody.
    Nameless,
    /// Too many names were known.
    TooManyNames,
    /// Their body could not be read.
    UnreadableBody,
}

impl SharedReason {
    /// All reasons.
    pub const ALL: [SharedReason; 3] = [
        SharedReason::Nameless,
        SharedReason::TooManyNames,
        SharedReason::UnreadableBody,
    ];

    /// The word used in labels.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// How a quota stands.
#[derive(Clone, Debug, PartialEq)]
pub struct QuotaStatus {
    /// Its name.
    pub name: Arc<str>,
    /// Whether it holds just now.
    pub active: bool,
    /// Calls refused, by what they lacked.
    pub refused: [(Resource, u64); 4],
    /// Calls that would have been refused if it were not in shadow mode.
    pub shadow_refused: [(Resource, u64); 4],
    /// Calls that counted under the name that all share who have none of their own.
    pub shared: [(SharedReason, u64); 3],
}

/// All quotas with what was taken of them.
#[derive(Debug, Default)]
pub struct Quotas(Vec<Arc<QuotaState>>);

impl Quotas {
    /// Quotas of which nothing is usage.
    pub fn new(quotas: &[Quota]) -> Arc<Quotas> {
        let states = quotas.iter().map(|quota| Arc::new(QuotaState::new(quota)));
        Arc::new(Quotas(states.collect()))
    }

    /// The same where others held until now: those of which as much may be taken keep what
    /// was, whether they refuse or not.
    pub fn carry_over(&self, known: &Quotas) -> Arc<Quotas> {
        let states = self.0.iter().map(|state| {
            let kept = known.0.iter().find(|known| known.shares_usage_with(state));
            let kept = kept.map(|kept| Arc::new(kept.reconfigured(&state.quota)));
            kept.unwrap_or_else(|| Arc::clone(state))
        });
        Arc::new(Quotas(states.collect()))
    }

    /// What each of them allows.
    pub fn all(&self) -> impl Iterator<Item = &Quota> {
        self.0.iter().map(|state| &state.quota)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether any is for each key.
    pub fn need_keys(&self) -> bool {
        self.0
            .iter()
            .any(|state| state.quota.per == QuotaScope::Key)
    }

    /// Whether some of them may depend on bodies of calls.
    pub fn may_depend_on_bodies(&self) -> bool {
        self.all().any(|quota| {
            let of_head = matches!(
                quota.per,
                QuotaScope::All | QuotaScope::Route | QuotaScope::Key
            );
            !of_head || depends_on_bodies(&quota.select)
        })
    }

    /// Whether the body decides what some of them are to the call.
    pub fn depend_on_body(&self, caller: &Caller<'_>) -> bool {
        let mut states = self.0.iter();
        states.any(|state| state.limit_match(caller) == LimitMatch::DependsOnBody)
    }

    /// Takes a request and a place of every quota that the call falls under. What is not
    /// known of it by now cannot be read.
    ///
    /// # Errors
    ///
    /// When one of them has none left, or refuses what it cannot read.
    pub fn admit(&self, caller: &Caller<'_>) -> Result<Permit, Refusal> {
        let mut permit = Permit::default();
        for state in &self.0 {
            state.admit(caller, &mut permit.0)?;
        }
        Ok(permit)
    }

    /// Once a second: `burning` objectives switch the quotas that are bound to them on and
    /// off, and whoever took nothing for a while is forgotten.
    pub fn refresh(&self, burning: &[Arc<str>]) {
        self.0.iter().for_each(|state| state.refresh(burning));
    }

    /// The status of each quota.
    pub fn statuses(&self) -> Vec<QuotaStatus> {
        self.0.iter().map(|state| state.status()).collect()
    }
}

/// What one call has of the quotas. Gives its places back when it is dropped.
#[derive(Debug, Default)]
pub struct Permit(Vec<state::QuotaLease>);

impl Permit {
    /// So many tokens more came for it.
    pub fn charge(&self, tokens: u64) {
        self.0.iter().for_each(|lease| lease.charge(tokens));
    }

    /// Gives its places back before the record of the call is written.
    pub fn release_slots(&self) {
        self.0.iter().for_each(state::QuotaLease::release_slot);
    }
}
