//! An upstream's endpoints: which one is next, and the connections to it.

mod kept;

use super::connection::{Http1, Http2, Io, dial};
use super::refusal::failure;
use super::tap::now;
use super::tls::{Connector, Invalid};
use crate::config::{self, Protocol};
use crate::observer::{Failure, FailureKind};
use http::uri::Scheme;
use kept::Kept;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::time::timeout;

/// An upstream and what is open to it.
pub(super) struct Upstream {
    pub settings: Arc<config::Upstream>,
    endpoints: Vec<Arc<Endpoint>>,
    /// Breaks ties between endpoints.
    turn: AtomicUsize,
    tls: Option<Tls>,
    head_bytes: usize,
}

struct Tls {
    any: Connector,
    /// For upgrades, which HTTP/2 does not have.
    http1: Connector,
}

/// One server of an upstream.
pub(super) struct Endpoint {
    pub settings: config::Endpoint,
    /// `host:port`.
    pub name: String,
    port: u16,
    outstanding: Slot,
    created: Instant,
    /// Milliseconds from `created` until which it is left alone.
    ejected_until: AtomicU64,
    kept: Kept,
    http2: Mutex<Vec<Shared>>,
    spoken: AtomicU8,
    /// One new HTTP/2 connection at a time: those who wait will share it.
    opening: tokio::sync::Mutex<()>,
    sweeping: AtomicBool,
    idle_for: Duration,
    head_bytes: usize,
}

struct Shared {
    http2: Http2,
    quiet_since: Option<Instant>,
}

/// What `Endpoint::spoken` can say.
const UNKNOWN: u8 = 0;
const HTTP1: u8 = 1;
const HTTP2: u8 = 2;

/// A count of what is under way. Clones count together.
#[derive(Clone, Debug, Default)]
pub(super) struct Slot(Arc<AtomicUsize>);

/// One more that is under way, until it is dropped.
#[derive(Debug)]
pub(super) struct Taken(Arc<AtomicUsize>);

impl Slot {
    pub fn take(&self) -> Taken {
        self.0.fetch_add(1, Ordering::Relaxed);
        Taken(Arc::clone(&self.0))
    }

    pub fn taken(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A connection for one request.
pub(super) struct Lease {
    pub wire: Wire,
    pub reused: bool,
    /// Counts the request as outstanding at its endpoint.
    pub held: Taken,
}

/// The two ways to speak to an endpoint.
pub(super) enum Wire {
    Http1(Box<Http1>),
    Http2 { connection: Http2, stream: Taken },
}

/// What a request asks of its connection.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Wish {
    /// Not one from the pool.
    pub fresh: bool,
    /// It will be upgraded.
    pub upgrade: bool,
    /// It must not be sent a second time.
    pub once: bool,
}

impl Upstream {
    pub fn new(settings: &Arc<config::Upstream>, head_bytes: usize) -> Result<Upstream, Invalid> {
        let tls = settings
            .endpoints
            .iter()
            .any(|endpoint| endpoint.scheme == Scheme::HTTPS);
        let tls = tls.then(|| Tls::new(settings)).transpose()?;
        let endpoints = settings
            .endpoints
            .iter()
            .map(|endpoint| Arc::new(Endpoint::new(endpoint, settings, head_bytes)))
            .collect();
        Ok(Upstream {
            settings: Arc::clone(settings),
            endpoints,
            turn: AtomicUsize::new(0),
            tls,
            head_bytes,
        })
    }

    /// The same upstream under other settings. Endpoints that are spoken to as before keep
    /// their connections.
    pub fn after(
        known: &Arc<Upstream>,
        settings: &Arc<config::Upstream>,
        head_bytes: usize,
    ) -> Result<Arc<Upstream>, Invalid> {
        if *known.settings == **settings && known.head_bytes == head_bytes {
            return Ok(Arc::clone(known));
        }
        let mut upstream = Upstream::new(settings, head_bytes)?;
        if known.speaks_like(&upstream) {
            for endpoint in &mut upstream.endpoints {
                let mut kept = known.endpoints.iter();
                if let Some(kept) = kept.find(|kept| kept.settings == endpoint.settings) {
                    *endpoint = Arc::clone(kept);
                }
            }
        }
        Ok(Arc::new(upstream))
    }

    /// Whether connections of one can serve the other.
    fn speaks_like(&self, other: &Upstream) -> bool {
        let (one, other_settings) = (&self.settings, &other.settings);
        one.protocol == other_settings.protocol
            && one.tls == other_settings.tls
            && one.max_idle == other_settings.max_idle
            && one.idle_for == other_settings.idle_for
            && self.head_bytes == other.head_bytes
    }

    /// The endpoint with the fewest requests, but for those tried already. One that
    /// failed lately is taken only when all have.
    pub fn choose(&self, tried: &[Arc<Endpoint>]) -> Option<Arc<Endpoint>> {
        let count = self.endpoints.len();
        let first = if count > 1 {
            self.turn.fetch_add(1, Ordering::Relaxed)
        } else {
            0
        };
        let in_turn = (0..count).map(|step| &self.endpoints[first.wrapping_add(step) % count]);
        in_turn
            .filter(|endpoint| !tried.iter().any(|tried| Arc::ptr_eq(tried, endpoint)))
            .min_by_key(|endpoint| (endpoint.is_ejected(), endpoint.outstanding.taken()))
            .cloned()
    }

    /// A connection to `endpoint` and a place among its requests.
    pub async fn lease(&self, endpoint: &Arc<Endpoint>, wish: Wish) -> Result<Lease, Failure> {
        let held = endpoint.outstanding.take();
        if !wish.fresh
            && let Some(wire) = endpoint.reuse(wish)
        {
            return Ok(Lease {
                wire,
                reused: true,
                held,
            });
        }
        if wish.upgrade || !self.shares(endpoint) {
            return Ok(Lease {
                wire: self.open(endpoint, wish).await?,
                reused: false,
                held,
            });
        }
        let opening = timeout(self.settings.timeouts.connect, endpoint.opening.lock()).await;
        let opening = opening.map_err(|_| {
            failure(
                FailureKind::ConnectTimeout,
                "has not accepted a connection yet",
            )
        })?;
        if let Some(wire) = endpoint.reuse_http2() {
            return Ok(Lease {
                wire,
                reused: true,
                held,
            });
        }
        if !self.shares(endpoint) {
            // The first connection showed that there is nothing to wait for.
            drop(opening);
        }
        Ok(Lease {
            wire: self.open(endpoint, wish).await?,
            reused: false,
            held,
        })
    }

    /// Whether a new connection may serve several requests.
    fn shares(&self, endpoint: &Endpoint) -> bool {
        match self.settings.protocol {
            Protocol::Http1 => false,
            Protocol::Http2 => true,
            Protocol::Auto => {
                endpoint.settings.scheme == Scheme::HTTPS
                    && endpoint.spoken.load(Ordering::Relaxed) != HTTP1
            }
        }
    }

    async fn open(&self, endpoint: &Arc<Endpoint>, wish: Wish) -> Result<Wire, Failure> {
        let timeouts = &self.settings.timeouts;
        let started = now();
        let tcp = dial(endpoint.settings.authority.host(), endpoint.port, timeouts).await?;
        let (io, http2) = match &self.tls {
            Some(tls) if endpoint.settings.scheme == Scheme::HTTPS => {
                let connector = if wish.upgrade { &tls.http1 } else { &tls.any };
                let left = timeouts.connect.saturating_sub(started.elapsed());
                let handshake = timeout(
                    left,
                    connector.connect(tcp, endpoint.settings.authority.host()),
                )
                .await;
                let stream = handshake
                    .map_err(|_| {
                        failure(
                            FailureKind::ConnectTimeout,
                            "did not finish the TLS handshake in time",
                        )
                    })?
                    .map_err(|error| {
                        failure(
                            FailureKind::Tls,
                            format!("failed the TLS handshake: {error}"),
                        )
                    })?;
                let http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
                (Io::Tls(Box::new(stream)), http2)
            }
            _ => (Io::Tcp(tcp), self.settings.protocol == Protocol::Http2),
        };
        if !wish.upgrade {
            endpoint
                .spoken
                .store(if http2 { HTTP2 } else { HTTP1 }, Ordering::Relaxed);
        }
        let opened = if http2 {
            endpoint.open_http2(io).await
        } else {
            self.open_http1(io)
        };
        opened.map_err(|error| {
            failure(
                FailureKind::Protocol,
                format!("did not begin to speak HTTP ({error})"),
            )
        })
    }

    fn open_http1(&self, io: Io) -> hyper::Result<Wire> {
        Http1::new(io, self.head_bytes).map(|http1| Wire::Http1(Box::new(http1)))
    }
}

impl Tls {
    fn new(settings: &config::Upstream) -> Result<Tls, Invalid> {
        let any = Connector::new(&settings.tls, settings.protocol)?;
        let http1 = Connector::new(&settings.tls, Protocol::Http1)?;
        Ok(Tls { any, http1 })
    }
}

impl Endpoint {
    fn new(
        settings: &config::Endpoint,
        upstream: &config::Upstream,
        head_bytes: usize,
    ) -> Endpoint {
        let default_port = if settings.scheme == Scheme::HTTPS {
            443
        } else {
            80
        };
        let port = settings.authority.port_u16().unwrap_or(default_port);
        Endpoint {
            settings: settings.clone(),
            name: format!("{}:{port}", settings.authority.host()),
            port,
            outstanding: Slot::default(),
            created: now(),
            ejected_until: AtomicU64::new(0),
            kept: Kept::new(upstream),
            http2: Mutex::default(),
            spoken: AtomicU8::new(UNKNOWN),
            opening: tokio::sync::Mutex::default(),
            sweeping: AtomicBool::new(false),
            idle_for: upstream.idle_for,
            head_bytes,
        }
    }

    /// Leaves it alone for a while.
    pub fn eject(&self, duration: Duration) {
        self.ejected_until
            .store(millis(self.created.elapsed() + duration), Ordering::Relaxed);
    }

    fn is_ejected(&self) -> bool {
        self.ejected_until.load(Ordering::Relaxed) > millis(self.created.elapsed())
    }

    /// Gives the socket of an HTTP/1 connection back; it is kept if it can serve once more.
    pub fn give_back(self: &Arc<Self>, io: Io) {
        if self.kept.keep(io) {
            self.sweep_later();
        }
    }

    fn reuse(&self, wish: Wish) -> Option<Wire> {
        if !wish.upgrade
            && let Some(wire) = self.reuse_http2()
        {
            return Some(wire);
        }
        let http1 = Http1::reused(self.kept.take(wish.once)?, self.head_bytes).ok()?;
        Some(Wire::Http1(Box::new(http1)))
    }

    fn reuse_http2(&self) -> Option<Wire> {
        if self.spoken.load(Ordering::Relaxed) != HTTP2 {
            return None;
        }
        let mut open = locked(&self.http2);
        open.retain(|shared| !shared.http2.is_closed());
        let roomy = open.iter_mut().filter(|shared| shared.http2.has_room());
        let shared = roomy.min_by_key(|shared| shared.http2.streams.taken())?;
        shared.quiet_since = None;
        let stream = shared.http2.streams.take();
        Some(Wire::Http2 {
            connection: shared.http2.clone(),
            stream,
        })
    }

    async fn open_http2(self: &Arc<Self>, io: Io) -> hyper::Result<Wire> {
        let connection = Http2::open(io).await?;
        let stream = connection.streams.take();
        locked(&self.http2).push(Shared {
            http2: connection.clone(),
            quiet_since: None,
        });
        self.sweep_later();
        Ok(Wire::Http2 { connection, stream })
    }

    /// Sees to it that what nobody comes back for is closed.
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

    /// Closes what is too old or was closed by the endpoint; tells whether to come again.
    fn sweep(&self) -> bool {
        let kept = self.kept.sweep();
        let mut open = locked(&self.http2);
        open.retain_mut(|shared| !shared.http2.is_closed() && shared.is_wanted(self.idle_for));
        let more = kept || !open.is_empty();
        if !more {
            self.sweeping.store(false, Ordering::Relaxed);
        }
        more
    }
}

impl Shared {
    fn is_wanted(&mut self, idle_for: Duration) -> bool {
        if self.http2.streams.taken() > 0 {
            self.quiet_since = None;
            return true;
        }
        self.quiet_since.get_or_insert_with(now).elapsed() < idle_for
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
