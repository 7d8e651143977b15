//! Where an operator says that session, agent and user are written.

use super::agent_names::AgentNameRule;
use super::value::clean;
use http::HeaderName;
use tokengauge_wire::JsonPath;

/// Headers, or paths, that may be configured for one of the three.
pub const MAX_SOURCES: usize = 16;

/// What is configured of attribution.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Whether users are hashed.
    pub hash_users: bool,
    /// Whether sessions that nobody names are guessed by what calls begin with.
    pub guess_sessions: bool,
    /// Where the session is written.
    pub session: NameSources,
    /// Where the agent's name is written.
    pub agent: NameSources,
    /// Where the user is written.
    pub user: NameSources,
    /// Names of agents by where they connect and what they show.
    pub agent_names: Vec<AgentNameRule>,
    /// The name of those that say nothing but their user agent.
    pub default_agent: Option<String>,
}

impl Rules {
    /// Takes `name` for agents that say nothing but their user agent; one that is empty, or has
    /// control characters, is none.
    pub fn set_default_agent(&mut self, name: &str) {
        self.default_agent = clean(name);
    }
}

/// Headers and members of the body that are looked at before those that are known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NameSources {
    /// The first that is sent wins.
    pub headers: Vec<HeaderName>,
    /// The first that is there wins.
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
        }
    }
}
