//! Where an operator says that session, agent and user are written.

use crate::wire::JsonPath;
use http::HeaderName;

/// Headers, or paths, that may be configured for one of the three.
pub const MAX_PLACES: usize = 16;

/// What is configured of attribution.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Whether users are hashed.
    pub hash_users: bool,
    /// Where the session is written.
    pub session: Places,
    /// Where the agent's name is written.
    pub agent: Places,
    /// Where the user is written.
    pub user: Places,
}

/// Headers and members of the body that are looked at before those that are known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Places {
    /// The first that is sent wins.
    pub headers: Vec<HeaderName>,
    /// The first that is there wins.
    pub paths: Vec<JsonPath>,
}

impl Default for Rules {
    fn default() -> Self {
        Rules {
            hash_users: true,
            session: Places::default(),
            agent: Places::default(),
            user: Places::default(),
        }
    }
}
