//! Serves one connection of an agent, from its first byte to its last.

use super::connection_service::ConnectionService;
use super::connection_timeouts::{ConnectionTimeouts, TimedSocket, TimeoutKind};
use super::http1_connection::serve_requests;
use super::protocol_sniff::{HttpVersion, SniffedSocket};
use super::server::{ConnectionSettings, Server};
use crate::ConnectionInfo;
use crate::agent_connection::AgentConnection;
use crate::agent_io::AgentIo;
use crate::drain::{Drain, Stage};
use crate::send_timeout::{CloseReason, SendState};
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use std::fmt::Display;
use std::future::{pending, poll_fn};
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use tokengauge_net::tls::Acceptor;
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep_until, timeout};
use tokio_rustls::server::TlsStream;

pub(super) async fn serve(
    server: Arc<Server>,
    tcp: TcpStream,
    (peer, port): (SocketAddr, u16),
    acceptor: Option<Arc<Acceptor>>,
    mut drain: Drain,
) {
    // Chunks are sent immediately. An error means that the connection is already closed.
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
            // Boxed, so that the connection does not reserve space for it later.
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
            // Boxed, because hyper reserves space for it in every connection, even an idle one.
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

/// Closes an HTTP/1 connection when its task ends, even if a body is still being read.
struct CloseOnDrop<'a>(&'a AgentConnection);

impl Drop for CloseOnDrop<'_> {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Ends a connection from outside: timeouts, shutdown, or a disconnect of the agent.
struct SupervisedConnection<'a> {
    peer: SocketAddr,
    timeouts: &'a ConnectionTimeouts,
    send_state: &'a SendState,
    drain: Drain,
    timer: Pin<&'a mut Sleep>,
}

impl SupervisedConnection<'_> {
    /// Serves a connection to its end, or until it is `disconnected` during a response. `graceful_shutdown` ends it
    /// after the requests in flight.
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
                        return log_end(self.peer, Err("the agent accepts no data"));
                    }
                    TimeoutKind::Closing => return log_end(self.peer, Err("the agent did not close the connection")),
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The size in bytes of a connection's future, which exists as long as the connection is open.
    fn size<A, B, C, D, E, F: Future>(_: impl FnOnce(A, B, C, D, E) -> F) -> usize {
        size_of::<F>()
    }

    #[test]
    fn a_connection_has_no_room_for_its_handshake_nor_for_a_request() {
        assert!(size(serve) <= 2448, "{} bytes", size(serve));
    }
}
