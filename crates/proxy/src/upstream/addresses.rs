//! Resolves an endpoint's name. Each address is a separate endpoint with its own connections, requests and failures.

use super::{Connections, Endpoint};
use crate::clock::now;
use crate::refusal::failure;
use crate::settings;
use arc_swap::ArcSwap;
use http::uri::Scheme;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::{Duration, Instant};
use tokengauge_core::observer::{Failure, FailureKind};
use tokio::net::lookup_host;
use tokio::sync::Mutex;
use tokio::time::timeout_at;

/// During requests, addresses older than this are resolved again in the background. The system's resolver does not
/// report a time to live.
const REFRESH_AFTER: Duration = Duration::from_secs(5);
/// A connection is opened only to an address that was resolved within this time.
const MAX_AGE_TO_CONNECT: Duration = Duration::from_secs(1);
const MAX_ADDRESSES: usize = 64;

/// Values of `Host::family`.
const UNKNOWN: u8 = 0;
const IPV4: u8 = 4;
const IPV6: u8 = 6;

/// A configured endpoint: an IP address, or a name with one or more addresses.
pub(crate) struct Host {
    pub settings: settings::Endpoint,
    /// `host:port`.
    pub name: String,
    port: u16,
    pub(super) upstream: Arc<settings::Upstream>,
    pub(super) head_bytes: usize,
    pub(super) connections: Arc<Connections>,
    /// Whether the name is an IP address, which needs no resolution.
    is_address: bool,
    resolved: ArcSwap<ResolvedEndpoints>,
    /// The address family of the last successful connection, initially of the resolver's first address.
    family: AtomicU8,
    /// Held during a lookup. Contains when and why the last lookup failed.
    lookup: Mutex<Option<(Instant, String)>>,
    refreshing: AtomicBool,
}

struct ResolvedEndpoints {
    resolved_at: Option<Instant>,
    endpoints: Vec<Arc<Endpoint>>,
}

impl Host {
    pub fn new(
        settings: &settings::Endpoint,
        upstream: &Arc<settings::Upstream>,
        head_bytes: usize,
        connections: &Arc<Connections>,
    ) -> Host {
        let default_port = if settings.scheme == Scheme::HTTPS {
            443
        } else {
            80
        };
        let host = settings.authority.host();
        let port = settings.authority.port_u16().unwrap_or(default_port);
        let this = Host {
            settings: settings.clone(),
            name: format!("{host}:{port}"),
            port,
            upstream: Arc::clone(upstream),
            head_bytes,
            connections: Arc::clone(connections),
            is_address: address(host).is_some(),
            resolved: ArcSwap::from_pointee(ResolvedEndpoints {
                resolved_at: None,
                endpoints: Vec::new(),
            }),
            family: AtomicU8::new(UNKNOWN),
            lookup: Mutex::default(),
            refreshing: AtomicBool::new(false),
        };
        if let Some(address) = address(host) {
            this.store_addresses(vec![SocketAddr::new(address, port)], now());
        }
        this
    }

    pub fn endpoints(&self) -> Vec<Arc<Endpoint>> {
        self.resolved.load().endpoints.clone()
    }

    pub fn for_each_endpoint(&self, mut look: impl FnMut(&Arc<Endpoint>)) {
        self.resolved.load().endpoints.iter().for_each(&mut look);
    }

    pub fn len(&self) -> usize {
        self.resolved.load().endpoints.len()
    }

    pub fn contains(&self, endpoint: &Arc<Endpoint>) -> bool {
        let resolved = self.resolved.load();
        let mut known = resolved.endpoints.iter();
        known.any(|known| Arc::ptr_eq(known, endpoint))
    }

    /// Whether the endpoint has the preferred address family. Many names have addresses of both families, but only one
    /// family is reachable.
    pub fn prefers(&self, endpoint: &Endpoint) -> bool {
        match self.family.load(Ordering::Relaxed) {
            UNKNOWN => true,
            known => known == family(endpoint.address),
        }
    }

    /// Records a successful connection, whose address family becomes the preferred one.
    pub fn connected(&self, endpoint: &Endpoint) {
        let family = family(endpoint.address);
        if self.family.load(Ordering::Relaxed) != family {
            self.family.store(family, Ordering::Relaxed);
        }
    }

    pub fn refresh(self: &Arc<Self>) {
        let old = |at: Instant| at.elapsed() >= REFRESH_AFTER;
        if self.resolved.load().resolved_at.is_some_and(old) {
            self.look_up_in_background();
        }
    }

    /// Resolves the name in another task, unless a lookup is in progress.
    pub fn look_up_in_background(self: &Arc<Self>) {
        if self.is_address || self.refreshing.swap(true, Ordering::Relaxed) {
            return;
        }
        let host = Arc::clone(self);
        tokio::spawn(async move {
            // A failure is reported when the next connection is opened.
            let _ = host
                .resolved_since(now(), host.upstream.timeouts.connect)
                .await;
            host.refreshing.store(false, Ordering::Relaxed);
        });
    }

    /// Makes sure that the addresses are recent enough to open a connection.
    ///
    /// # Errors
    ///
    /// Returns an error if the name does not resolve in time.
    pub async fn resolve(&self, within: Duration) -> Result<(), Failure> {
        let at = now();
        let since = at.checked_sub(MAX_AGE_TO_CONNECT).unwrap_or(at);
        self.resolved_since(since, within).await
    }

    /// Makes sure that the addresses were resolved after `since`.
    ///
    /// # Errors
    ///
    /// Returns an error if the name does not resolve in time.
    pub async fn resolved_since(&self, since: Instant, within: Duration) -> Result<(), Failure> {
        let is_new = || {
            self.resolved
                .load()
                .resolved_at
                .is_some_and(|at| at >= since)
        };
        if self.is_address || is_new() {
            return Ok(());
        }
        let deadline = tokio::time::Instant::now() + within;
        let lookup = timeout_at(deadline, self.lookup.lock()).await;
        let mut lookup = lookup.map_err(|_| unresolved("no answer in time"))?;
        if is_new() {
            return Ok(());
        }
        if let Some((_, reason)) = lookup.as_ref().filter(|(at, _)| *at >= since) {
            return Err(unresolved(reason));
        }
        let (host, started) = (self.settings.authority.host(), now());
        let found = timeout_at(deadline, look_up(host, self.port)).await;
        let found = found.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        match found {
            Ok(addresses) => {
                *lookup = None;
                // The age counts from the response, so that a slow resolver is not queried again immediately.
                self.store_addresses(addresses, now());
                Ok(())
            }
            Err(error) => {
                let reason = error.to_string();
                let failure = unresolved(&reason);
                *lookup = Some((started, reason));
                Err(failure)
            }
        }
    }

    pub fn failed_within(&self, ago: Duration) -> bool {
        let lookup = self.lookup.try_lock();
        lookup.is_ok_and(|lookup| lookup.as_ref().is_some_and(|(at, _)| at.elapsed() < ago))
    }

    /// Replaces the endpoints. Remaining endpoints keep their connections. Removed endpoints get no more requests and
    /// close their connections after their last response.
    fn store_addresses(&self, mut addresses: Vec<SocketAddr>, resolved_at: Instant) {
        let first = addresses.first().map_or(UNKNOWN, |first| family(*first));
        let before = self.resolved.load();
        addresses.sort_unstable();
        addresses.dedup();
        addresses.truncate(MAX_ADDRESSES);
        let known = |address| {
            let mut before = before.endpoints.iter();
            before.find(|known| known.address == address).cloned()
        };
        let endpoint = |address| Arc::new(Endpoint::new(self, address));
        let endpoints: Vec<_> = addresses
            .iter()
            .map(|address| known(*address).unwrap_or_else(|| endpoint(*address)))
            .collect();
        let preferred = self.family.load(Ordering::Relaxed);
        if !addresses.iter().any(|known| family(*known) == preferred) {
            self.family.store(first, Ordering::Relaxed);
        }
        self.resolved.store(Arc::new(ResolvedEndpoints {
            resolved_at: Some(resolved_at),
            endpoints,
        }));
    }
}

fn unresolved(reason: &str) -> Failure {
    failure(FailureKind::Dns, format!("does not resolve ({reason})"))
}

fn family(address: SocketAddr) -> u8 {
    if address.is_ipv6() { IPV6 } else { IPV4 }
}

fn address(host: &str) -> Option<IpAddr> {
    bare(host).parse().ok()
}

fn bare(host: &str) -> &str {
    host.trim_start_matches('[').trim_end_matches(']')
}

async fn look_up(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    let found: Vec<_> = lookup_host((bare(host), port)).await?.collect();
    if found.is_empty() {
        return Err(io::Error::new(io::ErrorKind::NotFound, "no address"));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::super::DescriptorBudget;
    use super::*;
    use crate::settings;
    use http::uri::{Authority, Scheme};

    fn host() -> Host {
        let engine = settings::Endpoint {
            scheme: Scheme::HTTP,
            authority: Authority::from_static("engine:8000"),
            base_path: String::new(),
        };
        let upstream = Arc::new(settings::Upstream::new("engine", vec![engine]));
        let connections = Connections::new(&DescriptorBudget::unlimited());
        Host::new(&upstream.endpoints[0], &upstream, 65_536, &connections)
    }

    fn v4(last: usize) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, u8::try_from(last).expect("small")], 8000))
    }

    #[test]
    fn known_addresses_keep_their_endpoints_and_their_number_is_bounded() {
        let host = host();
        host.store_addresses(vec![v4(1), v4(2)], now());
        let before = host.endpoints();
        host.store_addresses(vec![v4(3), v4(2), v4(2)], now());
        let after = host.endpoints();
        let addresses: Vec<_> = after.iter().map(|endpoint| endpoint.address).collect();
        assert_eq!(addresses, [v4(2), v4(3)]);
        assert!(Arc::ptr_eq(&before[1], &after[0]), "it keeps what it has");
        assert!(!host.contains(&before[0]));
        host.store_addresses((0..200).map(v4).collect(), now());
        assert_eq!(host.len(), MAX_ADDRESSES);
    }

    #[test]
    fn the_family_last_connected_to_is_preferred_while_it_has_addresses() {
        let host = host();
        let v6: SocketAddr = "[::1]:8000".parse().expect("an address");
        let preferred = || {
            let all = host.endpoints();
            let all = all.iter().filter(|endpoint| host.prefers(endpoint));
            all.map(|endpoint| endpoint.address).collect::<Vec<_>>()
        };
        host.store_addresses(vec![v6, v4(1)], now());
        assert_eq!(preferred(), [v6], "the resolver's first");
        let all = host.endpoints();
        let other = all.iter().find(|endpoint| endpoint.address == v4(1));
        host.connected(other.expect("known"));
        assert_eq!(preferred(), [v4(1)]);
        host.store_addresses(vec![v6, v4(1), v4(2)], now());
        assert_eq!(preferred(), [v4(1), v4(2)]);
        host.store_addresses(vec![v6], now());
        assert_eq!(preferred(), [v6]);
    }

    #[tokio::test]
    async fn a_failed_look_up_is_not_repeated_for_requests_that_waited_for_it() {
        let host = host();
        let began = now();
        *host.lookup.lock().await = Some((now(), "no such name".to_owned()));
        let failure = host.resolved_since(began, Duration::from_secs(5)).await;
        let failure = failure.expect_err("it is known");
        assert_eq!(failure.kind, FailureKind::Dns);
        assert!(failure.message.contains("no such name"), "{failure}");
        assert!(host.failed_within(Duration::from_secs(60)));
    }
}
