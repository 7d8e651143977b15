//! Forwards one request and its response.

use super::ConnectionInfo;
use super::address;
use super::agent_body::AgentBody;
use super::agent_connection::AgentConnection;
use super::call_handle::{Call, CallHandle};
use super::clock::now;
use super::discard_body::{DiscardPolicy, UnreadBody};
use super::exchange::{Http1Context, ResponseError, UpstreamResponse, exchange};
use super::headers;
use super::http1::FieldNames;
use super::message::{AgentRequest, AgentResponse};
use super::refusal::{describe_failure, failure, rate_limited, refuse, refuse_unread};
use super::rewrite::{self, RewriteOutcome};
use super::route;
use super::routing::Routing;
use super::send_timeout::{DownstreamState, SendState};
use super::split;
use super::upload::{self, ContinueGate, Upload};
use super::upstream::{
    ConnectAttempt, ConnectOptions, Endpoint, InFlightGuard, Lease, LeaseSearch, LeasedConnection,
    Upstream,
};
use crate::settings::{Route, Settings};
use arc_swap::ArcSwap;
use http::header::{CONNECTION, EXPECT};
use http::uri::Uri;
use http::{HeaderMap, HeaderValue, Method, Request, Version, request};
use http_body::Body as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};
use tokengauge_core::experiment::RequestHead;
use tokengauge_core::observer::{
    Admission, CallStart, Failure, FailureKind, Observer, RequestBody, UnreadableBody,
};
use tokengauge_net::tls;

/// Forwards requests by the routes of a configuration.
pub struct Forwarder {
    /// Loaded once per request, which then keeps its version.
    routing: ArcSwap<Routing>,
    observer: Arc<dyn Observer>,
    panics: Arc<AtomicU64>,
    no_route: Arc<str>,
}

impl Forwarder {
    /// The name of route and upstream in records where no route matches.
    pub const NO_ROUTE: &str = "none";

    /// A forwarder with no connections yet.
    ///
    /// # Errors
    ///
    /// When a file that an upstream's TLS needs cannot be read.
    pub fn new(settings: Settings, observer: Arc<dyn Observer>) -> Result<Forwarder, tls::Invalid> {
        Ok(Forwarder {
            routing: ArcSwap::from_pointee(Routing::new(settings)?),
            observer,
            panics: Arc::default(),
            no_route: Arc::from(Self::NO_ROUTE),
        })
    }

    /// Builds the routing for another configuration, without applying it. Upstreams that did not
    /// change keep their connections.
    ///
    /// # Errors
    ///
    /// When a file that an upstream's TLS needs cannot be read.
    pub fn prepare(&self, settings: Settings) -> Result<Routing, tls::Invalid> {
        self.routing.load().with_settings(settings)
    }

    /// Applies `routing` to new requests; requests in flight keep the routing that they began with.
    pub fn change(&self, routing: Routing) {
        self.routing.store(Arc::new(routing));
    }

    /// Limits the connections to all upstreams together to `total`.
    pub fn limit_descriptors(&self, total: usize) {
        self.routing.load().descriptors.limit(total);
    }

    /// The open connections and pending requests of each upstream.
    pub fn upstreams(&self) -> Vec<UpstreamConnections> {
        let routing = self.routing.load();
        let mut upstreams: Vec<_> = routing.upstreams.iter().flatten().collect();
        upstreams.sort_by(|one, other| one.settings.name.cmp(&other.settings.name));
        upstreams.dedup_by(|one, other| Arc::ptr_eq(one, other));
        let connections = |upstream: &&Arc<Upstream>| UpstreamConnections {
            upstream: Arc::clone(&upstream.settings.name),
            open: upstream.connections.open(),
            pending: upstream.connections.pending(),
            refused: upstream.connections.refused(),
            resent: upstream.connections.resent(),
        };
        upstreams.iter().map(connections).collect()
    }

    /// How often an observer panicked. Each panic cost the measurement of one call.
    pub fn observer_panics(&self) -> u64 {
        self.panics.load(Ordering::Relaxed)
    }

    /// Forwards a request by its route. A failure is reported in the response.
    pub(super) async fn forward(
        &self,
        request: AgentRequest,
        connection: &ConnectionInfo,
        stream: Option<&Arc<SendState>>,
    ) -> AgentResponse {
        // Every connection has room for this future, so it has to be small.
        Box::pin(self.handle_request(request, connection, stream)).await
    }

    async fn handle_request(
        &self,
        request: AgentRequest,
        connection: &ConnectionInfo,
        stream: Option<&Arc<SendState>>,
    ) -> AgentResponse {
        let received = now();
        let routing = self.routing.load_full();
        let AgentRequest { parts, names, body } = request;
        let index = route::choose(&routing.settings.routes, &parts);
        let matched = index.map(|index| &*routing.settings.routes[index]);
        let downstream = DownstreamState::new(
            &connection.send_state,
            stream,
            connection.drain.call_guard(),
        );
        let (call, upstream) = self.begin(received, &parts, &routing, index, connection);
        let call = Call::new(call, downstream);
        let discard_policy = DiscardPolicy::new(&parts);
        let (Some(route), Some(upstream)) = (matched, upstream) else {
            let failure = failure(
                FailureKind::NoRoute,
                "no route matches this request; see the routes of the configuration",
            );
            return refuse_unread(call, &failure, UnreadBody::from_agent(body, discard_policy));
        };
        call.downstream()
            .set_send_timeout(upstream.settings.timeouts.send);
        if let Some((kind, problem)) = rejection(route, &parts) {
            let mut response = refuse(call, &failure(kind, problem));
            let close = HeaderValue::from_static("close");
            response.parts.headers.insert(CONNECTION, close);
            return response;
        }
        if let Some(reason) = &routing.settings.refusal {
            let failure = failure(FailureKind::ConfigRefused, &**reason);
            return refuse_unread(call, &failure, UnreadBody::from_agent(body, discard_policy));
        }
        if let Err(wait) = routing.limiter.check(route) {
            return refuse_unread(
                call,
                &rate_limited(route, wait),
                UnreadBody::from_agent(body, discard_policy),
            );
        }
        let request_body = request_body(route, &parts, &body);
        let admission = call.handle().query(|observer| observer.admit(request_body));
        if let Some(Admission::Refused(failure)) = &admission {
            return refuse_unread(call, failure, UnreadBody::from_agent(body, discard_policy));
        }
        let forwarding = Forwarding {
            route,
            upstream,
            connection,
            method: parts.method.clone(),
            agent_version: parts.version,
            admitted_by_body: admission == Some(Admission::ByBody),
        };
        match forwarding.run(parts, &names, body, &call).await {
            Ok(sent) => forwarding.respond(sent, call),
            Err(SendFailure {
                failure,
                source: Some(source),
            }) => refuse_unread(call, &failure, UnreadBody::new(source, discard_policy)),
            Err(SendFailure { failure, .. }) => refuse(call, &failure),
        }
    }

    /// Begins the call of a request, and chooses its upstream: that of its route, or of an arm of the route's experiment.
    fn begin<'a>(
        &self,
        received: Instant,
        parts: &request::Parts,
        routing: &'a Routing,
        index: Option<usize>,
        connection: &ConnectionInfo,
    ) -> (CallHandle, Option<&'a Upstream>) {
        let matched = index.map(|index| &*routing.settings.routes[index]);
        let started_at = SystemTime::now();
        let split = matched.and_then(|route| route.split.as_deref());
        let head = RequestHead {
            headers: &parts.headers,
            uri: &parts.uri,
            port: Some(connection.port),
        };
        let chosen = split
            .map(|split| split::choose(split, &*self.observer, &self.panics, head, started_at));
        // Those of the arms follow the route's own.
        let arm = chosen.as_ref().and_then(|chosen| chosen.arm);
        let arm = arm.map_or(0, |arm| arm + 1);
        let upstream = index.and_then(|index| routing.upstreams.get(index)?.get(arm));
        let start = CallStart {
            received,
            started_at,
            method: &parts.method,
            uri: &parts.uri,
            headers: &parts.headers,
            peer: Some(connection.peer),
            port: Some(connection.port),
            route: matched.map_or(&self.no_route, |route| &route.name),
            upstream: upstream.map_or(&self.no_route, |upstream| &upstream.settings.name),
            dialect: matched.and_then(|route| route.dialect),
            workload: matched.and_then(|route| route.workload.as_ref()),
            inject_usage: matched.is_some_and(|route| route.inject_usage),
            variant: chosen.as_ref().map(|chosen| &chosen.variant),
        };
        let call = CallHandle::begin(&*self.observer, &self.panics, start);
        (call, upstream.map(|upstream| &**upstream))
    }
}

/// The connections of one upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamConnections {
    /// The upstream's name.
    pub upstream: Arc<str>,
    /// Connections that are open, idle ones included.
    pub open: usize,
    /// Requests that wait for a connection.
    pub pending: usize,
    /// Requests that were refused because no connection became free.
    pub refused: u64,
    /// Requests that were sent once more because a reused connection was lost.
    pub resent: u64,
}

/// A request that is being forwarded.
pub(super) struct Forwarding<'a> {
    pub route: &'a Route,
    pub upstream: &'a Upstream,
    pub connection: &'a ConnectionInfo,
    pub method: Method,
    pub agent_version: Version,
    /// Whether the request is admitted or refused by its body.
    pub admitted_by_body: bool,
}

/// A request that was sent, and the response to it.
pub(super) struct SentRequest {
    pub response: UpstreamResponse,
    pub endpoint: Arc<Endpoint>,
    pub in_flight: InFlightGuard,
    /// The agent asked for another protocol, and may.
    pub upgrade: bool,
    pub rewritten: bool,
    /// The time that the proxy spent on the request head.
    pub overhead: Duration,
}

/// A request that got no response.
struct SendFailure {
    failure: Failure,
    /// What was not sent of its body, where that can still be read.
    source: Option<upload::UploadSource>,
}

impl SendFailure {
    fn not_sent(request: Request<Upload>, failure: Failure) -> SendFailure {
        SendFailure {
            failure,
            source: Some(request.into_body().into_source()),
        }
    }
}

impl From<Failure> for SendFailure {
    fn from(failure: Failure) -> SendFailure {
        SendFailure {
            failure,
            source: None,
        }
    }
}

/// A request that is ready to be sent to any endpoint.
struct PreparedRequest {
    request: Request<Upload>,
    /// The agent's target.
    uri: Uri,
    gate: Option<Arc<ContinueGate>>,
    upgrade: bool,
    rewritten: bool,
}

impl Forwarding<'_> {
    async fn run(
        &self,
        parts: request::Parts,
        names: &FieldNames,
        body: AgentBody,
        call: &Call,
    ) -> Result<SentRequest, SendFailure> {
        let handle = call.handle();
        let mut prepared = self.prepare(parts, body, handle).await?;
        let mut options = ConnectOptions {
            new_connection: false,
            upgrade: prepared.upgrade,
            non_idempotent: !self.method.is_idempotent(),
        };
        let mut overhead = now().saturating_duration_since(handle.started());
        loop {
            let leased = match self.lease(options, handle).await {
                Ok(leased) => leased,
                Err(failure) => return Err(SendFailure::not_sent(prepared.request, failure)),
            };
            let (
                endpoint,
                Lease {
                    connection,
                    reused,
                    in_flight,
                },
            ) = leased;
            let connected = now();
            handle.notify(|observer| observer.connected(connected, reused));
            self.address(&mut prepared, &endpoint, &connection)?;
            let replayable = reused && matches!(connection, LeasedConnection::Http1(_));
            let resend = self.retain(&mut prepared, replayable && !options.new_connection);
            let timeouts = &self.upstream.settings.timeouts;
            let http1 = Http1Context {
                names,
                agent: self.interim_agent(),
                gate: prepared.gate.as_deref(),
            };
            match exchange(connection, prepared.request, handle, timeouts, http1).await {
                Ok(response) => {
                    overhead += response.written_at.saturating_duration_since(connected);
                    let PreparedRequest {
                        upgrade, rewritten, ..
                    } = prepared;
                    return Ok(SentRequest {
                        response,
                        endpoint,
                        in_flight,
                        upgrade,
                        rewritten,
                        overhead,
                    });
                }
                // The upstream had closed the idle connection: retried on a new one.
                Err(ResponseError::NotSent(request, _)) if reused && !options.new_connection => {
                    prepared.request = *request;
                    options.new_connection = true;
                }
                Err(ResponseError::Lost(_, body)) if let Some(parts) = resend => {
                    self.upstream.connections.count_resent();
                    prepared.request = Request::from_parts(parts, *body);
                    options.new_connection = true;
                }
                Err(ResponseError::NotSent(request, failure)) => {
                    return Err(SendFailure::not_sent(
                        *request,
                        self.describe_failure(failure, &endpoint, handle),
                    ));
                }
                Err(ResponseError::Lost(failure, _)) => {
                    return Err(self.describe_failure(failure, &endpoint, handle).into());
                }
                Err(ResponseError::Failed(failure, unsent)) => {
                    let readable = unsent.filter(|_| handle.upload_error().is_none());
                    return Err(SendFailure {
                        failure: self.describe_failure(failure, &endpoint, handle),
                        source: readable.map(|upload| upload.into_source()),
                    });
                }
            }
        }
    }

    /// The head of a request that may be sent again if the reused HTTP/1 connection it takes is lost; its body is retained.
    fn retain(&self, prepared: &mut PreparedRequest, replayable: bool) -> Option<request::Parts> {
        let bytes = self.upstream.settings.resend_bytes;
        if bytes == 0 || !replayable || prepared.upgrade {
            return None;
        }
        prepared.request.body_mut().retain(bytes);
        let mut head = Request::new(());
        *head.method_mut() = prepared.request.method().clone();
        *head.uri_mut() = prepared.request.uri().clone();
        *head.version_mut() = prepared.request.version();
        *head.headers_mut() = prepared.request.headers().clone();
        Some(head.into_parts().0)
    }

    fn describe_failure(
        &self,
        failure: Failure,
        endpoint: &Endpoint,
        handle: &CallHandle,
    ) -> Failure {
        describe_failure(
            failure,
            &self.upstream.settings,
            &endpoint.display_name(),
            handle,
        )
    }

    /// Whom interim responses go to: only HTTP/1.1 agents get them this way.
    fn interim_agent(&self) -> Option<&AgentConnection> {
        let agent = self.connection.http1.as_ref()?;
        (self.agent_version == Version::HTTP_11).then_some(agent)
    }

    async fn prepare(
        &self,
        mut parts: request::Parts,
        body: AgentBody,
        handle: &Arc<CallHandle>,
    ) -> Result<PreparedRequest, SendFailure> {
        let uri = parts.uri.clone();
        let upgrade = headers::asks_for_upgrade(&parts, self.route);
        let replaceable = self.route.inject_usage && rewrite::replaceable(&parts, &body);
        let buffer_body = !upgrade && (replaceable || self.admitted_by_body);
        headers::upstream_request(&mut parts, self.route, self.connection);
        if let Some(trace) = handle.query(|observer| observer.upstream_trace()).flatten() {
            headers::carry_trace(&mut parts.headers, trace);
        }
        let (source, rewritten) = match buffer_body {
            true => self.rewrite(&mut parts, body, handle, replaceable).await?,
            false => (upload::UploadSource::Agent(body), false),
        };
        let gate = (expects_continue(&parts.headers)
            && matches!(source, upload::UploadSource::Agent(_)))
        .then(Arc::<ContinueGate>::default);
        let mut upload = Upload::new(source, handle);
        if let Some(gate) = &gate {
            upload.wait_for_continue(Arc::clone(gate));
        }
        Ok(PreparedRequest {
            request: Request::from_parts(parts, upload),
            uri,
            gate,
            upgrade,
            rewritten,
        })
    }

    async fn rewrite(
        &self,
        parts: &mut request::Parts,
        body: AgentBody,
        handle: &Arc<CallHandle>,
        replacement: bool,
    ) -> Result<(upload::UploadSource, bool), SendFailure> {
        let idle = self.upstream.settings.timeouts.idle;
        let options = rewrite::RewriteOptions {
            admission: self.admitted_by_body,
            replacement,
        };
        match rewrite::rewrite(parts, body, handle, idle, options).await {
            RewriteOutcome::Unchanged(source) => Ok((source, false)),
            RewriteOutcome::Replaced(source) => Ok((source, true)),
            RewriteOutcome::Refused(failure, source) => Err(SendFailure {
                failure,
                source: Some(source),
            }),
            RewriteOutcome::Incomplete => {
                let message = "the request body ended before its time";
                Err(failure(FailureKind::BadRequest, message).into())
            }
            RewriteOutcome::Stalled => {
                let message = format!("nothing of the request body came for {idle:?}");
                Err(failure(FailureKind::IdleTimeout, message).into())
            }
        }
    }

    /// Leases a connection to an endpoint of the upstream.
    async fn lease(
        &self,
        options: ConnectOptions,
        handle: &CallHandle,
    ) -> Result<(Arc<Endpoint>, Lease), Failure> {
        let settings = &self.upstream.settings;
        let mut search = LeaseSearch::new(self.upstream, options);
        let mut last = failure(FailureKind::Connect, "has no endpoints");
        if let Some((name, failure)) = search.discover().await {
            handle.notify(|observer| observer.endpoint(&name));
            last = describe_failure(failure, settings, &name, handle);
        }
        while let Some((host, endpoint)) = search.next().await {
            handle.notify(|observer| observer.endpoint(&endpoint.name));
            match search.attempt(&host, &endpoint).await {
                ConnectAttempt::Leased(lease) => return Ok((endpoint, lease)),
                ConnectAttempt::Overloaded(failure) => return Err(failure),
                ConnectAttempt::Failed(failure) => {
                    last = describe_failure(failure, settings, &endpoint.display_name(), handle)
                }
                ConnectAttempt::EndpointGone => {}
            }
        }
        Err(last)
    }

    /// Points a request at an endpoint.
    fn address(
        &self,
        prepared: &mut PreparedRequest,
        endpoint: &Endpoint,
        connection: &LeasedConnection,
    ) -> Result<(), Failure> {
        let target = route::target(self.route, &endpoint.settings, &prepared.uri);
        let target =
            target.ok_or_else(|| failure(FailureKind::BadRequest, "the target is too long"))?;
        match (connection, &prepared.gate) {
            (LeasedConnection::Http1(_), _) => {
                address::http1(&mut prepared.request, endpoint, target)
            }
            (LeasedConnection::Http2 { .. }, gate) => {
                // Over HTTP/2, hyper does not report the upstream's 100 Continue: the agent is told
                // to continue at once.
                gate.iter().for_each(|gate| gate.open());
                address::http2(&mut prepared.request, endpoint, target)
            }
        }
    }
}

/// What is known of the request body before any of it is read.
fn request_body<'a>(route: &Route, parts: &request::Parts, body: &AgentBody) -> RequestBody<'a> {
    if headers::asks_for_upgrade(parts, route) {
        RequestBody::Unread(UnreadableBody::Upgraded)
    } else if body.is_end_stream() {
        RequestBody::Whole(&[])
    } else {
        RequestBody::Pending
    }
}

/// Why a request is rejected whatever its upstream, if it is.
fn rejection(route: &Route, parts: &request::Parts) -> Option<(FailureKind, &'static str)> {
    let bad = |problem| Some((FailureKind::BadRequest, problem));
    if parts.method == Method::CONNECT {
        return bad("CONNECT is for forward proxies; send requests to this address itself");
    }
    if route::escapes_prefix(route, parts.uri.path()) {
        return bad("the path climbs with `..` out of the prefix of its route");
    }
    headers::ambiguous_head(parts)
}

pub(super) fn expects_continue(headers: &HeaderMap) -> bool {
    headers
        .get(EXPECT)
        .is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"100-continue"))
}
