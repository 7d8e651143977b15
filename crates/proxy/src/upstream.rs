//! Upstreams: load balancing over endpoints, and the connections to each endpoint.

mod addresses;
mod idle_pool;
pub(super) mod in_flight;
mod lease;
mod limits;
mod open;
pub(super) mod socket;
mod tls_records;

pub(super) use in_flight::InFlightGuard;
pub(super) use lease::{LeaseSearch, NotLeased};
pub(super) use limits::{Connections, DescriptorBudget};

use super::clock::now;
use super::connection::{Http1, Http2, Io};
use crate::settings::{self, Protocol};
use addresses::Host;
use http::uri::Scheme;
use idle_pool::IdlePool;
use in_flight::InFlightCount;
use parking_lot::{Mutex, MutexGuard};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokengauge_net::tls::{Connector, Invalid};
use tokio::runtime::Handle;

pub(super) struct Upstream {
    pub settings: Arc<settings::Upstream>,
    hosts: Vec<Arc<Host>>,
    /// Counts open connections, across changes of settings.
    pub connections: Arc<Connections>,
    /// Counts choices, to break ties between endpoints: the endpoint chosen least recently is next.
    choices: AtomicUsize,
    tls: Option<TlsConnectors>,
    head_bytes: usize,
}

struct TlsConnectors {
    any_protocol: Connector,
    /// For upgrades, which need HTTP/1.
    http1: Connector,
}

pub(super) struct Endpoint {
    pub settings: settings::Endpoint,
    /// `host:port`, as configured.
    pub name: String,
    pub address: SocketAddr,
    in_flight: InFlightCount,
    /// The number of the choice that last chose this endpoint.
    last_chosen: AtomicUsize,
    created: Instant,
    /// Until when the endpoint is ejected, in milliseconds from `created`.
    ejected_until: AtomicU64,
    idle_pool: IdlePool,
    http2: Mutex<Vec<SharedHttp2>>,
    negotiated: AtomicU8,
    /// Held while an HTTP/2 connection is opened. Requests that wait for the lock share the connection.
    connecting: tokio::sync::Mutex<()>,
    sweeping: AtomicBool,
    idle_for: Duration,
    head_bytes: usize,
    connections: Arc<Connections>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointLoad {
    /// The endpoint's name, with the address if the name may have several.
    pub name: String,
    pub in_flight: usize,
    /// How long the endpoint stays ejected after a failed connection. Zero if it receives requests.
    pub ejected_for: Duration,
}

/// The order in which endpoints are chosen, lowest first. Earlier fields take precedence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    ejected: bool,
    fallback: bool,
    in_flight: usize,
    last_chosen: usize,
}

struct SharedHttp2 {
    http2: Http2,
    idle_since: Option<Instant>,
}

/// Values of `Endpoint::negotiated`.
const UNKNOWN: u8 = 0;
const HTTP1: u8 = 1;
const HTTP2: u8 = 2;

pub(super) struct Lease {
    pub connection: LeasedConnection,
    pub reused: bool,
    pub in_flight: InFlightGuard,
}

pub(super) enum LeasedConnection {
    Http1(Http1),
    Http2 {
        connection: Http2,
        stream: InFlightGuard,
    },
}

/// Which HTTP/2 connections a request may share. A connection on another runtime costs a wake-up of another thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sharing {
    /// Connections of the request's runtime, and connections without other requests.
    OwnOrIdle,
    /// All connections, because another one is not allowed, cannot be opened or is already being opened.
    Any,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ConnectOptions {
    pub new_connection: bool,
    pub upgrade: bool,
    pub non_idempotent: bool,
}

impl Upstream {
    pub fn new(
        settings: &Arc<settings::Upstream>,
        head_bytes: usize,
        descriptors: &Arc<DescriptorBudget>,
    ) -> Result<Upstream, Invalid> {
        Upstream::with_connections(settings, head_bytes, Connections::new(descriptors))
    }

    fn with_connections(
        settings: &Arc<settings::Upstream>,
        head_bytes: usize,
        connections: Arc<Connections>,
    ) -> Result<Upstream, Invalid> {
        let tls = settings
            .endpoints
            .iter()
            .any(|endpoint| endpoint.scheme == Scheme::HTTPS);
        let tls = tls.then(|| TlsConnectors::new(settings)).transpose()?;
        let host = |endpoint| Arc::new(Host::new(endpoint, settings, head_bytes, &connections));
        let hosts = settings.endpoints.iter().map(host).collect();
        Ok(Upstream {
            settings: Arc::clone(settings),
            hosts,
            connections,
            choices: AtomicUsize::new(1),
            tls,
            head_bytes,
        })
    }

    /// Creates the upstream with other settings. Endpoints whose connections remain usable keep them.
    pub fn with_settings(
        known: &Arc<Upstream>,
        settings: &Arc<settings::Upstream>,
        head_bytes: usize,
    ) -> Result<Arc<Upstream>, Invalid> {
        if *known.settings == **settings && known.head_bytes == head_bytes {
            return Ok(Arc::clone(known));
        }
        let connections = Arc::clone(&known.connections);
        let mut upstream = Upstream::with_connections(settings, head_bytes, connections)?;
        if known.is_compatible_with(&upstream) {
            for host in &mut upstream.hosts {
                let mut known_host = known.hosts.iter();
                if let Some(known_host) =
                    known_host.find(|known_host| known_host.settings == host.settings)
                {
                    *host = Arc::clone(known_host);
                }
            }
        }
        Ok(Arc::new(upstream))
    }

    /// Whether each of the two upstreams can use the other's connections.
    fn is_compatible_with(&self, other: &Upstream) -> bool {
        let (one, other_settings) = (&self.settings, &other.settings);
        one.protocol == other_settings.protocol
            && one.tls == other_settings.tls
            && one.max_idle == other_settings.max_idle
            && one.idle_for == other_settings.idle_for
            && self.head_bytes == other.head_bytes
    }

    /// Chooses the endpoint with the fewest requests in flight, except those already tried. An ejected endpoint is
    /// chosen only if all are ejected. An endpoint of the other address family is chosen only if none of the preferred
    /// family remains.
    fn choose(&self, tried: &[Arc<Endpoint>]) -> Option<(Arc<Host>, Arc<Endpoint>)> {
        let mut best: Option<(Rank, &Arc<Host>, Arc<Endpoint>)> = None;
        for host in &self.hosts {
            host.for_each_endpoint(|endpoint| {
                if tried.iter().any(|tried| Arc::ptr_eq(tried, endpoint)) {
                    return;
                }
                let rank = endpoint.rank(!host.prefers(endpoint));
                if best.as_ref().is_none_or(|(least, ..)| rank < *least) {
                    best = Some((rank, host, Arc::clone(endpoint)));
                }
            });
        }
        let (_, host, endpoint) = best?;
        let choice = self.choices.fetch_add(1, Ordering::Relaxed);
        endpoint.last_chosen.store(choice, Ordering::Relaxed);
        Some((Arc::clone(host), endpoint))
    }

    pub fn endpoints(&self) -> Vec<EndpointLoad> {
        let mut endpoints = Vec::new();
        for host in &self.hosts {
            host.for_each_endpoint(|endpoint| endpoints.push(endpoint.load()));
        }
        endpoints
    }

    fn may_multiplex(&self, endpoint: &Endpoint) -> bool {
        match self.settings.protocol {
            Protocol::Http1 => false,
            Protocol::Http2 => true,
            Protocol::Auto => {
                endpoint.settings.scheme == Scheme::HTTPS
                    && endpoint.negotiated.load(Ordering::Relaxed) != HTTP1
            }
        }
    }

    fn close_idle_connection(&self) {
        let mut closed = false;
        for host in &self.hosts {
            host.for_each_endpoint(|endpoint| closed = closed || endpoint.close_idle_connection());
        }
    }
}

impl TlsConnectors {
    fn new(settings: &settings::Upstream) -> Result<TlsConnectors, Invalid> {
        let any_protocol = Connector::new(&settings.tls, settings.protocol)?;
        let http1 = Connector::new(&settings.tls, Protocol::Http1)?;
        Ok(TlsConnectors {
            any_protocol,
            http1,
        })
    }
}

impl Endpoint {
    fn new(host: &Host, address: SocketAddr) -> Endpoint {
        Endpoint {
            settings: host.settings.clone(),
            name: host.name.clone(),
            address,
            in_flight: InFlightCount::default(),
            last_chosen: AtomicUsize::new(0),
            created: now(),
            ejected_until: AtomicU64::new(0),
            idle_pool: IdlePool::new(&host.upstream),
            http2: Mutex::default(),
            negotiated: AtomicU8::new(UNKNOWN),
            connecting: tokio::sync::Mutex::default(),
            sweeping: AtomicBool::new(false),
            idle_for: host.upstream.idle_for,
            head_bytes: host.head_bytes,
            connections: Arc::clone(&host.connections),
        }
    }

    fn rank(&self, fallback: bool) -> Rank {
        Rank {
            ejected: self.is_ejected(),
            fallback,
            in_flight: self.in_flight.count(),
            last_chosen: self.last_chosen.load(Ordering::Relaxed),
        }
    }

    /// The name for messages. It includes the address, because a name may have several.
    pub fn display_name(&self) -> String {
        let address = self.address.to_string();
        if self.name == address {
            return address;
        }
        format!("{} ({})", self.name, self.address.ip())
    }

    pub fn eject(&self, duration: Duration) {
        self.ejected_until
            .store(millis(self.created.elapsed() + duration), Ordering::Relaxed);
    }

    fn load(&self) -> EndpointLoad {
        let until = self.ejected_until.load(Ordering::Relaxed);
        let left = until.saturating_sub(millis(self.created.elapsed()));
        EndpointLoad {
            name: self.display_name(),
            in_flight: self.in_flight.count(),
            ejected_for: Duration::from_millis(left),
        }
    }

    fn is_ejected(&self) -> bool {
        self.ejected_until.load(Ordering::Relaxed) > millis(self.created.elapsed())
    }

    pub fn release(self: &Arc<Self>, io: Io) {
        if self.idle_pool.put(io) {
            self.sweep_later();
            self.connections.connection_released();
        }
    }

    /// Records that a reused connection, idle since `idle_since`, was closed before it responded.
    pub fn record_lost(&self, idle_since: Instant) {
        self.idle_pool.record_lost(idle_since);
    }

    fn reuse(&self, options: ConnectOptions, sharing: Sharing) -> Option<LeasedConnection> {
        if !options.upgrade
            && let Some(connection) = self.share(sharing)
        {
            return Some(connection);
        }
        let (io, idle_since) = self.idle_pool.take(options.non_idempotent)?;
        Some(LeasedConnection::Http1(Http1 {
            io,
            idle_since: Some(idle_since),
            max_head_bytes: self.head_bytes,
        }))
    }

    fn share(&self, sharing: Sharing) -> Option<LeasedConnection> {
        if self.negotiated.load(Ordering::Relaxed) != HTTP2 {
            return None;
        }
        let current = Handle::current().id();
        let load = |shared: &SharedHttp2| {
            let is_own = shared.http2.runtime == current;
            (!is_own, shared.http2.streams.count())
        };
        let mut open = locked(&self.http2);
        open.retain(|shared| !shared.http2.is_closed());
        let available = open
            .iter_mut()
            .filter(|shared| shared.http2.has_stream_capacity());
        let shared = available.min_by_key(|shared| load(shared))?;
        if let (true, 1..) = load(shared)
            && sharing == Sharing::OwnOrIdle
        {
            return None;
        }
        shared.idle_since = None;
        let stream = shared.http2.streams.acquire();
        Some(LeasedConnection::Http2 {
            connection: shared.http2.clone(),
            stream,
        })
    }

    async fn open_http2(self: &Arc<Self>, io: Io) -> hyper::Result<LeasedConnection> {
        let connection = Http2::open(io, InFlightCount::waking(&self.connections)).await?;
        let stream = connection.streams.acquire();
        locked(&self.http2).push(SharedHttp2 {
            http2: connection.clone(),
            idle_since: None,
        });
        self.sweep_later();
        Ok(LeasedConnection::Http2 { connection, stream })
    }

    /// Starts a task that closes expired connections, unless one is running.
    fn sweep_later(self: &Arc<Self>) {
        if self.sweeping.swap(true, Ordering::Relaxed) {
            return;
        }
        let endpoint = Arc::downgrade(self);
        let pause = (self.idle_for / 2).clamp(Duration::from_millis(10), Duration::from_secs(5));
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(pause).await;
                if !endpoint.upgrade().is_some_and(|endpoint| endpoint.sweep()) {
                    return;
                }
            }
        });
    }

    fn close_idle_connection(&self) -> bool {
        if self.idle_pool.close_oldest() {
            return true;
        }
        let mut open = locked(&self.http2);
        let idle = open
            .iter()
            .position(|shared| shared.http2.streams.count() == 0);
        idle.map(|idle| open.swap_remove(idle)).is_some()
    }

    /// Closes connections that expired or that the endpoint closed. Returns whether any remain.
    fn sweep(&self) -> bool {
        let kept = self.idle_pool.sweep();
        let mut open = locked(&self.http2);
        open.retain_mut(|shared| !shared.http2.is_closed() && shared.should_keep(self.idle_for));
        let more = kept || !open.is_empty();
        if !more {
            self.sweeping.store(false, Ordering::Relaxed);
        }
        more
    }
}

impl SharedHttp2 {
    fn should_keep(&mut self, idle_for: Duration) -> bool {
        if self.http2.streams.count() > 0 {
            self.idle_since = None;
            return true;
        }
        self.idle_since.get_or_insert_with(now).elapsed() < idle_for
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock()
}
