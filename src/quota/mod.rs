//! Quotas of calls: requests and tokens per minute, and calls at once, for each route,
//! workload, session or key. Off unless configured. Tokens are charged as they stream, so
//! a call that is let in may go into debt, and the next one waits until it is paid. A quota
//! that is bound to an objective holds only while that objective burns: that sheds calls of
//! little priority for those that matter. Time is an argument but to `governor`.

mod key;
mod line;
#[cfg(test)]
mod tests;
mod tokens;

use crate::slo::{Names, Selector};
pub use key::key_of;
use line::Line;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

/// Quotas of one process.
pub const MAX_QUOTAS: usize = 32;
/// Sessions, keys or other names that one quota remembers; more are not limited.
pub const MAX_NAMES: usize = 10_000;

/// How much there is.
#[derive(Clone, Debug, PartialEq)]
pub struct Quota {
    /// Its name; the `quota` label.
    pub name: Arc<str>,
    /// Who has as much of their own.
    pub per: Per,
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
}

/// Who has a quota of their own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Per {
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

impl Per {
    /// Its word in the configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Per::All => "all",
            Per::Route => "route",
            Per::Workload => "workload",
            Per::Session => "session",
            Per::Agent => "agent",
            Per::User => "user",
            Per::Model => "model",
            Per::Key => "key",
        }
    }

    fn name<'a>(self, caller: &Caller<'a>) -> Option<&'a str> {
        match self {
            Per::All => Some("all"),
            Per::Route => Some(caller.names.route),
            Per::Workload => caller.names.workload,
            Per::Session => caller.session,
            Per::Agent => caller.names.agent,
            Per::User => caller.user,
            Per::Model => caller.names.model,
            Per::Key => caller.key,
        }
    }
}

/// Who makes a call, as far as it is known.
#[derive(Clone, Copy, Debug)]
pub struct Caller<'a> {
    /// What selectors look at; the model is the one asked for.
    pub names: Names<'a>,
    /// The session.
    pub session: Option<&'a str>,
    /// The user.
    pub user: Option<&'a str>,
    /// What stands for the provider's key; never the key itself.
    pub key: Option<&'a str>,
}

/// What a quota ran out of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Resource {
    /// Requests of this minute.
    Requests,
    /// Tokens of this minute.
    Tokens,
    /// Calls at once.
    Concurrent,
}

impl Resource {
    /// All of them.
    pub const ALL: [Resource; 3] = [Resource::Requests, Resource::Tokens, Resource::Concurrent];

    /// The word used in labels.
    pub fn as_str(self) -> &'static str {
        match self {
            Resource::Requests => "requests",
            Resource::Tokens => "tokens",
            Resource::Concurrent => "concurrent",
        }
    }
}

/// Why a call is refused.
#[derive(Clone, Debug, PartialEq)]
pub struct Refusal {
    /// One sentence for the agent's log.
    pub message: String,
    /// How long until it is worth a try.
    pub retry_after: Duration,
}

/// How a quota stands.
#[derive(Clone, Debug, PartialEq)]
pub struct Standing {
    /// Its name.
    pub name: Arc<str>,
    /// Whether it holds just now.
    pub holds: bool,
    /// Calls refused, by what there was too little of.
    pub refused: [(Resource, u64); 3],
    /// Calls that were let in unlimited, because too many names were known.
    pub unlimited: u64,
}

/// All quotas with what was taken of them.
#[derive(Debug, Default)]
pub struct Quotas(Vec<Arc<Line>>);

impl Quotas {
    /// With nothing taken.
    pub fn new(quotas: &[Quota]) -> Arc<Quotas> {
        let lines = quotas.iter().map(|quota| Arc::new(Line::new(quota)));
        Arc::new(Quotas(lines.collect()))
    }

    /// The same where others held until now: those that did not change keep what was
    /// taken of them.
    pub fn after(&self, known: &Quotas) -> Arc<Quotas> {
        let lines = self.0.iter().map(|line| {
            let kept = known.0.iter().find(|known| known.quota == line.quota);
            Arc::clone(kept.unwrap_or(line))
        });
        Arc::new(Quotas(lines.collect()))
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether any is for each key.
    pub fn ask_for_keys(&self) -> bool {
        self.0.iter().any(|line| line.quota.per == Per::Key)
    }

    /// Whether the body may tell what decides.
    pub fn depend_on_body(&self, known: &Caller<'_>) -> bool {
        self.0.iter().any(|line| line.depends_on_body(known))
    }

    /// Takes a request and a place of every quota that the call falls under.
    ///
    /// # Errors
    ///
    /// When one of them has none left.
    pub fn admit(&self, caller: &Caller<'_>) -> Result<Permit, Refusal> {
        let mut permit = Permit::default();
        for line in &self.0 {
            let Some(name) = line.name(caller) else {
                continue;
            };
            if let Some(held) = line.take(name)? {
                permit.0.push(held);
            }
        }
        Ok(permit)
    }

    /// Once a second: `burning` objectives switch the quotas that are bound to them on and
    /// off, and whoever took nothing for a while is forgotten.
    pub fn follow(&self, burning: &[Arc<str>]) {
        self.0.iter().for_each(|line| line.follow(burning));
    }

    /// How they stand.
    pub fn standings(&self) -> Vec<Standing> {
        self.0.iter().map(|line| line.standing()).collect()
    }
}

/// What one call has of the quotas. Gives its places back when it is dropped.
#[derive(Debug, Default)]
pub struct Permit(Vec<line::Held>);

impl Permit {
    /// So many tokens more came for it.
    pub fn charge(&self, tokens: u64) {
        self.0.iter().for_each(|held| held.charge(tokens));
    }
}
