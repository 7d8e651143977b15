//! The operators' connections: bounded in number, with or without TLS.

use crate::proxy::tls::Acceptor;
use axum::Router;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use hyper_util::service::TowerToHyperService;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};

/// Connections at once; more wait to be accepted.
const CONNECTIONS: usize = 256;
/// How long a handshake or a request head may take, and a connection be idle.
const HEAD_WITHIN: Duration = Duration::from_secs(30);
/// How long answers under way may take once the end has begun.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long to wait where the system has no socket left.
const PAUSE: Duration = Duration::from_millis(200);

/// Serves `service` on `listener` until `shutdown` is over.
pub(crate) async fn serve(
    listener: TcpListener,
    service: Router,
    tls: Option<Arc<Acceptor>>,
    shutdown: impl Future<Output = ()>,
) {
    let (graceful, room) = (
        GracefulShutdown::new(),
        Arc::new(Semaphore::new(CONNECTIONS)),
    );
    let mut shutdown = pin!(shutdown);
    loop {
        let (tcp, seat) = tokio::select! {
            accepted = accept(&listener, &room) => accepted,
            () = &mut shutdown => break,
        };
        let (service, tls, watcher) = (service.clone(), tls.clone(), graceful.watcher());
        tokio::spawn(async move {
            let _seat = seat;
            connection(tcp, tls, service, watcher).await;
        });
    }
    drop(listener);
    let _ = timeout(PATIENCE, graceful.shutdown()).await;
}

async fn accept(
    listener: &TcpListener,
    room: &Arc<Semaphore>,
) -> (TcpStream, OwnedSemaphorePermit) {
    let seat = Arc::clone(room).acquire_owned().await;
    let seat = seat.expect("nobody closes it");
    loop {
        match listener.accept().await {
            Ok((tcp, _)) => return (tcp, seat),
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

async fn connection(tcp: TcpStream, tls: Option<Arc<Acceptor>>, service: Router, watcher: Watcher) {
    let _ = tcp.set_nodelay(true);
    let Some(tls) = tls else {
        return converse(tcp, service, watcher).await;
    };
    match timeout(HEAD_WITHIN, tls.accept(tcp)).await {
        Ok(Ok(stream)) => converse(stream, service, watcher).await,
        Ok(Err(error)) => tracing::debug!(%error, "a TLS handshake at the admin address failed"),
        Err(_) => tracing::debug!("a TLS handshake at the admin address took too long"),
    }
}

async fn converse<I>(io: I, service: Router, watcher: Watcher)
where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut builder = auto::Builder::new(TokioExecutor::new());
    let http1 = &mut builder.http1();
    http1
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_WITHIN);
    let service = TowerToHyperService::new(service);
    let connection = builder.serve_connection(TokioIo::new(io), service);
    // Operators who break off are nobody's fault.
    let _ = watcher.watch(connection.into_owned()).await;
}
