//! The interface between forwarding and measuring. The proxy calls it and the meter implements it.
//! Implementations must not block, fail or panic.

use crate::call::Dialect;
use crate::experiment::{AssignedVariant, RequestHead, SplitBy};
use crate::memory::{AdmissionBuffers, Buffer, Memory};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

/// Starts observing calls.
pub trait Observer: Send + Sync + 'static {
    /// Called when a request head was read and a route was chosen.
    fn begin(&self, start: CallStart<'_>) -> Arc<dyn ObservedCall>;
    /// The position of a request between 0 and 1. The variants of an experiment divide this range
    /// by their weights. All requests of a unit have the same position in every process.
    /// Experiments with different salts have independent positions. `None` if the head names no
    /// unit. Called before [`Observer::begin`], only for routes with an experiment.
    fn split_position(&self, _by: SplitBy, _salt: &str, _head: RequestHead<'_>) -> Option<f64> {
        None
    }
}

/// The properties of a call that are known once its request head was read.
#[derive(Clone, Copy, Debug)]
pub struct CallStart<'a> {
    /// When the head was completely read.
    pub received: Instant,
    /// The wall clock at `received`.
    pub started_at: SystemTime,
    /// HTTP method of the request.
    pub method: &'a Method,
    /// The request target before any prefix is stripped.
    pub uri: &'a Uri,
    /// The headers of the request. They are never stored or logged.
    pub headers: &'a HeaderMap,
    /// The address of the agent.
    pub peer: Option<SocketAddr>,
    /// The port of the proxy that the agent connected to.
    pub port: Option<u16>,
    /// Name of the route.
    pub route: &'a Arc<str>,
    /// Name of the upstream.
    pub upstream: &'a Arc<str>,
    /// The dialect, if the route sets it.
    pub dialect: Option<Dialect>,
    /// Name of the workload of the route.
    pub workload: Option<&'a Arc<str>>,
    /// Whether the proxy may request usage on behalf of the agent.
    pub inject_usage: bool,
    /// The experiment of the route, and the chosen variant.
    pub variant: Option<&'a AssignedVariant>,
}

/// Maximum delay between reading a chunk from the socket and measuring it, unless the machine is
/// overloaded. Checks of calls in flight allow for this delay.
pub const MAX_MEASURE_DELAY: Duration = Duration::from_secs(3);

/// The chunks of a response that were forwarded but are not measured yet. The proxy records them,
/// and checks of calls in flight read them.
#[derive(Debug)]
pub struct UnmeasuredChunks {
    began: Instant,
    /// Nanoseconds from `began` to the oldest unmeasured chunk. 0 if there is none.
    oldest: AtomicU64,
    /// Nanoseconds from `began` to the newest unmeasured chunk.
    newest: AtomicU64,
}

impl UnmeasuredChunks {
    /// Maximum delay between reading a chunk from the socket and recording it here.
    pub const MAX_NOTE_DELAY: Duration = Duration::from_millis(500);

    /// No unmeasured chunks, for a call that began at `began`.
    pub fn new(began: Instant) -> UnmeasuredChunks {
        UnmeasuredChunks {
            began,
            oldest: AtomicU64::new(0),
            newest: AtomicU64::new(0),
        }
    }

    /// Records a forwarded chunk that arrived at `at` and is not measured yet.
    pub fn forwarded(&self, at: Instant) {
        let nanos = self.nanos(at);
        self.newest.store(nanos, Ordering::Relaxed);
        if self.oldest.load(Ordering::Relaxed) == 0 {
            self.oldest.store(nanos, Ordering::Release);
        }
    }

    /// Records that every chunk before `oldest` was measured, or every chunk if it is `None`.
    pub fn measured(&self, oldest: Option<Instant>) {
        let nanos = oldest.map_or(0, |at| self.nanos(at));
        self.oldest.store(nanos, Ordering::Release);
    }

    /// The arrival of the oldest and the newest unmeasured chunk. Read this before the measured
    /// state of the call, so that every chunk is in at least one of the two.
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

/// Observes a call and decides about it.
pub trait ObservedCall: CallObserver + CallPolicy {}

impl<T: CallObserver + CallPolicy> ObservedCall for T {}

/// Observes one call. The proxy reads every instant.
pub trait CallObserver: Send + Sync {
    /// An endpoint was chosen, as `host:port`.
    fn endpoint(&self, _endpoint: &str) {}
    /// An upstream connection is ready.
    fn connected(&self, _at: Instant, _reused: bool) {}
    /// A chunk of the request body was forwarded.
    fn request_chunk(&self, _bytes: &Bytes) {}
    /// The last byte of the request body was forwarded.
    fn sent(&self, _at: Instant) {}
    /// The agent receives a refusal. The proxy may continue to read the request body, but the call
    /// no longer counts towards a quota on concurrent calls.
    fn refused(&self) {}
    /// A chunk of the body of a request that is not forwarded.
    fn unsent_chunk(&self, _bytes: &Bytes) {}
    /// The body of a request that is not forwarded was read to its end.
    fn unsent_whole(&self) {}
    /// The final response head arrived.
    fn head(&self, _at: Instant, _status: StatusCode, _headers: &HeaderMap) {}
    /// Where to record chunks of the response that are not measured yet. Called once.
    fn unmeasured_chunks(&self) -> Option<Arc<UnmeasuredChunks>> {
        None
    }
    /// A chunk of the response body was forwarded. Measures it before it returns.
    fn response_chunk(&self, _chunk: Chunk) {}
    /// The trailers of the response were forwarded.
    fn trailers(&self, _trailers: &HeaderMap) {}
    /// `chunks` chunks of the response with `bytes` bytes in total were not passed to this
    /// observer, because of missing time or memory.
    fn lagged(&self, _chunks: u64, _bytes: u64) {}
    /// The agent did not read for `waited` after the last chunk.
    fn agent_blocked(&self, _waited: Duration) {}
    /// The proxy spent `cost` on a phase of the call.
    fn overhead(&self, _phase: Phase, _cost: Duration) {}
    /// The call ended. Must always be called. Only the first call has an effect.
    fn ended(&self, _at: Instant, _end: End) {}
    /// Bytes of an upgraded connection.
    fn tunnel_chunk(&self, _from: Side, _chunk: Chunk) {}
    /// One side of an upgraded connection sends nothing more.
    fn tunnel_over(&self, _from: Side) {}
}

/// Decides about one call. By default, it is forwarded unchanged.
pub trait CallPolicy: Send + Sync {
    /// Whether the request may be forwarded. If the result depends on the body, it is called again
    /// with the whole body, or with the reason why the body cannot be read.
    fn admit(&self, _body: RequestBody<'_>) -> Admission {
        Admission::Granted
    }
    /// Buffers for a body that must be read before the request is admitted.
    fn admission_buffers(&self) -> AdmissionBuffers {
        let (small, large) = (self.buffer(0), self.buffer(0));
        AdmissionBuffers { small, large }
    }
    /// A buffer for a request body that must be read before it is forwarded. Holds at most `limit`
    /// bytes within the memory limit of measuring.
    fn buffer(&self, limit: usize) -> Buffer {
        Buffer::new(&Memory::unbounded(), limit)
    }
    /// Whether a request with this head may be rewritten, so that its whole body must be read
    /// first. Called before forwarding if `inject_usage` is set.
    fn may_rewrite_request(&self, _method: &Method, _headers: &HeaderMap) -> bool {
        false
    }
    /// The request body to send instead of `body`, or `None` to leave it unchanged. Called once
    /// with the whole body of a request that may be rewritten.
    fn rewrite_request(&self, _body: &[u8]) -> Option<Bytes> {
        None
    }
    /// The trace context for the upstream, or `None` to leave the headers unchanged. Called once
    /// before the request is forwarded.
    fn upstream_trace(&self) -> Option<UpstreamTrace> {
        None
    }
    /// A filter that removes from the response what the agent did not request. Called once after
    /// the response head if the request was rewritten.
    fn response_filter(&self, _headers: &HeaderMap) -> Option<Box<dyn Filter>> {
        None
    }
    /// Header fields with the remaining limits of the call. Called once before the response head is
    /// forwarded, if the route enables it.
    fn limit_headers(&self) -> Vec<(HeaderName, HeaderValue)> {
        Vec::new()
    }
    /// The body of an error from the proxy. Plain text, unless the dialect of the call defines a
    /// format.
    fn error_response(&self, failure: &Failure) -> ErrorResponse {
        ErrorResponse {
            content_type: "text/plain; charset=utf-8",
            body: Bytes::from(failure.message.clone()),
        }
    }
}

/// The trace context that is sent to the upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamTrace {
    /// Replaces the `traceparent` of the request.
    pub traceparent: HeaderValue,
    /// The `traceparent` with the hop count, for [`crate::trace::HOP_HEADER`].
    pub hop: HeaderValue,
    /// Becomes the first member of `tracestate` and replaces an older one with the same key.
    pub member: HeaderValue,
    /// Whether the agent's `tracestate` belongs to this trace. It is removed otherwise.
    pub keeps_state: bool,
}

/// Edits a response body while it is forwarded.
pub trait Filter: Send {
    /// Takes the next bytes and returns the bytes that may be forwarded now.
    fn push(&mut self, bytes: Bytes) -> Bytes;
    /// Ends the body and returns the bytes that were held back.
    fn finish(&mut self) -> Bytes;
}

/// A chunk of a body, and the instant at which it was read from the socket.
#[derive(Clone, Debug)]
pub struct Chunk {
    /// When the proxy read the chunk.
    pub at: Instant,
    /// The bytes, shared with the forwarding path.
    pub bytes: Bytes,
    /// How long the proxy could not read from the socket since the previous chunk, because the
    /// agent did not read.
    pub agent_blocked: Duration,
}

impl Chunk {
    /// A chunk that was not delayed by the agent.
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
    /// The client.
    Agent,
    /// The server.
    Upstream,
}

/// A part of a call that the proxy spends time on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Both heads together.
    Head,
    /// One chunk of the response body.
    Chunk,
}

/// How the forwarding of a call ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// The complete response was forwarded.
    Complete,
    /// The agent disconnected.
    ClientCancelled,
    /// The proxy shut down before the response ended, after the drain timeout.
    Drained,
    /// The upstream connection was lost after the response head.
    UpstreamReset,
    /// The proxy responded instead of the upstream, or stopped forwarding the body.
    Failed(FailureKind),
}

/// Why the proxy could not forward a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, strum::VariantArray)]
pub enum FailureKind {
    /// The host name of the endpoint does not resolve.
    Dns,
    /// The proxy could not connect to the endpoint.
    Connect,
    /// The TLS handshake with the endpoint failed.
    Tls,
    /// The proxy could not connect within the connect timeout.
    ConnectTimeout,
    /// No response head arrived within the timeout.
    HeadTimeout,
    /// No bytes were sent or received within the idle timeout.
    IdleTimeout,
    /// The upstream did not read the request within the timeout.
    SendTimeout,
    /// The agent did not read the response within the timeout.
    AgentSendTimeout,
    /// The connection was lost before a response head arrived.
    Reset,
    /// The upstream did not speak HTTP.
    Protocol,
    /// No route matches.
    NoRoute,
    /// The request is malformed.
    BadRequest,
    /// The transfer coding of the request body is not supported.
    UnsupportedCoding,
    /// A quota of the operator refused the request.
    RateLimited,
    /// A budget of the operator is spent.
    OverBudget,
    /// A limit of the operator depends on the request body, which cannot be read.
    UnreadableBody,
    /// The proxy has reached its limit of connections, requests or memory.
    Overloaded,
    /// The configuration of the operator is invalid, and it may contain limits.
    ConfigRefused,
}

impl FailureKind {
    /// The name in `x-tokengauge-error`, records and labels.
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

    /// The HTTP status of the response to the agent.
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

/// A failure with a message that says who is responsible and what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// The kind of failure.
    pub kind: FailureKind,
    /// One sentence for the log of the agent. Names upstream and endpoint.
    pub message: String,
    /// How long to wait before a retry, if known.
    pub retry_after: Option<Duration>,
}

/// The request body, as far as it is known when the request must be admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestBody<'a> {
    /// The request has a body, but only the head was read.
    Pending,
    /// The whole body as it was sent. Empty if the request has none.
    Whole(&'a [u8]),
    /// The body cannot be read.
    Unread(UnreadableBody),
}

/// Why a request body that a limit depends on cannot be read. Displayed with what to do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnreadableBody {
    /// The body is longer than `measure.body_bytes`.
    #[error("the body is too long to be read for quotas and budgets: send a shorter body")]
    TooLong,
    /// All measuring together has reached its memory limit.
    #[error("the proxy has no free memory to read the body: try again later")]
    NoMemory,
    /// The request is a message on an upgraded connection.
    #[error(
        "messages on an upgraded connection are not read for quotas and budgets: send the model and other names in the upgrade request"
    )]
    Upgraded,
    /// The content encoding is unknown, or the bytes do not match it.
    #[error(
        "the content-encoding of the body is unknown or does not match its bytes: send plain JSON"
    )]
    Encoding,
    /// Servers may read this media type as something other than JSON in UTF-8.
    #[error(
        "servers may read a body with this content-type differently: send application/json in UTF-8"
    )]
    MediaType,
    /// Some servers would not accept the body.
    #[error("the body is not a JSON object that all servers read alike: send strict JSON in UTF-8")]
    Malformed,
    /// Servers may read different models from the body.
    #[error(
        "the body names several models, or one model in several places: name one model, only in `model`"
    )]
    SeveralModels,
    /// Servers may read the path, which can name a model, differently.
    #[error(
        "servers may read the path of the request differently: send it without `;`, `\\\\` and double escapes"
    )]
    Path,
    /// The body has no model, although the dialect requires one.
    #[error("the body does not name a model: name it in `model`")]
    NoModel,
}

/// Whether a request may be forwarded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Admission {
    /// The request may be forwarded.
    #[default]
    Granted,
    /// The decision depends on the body.
    ByBody,
    /// The request is refused.
    Refused(Failure),
}

/// The body of an error response from the proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorResponse {
    /// Media type of the body.
    pub content_type: &'static str,
    /// Bytes of the body.
    pub body: Bytes,
}
