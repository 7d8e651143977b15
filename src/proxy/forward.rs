//! One request, one response.

use super::ConnectionInfo;
use super::body::Body;
use super::exchange::{Answered, Unanswered, exchange};
use super::headers;
use super::limit::{Limiter, RetryAfter};
use super::rewrite::{self, Rewritten};
use super::route;
use super::tap::{self, Streaming, now};
use super::tls;
use super::upgrade::Tunnel;
use super::upload::{self, Gate, Upload};
use super::upstream::{Endpoint, Lease, Taken, Upstream, Wire, Wish};
use super::watch::{self, Call, Watch};
use crate::config::{Config, Route};
use crate::observer::{CallStart, End, Failure, FailureKind, Observer, Phase};
use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, COOKIE, EXPECT, HOST, RETRY_AFTER};
use http::uri::{PathAndQuery, Uri};
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Version, request,
    response,
};
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

/// Says in a response of ours what failed.
const ERROR: HeaderName = HeaderName::from_static("x-tokengauge-error");

/// Forwards requests by the routes of a configuration.
pub struct Forwarder {
    config: Arc<Config>,
    /// By place of the route in the configuration.
    upstreams: Vec<Arc<Upstream>>,
    limiter: Limiter,
    observer: Arc<dyn Observer>,
    panics: Arc<AtomicU64>,
    nowhere: Arc<str>,
}

impl Forwarder {
    /// A forwarder with no connections yet.
    ///
    /// # Errors
    ///
    /// When a file that an upstream's TLS needs cannot be read.
    pub fn new(
        config: Arc<Config>,
        observer: Arc<dyn Observer>,
    ) -> Result<Forwarder, tls::Invalid> {
        let mut upstreams: Vec<Arc<Upstream>> = Vec::with_capacity(config.routes.len());
        for route in &config.routes {
            let known = upstreams
                .iter()
                .find(|known| Arc::ptr_eq(&known.settings, &route.upstream))
                .cloned();
            upstreams.push(match known {
                Some(known) => known,
                None => Arc::new(Upstream::new(&route.upstream, config.limits.head_bytes)?),
            });
        }
        let limiter = Limiter::new(&config.limits);
        Ok(Forwarder {
            config,
            upstreams,
            limiter,
            observer,
            panics: Arc::default(),
            nowhere: Arc::from("none"),
        })
    }

    /// How often an observer panicked. Each time cost the measurement of one call.
    pub fn observer_panics(&self) -> u64 {
        self.panics.load(Ordering::Relaxed)
    }

    /// Forwards a request to where its route says. What fails is said in the response.
    pub async fn forward(
        &self,
        request: Request<Incoming>,
        connection: &ConnectionInfo,
    ) -> Response<Body> {
        // Servers keep room for this future in every connection: it has to be small.
        Box::pin(self.answer(request, connection)).await
    }

    async fn answer(
        &self,
        request: Request<Incoming>,
        connection: &ConnectionInfo,
    ) -> Response<Body> {
        let received = now();
        let (parts, body) = request.into_parts();
        let place = route::choose(&self.config.routes, &parts);
        let call = self.begin(received, &parts, place, connection);
        let Some(place) = place else {
            return refuse(
                call,
                &failure(
                    FailureKind::NoRoute,
                    "no route matches this request; see the routes of the configuration",
                ),
            );
        };
        let route = &self.config.routes[place];
        if parts.method == Method::CONNECT {
            return refuse(
                call,
                &failure(
                    FailureKind::BadRequest,
                    "CONNECT is for forward proxies; send requests to this address itself",
                ),
            );
        }
        if let Err(wait) = self.limiter.check(route) {
            return too_many(call, route, wait);
        }
        let forwarding = Forwarding {
            route,
            upstream: &self.upstreams[place],
            connection,
            agent_version: parts.version,
        };
        match forwarding.run(parts, body, &call).await {
            Ok(sent) => forwarding.respond(sent, call),
            Err(failure) => refuse(call, &failure),
        }
    }

    fn begin(
        &self,
        received: Instant,
        parts: &request::Parts,
        place: Option<usize>,
        connection: &ConnectionInfo,
    ) -> Call {
        let route = place.map(|place| &self.config.routes[place]);
        let start = CallStart {
            received,
            started_at: SystemTime::now(),
            method: &parts.method,
            uri: &parts.uri,
            headers: &parts.headers,
            peer: Some(connection.peer),
            route: route.map_or(&self.nowhere, |route| &route.name),
            upstream: route.map_or(&self.nowhere, |route| &route.upstream.name),
            dialect: route.and_then(|route| route.dialect),
            workload: route.and_then(|route| route.workload.as_ref()),
            inject_usage: route.is_some_and(|route| route.inject_usage),
        };
        Call::new(Watch::begin(&*self.observer, &self.panics, start))
    }
}

/// A request on its way.
struct Forwarding<'a> {
    route: &'a Route,
    upstream: &'a Upstream,
    connection: &'a ConnectionInfo,
    agent_version: Version,
}

/// What became of a request that was sent.
struct Sent {
    answered: Answered,
    endpoint: Arc<Endpoint>,
    held: Taken,
    upgrade: Option<OnUpgrade>,
    rewritten: bool,
    /// What the request's head cost here.
    cost: Duration,
}

/// A request ready to be sent anywhere.
struct Ready {
    request: Request<Upload>,
    /// The agent's target.
    uri: Uri,
    gate: Option<Arc<Gate>>,
    upgrade: Option<OnUpgrade>,
    rewritten: bool,
}

impl Forwarding<'_> {
    async fn run(
        &self,
        parts: request::Parts,
        body: Incoming,
        call: &Call,
    ) -> Result<Sent, Failure> {
        let watch = call.watch();
        let mut ready = self.prepare(parts, body, watch).await?;
        let mut wish = Wish {
            fresh: false,
            upgrade: ready.upgrade.is_some(),
        };
        let mut cost = now().saturating_duration_since(watch.began());
        loop {
            let (endpoint, Lease { wire, reused, held }) = self.lease(wish, watch).await?;
            let connected = now();
            watch.tell(|observer| observer.connected(connected, reused));
            self.address(&mut ready, &endpoint, &wire)?;
            match exchange(wire, ready.request, watch, &self.upstream.settings.timeouts).await {
                Ok(answered) => {
                    cost += answered.written.saturating_duration_since(connected);
                    let Ready {
                        upgrade, rewritten, ..
                    } = ready;
                    return Ok(Sent {
                        answered,
                        endpoint,
                        held,
                        upgrade,
                        rewritten,
                        cost,
                    });
                }
                // It was closed while nobody looked: as if it had never been there.
                Err(Unanswered::Unsent(request, _)) if reused && !wish.fresh => {
                    ready.request = *request;
                    wish.fresh = true;
                }
                Err(Unanswered::Unsent(_, failure) | Unanswered::Failed(failure)) => {
                    return Err(self.blame(failure, &endpoint, watch));
                }
            }
        }
    }

    async fn prepare(
        &self,
        mut parts: request::Parts,
        body: Incoming,
        watch: &Arc<Watch>,
    ) -> Result<Ready, Failure> {
        let uri = parts.uri.clone();
        let upgrade = parts
            .extensions
            .remove::<OnUpgrade>()
            .filter(|_| headers::asks_for_upgrade(&parts));
        let rewrites = upgrade.is_none() && rewrite::applies(self.route, &parts, &body);
        headers::upstream_request(&mut parts, self.route, self.connection);
        let (source, rewritten) = match rewrites {
            true => self.rewrite(&mut parts, body, watch).await?,
            false => (upload::Source::Agent(body), false),
        };
        let gate = (expects_continue(&parts.headers) && matches!(source, upload::Source::Agent(_)))
            .then(Arc::<Gate>::default);
        let mut upload = Upload::new(source, watch);
        if let Some(gate) = &gate {
            upload.wait_for(Arc::clone(gate));
        }
        let mut request = Request::from_parts(parts, upload);
        if let Some(gate) = gate.clone() {
            hyper::ext::on_informational(&mut request, move |response| {
                if response.status() == StatusCode::CONTINUE {
                    gate.open();
                }
            });
        }
        Ok(Ready {
            request,
            uri,
            gate,
            upgrade,
            rewritten,
        })
    }

    async fn rewrite(
        &self,
        parts: &mut request::Parts,
        body: Incoming,
        watch: &Watch,
    ) -> Result<(upload::Source, bool), Failure> {
        let idle = self.upstream.settings.timeouts.idle;
        match rewrite::rewrite(parts, body, watch, idle).await {
            Rewritten::Kept(source) => Ok((source, false)),
            Rewritten::Replaced(source) => Ok((source, true)),
            Rewritten::Broken => Err(failure(
                FailureKind::BadRequest,
                "the request body ended before its time",
            )),
            Rewritten::Stalled => {
                let message = format!("nothing of the request body came for {idle:?}");
                Err(failure(FailureKind::IdleTimeout, message))
            }
        }
    }

    /// A connection to one endpoint or another.
    async fn lease(&self, wish: Wish, watch: &Watch) -> Result<(Arc<Endpoint>, Lease), Failure> {
        let mut tried = Vec::new();
        let mut last = failure(FailureKind::Connect, "has no endpoints");
        while let Some(endpoint) = self.upstream.choose(&tried) {
            watch.tell(|observer| observer.endpoint(&endpoint.name));
            match self.upstream.lease(&endpoint, wish).await {
                Ok(lease) => return Ok((endpoint, lease)),
                Err(failure) => {
                    endpoint.eject(self.upstream.settings.eject_for);
                    last = self.blame(failure, &endpoint, watch);
                    tried.push(endpoint);
                }
            }
        }
        Err(last)
    }

    /// Points a request at an endpoint.
    fn address(&self, ready: &mut Ready, endpoint: &Endpoint, wire: &Wire) -> Result<(), Failure> {
        let target = route::target(self.route, &endpoint.settings, &ready.uri);
        let target =
            target.ok_or_else(|| failure(FailureKind::BadRequest, "the target is too long"))?;
        let request = &mut ready.request;
        match wire {
            Wire::Http1(_) => {
                *request.version_mut() = Version::HTTP_11;
                *request.uri_mut() = Uri::from(target);
                join_cookies(request.headers_mut());
                let host = HeaderValue::from_str(endpoint.settings.authority.as_str());
                request.headers_mut().insert(
                    HOST,
                    host.map_err(|_| failure(FailureKind::Protocol, "its name is not a host"))?,
                );
            }
            Wire::Http2 { .. } => {
                *request.version_mut() = Version::HTTP_2;
                *request.uri_mut() = absolute(endpoint, target)?;
                remove_in_order(request.headers_mut(), &HOST);
                // Its 100 Continue does not reach us.
                if let Some(gate) = &ready.gate {
                    gate.open();
                }
            }
        }
        Ok(())
    }

    /// Makes the response head of the upstream's the agent's, and taps the body.
    fn respond(&self, sent: Sent, call: Call) -> Response<Body> {
        let Sent {
            answered,
            endpoint,
            held,
            upgrade,
            rewritten,
            cost,
        } = sent;
        let Answered {
            response, wire, at, ..
        } = answered;
        let (mut parts, incoming) = response.into_parts();
        let watch = Arc::clone(call.watch());
        watch.tell(|observer| observer.head(at, parts.status, &parts.headers));
        let switching = parts.status == StatusCode::SWITCHING_PROTOCOLS;
        headers::agent_response(&mut parts, self.route);
        parts.version = Version::HTTP_11;
        let body = match (wire, upgrade) {
            (Wire::Http1(http1), Some(agent)) if switching => {
                let (idle, drain) = (
                    self.upstream.settings.timeouts.idle,
                    self.connection.drain.clone(),
                );
                Tunnel {
                    http1,
                    agent,
                    call,
                    held,
                    idle,
                    drain,
                }
                .start();
                Body::empty()
            }
            _ if switching => {
                let failure = failure(
                    FailureKind::Protocol,
                    "switched protocols though nobody asked for it".to_owned(),
                );
                return refuse(call, &self.blame(failure, &endpoint, &watch));
            }
            (wire, _) => self.body(
                wire,
                incoming,
                endpoint,
                Streamed {
                    call,
                    held,
                    rewritten,
                },
                &mut parts,
            ),
        };
        let cost = cost + now().saturating_duration_since(at);
        watch.tell(|observer| observer.overhead(Phase::Head, cost));
        Response::from_parts(parts, body)
    }

    fn body(
        &self,
        wire: Wire,
        incoming: Incoming,
        endpoint: Arc<Endpoint>,
        streamed: Streamed,
        parts: &mut response::Parts,
    ) -> Body {
        let source = match wire {
            Wire::Http1(http1) => tap::Source::Http1 {
                incoming,
                http1,
                endpoint,
            },
            Wire::Http2 { stream, .. } => tap::Source::Http2 {
                incoming,
                _stream: stream,
            },
        };
        let Streamed {
            call,
            held,
            rewritten,
        } = streamed;
        let filter = (rewritten && rewrite::filters(parts))
            .then(|| call.watch().ask(|observer| observer.response_filter()));
        let idle = self.upstream.settings.timeouts.idle;
        let mut streaming = Streaming::new(source, call, idle, held);
        if let Some(filter) = filter.flatten().flatten() {
            streaming = streaming.filtered(filter);
        }
        streaming.finish_if_empty();
        if !streaming.is_over() {
            return Body::streaming(streaming);
        }
        match parts.headers.get(CONTENT_LENGTH) {
            Some(length) if self.agent_version < Version::HTTP_2 => {
                Body::unsent(length.to_str().ok().and_then(|length| length.parse().ok()))
            }
            _ => Body::empty(),
        }
    }

    /// Names who failed, and what to do; or the agent, where it was the agent.
    fn blame(&self, failure: Failure, endpoint: &Endpoint, watch: &Watch) -> Failure {
        if watch.failed_upload() == Some(watch::Upload::Malformed) {
            return self::failure(
                FailureKind::BadRequest,
                "the request body is malformed: its framing is wrong",
            );
        }
        let Failure { kind, message } = failure;
        let (upstream, endpoint) = (&self.upstream.settings.name, &endpoint.name);
        let message = format!("upstream {upstream}: {endpoint} {message}{}", advice(kind));
        tracing::warn!(%upstream, %endpoint, kind = kind.as_str(), "{message}");
        Failure { kind, message }
    }
}

/// What a response under way holds.
struct Streamed {
    call: Call,
    held: Taken,
    rewritten: bool,
}

fn advice(kind: FailureKind) -> &'static str {
    match kind {
        FailureKind::Dns => "; check the endpoint's name and the name server",
        FailureKind::Connect => "; check that it runs and that the address is right",
        FailureKind::Tls => "; check its certificate, and `ca` and `server_name` of the upstream",
        FailureKind::ConnectTimeout => {
            "; check the network, or raise `connect` of the upstream's timeouts"
        }
        FailureKind::HeadTimeout => {
            "; it may be overloaded: raise `head` of the upstream's timeouts"
        }
        FailureKind::IdleTimeout => {
            "; raise `idle` of the upstream's timeouts where such pauses are normal"
        }
        FailureKind::Reset => "; see its log, and try again",
        FailureKind::Protocol => "; check the address and the upstream's `protocol`",
        _ => "",
    }
}

/// Answers in the upstream's place.
fn refuse(call: Call, failure: &Failure) -> Response<Body> {
    let reply = call.watch().ask(|observer| observer.error_reply(failure));
    let (content_type, body) = match reply {
        Some(reply) => (reply.content_type, reply.body),
        None => (
            "text/plain; charset=utf-8",
            Bytes::from(failure.message.clone()),
        ),
    };
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = failure.kind.status();
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
        .headers_mut()
        .insert(ERROR, HeaderValue::from_static(failure.kind.as_str()));
    let end = match call.watch().failed_upload() {
        Some(watch::Upload::Abandoned) => End::ClientCancelled,
        _ => End::Failed(failure.kind),
    };
    call.end(now(), end);
    response
}

fn too_many(call: Call, route: &Route, wait: RetryAfter) -> Response<Body> {
    let message = format!(
        "route {} has had its requests of this minute; try again in {} s",
        route.name,
        wait.seconds()
    );
    let mut response = refuse(call, &failure(FailureKind::RateLimited, message));
    response
        .headers_mut()
        .insert(RETRY_AFTER, HeaderValue::from(wait.seconds()));
    response
}

fn failure(kind: FailureKind, message: impl Into<String>) -> Failure {
    Failure {
        kind,
        message: message.into(),
    }
}

fn expects_continue(headers: &HeaderMap) -> bool {
    headers
        .get(EXPECT)
        .is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"100-continue"))
}

fn absolute(endpoint: &Endpoint, target: PathAndQuery) -> Result<Uri, Failure> {
    let mut parts = http::uri::Parts::default();
    parts.scheme = Some(endpoint.settings.scheme.clone());
    parts.authority = Some(endpoint.settings.authority.clone());
    parts.path_and_query = Some(target);
    Uri::from_parts(parts)
        .map_err(|_| failure(FailureKind::BadRequest, "the target is not one for HTTP/2"))
}

/// HTTP/2 may split `cookie`, HTTP/1 may not (RFC 9113 §8.2.3).
fn join_cookies(headers: &mut HeaderMap) {
    let cookies: Vec<_> = headers
        .get_all(COOKIE)
        .iter()
        .map(HeaderValue::as_bytes)
        .collect();
    if cookies.len() > 1
        && let Ok(joined) = HeaderValue::from_bytes(&cookies.join(&b"; "[..]))
    {
        headers.insert(COOKIE, joined);
    }
}

/// [`HeaderMap::remove`] would move the last field to where the removed one was.
fn remove_in_order(headers: &mut HeaderMap, gone: &HeaderName) {
    if !headers.contains_key(gone) {
        return;
    }
    let mut kept = HeaderMap::with_capacity(headers.len());
    for (name, value) in headers.iter().filter(|(name, _)| *name != gone) {
        kept.append(name.clone(), value.clone());
    }
    *headers = kept;
}
