//! A connection for a request: one that is open, a new one, or one that has to be waited for.

use super::addresses::Host;
use super::limits::{OpenConnection, WaitFor};
use super::{ConnectOptions, Endpoint, Lease, LeasedConnection, Upstream};
use crate::clock::now;
use crate::refusal::failure;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokengauge_core::observer::{Failure, FailureKind};
use tokio::time::timeout_at;

/// When a request that found everything in use may try again.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// How often a request that waits looks by itself: settings and other upstreams' needs change
/// without a word.
const RECHECK_INTERVAL: Duration = Duration::from_millis(250);

/// One request's search for a connection.
pub(crate) struct LeaseSearch<'a> {
    upstream: &'a Upstream,
    options: ConnectOptions,
    started: Instant,
    tried: Vec<Arc<Endpoint>>,
    /// Until when each host may be tried.
    deadlines: Vec<(Arc<Host>, Instant)>,
    resolved_again: bool,
}

/// What came of trying one server.
pub(crate) enum ConnectAttempt {
    Leased(Lease),
    /// It is behind its name no longer.
    EndpointGone,
    /// It failed, and others may not.
    Failed(Failure),
    /// There is no room, here or elsewhere.
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

    /// Looks up the names that nothing is known of, and those again whose addresses are old.
    /// Gives the name and the failure where there is nobody to turn to.
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

    /// The next server to try. When all have failed, names are asked for once more: their
    /// servers may have moved.
    pub async fn next(&mut self) -> Option<(Arc<Host>, Arc<Endpoint>)> {
        let next = self.upstream.choose(&self.tried);
        if next.is_some() || self.resolved_again {
            return next;
        }
        self.resolved_again = true;
        for host in &self.upstream.hosts {
            // Its failure is known: it was tried.
            let _ = host
                .resolved_since(self.started, self.remaining_time(host))
                .await;
        }
        self.upstream.choose(&self.tried)
    }

    /// Tries one server.
    pub async fn attempt(&mut self, host: &Arc<Host>, endpoint: &Arc<Endpoint>) -> ConnectAttempt {
        let upstream = self.upstream;
        let in_flight = endpoint.outstanding.acquire();
        let leased = |connection, reused| {
            ConnectAttempt::Leased(Lease {
                connection,
                reused,
                in_flight,
            })
        };
        let reused = match self.options.new_connection {
            true => None,
            false => upstream.try_reuse(endpoint, self.options),
        };
        if let Some(connection) = reused {
            return leased(connection, true);
        }
        let within = self.time_share(host);
        let deadline = tokio::time::Instant::now() + within;
        let multiplex = !self.options.upgrade && upstream.may_multiplex(endpoint);
        let mut connecting = None;
        if multiplex && !upstream.is_full() {
            let Ok(lock) = timeout_at(deadline, endpoint.connecting.lock()).await else {
                return self.failed(
                    endpoint,
                    failure(
                        FailureKind::ConnectTimeout,
                        "has not accepted a connection yet",
                    ),
                );
            };
            if let Some(connection) = endpoint.reuse_http2() {
                return leased(connection, true);
            }
            // Else the first connection showed that there is nothing to wait for.
            connecting = upstream.may_multiplex(endpoint).then_some(lock);
        }
        let capacity = match upstream.try_capacity() {
            Some(open) => Ok(Capacity::Open(open)),
            None => {
                // Others need not wait for one that waits.
                connecting = None;
                upstream.wait_for_capacity(endpoint, self.options).await
            }
        };
        let open = match capacity {
            Ok(Capacity::Reused(connection)) => return leased(connection, true),
            Ok(Capacity::Open(open)) => open,
            Err(failure) => return ConnectAttempt::Overloaded(failure),
        };
        if let Err(failure) = host.resolve(within).await {
            for endpoint in host.endpoints() {
                endpoint.eject(upstream.settings.eject_for);
                self.tried.push(endpoint);
            }
            return self.failed(endpoint, failure);
        }
        if !host.contains(endpoint) {
            self.tried.push(Arc::clone(endpoint));
            return ConnectAttempt::EndpointGone;
        }
        match upstream.open(endpoint, self.options, open, within).await {
            Ok(connection) => {
                drop(connecting);
                host.connected(endpoint);
                leased(connection, false)
            }
            Err(failure) => self.failed(endpoint, failure),
        }
    }

    fn failed(&mut self, endpoint: &Arc<Endpoint>, failure: Failure) -> ConnectAttempt {
        endpoint.eject(self.upstream.settings.eject_for);
        self.tried.push(Arc::clone(endpoint));
        ConnectAttempt::Failed(failure)
    }

    /// What is left of the time for this name.
    fn remaining_time(&self, host: &Arc<Host>) -> Duration {
        let mut deadlines = self.deadlines.iter();
        let deadline = deadlines.find(|(known, _)| Arc::ptr_eq(known, host));
        let connect = self.upstream.settings.timeouts.connect;
        deadline.map_or(connect, |(_, deadline)| {
            deadline.saturating_duration_since(now())
        })
    }

    /// A server that does not answer leaves time for the others of its name.
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

/// What a request may go on with.
enum Capacity {
    Reused(LeasedConnection),
    Open(OpenConnection),
}

impl Upstream {
    /// A free connection or stream, unless an earlier request waits for one.
    fn try_reuse(&self, endpoint: &Endpoint, options: ConnectOptions) -> Option<LeasedConnection> {
        if self.connections.pending() == 0 {
            return endpoint.reuse(options);
        }
        let free = !options.upgrade && self.connections.pending_for_any() == 0;
        free.then(|| endpoint.reuse_http2()).flatten()
    }

    /// Whether no connection can be opened just now.
    fn is_full(&self) -> bool {
        let max = self.settings.max_connections;
        self.connections.pending() > 0 || self.connections.is_full(max)
    }

    /// Capacity for one more connection, where nobody waits for it.
    fn try_capacity(&self) -> Option<OpenConnection> {
        let free = self.connections.pending() == 0;
        free.then(|| self.try_open()).flatten()
    }

    /// Capacity for one more connection, or one that has become free meanwhile. Who comes first
    /// goes first.
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
            // What is freed from here on is not missed.
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
            .then(|| endpoint.reuse(options))
            .flatten();
        let reused = reused.map(Capacity::Reused);
        reused.or_else(|| self.try_open().map(Capacity::Open))
    }

    fn try_open(&self) -> Option<OpenConnection> {
        let max = self.settings.max_connections;
        self.connections.try_open(max).or_else(|| {
            self.close_idle_connection();
            self.connections.try_open(max)
        })
    }

    /// More wait than may.
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
            None => "its share of the descriptors that the process may open",
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
