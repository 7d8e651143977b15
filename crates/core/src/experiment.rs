//! Experiments as the proxy and the meter speak of them: what is assigned to a variant, and the variant of a call.

use http::{HeaderMap, Uri};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// What is assigned to a variant as a whole, so that all of its calls go to the same one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AssignedUnit {
    /// A session.
    #[default]
    Session,
    /// An agent.
    Agent,
    /// A user.
    User,
}

/// What decides on the arm of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SplitBy {
    /// The unit that the request's head names.
    Unit(AssignedUnit),
    /// The block of time in which the head was read; blocks of this length are counted from 1970 on.
    Block(Duration),
}

/// The part of a request that decides on its arm: what there is before its body.
#[derive(Clone, Copy, Debug)]
pub struct RequestHead<'a> {
    /// The agent's headers. Never kept, never logged.
    pub headers: &'a HeaderMap,
    /// The agent's target.
    pub uri: &'a Uri,
    /// The port that the agent connects to.
    pub port: Option<u16>,
    /// When it had been read.
    pub read_at: SystemTime,
}

/// The experiment of a call, and the variant that the proxy chose for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AssignedVariant {
    /// The experiment's name.
    pub experiment: Arc<str>,
    /// The variant; `None` for a call that names no unit, which goes where its route says.
    pub variant: Option<Arc<str>>,
}
