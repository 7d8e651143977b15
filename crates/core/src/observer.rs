//! The one interface between forwarding bytes and measuring them. The proxy calls it, the meter
//! implements it. No implementation may block, fail or panic.

use crate::call::Dialect;
use crate::experiment::{AssignedVariant, RequestHead, SplitBy};
use crate::memory::{AdmissionBuffers, Buffer, Memory};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

/// Observes calls.
pub trait Observer: Send + Sync + 'static {
    /// A request head was read and a route chosen.
    fn begin(&self, start: CallStart<'_>) -> Arc<dyn ObservedCall>;
    /// Where a request falls between 0 and 1, a range that the arms of an experiment share by their
    /// weights. All requests of a unit have the same position, in every process; experiments with
    /// different salts have independent ones. `None` if the head names no unit. Called before
    /// [`Observer::begin`], only for routes whose traffic is split.
    fn split_position(&self, _by: SplitBy, _salt: &str, _head: RequestHead<'_>) -> Option<f64> {
        None
    }
}

/// What is known of a call when its request head has been read.
#[derive(Clone, Copy, Debug)]
pub struct CallStart<'a> {
    /// When the head had been read.
    pub received: Instant,
    /// The same on the wall clock.
    pub started_at: SystemTime,
    /// The agent's method.
    pub method: &'a Method,
    /// The agent's target, before any prefix is stripped.
    pub uri: &'a Uri,
    /// The agent's headers. Never kept, never logged.
    pub headers: &'a HeaderMap,
    /// Where the agent connects from.
    pub peer: Option<SocketAddr>,
    /// The port it connects to.
    pub port: Option<u16>,
    /// The route's name.
    pub route: &'a Arc<str>,
    /// The upstream's name.
    pub upstream: &'a Arc<str>,
    /// The dialect, where the route fixes it.
    pub dialect: Option<Dialect>,
    /// The workload of the route.
    pub workload: Option<&'a Arc<str>>,
    /// Whether usage may be asked for on the agent's behalf.
    pub inject_usage: bool,
    /// The experiment of the route and the variant that was chosen.
    pub variant: Option<&'a AssignedVariant>,
}

/// A chunk is measured within this time of being read off the socket, unless the machine is too
/// busy. Everything that judges a call while it runs allows for this delay.
pub const MAX_MEASURE_DELAY: Duration = Duration::from_secs(3);

/// Which chunks of a response have been forwarded but not yet measured. The proxy notes them;
/// what judges a call while it runs reads them.
#[derive(Debug)]
pub struct UnmeasuredChunks {
    began: Instant,
    /// Nanoseconds from `began` to the oldest unmeasured chunk; 0 while there is none.
    oldest: AtomicU64,
    /// The same for the newest.
    newest: AtomicU64,
}

impl UnmeasuredChunks {
    /// A chunk is noted within this time of being read off the socket.
    pub const MAX_NOTE_DELAY: Duration = Duration::from_millis(500);

    /// No unmeasured chunks, of a call that began at `began`.
    pub fn new(began: Instant) -> UnmeasuredChunks {
        UnmeasuredChunks {
            began,
            oldest: AtomicU64::new(0),
            newest: AtomicU64::new(0),
        }
    }

    /// A chunk that arrived at `at` was forwarded and waits to be measured.
    pub fn forwarded(&self, at: Instant) {
        let nanos = self.nanos(at);
        self.newest.store(nanos, Ordering::Relaxed);
        if self.oldest.load(Ordering::Relaxed) == 0 {
            self.oldest.store(nanos, Ordering::Release);
        }
    }

    /// Every chunk before `oldest` has been measured; all of them if it is `None`.
    pub fn measured(&self, oldest: Option<Instant>) {
        let nanos = oldest.map_or(0, |at| self.nanos(at));
        self.oldest.store(nanos, Ordering::Release);
    }

    /// When the oldest and the newest unmeasured chunk arrived. Read this before what has been
    /// measured, so that every chunk is seen in at least one of the two.
    pub fn chunks(&self) -> Option<(Instant, Instant)> {
        let oldest = self.oldest.load(Ordering::Acquire);
        let newest = self.newest.load(Ordering::Relaxed).max(oldest);
        let at = |nanos| self.began + Duration::from_nanos(nanos);
        (oldest > 0).then(|| (at(oldest), at(newest)))
    }

    fn nanos(&self, at: Instant) -> u64 {
        let nanos = at.saturating_duration_since(self.began).as_nanos();
        u64::try_from(nanos).unwrap_or(u64::MAX).max(1)
    }
}

/// A call as the proxy sees it: something that observes it and decides about it.
pub trait ObservedCall: CallObserver + CallPolicy {}

impl<T: CallObserver + CallPolicy> ObservedCall for T {}

/// Observes one call. Every instant was read by the proxy.
pub trait CallObserver: Send + Sync {
    /// The endpoint that was chosen, `host:port`.
    fn endpoint(&self, _endpoint: &str) {}
    /// An upstream connection is ready.
    fn connected(&self, _at: Instant, _reused: bool) {}
    /// A piece of the request body has been passed on.
    fn request_chunk(&self, _bytes: &Bytes) {}
    /// The last byte of the request body has been passed on.
    fn sent(&self, _at: Instant) {}
    /// The agent is sent a refusal. The rest of its body may still be read, but the call no
    /// longer counts towards a quota on concurrent calls.
    fn refused(&self) {}
    /// A piece of the body of a request that is not forwarded.
    fn unsent_chunk(&self, _bytes: &Bytes) {}
    /// The body of a request that is not forwarded has been read to its end.
    fn unsent_whole(&self) {}
    /// The final response head has arrived.
    fn head(&self, _at: Instant, _status: StatusCode, _headers: &HeaderMap) {}
    /// Called once: where to note chunks of the response that wait to be measured.
    fn unmeasured_chunks(&self) -> Option<Arc<UnmeasuredChunks>> {
        None
    }
    /// A piece of the response body has been passed on. Called after the
    /// forwarding of it; does the measuring inline.
    fn response_chunk(&self, _chunk: Chunk) {}
    /// The trailers of the response have been passed on.
    fn trailers(&self, _trailers: &HeaderMap) {}
    /// Chunks of the response, of so many bytes in all, were not shown to this observer,
    /// for want of time or memory.
    fn lagged(&self, _chunks: u64, _bytes: u64) {}
    /// For how long the agent did not read after the last chunk.
    fn agent_blocked(&self, _waited: Duration) {}
    /// The time that the proxy itself spent.
    fn overhead(&self, _phase: Phase, _cost: Duration) {}
    /// The call has ended. Must always be called; only the first time counts.
    fn ended(&self, _at: Instant, _end: End) {}
    /// Bytes of an upgraded connection, either way.
    fn tunnel_chunk(&self, _from: Side, _chunk: Chunk) {}
    /// One side of an upgraded connection sends nothing more.
    fn tunnel_over(&self, _from: Side) {}
}

/// Decides about one call. By default it is forwarded unchanged.
pub trait CallPolicy: Send + Sync {
    /// Called before the request is forwarded: whether it may be. Called again with the whole
    /// body, or why that could not be read, if the first answer depends on it.
    fn admit(&self, _body: RequestBody<'_>) -> Admission {
        Admission::Granted
    }
    /// Buffers for a body that has to be read before the request is admitted.
    fn admission_buffers(&self) -> AdmissionBuffers {
        let (small, large) = (self.buffer(0), self.buffer(0));
        AdmissionBuffers { small, large }
    }
    /// A buffer for a request body that has to be read before it is forwarded: at most `limit`
    /// bytes, within the memory of all measuring.
    fn buffer(&self, limit: usize) -> Buffer {
        Buffer::new(&Memory::unbounded(), limit)
    }
    /// Called before the request is forwarded if `inject_usage` is set: whether a request with this
    /// head may be rewritten, so that all of its body has to be read.
    fn may_rewrite_request(&self, _method: &Method, _headers: &HeaderMap) -> bool {
        false
    }
    /// Called once with the whole request body if it may be rewritten: the body to send instead, or
    /// `None` to leave it unchanged.
    fn rewrite_request(&self, _body: &[u8]) -> Option<Bytes> {
        None
    }
    /// Called once before the request is forwarded: the trace context for the upstream, or
    /// `None` to leave the agent's headers unchanged.
    fn upstream_trace(&self) -> Option<UpstreamTrace> {
        None
    }
    /// Called once after the response head if the request was rewritten: removes from a
    /// response with these header fields what the agent did not ask for.
    fn response_filter(&self, _headers: &HeaderMap) -> Option<Box<dyn Filter>> {
        None
    }
    /// Called once before the response head is passed on, where the route asks for it: header fields
    /// about what is left of the call's limits.
    fn limit_headers(&self) -> Vec<(HeaderName, HeaderValue)> {
        Vec::new()
    }
    /// The body of an error of the proxy's own: plain text, unless the call's dialect has a shape.
    fn error_response(&self, failure: &Failure) -> ErrorResponse {
        ErrorResponse {
            content_type: "text/plain; charset=utf-8",
            body: Bytes::from(failure.message.clone()),
        }
    }
}

/// The trace context that the upstream is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamTrace {
    /// Replaces the agent's `traceparent`.
    pub traceparent: HeaderValue,
    /// The same with the hop count, in [`crate::trace::HOP_HEADER`].
    pub hop: HeaderValue,
    /// Becomes the first member of `tracestate` and replaces an older one with the same key.
    pub member: HeaderValue,
    /// Whether the agent's `tracestate` belongs to this trace; it is removed if not.
    pub keeps_state: bool,
}

/// Edits a response body while it is forwarded.
pub trait Filter: Send {
    /// Takes the next piece; returns what may be forwarded now.
    fn push(&mut self, bytes: Bytes) -> Bytes;
    /// The body has ended: returns what was held back.
    fn finish(&mut self) -> Bytes;
}

/// One piece of a body and the instant it came off the socket.
#[derive(Clone, Debug)]
pub struct Chunk {
    /// When the forwarding path read it.
    pub at: Instant,
    /// The bytes, shared with the forwarding path.
    pub bytes: Bytes,
    /// How long an agent that did not read kept the forwarding path from reading since the
    /// previous piece.
    pub agent_blocked: Duration,
}

impl Chunk {
    /// A piece that was not delayed by the agent.
    pub fn new(at: Instant, bytes: Bytes) -> Chunk {
        Chunk {
            at,
            bytes,
            agent_blocked: Duration::ZERO,
        }
    }
}

/// A side of the proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The client of the proxy.
    Agent,
    /// The server behind the proxy.
    Upstream,
}

/// A part of a call that the proxy spends time on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Heads, both ways together.
    Head,
    /// One piece of the response body.
    Chunk,
}

/// How forwarding a call ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// The response was forwarded whole.
    Complete,
    /// The agent left.
    ClientCancelled,
    /// The proxy ended: the time to drain was over before the response was.
    Drained,
    /// The upstream connection was lost after the response head.
    UpstreamReset,
    /// The proxy answered in the upstream's place, or gave up on the body.
    Failed(FailureKind),
}

/// Why the proxy could not forward a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, strum::VariantArray)]
pub enum FailureKind {
    /// The endpoint's name does not resolve.
    Dns,
    /// No connection could be made.
    Connect,
    /// The TLS handshake with the endpoint failed.
    Tls,
    /// No connection within the limit.
    ConnectTimeout,
    /// No response head within the limit.
    HeadTimeout,
    /// No bytes were sent or received for too long.
    IdleTimeout,
    /// The upstream read nothing of the request for too long.
    SendTimeout,
    /// The agent read nothing of the response for too long: the agent's own fault.
    AgentSendTimeout,
    /// The connection was lost before a response head.
    Reset,
    /// The upstream did not speak HTTP.
    Protocol,
    /// No route matches.
    NoRoute,
    /// The request is malformed.
    BadRequest,
    /// The request body has a transfer coding that is not known here.
    UnsupportedCoding,
    /// A limit of the operator's refused it.
    RateLimited,
    /// A budget of the operator's is spent.
    OverBudget,
    /// A limit of the operator's depends on the request body, which cannot be read.
    UnreadableBody,
    /// The proxy is at its limit of connections, requests or memory.
    Overloaded,
    /// The operator's configuration cannot be used, and it may limit calls.
    ConfigRefused,
}

impl FailureKind {
    /// Its name in `x-tokengauge-error`, records and labels.
    pub fn as_str(self) -> &'static str {
        match self {
            FailureKind::Dns => "upstream_dns",
            FailureKind::Connect => "upstream_connect",
            FailureKind::Tls => "upstream_tls",
            FailureKind::ConnectTimeout => "upstream_connect_timeout",
            FailureKind::HeadTimeout => "upstream_head_timeout",
            FailureKind::IdleTimeout => "upstream_idle_timeout",
            FailureKind::SendTimeout => "upstream_send_timeout",
            FailureKind::AgentSendTimeout => "agent_send_timeout",
            FailureKind::Reset => "upstream_reset",
            FailureKind::Protocol => "upstream_protocol",
            FailureKind::NoRoute => "no_route",
            FailureKind::BadRequest => "bad_request",
            FailureKind::UnsupportedCoding => "unsupported_coding",
            FailureKind::RateLimited => "rate_limited",
            FailureKind::OverBudget => "budget_spent",
            FailureKind::UnreadableBody => "unreadable_body",
            FailureKind::Overloaded => "overloaded",
            FailureKind::ConfigRefused => "config_refused",
        }
    }

    /// The status that the agent is sent.
    pub fn status(self) -> StatusCode {
        match self {
            FailureKind::ConnectTimeout
            | FailureKind::HeadTimeout
            | FailureKind::IdleTimeout
            | FailureKind::SendTimeout => StatusCode::GATEWAY_TIMEOUT,
            FailureKind::AgentSendTimeout => StatusCode::REQUEST_TIMEOUT,
            FailureKind::NoRoute => StatusCode::NOT_FOUND,
            FailureKind::BadRequest => StatusCode::BAD_REQUEST,
            FailureKind::UnsupportedCoding => StatusCode::NOT_IMPLEMENTED,
            FailureKind::RateLimited | FailureKind::OverBudget => StatusCode::TOO_MANY_REQUESTS,
            FailureKind::UnreadableBody => StatusCode::UNPROCESSABLE_ENTITY,
            FailureKind::Overloaded | FailureKind::ConfigRefused => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::BAD_GATEWAY,
        }
    }
}

/// A failure, worded so that the reader knows whose fault it is and what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// What kind of failure.
    pub kind: FailureKind,
    /// One sentence for the agent's log, naming upstream and endpoint.
    pub message: String,
    /// When to try again, where that is known.
    pub retry_after: Option<Duration>,
}

/// What is known of a request's body when the request is to be admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestBody<'a> {
    /// There is a body, and only the head has been read.
    Pending,
    /// All of it, as it was sent; empty where there is none.
    Whole(&'a [u8]),
    /// It cannot be read.
    Unread(UnreadableBody),
}

/// Why a request body that decides on a limit cannot be read, and what to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnreadableBody {
    /// It is longer than `measure.body_bytes`.
    #[error("this body is longer than is read for that: send a shorter one")]
    TooLong,
    /// All measuring together holds as much as it may.
    #[error("there is no memory to read this body now: try again")]
    NoMemory,
    /// It is no body, but messages after an upgrade.
    #[error("messages on an upgraded connection are not read for that: name it in the request")]
    Upgraded,
    /// Its content encoding is unknown or its bytes are not valid.
    #[error(
        "the content-encoding of this body is unknown or not that of its bytes: send plain JSON"
    )]
    Encoding,
    /// Its media type lets servers read it as something else than UTF-8 JSON.
    #[error(
        "servers may read a body of this content-type differently: send application/json in UTF-8"
    )]
    MediaType,
    /// Some servers refuse it.
    #[error("this body is no JSON object that all servers read alike: send strict JSON in UTF-8")]
    Malformed,
    /// Readers differ on its model.
    #[error("this body names several models, or one in several places: name one, in `model`")]
    SeveralModels,
    /// Servers read the path differently, which may name a model.
    #[error(
        "servers may read the path of this request differently: write it without `;`, `\\\\` and double escapes"
    )]
    Path,
    /// It has no model, though its dialect has one there.
    #[error("this body names no model: name it in `model`")]
    NoModel,
}

/// Whether a request may be forwarded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Admission {
    /// It may.
    #[default]
    Granted,
    /// That depends on its body.
    ByBody,
    /// It is refused.
    Refused(Failure),
}

/// The body of an error that the proxy itself sends to the agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorResponse {
    /// Its media type.
    pub content_type: &'static str,
    /// Its bytes.
    pub body: Bytes,
}
