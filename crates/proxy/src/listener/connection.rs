//! Serves one connection of an agent, from its first byte to its last.

use super::connection_timeouts::{ConnectionTimeouts, TimedSocket, TimeoutKind};
use super::http1_connection::serve_requests;
use super::open_connections::{OpenConnections, OpenStream};
use super::protocol_sniff::{HttpVersion, SniffedSocket};
use crate::agent_body::AgentBody;
use crate::agent_connection::AgentConnection;
use crate::agent_io::AgentIo;
use crate::body::Body;
use crate::drain::{Drain, RequestGuard, Stage};
use crate::http1::FieldNames;
use crate::message::{AgentRequest, AgentResponse};
use crate::send_timeout::{CloseReason, SendState, StreamExecutor, current_stream};
use crate::settings::Limits;
use crate::{ConnectionInfo, Forwarder, Shutdown, TrafficRuntimes};
use arc_swap::ArcSwap;
use bytes::Bytes;
use http::{Request, Response};
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::fmt::Display;
use std::future::{pending, poll_fn};
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokengauge_net::tls::Acceptor;
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep_until, timeout};
use tokio_rustls::server::TlsStream;

/// Bytes one HTTP/2 stream may send before they are read.
const STREAM_WINDOW: u32 = 64 * 1024;
/// Bytes all streams of one HTTP/2 connection may send before they are read.
const CONNECTION_WINDOW: u32 = 1024 * 1024;
/// Bytes of one HTTP/2 stream that may be buffered for a slow agent.
const STREAM_BUFFER: usize = 64 * 1024;
/// How often an HTTP/2 agent is pinged, and how long it may take to answer.
const PING_EVERY: Duration = Duration::from_secs(30);
const PONG_WITHIN: Duration = Duration::from_secs(20);

/// What all connections share.
pub(super) struct Server {
    pub(super) shutdown: Shutdown,
    pub(super) runtimes: TrafficRuntimes,
    forwarder: Arc<Forwarder>,
    open: Arc<OpenConnections>,
    /// Settings for new connections; an open one keeps those that it began with.
    settings: ArcSwap<ConnectionSettings>,
}

/// How a connection is served.
struct ConnectionSettings {
    /// Bytes of an HTTP/1 request head.
    head_bytes: usize,
    http2: http2::Builder<StreamExecutor>,
    head_timeout: Duration,
    idle_timeout: Duration,
    total_http2_streams: usize,
}

impl ConnectionSettings {
    fn new(limits: &Limits) -> ConnectionSettings {
        ConnectionSettings {
            head_bytes: limits.head_bytes,
            http2: http2(limits),
            head_timeout: limits.head_timeout,
            idle_timeout: limits.idle_timeout,
            total_http2_streams: limits.total_http2_streams,
        }
    }
}

impl Server {
    pub(super) fn new(
        forwarder: Arc<Forwarder>,
        limits: &Limits,
        shutdown: Shutdown,
        runtimes: TrafficRuntimes,
    ) -> Server {
        Server {
            shutdown,
            runtimes,
            forwarder,
            open: Arc::default(),
            settings: ArcSwap::from_pointee(ConnectionSettings::new(limits)),
        }
    }

    /// Closes the connection that has been idle for longest; returns whether there was one.
    pub(super) fn close_longest_idle(&self) -> bool {
        let closed = self.open.close_longest_idle();
        if closed {
            self.shutdown.record_idle_closed();
        }
        closed
    }

    /// Applies other limits to new connections.
    pub(super) fn change(&self, limits: &Limits) {
        self.settings
            .store(Arc::new(ConnectionSettings::new(limits)));
    }
}

fn http2(limits: &Limits) -> http2::Builder<StreamExecutor> {
    let mut builder = http2::Builder::new(StreamExecutor);
    builder
        .timer(TokioTimer::new())
        .max_header_list_size(u32::try_from(limits.head_bytes).unwrap_or(u32::MAX))
        .max_concurrent_streams(limits.http2_streams)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buf_size(STREAM_BUFFER)
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PONG_WITHIN)
        .auto_date_header(false);
    builder
}

/// Serves one connection until it closes, times out, or is terminated.
pub(super) async fn serve(
    server: Arc<Server>,
    tcp: TcpStream,
    (peer, port): (SocketAddr, u16),
    acceptor: Option<Arc<Acceptor>>,
    mut drain: Drain,
) {
    // Chunks are sent at once. If it cannot be set, the connection is already closed.
    let _ = tcp.set_nodelay(true);
    let settings = server.settings.load_full();
    let send_state = Arc::new(SendState::new());
    let timeouts = ConnectionTimeouts::new(
        Instant::now(),
        (settings.head_timeout, settings.idle_timeout),
        Arc::clone(&send_state),
    );
    let tls = acceptor.is_some();
    let io = match acceptor {
        None => AgentIo::Tcp(tcp),
        Some(acceptor) => {
            // Boxed, so that the connection keeps no room for it afterwards.
            let handshake = Box::pin(handshake(&acceptor, tcp, peer));
            let accepted = tokio::select! {
                accepted = timeout(settings.head_timeout, handshake) => accepted,
                () = drain.drain_started() => return,
            };
            match accepted {
                Ok(Some(tls)) => AgentIo::Tls(tls),
                Ok(None) => return,
                Err(_) => return tracing::debug!(%peer, "no TLS handshake in time"),
            }
        }
    };
    let info = ConnectionInfo {
        peer,
        port,
        tls,
        drain,
        send_state,
        http1: None,
    };
    serve_http(&server, &settings, io, info, timeouts).await;
}

async fn handshake(
    acceptor: &Acceptor,
    tcp: TcpStream,
    peer: SocketAddr,
) -> Option<Box<TlsStream<TcpStream>>> {
    match acceptor.accept(tcp).await {
        Ok(tls) => Some(Box::new(tls)),
        Err(error) => {
            tracing::debug!(%peer, %error, "TLS handshake with an agent failed");
            None
        }
    }
}

async fn serve_http(
    server: &Arc<Server>,
    settings: &ConnectionSettings,
    io: AgentIo,
    info: ConnectionInfo,
    timeouts: ConnectionTimeouts,
) {
    let timeouts = Arc::new(timeouts);
    let _open = server.open.add(&timeouts);
    let (peer, mut drain) = (info.peer, info.drain.clone());
    let send_state = Arc::clone(&info.send_state);
    let mut socket = SniffedSocket::new(TimedSocket::new(io, Arc::clone(&timeouts)));
    let mut timer = pin!(sleep_until(Instant::now() + settings.head_timeout));
    let version = tokio::select! {
        biased;
        version = poll_fn(|cx| socket.poll_version(cx)) => version,
        () = drain.drain_started() => return,
        _ = timeouts.expired(timer.as_mut()) => return log_head_timeout(peer),
    };
    let mut service = ConnectionService {
        server: Arc::clone(server),
        timeouts: Arc::clone(&timeouts),
        info,
    };
    let supervised = SupervisedConnection {
        peer,
        timeouts: &timeouts,
        send_state: &send_state,
        drain,
        timer,
    };
    match version {
        Ok(HttpVersion::Http1) => {
            let (io, prefix, filled) = socket.into_parts();
            let agent = AgentConnection::new(io, &prefix[..filled]);
            service.info.http1 = Some(agent.clone());
            let _close = CloseOnDrop(&agent);
            let connection = pin!(serve_requests(&agent, &service, settings.head_bytes));
            let disconnected = poll_fn(|cx| agent.poll_disconnected(cx));
            let graceful_shutdown = |_: Pin<&mut _>| agent.close_gracefully();
            supervised
                .serve(connection, graceful_shutdown, disconnected)
                .await;
        }
        Ok(HttpVersion::Http2) => {
            let service = Arc::new(service);
            // Boxed, because hyper reserves room for it in every connection, even an idle one.
            let service = service_fn(move |request| Box::pin(Arc::clone(&service).call(request)));
            let io = TokioIo::new(socket);
            let mut connection = Box::pin(settings.http2.serve_connection(io, service));
            let graceful_shutdown = http2::Connection::graceful_shutdown;
            supervised
                .serve(connection.as_mut(), graceful_shutdown, pending())
                .await;
        }
        Err(error) => log_end(peer, Err(error)),
    }
}

/// Closes an HTTP/1 connection with its task, whoever else still reads a body of it.
struct CloseOnDrop<'a>(&'a AgentConnection);

impl Drop for CloseOnDrop<'_> {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Whatever can end a connection from outside: its timeouts, the shutdown, the agent.
struct SupervisedConnection<'a> {
    peer: SocketAddr,
    timeouts: &'a ConnectionTimeouts,
    send_state: &'a SendState,
    drain: Drain,
    timer: Pin<&'a mut Sleep>,
}

impl SupervisedConnection<'_> {
    /// Serves a connection to its end, or until it is `disconnected` during a response;
    /// `graceful_shutdown` makes it end after the requests in flight.
    async fn serve<C, E: Display>(
        mut self,
        mut connection: Pin<&mut C>,
        graceful_shutdown: impl Fn(Pin<&mut C>),
        mut disconnected: impl Future<Output = ()> + Unpin,
    ) where
        C: Future<Output = Result<(), E>>,
    {
        let mut next_stage = Stage::Draining;
        loop {
            tokio::select! {
                biased;
                ended = connection.as_mut() => return log_end(self.peer, ended),
                () = &mut disconnected => return log_end(self.peer, Err("the agent left")),
                () = self.drain.reached(next_stage) => match next_stage {
                    Stage::Terminating => return self.send_state.set_close_reason(CloseReason::Drained),
                    _ => {
                        next_stage = Stage::Terminating;
                        graceful_shutdown(connection.as_mut());
                    }
                },
                timeout = self.timeouts.expired(self.timer.as_mut()) => match timeout {
                    TimeoutKind::Head => return log_head_timeout(self.peer),
                    TimeoutKind::Send => {
                        self.send_state.set_close_reason(CloseReason::SendTimeout);
                        return log_end(self.peer, Err("the agent takes nothing"));
                    }
                    TimeoutKind::Closing => return log_end(self.peer, Err("the agent did not close it")),
                    TimeoutKind::Evicted => graceful_shutdown(connection.as_mut()),
                    TimeoutKind::Idle => {
                        self.timeouts.closing(Instant::now());
                        graceful_shutdown(connection.as_mut());
                    }
                },
            }
        }
    }
}

fn log_head_timeout(peer: SocketAddr) {
    tracing::debug!(%peer, "no request head in time");
}

fn log_end(peer: SocketAddr, ended: Result<(), impl Display>) {
    if let Err(error) = ended {
        tracing::debug!(%peer, %error, "connection of an agent ended");
    }
}

/// What the requests of one connection share.
pub(super) struct ConnectionService {
    server: Arc<Server>,
    timeouts: Arc<ConnectionTimeouts>,
    info: ConnectionInfo,
}

impl ConnectionService {
    /// Counts a request as in flight, until what this returns is dropped.
    pub(super) fn begin(&self, multiplexed: bool) -> ActiveRequest {
        self.timeouts.request_started(multiplexed);
        ActiveRequest {
            timeouts: Arc::clone(&self.timeouts),
            stream: None,
            _guard: self.server.shutdown.request_guard(),
        }
    }

    /// The agent still sends a request after its response.
    pub(super) fn upload_continues(&self) {
        self.timeouts.upload_continues();
    }

    /// Nothing more of that request is read.
    pub(super) fn upload_ended(&self) {
        self.timeouts.upload_ended(Instant::now());
    }

    /// Forwards a request of an HTTP/1 connection.
    pub(super) fn forward(
        &self,
        request: AgentRequest,
    ) -> Pin<Box<impl Future<Output = AgentResponse>>> {
        let forwarder = &self.server.forwarder;
        forwarder.forward(request, &self.info, None)
    }

    /// Serves a request of an HTTP/2 connection. Counts it as in flight before the future is first
    /// polled: that happens in another task, after the connection's timeouts have been checked.
    /// Refuses the stream where too many are open on all connections together.
    fn call(
        self: Arc<Self>,
        request: Request<Incoming>,
    ) -> impl Future<Output = Result<Response<CountedBody>, h2::Error>> {
        let limit = self.server.settings.load().total_http2_streams;
        let open = self.server.open.open_stream(limit);
        let call = open.map(|open| (self.begin(true), open));
        if call.is_none() {
            self.server.shutdown.record_stream_refused();
        }
        async move {
            let Some((mut call, open)) = call else {
                return Err(h2::Error::from(h2::Reason::REFUSED_STREAM));
            };
            call.stream = current_stream();
            let stream = call.stream.as_ref();
            let (parts, incoming) = request.into_parts();
            let request = AgentRequest {
                parts,
                names: FieldNames::default(),
                body: AgentBody::Http2(incoming),
            };
            let response = self.server.forwarder.forward(request, &self.info, stream);
            let response = Response::from(response.await);
            Ok(response.map(|body| CountedBody {
                body,
                call,
                _open: open,
            }))
        }
    }
}

/// A request in flight, until its response has ended or was dropped.
pub(super) struct ActiveRequest {
    timeouts: Arc<ConnectionTimeouts>,
    /// Its stream, over HTTP/2.
    stream: Option<Arc<SendState>>,
    _guard: RequestGuard,
}

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        self.timeouts.request_ended(Instant::now());
    }
}

/// A response body that keeps its request counted as in flight.
struct CountedBody {
    body: Body,
    call: ActiveRequest,
    _open: OpenStream,
}

impl http_body::Body for CountedBody {
    type Data = Bytes;
    type Error = <Body as http_body::Body>::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        if let Some(stream) = &self.call.stream {
            // The server asks for a frame once it has sent the one before.
            stream.clear_blocked();
            if matches!(polled, Poll::Ready(Some(Ok(_)))) {
                stream.set_blocked();
            }
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many bytes the future of a connection takes for as long as it is open.
    fn size<A, B, C, D, E, F: Future>(_: impl FnOnce(A, B, C, D, E) -> F) -> usize {
        size_of::<F>()
    }

    #[test]
    fn a_connection_has_no_room_for_its_handshake_nor_for_a_request() {
        assert!(size(serve) <= 2448, "{} bytes", size(serve));
    }
}
