//! Leases a connection for a request: an idle one, a new one, or the next that becomes free.

use super::addresses::Host;
use super::idle_pool::PROBATION;
use super::limits::{OpenConnection, WaitFor};
use super::{ConnectOptions, Endpoint, Lease, LeasedConnection, Sharing, Upstream};
use crate::clock::now;
use crate::refusal::failure;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokengauge_core::observer::{Failure, FailureKind};
use tokio::sync::MutexGuard;
use tokio::time::{sleep, timeout, timeout_at};

/// When to retry a request that found no free connection.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// How often a waiting request checks for capacity. Changes of settings and of other upstreams' descriptor use do not
/// wake it.
const RECHECK_INTERVAL: Duration = Duration::from_millis(250);

/// How often a request looks for a connection that has become old enough to be used.
const RETRY_INTERVAL: Duration = Duration::from_millis(2);

pub(crate) struct LeaseSearch<'a> {
    upstream: &'a Upstream,
    options: ConnectOptions,
    started: Instant,
    tried: Vec<Arc<Endpoint>>,
    deadlines: Vec<(Arc<Host>, Instant)>,
    resolved_again: bool,
}

pub(crate) enum NotLeased {
    /// The name no longer resolves to the endpoint.
    EndpointGone,
    /// The endpoint failed. Another endpoint may be tried.
    Failed(Failure),
    /// The upstream has no free connection, whatever the endpoint.
    Overloaded(Failure),
}

impl<'a> LeaseSearch<'a> {
    pub fn new(upstream: &'a Upstream, options: ConnectOptions) -> LeaseSearch<'a> {
        LeaseSearch {
            upstream,
            options,
            started: now(),
            tried: Vec::new(),
            deadlines: Vec::new(),
            resolved_again: false,
        }
    }

    /// Resolves names without known addresses and refreshes old ones. Returns the name and its failure if no endpoint
    /// is known.
    pub async fn discover(&self) -> Option<(String, Failure)> {
        let upstream = self.upstream;
        let mut last = None;
        for host in &upstream.hosts {
            host.refresh();
            if host.len() > 0 {
                continue;
            }
            if upstream.hosts.iter().any(|host| host.len() > 0) {
                // While another endpoint is known, no request waits for this name to resolve.
                if !host.failed_within(upstream.settings.eject_for) {
                    host.look_up_in_background();
                }
                continue;
            }
            let within = upstream.settings.timeouts.connect;
            if let Err(failure) = host.resolved_since(self.started, within).await {
                last = Some((host.name.clone(), failure));
            }
        }
        last.filter(|_| upstream.hosts.iter().all(|host| host.len() == 0))
    }

    /// Returns the next endpoint to try. When all have failed, names are resolved again, because their servers may have
    /// moved.
    pub async fn next(&mut self) -> Option<(Arc<Host>, Arc<Endpoint>)> {
        let next = self.upstream.choose(&self.tried);
        if next.is_some() || self.resolved_again {
            return next;
        }
        self.resolved_again = true;
        for host in &self.upstream.hosts {
            let _ = host
                .resolved_since(self.started, self.remaining_time(host))
                .await;
        }
        self.upstream.choose(&self.tried)
    }

    pub async fn attempt(
        &mut self,
        host: &Arc<Host>,
        endpoint: &Arc<Endpoint>,
    ) -> Result<Lease, NotLeased> {
        let in_flight = endpoint.in_flight.acquire();
        let leased = |connection, reused| Lease {
            connection,
            reused,
            in_flight,
        };
        let reused = if self.options.new_connection {
            None
        } else {
            self.reuse(endpoint).await
        };
        if let Some(connection) = reused {
            return Ok(leased(connection, true));
        }
        let within = self.time_share(host);
        let (capacity, connecting) = self.capacity(endpoint, within).await?;
        let open = match capacity {
            Capacity::Reused(connection) => return Ok(leased(connection, true)),
            Capacity::Open(open) => open,
        };
        match self.open(host, endpoint, open, within).await {
            Ok(connection) => {
                drop(connecting);
                host.connected(endpoint);
                Ok(leased(connection, false))
            }
            Err(NotLeased::Failed(failure)) => match self.share_instead(endpoint) {
                Some(connection) => Ok(leased(connection, true)),
                None => Err(self.failed(endpoint, failure)),
            },
            Err(other) => Err(other),
        }
    }

    /// Returns a free connection or stream. If the endpoint has many connections that are only too young, waits for
    /// one, so that a burst of short requests to a new endpoint does not open a connection for each. After its
    /// probation, the endpoint is trusted.
    async fn reuse(&self, endpoint: &Endpoint) -> Option<LeasedConnection> {
        let deadline = now() + PROBATION;
        let pool = &endpoint.idle_pool;
        loop {
            let reused = self.upstream.try_reuse(endpoint, self.options);
            let wait = reused.is_none()
                && !self.options.upgrade
                && now() < deadline
                && pool.is_worth_waiting(self.options.non_idempotent);
            if !wait {
                return reused;
            }
            sleep(RETRY_INTERVAL).await;
        }
    }

    /// Returns an open connection, or permission to open one. A connection that requests may share is opened under a
    /// lock, on which requests that arrive meanwhile wait.
    async fn capacity<'e>(
        &mut self,
        endpoint: &'e Arc<Endpoint>,
        within: Duration,
    ) -> Result<(Capacity, Option<MutexGuard<'e, ()>>), NotLeased> {
        let upstream = self.upstream;
        let mut connecting = None;
        if !self.options.upgrade && upstream.may_multiplex(endpoint) && !upstream.is_full() {
            let (lock, sharing) = match endpoint.connecting.try_lock() {
                Ok(lock) => (lock, Sharing::OwnOrIdle),
                Err(_) => {
                    if let Some(connection) = endpoint.share(Sharing::Any) {
                        return Ok((Capacity::Reused(connection), None));
                    }
                    let lock = timeout(within, endpoint.connecting.lock()).await;
                    (lock.map_err(|_| self.not_accepted(endpoint))?, Sharing::Any)
                }
            };
            if let Some(connection) = endpoint.share(sharing) {
                return Ok((Capacity::Reused(connection), None));
            }
            // Releases the lock if the first connection has shown that the endpoint does not multiplex.
            connecting = upstream.may_multiplex(endpoint).then_some(lock);
        }
        if let Some(open) = upstream.try_capacity() {
            return Ok((Capacity::Open(open), connecting));
        }
        // Other requests must not wait for this one, which waits itself.
        drop(connecting);
        if let Some(connection) = upstream.try_share(endpoint, self.options) {
            return Ok((Capacity::Reused(connection), None));
        }
        let capacity = upstream.wait_for_capacity(endpoint, self.options).await;
        Ok((capacity.map_err(NotLeased::Overloaded)?, None))
    }

    /// Opens a connection if the name still resolves to the endpoint.
    async fn open(
        &mut self,
        host: &Arc<Host>,
        endpoint: &Arc<Endpoint>,
        open: OpenConnection,
        within: Duration,
    ) -> Result<LeasedConnection, NotLeased> {
        if let Err(failure) = host.resolve(within).await {
            for endpoint in host.endpoints() {
                endpoint.eject(self.upstream.settings.eject_for);
                self.tried.push(endpoint);
            }
            return Err(NotLeased::Failed(failure));
        }
        if !host.contains(endpoint) {
            self.tried.push(Arc::clone(endpoint));
            return Err(NotLeased::EndpointGone);
        }
        let opened = self.upstream.open(endpoint, self.options, open, within);
        opened.await.map_err(NotLeased::Failed)
    }

    /// Returns a stream of a shared connection after opening a new connection failed. The endpoint is still ejected, so
    /// that the next request does not try again.
    fn share_instead(&self, endpoint: &Endpoint) -> Option<LeasedConnection> {
        let shared = self.upstream.try_share(endpoint, self.options);
        shared.inspect(|_| endpoint.eject(self.upstream.settings.eject_for))
    }

    fn failed(&mut self, endpoint: &Arc<Endpoint>, failure: Failure) -> NotLeased {
        endpoint.eject(self.upstream.settings.eject_for);
        self.tried.push(Arc::clone(endpoint));
        NotLeased::Failed(failure)
    }

    fn not_accepted(&mut self, endpoint: &Arc<Endpoint>) -> NotLeased {
        let message = "has not accepted a connection yet";
        self.failed(endpoint, failure(FailureKind::ConnectTimeout, message))
    }

    fn remaining_time(&self, host: &Arc<Host>) -> Duration {
        let mut deadlines = self.deadlines.iter();
        let deadline = deadlines.find(|(known, _)| Arc::ptr_eq(known, host));
        let connect = self.upstream.settings.timeouts.connect;
        deadline.map_or(connect, |(_, deadline)| {
            deadline.saturating_duration_since(now())
        })
    }

    /// This endpoint's share of the time for its host, so that time remains for other endpoints if it does not respond.
    fn time_share(&mut self, host: &Arc<Host>) -> Duration {
        let untried = |endpoint: &&Arc<Endpoint>| {
            !self.tried.iter().any(|tried| Arc::ptr_eq(tried, endpoint))
        };
        let endpoints = host.endpoints();
        let left = endpoints.iter().filter(untried).count();
        let budget = self.remaining_time(host);
        if !self
            .deadlines
            .iter()
            .any(|(known, _)| Arc::ptr_eq(known, host))
        {
            self.deadlines.push((Arc::clone(host), now() + budget));
        }
        budget / u32::try_from(left).unwrap_or(u32::MAX).max(1)
    }
}

enum Capacity {
    Reused(LeasedConnection),
    Open(OpenConnection),
}

impl Upstream {
    /// Returns a free connection or stream, unless an earlier request waits for one.
    fn try_reuse(&self, endpoint: &Endpoint, options: ConnectOptions) -> Option<LeasedConnection> {
        if self.connections.pending() == 0 {
            let near = endpoint.reuse(options, Sharing::OwnOrIdle);
            let max = self.settings.max_connections;
            if near.is_some() || !endpoint.is_ejected() && self.connections.has_room_to_spare(max) {
                return near;
            }
        }
        self.try_share(endpoint, options)
    }

    /// Returns a stream of any connection, unless an earlier request waits or this request needs an exclusive
    /// connection.
    fn try_share(&self, endpoint: &Endpoint, options: ConnectOptions) -> Option<LeasedConnection> {
        let may_share = !options.upgrade && !options.new_connection;
        let free = may_share && self.connections.pending_for_any() == 0;
        free.then(|| endpoint.share(Sharing::Any)).flatten()
    }

    fn is_full(&self) -> bool {
        let max = self.settings.max_connections;
        self.connections.pending() > 0 || self.connections.is_full(max)
    }

    fn try_capacity(&self) -> Option<OpenConnection> {
        let free = self.connections.pending() == 0;
        free.then(|| self.try_open()).flatten()
    }

    /// Waits for permission to open a connection, or for a free connection. First come, first served.
    async fn wait_for_capacity(
        &self,
        endpoint: &Arc<Endpoint>,
        options: ConnectOptions,
    ) -> Result<Capacity, Failure> {
        let wait_for = if options.upgrade {
            WaitFor::Connection
        } else {
            WaitFor::Any
        };
        let waiting = self
            .connections
            .enqueue(self.settings.max_pending, wait_for)
            .ok_or_else(|| self.too_many_pending())?;
        let limit = self.settings.timeouts.connect;
        let deadline = tokio::time::Instant::now() + limit;
        let mut may_take = waiting.is_first();
        loop {
            let mut freed = pin!(self.connections.freed(wait_for));
            // No notification is missed from here on.
            freed.as_mut().enable();
            if may_take && let Some(capacity) = self.capacity_now(endpoint, options) {
                return Ok(capacity);
            }
            let recheck = deadline.min(tokio::time::Instant::now() + RECHECK_INTERVAL);
            if timeout_at(recheck, freed).await.is_err() && recheck == deadline {
                return Err(self.wait_timed_out(limit));
            }
            may_take = true;
        }
    }

    fn capacity_now(&self, endpoint: &Endpoint, options: ConnectOptions) -> Option<Capacity> {
        let reused = (!options.new_connection)
            .then(|| endpoint.reuse(options, Sharing::Any))
            .flatten()
            .map(Capacity::Reused);
        reused.or_else(|| self.try_open().map(Capacity::Open))
    }

    fn try_open(&self) -> Option<OpenConnection> {
        let max = self.settings.max_connections;
        self.connections.try_open(max).or_else(|| {
            self.close_idle_connection();
            self.connections.try_open(max)
        })
    }

    fn too_many_pending(&self) -> Failure {
        let pending = self.settings.max_pending;
        self.overloaded(format!("and {pending} requests wait for one (max_pending)"))
    }

    fn wait_timed_out(&self, limit: Duration) -> Failure {
        self.overloaded(format!("and none became free within {limit:?}"))
    }

    fn overloaded(&self, and: String) -> Failure {
        self.connections.refuse();
        let (name, open) = (&self.settings.name, self.connections.open());
        let bound = match self.settings.max_connections {
            Some(_) => "max_connections",
            None => {
                "the upstream's share of the process's file descriptors; raise the limit on open files"
            }
        };
        let message = format!(
            "upstream {name}: all {open} connections are in use ({bound}), {and}; try again in {} s",
            RETRY_AFTER.as_secs()
        );
        Failure {
            retry_after: Some(RETRY_AFTER),
            ..failure(FailureKind::Overloaded, message)
        }
    }
}
