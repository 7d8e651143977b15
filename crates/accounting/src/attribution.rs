//! Attributes a call to a session, agent, user and experiment, from values that agents already
//! send.
//!
//! Use these values only for correlation and never for authorization. Every value is cut at 200
//! characters, ignored if it has control characters, and forwarded unchanged.
//!
//! The first source with a value wins:
//! - Session: our own header, configured headers, configured paths, headers of known agents and
//!   gateways, the body, baggage. Then three guesses: the key of a prompt cache, the trace, the
//!   beginning of the conversation.
//! - Agent: our own header, configured headers and paths, a name assigned by port, path or key,
//!   known headers, the default name of the process, the user agent.
//! - User: our own header, configured headers and paths, the body, known headers, baggage.

mod agent_names;
mod codex;
mod conversations;
mod headers;
mod payers;
mod request_facts;
mod request_headers;
mod rules;
#[cfg(test)]
mod tests;
mod value;
mod workload;

use tokengauge_core::call::{BodyNames, RequestFacts, SessionGuess};
use value::clean;

pub use agent_names::check_key;
pub use agent_names::{AgentNameRule, MAX_AGENT_NAMES};
pub use conversations::{Conversations, Prefixes};
pub use headers::HeaderAttribution;
pub use payers::{
    MAX_PAYER_KEYS, MAX_PAYERS, PayerHeaders, PayerRule, PayerRules, PayerTable, payer_name,
};
pub use request_facts::request_facts;
pub(crate) use request_facts::{StrictFacts, strict_facts};
pub use rules::{MAX_SOURCES, NameSources, Rules};
pub use value::pseudonym;
pub use workload::{Workload, WorkloadAssignment};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attribution {
    pub session: Option<String>,
    /// The source of a guessed session; `None` if the session is named.
    pub session_guess: Option<SessionGuess>,
    /// The name that the agent gives itself.
    pub agent: Option<String>,
    pub parent_agent: Option<String>,
    /// The user, hashed unless configured otherwise.
    pub user: Option<String>,
    pub experiment: Option<String>,
    pub variant: Option<String>,
    pub trace_id: Option<u128>,
}

impl Attribution {
    pub fn merged(
        headers: Option<&HeaderAttribution>,
        facts: Option<&RequestFacts>,
        rules: &Rules,
    ) -> Self {
        let headers = headers.cloned().unwrap_or_default();
        let nothing = RequestFacts::default();
        let facts = facts.unwrap_or(&nothing);
        let unnamed = BodyNames::default();
        let configured = facts.configured.as_deref().unwrap_or(&unnamed);
        let of_body = |value: &Option<String>| value.as_deref().and_then(clean);
        let hashed =
            |value: &Option<String>| of_body(value).map(|user| pseudonym(user, rules.hash_users));
        let session = headers
            .session
            .or_else(|| of_body(&configured.session))
            .or(headers.known_session)
            .or_else(|| of_body(&facts.session))
            .or(headers.baggage_session);
        let (session, session_guess) = match session {
            Some(session) => (Some(session), None),
            None => guess(headers.trace_id, facts),
        };
        Attribution {
            session_guess,
            session,
            agent: headers
                .agent
                .or_else(|| of_body(&configured.agent))
                .or(headers.assigned_agent)
                .or(headers.known_agent),
            parent_agent: headers.parent_agent,
            user: headers
                .user
                .or_else(|| hashed(&configured.user))
                .or_else(|| hashed(&facts.user))
                .or(headers.known_user),
            experiment: headers.experiment,
            variant: headers.variant,
            trace_id: headers.trace_id,
        }
    }
}

fn guess(trace: Option<u128>, facts: &RequestFacts) -> (Option<String>, Option<SessionGuess>) {
    let trace = trace.map(|id| format!("{id:032x}"));
    let hint = facts.session_hint.as_deref().and_then(clean);
    let mut guesses = [
        (hint, SessionGuess::PromptCacheKey),
        (trace, SessionGuess::Trace),
        (
            facts.prefix_session.as_deref().map(str::to_owned),
            SessionGuess::Prefix,
        ),
    ]
    .into_iter();
    match guesses.find(|(session, _)| session.is_some()) {
        Some((session, by)) => (session, Some(by)),
        None => (None, None),
    }
}
