//! The HTTP server of the admin address and of the injection webhook, with or without TLS.
//!
//! Every connection is accepted at once, so that a health check never waits in the
//! kernel's queue. How many may stay open is decided afterwards ([`slots`]); how long one
//! may wait for its peer is bounded at every point ([`activity`], [`connection`]).

mod activity;
mod connection;
mod slots;
#[cfg(test)]
mod tests;

pub use slots::{Bounds, Closed, Slots, Source};

use axum::Router;
use connection::Connection;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokengauge_net::tls::Acceptor;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// How long requests in progress may take once the shutdown has begun.
const TIMEOUT: Duration = Duration::from_secs(5);
/// How long to wait after `accept` failed, as where no file descriptor is left.
const PAUSE: Duration = Duration::from_millis(200);

/// How long a connection may wait for its peer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timeouts {
    /// From the connection to the end of its first request head, TLS handshake included.
    pub(super) head: Duration,
    /// From the end of a request to the end of the next one's head.
    pub(super) idle: Duration,
    /// Without progress of a request: a body that does not come, an answer that is not read.
    pub(super) stalled: Duration,
}

/// Longer than any query of the API may take (20 s), and than an API server waits for a
/// webhook (30 s at most).
const TIMEOUTS: Timeouts = Timeouts {
    head: Duration::from_secs(10),
    idle: Duration::from_secs(30),
    stalled: Duration::from_secs(30),
};

/// Serves `service` on `listener` until `shutdown` completes. Connections beyond the bounds
/// of `slots` are answered at the health paths only.
pub async fn serve(
    listener: TcpListener,
    service: Router,
    tls: Option<Arc<Acceptor>>,
    slots: Arc<Slots>,
    shutdown: impl Future<Output = ()>,
) {
    let limits = ServerLimits {
        timeouts: TIMEOUTS,
        slots,
    };
    serve_within(limits, listener, service, tls, shutdown).await;
}

/// The timeouts of connections, and the bounds on their number.
struct ServerLimits {
    timeouts: Timeouts,
    slots: Arc<Slots>,
}

async fn serve_within(
    ServerLimits { timeouts, slots }: ServerLimits,
    listener: TcpListener,
    service: Router,
    tls: Option<Arc<Acceptor>>,
    shutdown: impl Future<Output = ()>,
) {
    let ending = watch::Sender::new(false);
    let mut connections = JoinSet::new();
    let mut shutdown = pin!(shutdown);
    loop {
        let (tcp, peer) = tokio::select! {
            accepted = accept(&listener) => accepted,
            Some(_) = connections.join_next() => continue,
            () = &mut shutdown => break,
        };
        let connection = Connection {
            slot: slots.admit(peer.ip()),
            service: service.clone(),
            timeouts,
            ending: ending.subscribe(),
        };
        connections.spawn(connection.run(tcp, tls.clone()));
    }
    drop(listener);
    ending.send_replace(true);
    let ended = async { while connections.join_next().await.is_some() {} };
    let _ = timeout(TIMEOUT, ended).await;
}

async fn accept(listener: &TcpListener) -> (TcpStream, SocketAddr) {
    loop {
        match listener.accept().await {
            Ok(accepted) => return accepted,
            Err(error) if belongs_to_one_connection(&error) => {}
            Err(error) => {
                tracing::warn!(%error, "the admin address cannot accept a connection just now");
                sleep(PAUSE).await;
            }
        }
    }
}

fn belongs_to_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionRefused
    )
}
