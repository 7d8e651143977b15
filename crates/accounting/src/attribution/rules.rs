//! The configured sources of session, agent and user.

use super::agent_names::AgentNameRule;
use super::payers::PayerRules;
use super::value::clean;
use http::HeaderName;
use tokengauge_wire::JsonPath;

/// The most headers, or paths, that may be configured for one of the three.
pub const MAX_SOURCES: usize = 16;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    pub hash_users: bool,
    /// Whether sessions that are not named are guessed by the beginning of the conversation.
    pub guess_sessions: bool,
    pub session: NameSources,
    pub agent: NameSources,
    pub user: NameSources,
    /// Names that are assigned to agents by port, path and key.
    pub agent_names: Vec<AgentNameRule>,
    /// The name of agents that are known by their user agent alone.
    pub default_agent: Option<String>,
    pub payers: PayerRules,
}

impl Rules {
    /// Sets the name of agents that are known by their user agent alone; one that is empty or has
    /// control characters is ignored.
    pub fn set_default_agent(&mut self, name: &str) {
        self.default_agent = clean(name);
    }
}

/// Headers and members of the body that take precedence over the known ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NameSources {
    /// The first that is present wins.
    pub headers: Vec<HeaderName>,
    /// The first that is present wins.
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
