//! The HTTP server of the admin address and of the injection webhook, with or without TLS.
//!
//! Every connection is accepted at once, so that a health check never waits in the kernel's queue. [`slots`] decides
//! afterwards how many stay open. [`activity`] and [`connection`] limit how long one may wait for its peer.

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

const TIMEOUT: Duration = Duration::from_secs(5);
/// The pause after `accept` failed, for example because no file descriptor is left.
const PAUSE: Duration = Duration::from_millis(200);

#[derive(Clone, Copy, Debug)]
pub(super) struct Timeouts {
    /// The time from the connection to the end of its first request head, including the TLS handshake.
    pub(super) head: Duration,
    /// The time from the end of a request to the end of the next request head.
    pub(super) idle: Duration,
    /// The time without progress of a request: the client does not send its body, or does not read the response.
    pub(super) stalled: Duration,
}

/// `stalled` covers the longest query of the API (20 s) and the time that an API server waits for a webhook (at most 30 s).
const TIMEOUTS: Timeouts = Timeouts {
    head: Duration::from_secs(10),
    idle: Duration::from_secs(30),
    stalled: Duration::from_secs(30),
};

/// Serves `service` on `listener` until `shutdown` completes. Connections beyond the bounds of `slots` are served only at
/// the health paths.
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
