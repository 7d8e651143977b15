use super::ConnectionInfo;
use super::agent_body::AgentBody;
use super::call_handle::{Call, CallHandle};
use super::clock::now;
use super::discard_body::{DiscardPolicy, UnreadBody};
use super::headers;
use super::message::{AgentRequest, AgentResponse};
use super::refusal::{failure, rate_limited, refuse, refuse_unread};
use super::route;
use super::routing::Routing;
use super::send::{Forwarding, SendFailure};
use super::send_timeout::{DownstreamState, SendState};
use super::split;
use super::upstream::{EndpointLoad, Upstream};
use crate::settings::{Route, Settings};
use arc_swap::ArcSwap;
use http::header::CONNECTION;
use http::{HeaderValue, Method, request};
use http_body::Body as _;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Instant, SystemTime};
use tokengauge_core::experiment::RequestHead;
use tokengauge_core::observer::{
    Admission, CallStart, FailureKind, Observer, RequestBody, UnreadableBody,
};
use tokengauge_net::tls;

pub struct Forwarder {
    /// A request loads this once and keeps its version.
    routing: ArcSwap<Routing>,
    observer: Arc<dyn Observer>,
    panics: Arc<AtomicU64>,
    no_route: Arc<str>,
}

impl Forwarder {
    /// Names the route and upstream in records if no route matches.
    pub const NO_ROUTE: &str = "none";

    /// Creates a forwarder without connections.
    ///
    /// # Errors
    ///
    /// Returns an error if a file that an upstream's TLS needs cannot be read.
    pub fn new(settings: Settings, observer: Arc<dyn Observer>) -> Result<Forwarder, tls::Invalid> {
        Ok(Forwarder {
            routing: ArcSwap::from_pointee(Routing::new(settings)?),
            observer,
            panics: Arc::default(),
            no_route: Arc::from(Self::NO_ROUTE),
        })
    }

    /// Builds the routing for another configuration without applying it. Unchanged upstreams keep their connections.
    ///
    /// # Errors
    ///
    /// Returns an error if a file that an upstream's TLS needs cannot be read.
    pub fn prepare(&self, settings: Settings) -> Result<Routing, tls::Invalid> {
        self.routing.load().with_settings(settings)
    }

    /// Applies `routing` to new requests. Requests in flight keep their routing.
    pub fn change(&self, routing: Routing) {
        self.routing.store(Arc::new(routing));
    }

    pub fn limit_descriptors(&self, total: usize) {
        self.routing.load().descriptors.limit(total);
    }

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
            endpoints: upstream.endpoints(),
        };
        upstreams.iter().map(connections).collect()
    }

    /// How many times an observer panicked. Each panic costs the measurement of one call.
    pub fn observer_panics(&self) -> u64 {
        self.panics.load(Ordering::Relaxed)
    }

    /// Forwards a request by its route. A failure is reported in the response. The future is boxed, because every
    /// connection reserves space for it. This is not an `async` function, because its future would also contain the
    /// request.
    pub(super) fn forward(
        &self,
        request: AgentRequest,
        connection: &ConnectionInfo,
        stream: Option<&Arc<SendState>>,
    ) -> Pin<Box<impl Future<Output = AgentResponse>>> {
        Box::pin(self.handle_request(request, connection, stream))
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

    /// Begins the call of a request and chooses its upstream: the upstream of the route, or of an arm of the route's
    /// experiment.
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
            read_at: started_at,
        };
        let chosen = split.map(|split| split::choose(split, &*self.observer, &self.panics, head));
        // The upstreams of the arms follow the route's upstream.
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

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamConnections {
    pub upstream: Arc<str>,
    /// Open connections, including idle ones.
    pub open: usize,
    pub pending: usize,
    pub refused: u64,
    pub resent: u64,
    /// Known endpoints. A name that no request has resolved yet has none.
    pub endpoints: Vec<EndpointLoad>,
}

fn request_body<'a>(route: &Route, parts: &request::Parts, body: &AgentBody) -> RequestBody<'a> {
    if headers::asks_for_upgrade(parts, route) {
        RequestBody::Unread(UnreadableBody::Upgraded)
    } else if body.is_end_stream() {
        RequestBody::Whole(&[])
    } else {
        RequestBody::Pending
    }
}

/// Why a request is rejected, independent of its upstream.
fn rejection(route: &Route, parts: &request::Parts) -> Option<(FailureKind, &'static str)> {
    let bad = |problem| Some((FailureKind::BadRequest, problem));
    if parts.method == Method::CONNECT {
        return bad("CONNECT is for forward proxies; send requests directly to this address");
    }
    if route::escapes_prefix(route, parts.uri.path()) {
        return bad("the path leaves the prefix of its route with `..`");
    }
    headers::ambiguous_head(parts)
}
