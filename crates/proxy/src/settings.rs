use http::{HeaderName, HeaderValue};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokengauge_core::call::Dialect;
use tokengauge_core::experiment::SplitBy;
pub use tokengauge_net::endpoint::{Endpoint, Protocol};
pub use tokengauge_net::tls::{ClientTls, ServerTls};

pub const DEFAULT_MAX_IDLE: usize = 256;
/// Default time that an idle connection is kept. Most servers close theirs after 60 s.
pub const DEFAULT_IDLE_FOR: Duration = Duration::from_secs(50);
pub const DEFAULT_EJECT_FOR: Duration = Duration::from_secs(5);
/// Default number of requests of an upstream that may wait for a connection, the same as Envoy's.
pub const DEFAULT_MAX_PENDING: usize = 1024;
/// Upper limit of [`Upstream::resend_bytes`]. Each request in flight may keep this many bytes in memory until its
/// response begins.
pub const MAX_RESEND_BYTES: usize = 16 * 1024 * 1024;

pub fn default_upgrades() -> Vec<String> {
    vec!["websocket".to_owned()]
}

#[derive(Clone, Debug)]
pub struct Settings {
    /// Tried in order. The first match wins.
    pub routes: Vec<Arc<Route>>,
    pub limits: Limits,
    /// If set, every call is refused with this sentence, which tells the agent why and what to do.
    pub refusal: Option<Arc<str>>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Listener {
    /// Port 0 selects a free port.
    pub address: SocketAddr,
    pub tls: Option<ServerTls>,
}

#[derive(Clone, Debug)]
pub struct Route {
    pub name: Arc<str>,
    pub matches: Matches,
    pub strip_prefix: bool,
    pub upstream: Arc<Upstream>,
    /// The dialect, if the path does not determine it.
    pub dialect: Option<Dialect>,
    pub workload: Option<Arc<str>>,
    /// Whether to request usage on the agent's behalf.
    pub inject_usage: bool,
    pub add_via: bool,
    /// Whether to add `x-forwarded-for`, `-host` and `-proto`.
    pub add_forwarded: bool,
    /// Whether responses state the remaining limits.
    pub ratelimit_headers: bool,
    /// Protocols that an agent's connection may be upgraded to, as in the `upgrade` header.
    pub upgrades: Vec<String>,
    pub split: Option<Arc<Split>>,
}

/// An experiment that sends each request of a route to the upstream of one of its arms.
#[derive(Clone, Debug)]
pub struct Split {
    pub experiment: Arc<str>,
    /// Part of the hash of each unit, so that two experiments assign units independently.
    pub salt: String,
    pub by: SplitBy,
    /// Never empty. All weights are above 0.
    pub arms: Vec<Arm>,
}

#[derive(Clone, Debug)]
pub struct Arm {
    /// The variant of the arm's calls.
    pub name: Arc<str>,
    /// The arm's share of the units, relative to the other weights.
    pub weight: f64,
    pub upstream: Arc<Upstream>,
}

/// Conditions of a route. An absent condition matches any request.
#[derive(Clone, Debug, Default)]
pub struct Matches {
    /// A path prefix without a trailing slash, matched on whole segments. `""` matches any path.
    pub path_prefix: String,
    /// The request's host in lower case, without a port.
    pub host: Option<String>,
    /// Headers that must be present with exactly these values.
    pub headers: Vec<(HeaderName, HeaderValue)>,
}

/// A group of endpoints that serve the same models.
#[derive(Clone, Debug, PartialEq)]
pub struct Upstream {
    pub name: Arc<str>,
    /// Never empty.
    pub endpoints: Vec<Endpoint>,
    pub protocol: Protocol,
    /// TLS settings for `https` endpoints.
    pub tls: ClientTls,
    pub timeouts: Timeouts,
    pub max_idle: usize,
    pub idle_for: Duration,
    /// How long an endpoint is ejected after a failed connection attempt.
    pub eject_for: Duration,
    /// Maximum number of open connections to all endpoints. `None` means the upstream's share of the process's file
    /// descriptors.
    pub max_connections: Option<usize>,
    pub max_pending: usize,
    /// If a reused connection is lost before any byte of a response, the request is retried on a new connection,
    /// provided that the sent part of its body fits into this many bytes. 0 disables such retries.
    pub resend_bytes: usize,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Timeouts {
    /// Name resolution, TCP and TLS together.
    pub connect: Duration,
    /// From the end of the request to the response head.
    pub head: Duration,
    /// Without a byte in either direction during the transfer of a body.
    pub idle: Duration,
    /// Without a byte accepted by the agent or the upstream while data is unsent.
    pub send: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// Concurrent agent connections. A further connection replaces the one that has been idle longest, or waits in the
    /// accept queue.
    pub connections: usize,
    /// Bytes of a request head, and of a response head.
    pub head_bytes: usize,
    /// Concurrent streams of one HTTP/2 connection.
    pub http2_streams: u32,
    /// Concurrent streams on all HTTP/2 connections together. Further streams are refused.
    pub total_http2_streams: usize,
    pub head_timeout: Duration,
    pub idle_timeout: Duration,
    /// Requests per minute for each route. `None` for no limit.
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
            // Clients' connection pools keep connections for up to 90 s. With a longer timeout, the client closes
            // first, and no request arrives while the proxy closes.
            idle_timeout: Duration::from_secs(120),
            requests_per_minute: None,
        }
    }
}

impl Upstream {
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

    /// Every upstream that may receive the route's requests: the route's upstream, then the upstreams of the arms.
    pub fn upstreams(&self) -> impl Iterator<Item = &Arc<Upstream>> {
        let arms = self.split.iter().flat_map(|split| &split.arms);
        std::iter::once(&self.upstream).chain(arms.map(|arm| &arm.upstream))
    }
}
