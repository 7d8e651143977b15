//! The one interface between moving bytes and measuring them. The proxy calls it;
//! the meter stands behind it. Nothing behind it may block, fail or panic out.

use crate::call::Dialect;
use crate::memory::{AdmissionBuffers, Buffer, Memory};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

/// Watches calls.
pub trait Observer: Send + Sync + 'static {
    /// A request head was read and a route chosen.
    fn begin(&self, start: CallStart<'_>) -> Arc<dyn ObservedCall>;
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
}

/// A frame is measured within this time of coming off the socket, but where the machine is too
/// busy for that. Whoever looks at a call while it runs reckons with it.
pub const MAX_MEASURE_DELAY: Duration = Duration::from_secs(3);

/// Which frames of a response have left and are not measured yet: noted where they are
/// forwarded, asked by whoever judges a call while it runs.
#[derive(Debug)]
pub struct UnmeasuredFrames {
    began: Instant,
    /// Nanoseconds from `began` to the oldest of them; 0 while none waits.
    oldest: AtomicU64,
    /// The same of the newest.
    newest: AtomicU64,
}

impl UnmeasuredFrames {
    /// A frame is noted within this time of coming off the socket.
    pub const MAX_NOTE_DELAY: Duration = Duration::from_millis(500);

    /// Of a call that began then.
    pub fn new(began: Instant) -> UnmeasuredFrames {
        UnmeasuredFrames {
            began,
            oldest: AtomicU64::new(0),
            newest: AtomicU64::new(0),
        }
    }

    /// A frame came at this instant and waits.
    pub fn forwarded(&self, at: Instant) {
        let nanos = self.nanos(at);
        self.newest.store(nanos, Ordering::Relaxed);
        if self.oldest.load(Ordering::Relaxed) == 0 {
            self.oldest.store(nanos, Ordering::Release);
        }
    }

    /// What came before `oldest` has been measured; all of it where there is none.
    pub fn measured(&self, oldest: Option<Instant>) {
        let nanos = oldest.map_or(0, |at| self.nanos(at));
        self.oldest.store(nanos, Ordering::Release);
    }

    /// When the oldest and the newest frame came that wait. To be asked before what has
    /// been measured is looked at: a frame is at least in one of both.
    pub fn frames(&self) -> Option<(Instant, Instant)> {
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

/// A call as the proxy sees it: it is shown what happens and asked what to do. Whatever observes and
/// decides is one.
pub trait ObservedCall: CallObserver + CallPolicy {}

impl<T: CallObserver + CallPolicy> ObservedCall for T {}

/// Observes one call. Every instant is the proxy's own reading of the clock.
pub trait CallObserver: Send + Sync {
    /// The endpoint that was chosen, `host:port`.
    fn endpoint(&self, _endpoint: &str) {}
    /// An upstream connection is ready.
    fn connected(&self, _at: Instant, _reused: bool) {}
    /// A piece of the request body has been passed on.
    fn request_frame(&self, _bytes: &Bytes) {}
    /// The last byte of the request body has been passed on.
    fn sent(&self, _at: Instant) {}
    /// The agent gets a refusal now. The rest of its body may still be read, but the call holds
    /// no place of a quota any more.
    fn refused(&self) {}
    /// A piece of the body of a request that goes nowhere.
    fn unsent_frame(&self, _bytes: &Bytes) {}
    /// All of that body has come.
    fn unsent_whole(&self) {}
    /// The final response head has arrived.
    fn head(&self, _at: Instant, _status: StatusCode, _headers: &HeaderMap) {}
    /// Asked once: where to note frames of the response that wait to be shown.
    fn unmeasured_frames(&self) -> Option<Arc<UnmeasuredFrames>> {
        None
    }
    /// A piece of the response body has been passed on. Called after the
    /// forwarding of it; does the measuring inline.
    fn response_frame(&self, _frame: Frame) {}
    /// The trailers of the response have been passed on.
    fn trailers(&self, _trailers: &HeaderMap) {}
    /// Frames of the response, of so many bytes in all, were not shown to this observer,
    /// for want of time or memory.
    fn lagged(&self, _frames: u64, _bytes: u64) {}
    /// The agent took nothing for so long after the last frame.
    fn agent_blocked(&self, _waited: Duration) {}
    /// What the proxy itself cost.
    fn overhead(&self, _phase: Phase, _cost: Duration) {}
    /// The call is over. Only the first call counts; it must come, always.
    fn ended(&self, _at: Instant, _end: End) {}
    /// Bytes of an upgraded connection, either way.
    fn tunnel_frame(&self, _from: Side, _frame: Frame) {}
    /// One side of an upgraded connection sends nothing more.
    fn tunnel_over(&self, _from: Side) {}
}

/// Decides what becomes of one call. By default it passes as it came.
pub trait CallPolicy: Send + Sync {
    /// Asked before the request leaves: whether it may. Asked again, with the whole body or
    /// why that could not be held, where that decides.
    fn admit(&self, _body: RequestBody<'_>) -> Admission {
        Admission::Granted
    }
    /// What a body is held in that decides whether its request may leave.
    fn admission_buffers(&self) -> AdmissionBuffers {
        let (small, large) = (self.buffer(0), self.buffer(0));
        AdmissionBuffers { small, large }
    }
    /// What a request body is held in that has to be read before it is forwarded: at most
    /// `limit` bytes, and what all measuring may hold.
    fn buffer(&self, limit: usize) -> Buffer {
        Buffer::new(&Memory::unbounded(), limit)
    }
    /// Asked once, with the whole request body, where `inject_usage` is set: the
    /// body to send instead, or `None` to leave it alone.
    fn rewrite_request(&self, _body: &[u8]) -> Option<Bytes> {
        None
    }
    /// Asked once, before the request leaves: how the trace goes on upstream, or `None`
    /// to leave the agent's headers as they came.
    fn upstream_trace(&self) -> Option<UpstreamTrace> {
        None
    }
    /// Asked once, after the response head, where the request was rewritten: takes
    /// out of the response what the agent did not ask for.
    fn response_filter(&self) -> Option<Box<dyn Filter>> {
        None
    }
    /// The body of an error of the proxy's own: plain text, unless the call's dialect has a shape.
    fn error_reply(&self, failure: &Failure) -> ErrorReply {
        ErrorReply {
            content_type: "text/plain; charset=utf-8",
            body: Bytes::from(failure.message.clone()),
        }
    }
}

/// A call's trace as the upstream shall see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamTrace {
    /// Goes in the place of the agent's `traceparent`.
    pub traceparent: HeaderValue,
    /// Says the same and how far it has come, in [`crate::trace::HOP_HEADER`].
    pub hop: HeaderValue,
    /// Goes first in `tracestate`, in the place of an older member with its key.
    pub member: HeaderValue,
    /// Whether the agent's `tracestate` belongs to this trace. It is taken out where not.
    pub keeps_state: bool,
}

/// Edits a response body on its way.
pub trait Filter: Send {
    /// Takes the next piece; gives what may leave now.
    fn push(&mut self, bytes: Bytes) -> Bytes;
    /// The body is over: gives what was held back.
    fn finish(&mut self) -> Bytes;
}

/// One piece of a body and the instant it came off the socket.
#[derive(Clone, Debug)]
pub struct Frame {
    /// When the forwarding path got it.
    pub at: Instant,
    /// The bytes, shared with the forwarding path.
    pub bytes: Bytes,
    /// How long the agent, which took nothing, kept the forwarding path from reading since the
    /// piece before.
    pub agent_blocked: Duration,
}

impl Frame {
    /// A piece that no agent held up.
    pub fn new(at: Instant, bytes: Bytes) -> Frame {
        Frame {
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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
    /// Nothing moved for too long.
    IdleTimeout,
    /// The upstream took nothing of the request for too long.
    SendTimeout,
    /// The agent took nothing of the response for too long. Its own fault.
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
    /// The word for it in `x-tokengauge-error`, records and labels.
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

    /// The status the agent gets.
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

/// What is known of a request's body when it is asked whether the request may leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestBody<'a> {
    /// Its head alone has been read; there is a body.
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

/// Whether a request may leave.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Admission {
    /// The request may leave.
    #[default]
    Granted,
    /// Its body decides.
    ByBody,
    /// The request is refused.
    Refused(Failure),
}

/// A body for an agent whose call failed here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorReply {
    /// Its media type.
    pub content_type: &'static str,
    /// Its bytes.
    pub body: Bytes,
}
