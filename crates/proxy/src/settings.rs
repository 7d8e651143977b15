//! The settings of the proxy: routes, upstreams and limits.

use http::{HeaderName, HeaderValue};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokengauge_core::call::Dialect;
use tokengauge_core::experiment::SplitBy;
pub use tokengauge_net::endpoint::{Endpoint, Protocol};
pub use tokengauge_net::tls::{ClientTls, ServerTls};

pub const DEFAULT_MAX_IDLE: usize = 256;
/// The default for how long an idle connection is kept: less than the 60 s after which most servers
/// close theirs.
pub const DEFAULT_IDLE_FOR: Duration = Duration::from_secs(50);
/// The default for how long a failed endpoint is ejected.
pub const DEFAULT_EJECT_FOR: Duration = Duration::from_secs(5);
/// The default for requests of an upstream that may wait for a connection, the same as Envoy's.
pub const DEFAULT_MAX_PENDING: usize = 1024;
/// The most of [`Upstream::resend_bytes`]: so much of each request under way is in memory until its response begins.
pub const MAX_RESEND_BYTES: usize = 16 * 1024 * 1024;

pub fn default_upgrades() -> Vec<String> {
    vec!["websocket".to_owned()]
}

/// Everything that forwarding requests depends on.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Tried in order; the first that matches wins.
    pub routes: Vec<Arc<Route>>,
    pub limits: Limits,
    /// Why every call is refused, and what to do, in a sentence for the agent; `None` where
    /// calls are forwarded.
    pub refusal: Option<Arc<str>>,
}

/// An address that agents connect to.
#[derive(Clone, Debug, PartialEq)]
pub struct Listener {
    /// The address; port 0 picks a free one.
    pub address: SocketAddr,
    pub tls: Option<ServerTls>,
}

/// Sends matching requests to an upstream.
#[derive(Clone, Debug)]
pub struct Route {
    /// Its name in records and labels.
    pub name: Arc<str>,
    pub matches: Matches,
    /// Whether the matched prefix is taken off the path.
    pub strip_prefix: bool,
    pub upstream: Arc<Upstream>,
    /// The dialect, where the path does not show it.
    pub dialect: Option<Dialect>,
    pub workload: Option<Arc<str>>,
    /// Whether to ask for usage on the agent's behalf.
    pub inject_usage: bool,
    pub add_via: bool,
    /// Whether to add `x-forwarded-for`, `-host` and `-proto`.
    pub add_forwarded: bool,
    /// Whether responses say what is left of the limits.
    pub ratelimit_headers: bool,
    /// The protocols that an agent's connection may be upgraded to, as `upgrade` names them.
    pub upgrades: Vec<String>,
    pub split: Option<Arc<Split>>,
}

/// An experiment that sends each request of a route to the upstream of one of its arms.
#[derive(Clone, Debug)]
pub struct Split {
    pub experiment: Arc<str>,
    /// Goes into the hash of each unit, so that two experiments assign independently.
    pub salt: String,
    pub by: SplitBy,
    /// The arms; at least one, with weights above 0.
    pub arms: Vec<Arm>,
}

#[derive(Clone, Debug)]
pub struct Arm {
    /// Its name: the variant of its calls.
    pub name: Arc<str>,
    /// Its part of the units, relative to the other weights.
    pub weight: f64,
    pub upstream: Arc<Upstream>,
}

/// What a request must look like for a route. Absent parts match anything.
#[derive(Clone, Debug, Default)]
pub struct Matches {
    /// A path prefix without a trailing slash, matched on whole segments; `""` is all.
    pub path_prefix: String,
    /// The request's host, lower case, without a port.
    pub host: Option<String>,
    /// Headers that must be present with exactly these values.
    pub headers: Vec<(HeaderName, HeaderValue)>,
}

/// A group of endpoints that serve the same models.
#[derive(Clone, Debug, PartialEq)]
pub struct Upstream {
    /// Its name in records and labels.
    pub name: Arc<str>,
    /// The endpoints, at least one.
    pub endpoints: Vec<Endpoint>,
    pub protocol: Protocol,
    /// TLS towards it, used where an endpoint is `https`.
    pub tls: ClientTls,
    pub timeouts: Timeouts,
    /// Idle connections kept per endpoint.
    pub max_idle: usize,
    pub idle_for: Duration,
    /// How long an endpoint is ejected after a failure to connect.
    pub eject_for: Duration,
    /// Connections open at once, to all its endpoints; `None` is its share of the process's
    /// file descriptors.
    pub max_connections: Option<usize>,
    /// Requests that may wait for a connection.
    pub max_pending: usize,
    /// A request that a reused connection lost before any of its response came is sent once more,
    /// over a new connection, if what had left of its body fits in this many bytes; 0 is never.
    pub resend_bytes: usize,
}

/// Limits on an upstream's slowness.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Timeouts {
    /// Name resolution, TCP and TLS together.
    pub connect: Duration,
    /// From the end of the request to the response head.
    pub head: Duration,
    /// Without a byte in either direction while a body is being transferred.
    pub idle: Duration,
    /// Without a byte accepted while data waits to be written, to the agent or to the upstream.
    pub send: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// Agent connections at once. A further one takes the place of the longest idle one, or waits in the accept queue.
    pub connections: usize,
    /// Bytes of a request head, and of a response head.
    pub head_bytes: usize,
    /// Concurrent streams of one HTTP/2 connection.
    pub http2_streams: u32,
    /// Streams at once on all HTTP/2 connections together; more are refused.
    pub total_http2_streams: usize,
    /// How long an agent may take to send a request head.
    pub head_timeout: Duration,
    /// How long a connection without a request is kept.
    pub idle_timeout: Duration,
    /// Requests a minute per route; `None` is no limit.
    pub requests_per_minute: Option<std::num::NonZeroU32>,
}

impl Default for Timeouts {
    fn default() -> Self {
        Timeouts {
            connect: Duration::from_secs(10),
            head: Duration::from_secs(600),
            idle: Duration::from_secs(300),
            send: Duration::from_secs(300),
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            connections: 10_000,
            head_bytes: 64 * 1024,
            http2_streams: 1_000,
            total_http2_streams: 10_000,
            head_timeout: Duration::from_secs(30),
            // Clients' pools keep theirs for up to 90 s. Then it is the client who closes, and no request is sent while
            // the proxy closes.
            idle_timeout: Duration::from_secs(120),
            requests_per_minute: None,
        }
    }
}

impl Upstream {
    /// An upstream with these endpoints and defaults for everything else.
    pub fn new(name: &str, endpoints: Vec<Endpoint>) -> Upstream {
        Upstream {
            name: name.into(),
            endpoints,
            protocol: Protocol::Auto,
            tls: ClientTls::default(),
            timeouts: Timeouts::default(),
            max_idle: DEFAULT_MAX_IDLE,
            idle_for: DEFAULT_IDLE_FOR,
            eject_for: DEFAULT_EJECT_FOR,
            max_connections: None,
            max_pending: DEFAULT_MAX_PENDING,
            resend_bytes: 0,
        }
    }
}

impl Route {
    /// A route that matches every request, with defaults for everything else.
    pub fn new(name: &str, upstream: Arc<Upstream>) -> Route {
        Route {
            name: name.into(),
            matches: Matches::default(),
            strip_prefix: false,
            upstream,
            dialect: None,
            workload: None,
            inject_usage: false,
            add_via: false,
            add_forwarded: false,
            ratelimit_headers: false,
            upgrades: default_upgrades(),
            split: None,
        }
    }

    /// Every upstream that its requests may go to: its own first, then those of the arms.
    pub fn upstreams(&self) -> impl Iterator<Item = &Arc<Upstream>> {
        let arms = self.split.iter().flat_map(|split| &split.arms);
        std::iter::once(&self.upstream).chain(arms.map(|arm| &arm.upstream))
    }
}
