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
const LOOK: Duration = Duration::from_millis(250);

/// One request's search for a connection.
pub(crate) struct LeaseSearch<'a> {
    upstream: &'a Upstream,
    options: ConnectOptions,
    began: Instant,
    tried: Vec<Arc<Endpoint>>,
    /// Until when each host may be tried.
    deadlines: Vec<(Arc<Host>, Instant)>,
    asked_again: bool,
}

/// What came of trying one server.
pub(crate) enum ConnectAttempt {
    Leased(Lease),
    /// It is behind its name no longer.
    Moved,
    /// It failed, and others may not.
    Failed(Failure),
    /// There is no room, here or elsewhere.
    Full(Failure),
}

impl<'a> LeaseSearch<'a> {
    pub fn new(upstream: &'a Upstream, options: ConnectOptions) -> LeaseSearch<'a> {
        LeaseSearch {
            upstream,
            options,
            began: now(),
            tried: Vec::new(),
            deadlines: Vec::new(),
            asked_again: false,
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
            if let Err(failure) = host.resolved_since(self.began, within).await {
                last = Some((host.name.clone(), failure));
            }
        }
        last.filter(|_| upstream.hosts.iter().all(|host| host.len() == 0))
    }

    /// The next server to try. When all have failed, names are asked for once more: their
    /// servers may have moved.
    pub async fn next(&mut self) -> Option<(Arc<Host>, Arc<Endpoint>)> {
        let next = self.upstream.choose(&self.tried);
        if next.is_some() || self.asked_again {
            return next;
        }
        self.asked_again = true;
        for host in &self.upstream.hosts {
            // Its failure is known: it was tried.
            let _ = host.resolved_since(self.began, self.budget(host)).await;
        }
        self.upstream.choose(&self.tried)
    }

    /// Tries one server.
    pub async fn attempt(&mut self, host: &Arc<Host>, endpoint: &Arc<Endpoint>) -> ConnectAttempt {
        let upstream = self.upstream;
        let held = endpoint.outstanding.take();
        let leased = |wire, reused| ConnectAttempt::Leased(Lease { wire, reused, held });
        let reused = match self.options.fresh {
            true => None,
            false => upstream.reuse_at_once(endpoint, self.options),
        };
        if let Some(wire) = reused {
            return leased(wire, true);
        }
        let within = self.share(host);
        let deadline = tokio::time::Instant::now() + within;
        let shares = !self.options.upgrade && upstream.shares(endpoint);
        let mut opening = None;
        if shares && !upstream.is_full() {
            let Ok(lock) = timeout_at(deadline, endpoint.opening.lock()).await else {
                return self.failed(
                    endpoint,
                    failure(
                        FailureKind::ConnectTimeout,
                        "has not accepted a connection yet",
                    ),
                );
            };
            if let Some(wire) = endpoint.reuse_http2() {
                return leased(wire, true);
            }
            // Else the first connection showed that there is nothing to wait for.
            opening = upstream.shares(endpoint).then_some(lock);
        }
        let room = match upstream.room_at_once() {
            Some(open) => Ok(Capacity::Open(open)),
            None => {
                // Others need not wait for one that waits.
                opening = None;
                upstream.wait_for_room(endpoint, self.options).await
            }
        };
        let open = match room {
            Ok(Capacity::Reused(wire)) => return leased(wire, true),
            Ok(Capacity::Open(open)) => open,
            Err(failure) => return ConnectAttempt::Full(failure),
        };
        if let Err(failure) = host.resolve(within).await {
            for endpoint in host.endpoints() {
                endpoint.eject(upstream.settings.eject_for);
                self.tried.push(endpoint);
            }
            return self.failed(endpoint, failure);
        }
        if !host.has(endpoint) {
            self.tried.push(Arc::clone(endpoint));
            return ConnectAttempt::Moved;
        }
        match upstream.open(endpoint, self.options, open, within).await {
            Ok(wire) => {
                drop(opening);
                host.connected(endpoint);
                leased(wire, false)
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
    fn budget(&self, host: &Arc<Host>) -> Duration {
        let mut deadlines = self.deadlines.iter();
        let deadline = deadlines.find(|(known, _)| Arc::ptr_eq(known, host));
        let connect = self.upstream.settings.timeouts.connect;
        deadline.map_or(connect, |(_, deadline)| {
            deadline.saturating_duration_since(now())
        })
    }

    /// A server that does not answer leaves time for the others of its name.
    fn share(&mut self, host: &Arc<Host>) -> Duration {
        let untried = |endpoint: &&Arc<Endpoint>| {
            !self.tried.iter().any(|tried| Arc::ptr_eq(tried, endpoint))
        };
        let endpoints = host.endpoints();
        let left = endpoints.iter().filter(untried).count();
        let budget = self.budget(host);
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
    fn reuse_at_once(
        &self,
        endpoint: &Endpoint,
        options: ConnectOptions,
    ) -> Option<LeasedConnection> {
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
    fn room_at_once(&self) -> Option<OpenConnection> {
        let free = self.connections.pending() == 0;
        free.then(|| self.try_open()).flatten()
    }

    /// Capacity for one more connection, or one that has become free meanwhile. Who comes first
    /// goes first.
    async fn wait_for_room(
        &self,
        endpoint: &Arc<Endpoint>,
        options: ConnectOptions,
    ) -> Result<Capacity, Failure> {
        let wants = if options.upgrade {
            WaitFor::Connection
        } else {
            WaitFor::Any
        };
        let waiting = self
            .connections
            .try_wait(self.settings.max_pending, wants)
            .ok_or_else(|| self.refused())?;
        let limit = self.settings.timeouts.connect;
        let deadline = tokio::time::Instant::now() + limit;
        let mut its_turn = waiting.is_first();
        loop {
            let mut freed = pin!(self.connections.freed(wants));
            // What is freed from here on is not missed.
            freed.as_mut().enable();
            if its_turn && let Some(room) = self.room_now(endpoint, options) {
                return Ok(room);
            }
            let look = deadline.min(tokio::time::Instant::now() + LOOK);
            if timeout_at(look, freed).await.is_err() && look == deadline {
                return Err(self.waited(limit));
            }
            its_turn = true;
        }
    }

    fn room_now(&self, endpoint: &Endpoint, options: ConnectOptions) -> Option<Capacity> {
        let reused = (!options.fresh).then(|| endpoint.reuse(options)).flatten();
        let reused = reused.map(Capacity::Reused);
        reused.or_else(|| self.try_open().map(Capacity::Open))
    }

    fn try_open(&self) -> Option<OpenConnection> {
        let max = self.settings.max_connections;
        self.connections.try_open(max).or_else(|| {
            self.close_an_idle_one();
            self.connections.try_open(max)
        })
    }

    /// More wait than may.
    fn refused(&self) -> Failure {
        let pending = self.settings.max_pending;
        self.full(format!("and {pending} requests wait for one (max_pending)"))
    }

    fn waited(&self, limit: Duration) -> Failure {
        self.full(format!("and none became free within {limit:?}"))
    }

    fn full(&self, and: String) -> Failure {
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
