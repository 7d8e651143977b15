//! Sends one request to an endpoint of its upstream, and retries it if that is safe.

use super::ConnectionInfo;
use super::address;
use super::agent_body::AgentBody;
use super::agent_connection::AgentConnection;
use super::call_handle::{Call, CallHandle};
use super::clock::now;
use super::exchange::{Http1Context, ResponseError, UpstreamResponse, exchange};
use super::headers;
use super::http1::FieldNames;
use super::refusal::{describe_failure, failure};
use super::rewrite::{self, RewriteOutcome};
use super::route;
use super::upload::{self, ContinueGate, Upload};
use super::upstream::{
    ConnectOptions, Endpoint, InFlightGuard, Lease, LeaseSearch, LeasedConnection, NotLeased,
    Upstream,
};
use crate::settings::Route;
use http::uri::Uri;
use http::{Method, Request, Version, request};
use std::sync::Arc;
use std::time::Duration;
use tokengauge_core::observer::{Failure, FailureKind};
pub(super) struct Forwarding<'a> {
    pub route: &'a Route,
    pub upstream: &'a Upstream,
    pub connection: &'a ConnectionInfo,
    pub method: Method,
    pub agent_version: Version,
    pub admitted_by_body: bool,
}

pub(super) struct SentRequest {
    pub response: UpstreamResponse,
    pub endpoint: Arc<Endpoint>,
    pub in_flight: InFlightGuard,
    pub upgrade: bool,
    pub rewritten: bool,
    /// The time that the proxy spent on the request head.
    pub overhead: Duration,
}

pub(super) struct SendFailure {
    pub failure: Failure,
    /// The unsent part of the request body, if it can still be read.
    pub source: Option<upload::UploadSource>,
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

struct PreparedRequest {
    request: Request<Upload>,
    uri: Uri,
    gate: Option<Arc<ContinueGate>>,
    upgrade: bool,
    rewritten: bool,
}

impl Forwarding<'_> {
    pub async fn run(
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
            let idle_since = match &connection {
                LeasedConnection::Http1(http1) => http1.idle_since,
                LeasedConnection::Http2 { .. } => None,
            };
            let replayable = idle_since.is_some() && !options.new_connection;
            let resend = self.retain(&mut prepared, replayable);
            let timeouts = &self.upstream.settings.timeouts;
            let http1 = Http1Context {
                names,
                agent: self.interim_agent(),
                gate: prepared.gate.as_deref(),
            };
            let exchanged = exchange(connection, prepared.request, handle, timeouts, http1).await;
            if let (Err(error), Some(idle_since)) = (&exchanged, idle_since)
                && error.failure().kind == FailureKind::Reset
                && handle.upload_error().is_none()
            {
                endpoint.record_lost(idle_since);
            }
            match exchanged {
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
                // The upstream had closed the idle connection, so the request is retried on a new connection.
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

    /// Returns the request head if the request may be sent again after the loss of its reused HTTP/1 connection. Its
    /// body is then retained.
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

    /// Returns the agent if it receives interim responses this way, which only HTTP/1.1 agents do.
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
        let replaceable = self.route.inject_usage && rewrite::replaceable(&parts, &body, handle);
        let buffer_body = !upgrade && (replaceable || self.admitted_by_body);
        headers::upstream_request(&mut parts, self.route, self.connection, upgrade);
        if let Some(trace) = handle.query(|observer| observer.upstream_trace()).flatten() {
            headers::carry_trace(&mut parts.headers, trace);
        }
        let (source, rewritten) = if buffer_body {
            self.rewrite(&mut parts, body, handle, replaceable).await?
        } else {
            (upload::UploadSource::Agent(body), false)
        };
        let gate = (headers::expects_continue(&parts.headers)
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
                let message = "the request body ended too early";
                Err(failure(FailureKind::BadRequest, message).into())
            }
            RewriteOutcome::Stalled => {
                let message = format!("no data of the request body arrived for {idle:?}");
                Err(failure(FailureKind::IdleTimeout, message).into())
            }
        }
    }

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
                Ok(lease) => return Ok((endpoint, lease)),
                Err(NotLeased::Overloaded(failure)) => return Err(failure),
                Err(NotLeased::Failed(failure)) => {
                    last = describe_failure(failure, settings, &endpoint.display_name(), handle)
                }
                Err(NotLeased::EndpointGone) => {}
            }
        }
        Err(last)
    }

    fn address(
        &self,
        prepared: &mut PreparedRequest,
        endpoint: &Endpoint,
        connection: &LeasedConnection,
    ) -> Result<(), Failure> {
        let target = route::target(self.route, &endpoint.settings, &prepared.uri)
            .ok_or_else(|| failure(FailureKind::BadRequest, "the request target is too long"))?;
        match (connection, &prepared.gate) {
            (LeasedConnection::Http1(_), _) => {
                address::http1(&mut prepared.request, endpoint, target)
            }
            (LeasedConnection::Http2 { .. }, gate) => {
                // Over HTTP/2, hyper does not report the upstream's 100 Continue, so the agent is told to continue
                // immediately.
                gate.iter().for_each(|gate| gate.open());
                address::http2(&mut prepared.request, endpoint, target)
            }
        }
    }
}
