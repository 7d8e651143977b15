//! Experiments in the terms of the proxy and the meter: the unit that is assigned to a variant, and
//! the variant of a call.

use http::{HeaderMap, Uri};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// The unit of assignment. All calls of a unit go to the same variant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AssignedUnit {
    /// All calls of a session.
    #[default]
    Session,
    /// All calls of an agent.
    Agent,
    /// All calls of a user.
    User,
}

/// What the variant of a request depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SplitBy {
    /// A unit, which the request head must name.
    Unit(AssignedUnit),
    /// The time block in which the head was read. Blocks have this length and are counted from
    /// 1970.
    Block(Duration),
}

/// The parts of a request head that decide the variant.
#[derive(Clone, Copy, Debug)]
pub struct RequestHead<'a> {
    /// The headers of the request. They are never stored or logged.
    pub headers: &'a HeaderMap,
    /// The request target.
    pub uri: &'a Uri,
    /// The port of the proxy that the agent connected to.
    pub port: Option<u16>,
    /// When the head was completely read.
    pub read_at: SystemTime,
}

/// The experiment of a call, and the variant that the proxy chose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AssignedVariant {
    /// The experiment's name.
    pub experiment: Arc<str>,
    /// The variant. `None` if the request names no unit and follows its route.
    pub variant: Option<Arc<str>>,
}
