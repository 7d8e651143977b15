//! One connection of an agent, from its first byte to its last.

use super::connection_timeouts::{ConnectionTimeouts, TimedSocket, TimeoutKind};
use super::protocol_sniff::{HttpVersion, SniffedSocket};
use crate::agent_socket::{ServerIo, SharedSocket};
use crate::body::Body;
use crate::drain::{Drain, RequestGuard, Stage};
use crate::send_timeout::{CloseReason, SendState, StreamExecutor, this_stream};
use crate::settings::Limits;
use crate::{ConnectionInfo, Forwarder, Shutdown};
use arc_swap::ArcSwap;
use bytes::Bytes;
use http::{Request, Response, Version};
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::fmt::Display;
use std::future::{pending, poll_fn};
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokengauge_net::tls::Acceptor;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep_until, timeout};

/// The least that hyper reads an HTTP/1 head with.
const MIN_BUFFER: usize = 8 * 1024;
/// Bytes one HTTP/2 stream may send before they are read.
const STREAM_WINDOW: u32 = 64 * 1024;
/// Bytes all streams of one HTTP/2 connection may send before they are read.
const CONNECTION_WINDOW: u32 = 1024 * 1024;
/// Bytes of one HTTP/2 stream that may wait for a slow agent.
const STREAM_BUFFER: usize = 64 * 1024;
/// How often an HTTP/2 agent is asked whether it is still there, and how long it may take.
const PING_EVERY: Duration = Duration::from_secs(30);
const PONG_WITHIN: Duration = Duration::from_secs(20);

/// What all connections share.
pub(super) struct Server {
    pub(super) shutdown: Shutdown,
    forwarder: Arc<Forwarder>,
    /// Of connections to come; one that is open keeps to those it began with.
    terms: ArcSwap<ConnectionSettings>,
}

/// How a connection is served.
struct ConnectionSettings {
    http1: http1::Builder,
    http2: http2::Builder<StreamExecutor>,
    head_timeout: Duration,
}

impl ConnectionSettings {
    fn new(limits: &Limits) -> ConnectionSettings {
        ConnectionSettings {
            http1: http1(limits),
            http2: http2(limits),
            head_timeout: limits.head_timeout,
        }
    }
}

impl Server {
    pub(super) fn new(forwarder: Arc<Forwarder>, limits: &Limits, shutdown: Shutdown) -> Server {
        Server {
            shutdown,
            forwarder,
            terms: ArcSwap::from_pointee(ConnectionSettings::new(limits)),
        }
    }

    /// Serves connections to come within other limits.
    pub(super) fn change(&self, limits: &Limits) {
        self.terms.store(Arc::new(ConnectionSettings::new(limits)));
    }
}

fn http1(limits: &Limits) -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder
        .preserve_header_case(true)
        // The 100 fields of a head that hyper (and Envoy) allow stay: parsing more goes
        // through the heap and leaves each open connection 8 KB larger.
        // `ConnectionTimeouts` knows an idle connection from a slow head; hyper's timer takes both for one.
        .header_read_timeout(None)
        .max_buf_size(limits.head_bytes.max(MIN_BUFFER))
        .max_header_size(limits.head_bytes)
        // Who leaves amid an answer is seen by `SharedSocket::poll_left`, without a buffer.
        .half_close(true)
        // Only what the upstream sent.
        .auto_date_header(false);
    builder
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

/// Serves one connection until it closes, takes too long, or is cut off.
pub(super) async fn serve(
    server: Arc<Server>,
    tcp: TcpStream,
    (peer, port): (SocketAddr, u16),
    acceptor: Option<Arc<Acceptor>>,
    mut drain: Drain,
) {
    // A chunk leaves at once. Where it cannot be set the connection is gone already.
    let _ = tcp.set_nodelay(true);
    let terms = server.terms.load_full();
    let sending = Arc::new(SendState::new());
    let pace = ConnectionTimeouts::new(Instant::now(), terms.head_timeout, Arc::clone(&sending));
    let tls = acceptor.is_some();
    let info = |drain| ConnectionInfo {
        peer,
        port,
        tls,
        drain,
        sending: Arc::clone(&sending),
        direct: None,
    };
    let Some(acceptor) = acceptor else {
        return serve_http(&server, &terms, tcp, info(drain), pace).await;
    };
    // Boxed, as the stream is: a connection is to be small for as long as it lasts.
    let handshake = Box::pin(timeout(terms.head_timeout, acceptor.accept(tcp)));
    let accepted = tokio::select! {
        accepted = handshake => accepted,
        () = drain.drain_started() => return,
    };
    match accepted {
        Ok(Ok(tls)) => serve_http(&server, &terms, Box::new(tls), info(drain), pace).await,
        Ok(Err(error)) => tracing::debug!(%peer, %error, "TLS handshake with an agent failed"),
        Err(_) => tracing::debug!(%peer, "no TLS handshake in time"),
    }
}

async fn serve_http<I>(
    server: &Arc<Server>,
    terms: &ConnectionSettings,
    io: I,
    mut info: ConnectionInfo,
    pace: ConnectionTimeouts,
) where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let pace = Arc::new(pace);
    let (peer, mut drain) = (info.peer, info.drain.clone());
    let sending = Arc::clone(&info.sending);
    let (io, direct) = ServerIo::new(io);
    info.direct = Some(direct.clone());
    let shared = Arc::new(ConnectionService {
        server: Arc::clone(server),
        pace: Arc::clone(&pace),
        info,
    });
    // Boxed, because hyper makes room for it in every connection, the idle ones too.
    let service = service_fn(move |request| Box::pin(Arc::clone(&shared).call(request)));
    let mut opening = SniffedSocket::new(TimedSocket::new(io, Arc::clone(&pace)));
    let mut timer = pin!(sleep_until(Instant::now() + terms.head_timeout));
    let spoken = tokio::select! {
        biased;
        spoken = poll_fn(|cx| opening.poll_spoken(cx)) => spoken,
        () = drain.drain_started() => return,
        _ = pace.overdue(timer.as_mut()) => return log_late(peer),
    };
    let io = TokioIo::new(opening);
    let attended = SupervisedConnection {
        peer,
        pace: &pace,
        sending: &sending,
        agent: &direct,
        drain,
        timer,
    };
    match spoken {
        Ok(HttpVersion::Http1) => {
            let connection = pin!(terms.http1.serve_connection(io, service).with_upgrades());
            let close = http1::UpgradeableConnection::graceful_shutdown;
            let left = poll_fn(|cx| direct.poll_left(cx));
            attended.serve(connection, close, left).await;
        }
        Ok(HttpVersion::Http2) => {
            let mut connection = Box::pin(terms.http2.serve_connection(io, service));
            let close = http2::Connection::graceful_shutdown;
            attended.serve(connection.as_mut(), close, pending()).await;
        }
        Err(error) => log_end(peer, Err(error)),
    }
}

/// What ends a connection besides itself.
struct SupervisedConnection<'a> {
    peer: SocketAddr,
    pace: &'a ConnectionTimeouts,
    sending: &'a SendState,
    agent: &'a SharedSocket,
    drain: Drain,
    timer: Pin<&'a mut Sleep>,
}

impl SupervisedConnection<'_> {
    /// Serves a connection to its end, or until the agent has `left` amid an answer; `close`
    /// makes it end after what is under way.
    async fn serve<C>(
        mut self,
        mut connection: Pin<&mut C>,
        close: impl Fn(Pin<&mut C>),
        mut left: impl Future<Output = ()> + Unpin,
    ) where
        C: Future<Output = hyper::Result<()>>,
    {
        let mut next = Stage::Draining;
        loop {
            tokio::select! {
                biased;
                ended = connection.as_mut() => return log_end(self.peer, ended),
                () = &mut left => return log_end(self.peer, Err("the agent left")),
                () = self.drain.reached(next) => match next {
                    Stage::Terminating => return self.sending.close(CloseReason::Drained),
                    _ => {
                        next = Stage::Terminating;
                        close(connection.as_mut());
                    }
                },
                overdue = self.pace.overdue(self.timer.as_mut()) => match overdue {
                    TimeoutKind::Head => return log_late(self.peer),
                    TimeoutKind::Send => {
                        self.sending.close(CloseReason::SendTimeout);
                        self.agent.abort();
                        return log_end(self.peer, Err("the agent takes nothing"));
                    }
                    TimeoutKind::Idle => {
                        self.pace.closes(Instant::now());
                        close(connection.as_mut());
                    }
                },
            }
        }
    }
}

fn log_late(peer: SocketAddr) {
    tracing::debug!(%peer, "no request head in time");
}

fn log_end(peer: SocketAddr, ended: Result<(), impl Display>) {
    if let Err(error) = ended {
        tracing::debug!(%peer, %error, "connection of an agent ended");
    }
}

/// What the requests of one connection share.
struct ConnectionService {
    server: Arc<Server>,
    pace: Arc<ConnectionTimeouts>,
    info: ConnectionInfo,
}

impl ConnectionService {
    /// The request is under way from now on: over HTTP/2 what this gives is polled in a task
    /// of its own, after the connection's time has been looked at.
    fn call(
        self: Arc<Self>,
        request: Request<Incoming>,
    ) -> impl Future<Output = Result<Response<CountedBody>, Infallible>> {
        self.pace
            .request_begins(request.version() == Version::HTTP_2);
        let mut call = ActiveRequest {
            pace: Arc::clone(&self.pace),
            stream: None,
            _under_way: self.server.shutdown.request(),
        };
        async move {
            call.stream = this_stream();
            let stream = call.stream.as_ref();
            let response = self.server.forwarder.forward(request, &self.info, stream);
            let response = response.await;
            Ok(response.map(|body| CountedBody { body, call }))
        }
    }
}

/// A request until its response is over, however that comes.
struct ActiveRequest {
    pace: Arc<ConnectionTimeouts>,
    /// The stream it is on, over HTTP/2.
    stream: Option<Arc<SendState>>,
    _under_way: RequestGuard,
}

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        self.pace.request_ends(Instant::now());
    }
}

/// A response body, and with it the request that is under way as long as it lasts.
struct CountedBody {
    body: Body,
    call: ActiveRequest,
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
            // Asked again, the server has sent what it got before.
            stream.takes();
            if matches!(polled, Poll::Ready(Some(Ok(_)))) {
                stream.blocks();
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
