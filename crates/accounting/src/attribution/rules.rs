//! The configured sources of session, agent and user.

use super::agent_names::AgentNameRule;
use super::payers::PayerRules;
use super::value::clean;
use http::HeaderName;
use tokengauge_wire::JsonPath;

/// The limit for configured headers and for configured paths, separately for session, agent and
/// user.
pub const MAX_SOURCES: usize = 16;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    pub hash_users: bool,
    /// Whether sessions without a name are guessed from the beginning of the conversation.
    pub guess_sessions: bool,
    pub session: NameSources,
    pub agent: NameSources,
    pub user: NameSources,
    pub agent_names: Vec<AgentNameRule>,
    /// The name of agents that only their user agent identifies.
    pub default_agent: Option<String>,
    pub payers: PayerRules,
}

impl Rules {
    /// Sets the name of agents that only their user agent identifies. An empty name or one with
    /// control characters is ignored.
    pub fn set_default_agent(&mut self, name: &str) {
        self.default_agent = clean(name);
    }
}

/// Headers and members of the body that take precedence over the known ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NameSources {
    /// The first header that is present wins.
    pub headers: Vec<HeaderName>,
    /// The first path that is present wins.
    pub paths: Vec<JsonPath>,
}

impl Default for Rules {
    fn default() -> Self {
        Rules {
            hash_users: true,
            guess_sessions: false,
            session: NameSources::default(),
            agent: NameSources::default(),
            user: NameSources::default(),
            agent_names: Vec::new(),
            default_agent: None,
            payers: PayerRules::default(),
        }
    }
}
