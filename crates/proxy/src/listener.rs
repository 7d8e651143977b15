mod active_listeners;
mod backoff;
mod connection;
mod connection_service;
mod connection_timeouts;
mod http1_connection;
mod http1_response;
mod open_connections;
mod protocol_sniff;
mod server;

use super::{Forwarder, Shutdown, TrafficRuntimes};
use crate::settings::{self, Limits};
use arc_swap::ArcSwapOption;
use backoff::Backoff;
use connection_timeouts::CLOSE_TIMEOUT;
use server::Server;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokengauge_net::address;
use tokengauge_net::tls::{self, Acceptor};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep, timeout};

pub use active_listeners::{ActiveListeners, ListenerUpdate};
pub(super) use connection_timeouts::TimedSocket;

/// How often a connection at the connection limit looks for an idle one to replace.
const RETRY_INTERVAL: Duration = Duration::from_millis(10);
const TERMINATE_TIMEOUT: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub struct BoundListener {
    listener: TcpListener,
    address: SocketAddr,
    settings: settings::Listener,
    acceptor: Arc<ArcSwapOption<Acceptor>>,
}

impl BoundListener {
    /// Binds an address and starts listening. Needs a runtime.
    ///
    /// # Errors
    ///
    /// Returns an error if the address cannot be bound or its TLS files cannot be used.
    pub fn bind(listener: &settings::Listener) -> Result<BoundListener, BindError> {
        let settings = listener.clone();
        let acceptor = listener.tls.as_ref().map(Acceptor::new).transpose()?;
        let acceptor = Arc::new(ArcSwapOption::from(acceptor.map(Arc::new)));
        let failed = |source| BindError::Address {
            address: settings.address,
            source,
        };
        let listener = address::listen(settings.address).and_then(TcpListener::from_std);
        let listener = listener.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(BoundListener {
            listener,
            address,
            settings,
            acceptor,
        })
    }

    /// The bound address, with the actual port if port 0 was configured.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

#[derive(Debug, thiserror::Error)]
pub enum BindError {
    #[error("cannot listen on {address}: {}", reason(.source))]
    Address {
        address: SocketAddr,
        source: io::Error,
    },
    #[error("cannot use TLS: {0}")]
    Tls(#[from] tls::Invalid),
}

fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::AddrInUse => "another process listens there".to_owned(),
        io::ErrorKind::AddrNotAvailable => "this machine does not have that address".to_owned(),
        io::ErrorKind::PermissionDenied => {
            "permission denied; ports below 1024 often need a privilege".to_owned()
        }
        _ => error.to_string(),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DrainSummary {
    pub aborted: usize,
}

/// Serves agents until draining starts, then waits until open connections have closed, `drain_timeout` has passed or
/// [`Shutdown::now`] is called.
pub async fn serve(
    listeners: Vec<BoundListener>,
    forwarder: Arc<Forwarder>,
    limits: &Limits,
    shutdown: Shutdown,
    drain_timeout: Duration,
) -> DrainSummary {
    let runtimes = TrafficRuntimes::current();
    let listeners = ActiveListeners::start(listeners, forwarder, limits, shutdown, runtimes);
    listeners.drained(|| drain_timeout).await
}

async fn drain(shutdown: &Shutdown, drain_timeout: Duration) -> DrainSummary {
    tokio::select! {
        () = shutdown.all_closed() => {}
        () = shutdown.terminated() => {}
        () = sleep(drain_timeout) => {}
    }
    if shutdown.connections() > 0 {
        shutdown.now();
    }
    // Connections that are still open are dropped with the runtime.
    let ended = async {
        shutdown.all_closed().await;
        shutdown.all_reported().await;
    };
    let _ = timeout(TERMINATE_TIMEOUT, ended).await;
    DrainSummary {
        aborted: shutdown.aborted_connections(),
    }
}

/// Accepts connections until aborted. At the connection limit, the connection that has been idle longest is closed. If
/// none is idle, one accepted connection waits here and others in the kernel's accept queue.
async fn accept(bound: BoundListener, server: Arc<Server>, permits: Arc<Semaphore>) {
    let mut backoff = Backoff::default();
    loop {
        let Some((tcp, peer)) = accept_one(&bound, &server, &mut backoff).await else {
            continue;
        };
        let permit = make_room(&server, &permits).await;
        let (runtime, count) = server.runtimes.choose();
        let drain = server.shutdown.open_connection(permit, count);
        let (server, acceptor) = (Arc::clone(&server), bound.acceptor.load_full());
        let peer_and_port = (peer, bound.address.port());
        let served = runtime.serve(tcp, move |tcp| {
            connection::serve(server, tcp, peer_and_port, acceptor, drain)
        });
        if let Err(error) = served {
            tracing::error!(address = %bound.address, %error, "cannot serve a connection");
        }
    }
}

/// Returns a permit for one more connection. Closes idle connections to get the permit.
async fn make_room(server: &Server, permits: &Arc<Semaphore>) -> OwnedSemaphorePermit {
    loop {
        if let Ok(permit) = Arc::clone(permits).try_acquire_owned() {
            return permit;
        }
        let wait = if server.close_longest_idle() {
            CLOSE_TIMEOUT
        } else {
            RETRY_INTERVAL
        };
        if let Ok(permit) = timeout(wait, Arc::clone(permits).acquire_owned()).await {
            return permit.expect("the semaphore is never closed");
        }
    }
}

async fn accept_one(
    bound: &BoundListener,
    server: &Server,
    backoff: &mut Backoff,
) -> Option<(TcpStream, SocketAddr)> {
    match bound.listener.accept().await {
        Ok(accepted) => {
            backoff.succeeded();
            Some(accepted)
        }
        Err(error) if is_connection_error(&error) => None,
        Err(error) => {
            // The process may have run out of descriptors.
            server.close_longest_idle();
            let pause = backoff.failed(Instant::now());
            if let Some(failures) = pause.report {
                tracing::error!(address = %bound.address, %error, failures, "cannot accept connections");
            }
            sleep(pause.length).await;
            None
        }
    }
}

/// Whether the error concerns only one connection that was lost before it was accepted, and not the listener.
fn is_connection_error(error: &io::Error) -> bool {
    use io::ErrorKind::{
        ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted, TimedOut,
    };
    matches!(
        error.kind(),
        ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted | TimedOut
    )
}
