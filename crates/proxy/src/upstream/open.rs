//! Opens connections: TCP, TLS, and the HTTP handshake.

use super::limits::OpenConnection;
use super::socket::CountedTcp;
use super::{ConnectOptions, Endpoint, HTTP1, HTTP2, LeasedConnection, Upstream};
use crate::clock::now;
use crate::connection::{Http1, Io};
use crate::refusal::failure;
use crate::settings::Protocol;
use http::uri::Scheme;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokengauge_core::observer::{Failure, FailureKind};
use tokio::net::TcpStream;
use tokio::time::timeout;

impl Upstream {
    /// Opens a connection to an endpoint.
    ///
    /// # Errors
    ///
    /// Returns an error if opening takes longer than `within`, or a handshake fails.
    pub(super) async fn open(
        &self,
        endpoint: &Arc<Endpoint>,
        options: ConnectOptions,
        open: OpenConnection,
        within: Duration,
    ) -> Result<LeasedConnection, Failure> {
        let started = now();
        let tcp = CountedTcp::new(self.dial(endpoint, within).await?, open);
        let host = endpoint.settings.authority.host();
        let (io, http2) = match &self.tls {
            Some(tls) if endpoint.settings.scheme == Scheme::HTTPS => {
                let connector = if options.upgrade {
                    &tls.http1
                } else {
                    &tls.any_protocol
                };
                let left = within.saturating_sub(started.elapsed());
                let handshake =
                    timeout(left, connector.connect(tcp.tracking_tls_records(), host)).await;
                let stream = handshake
                    .map_err(|_| {
                        failure(
                            FailureKind::ConnectTimeout,
                            "did not finish the TLS handshake in time",
                        )
                    })?
                    .map_err(|error| {
                        failure(
                            FailureKind::Tls,
                            format!("failed the TLS handshake: {error}"),
                        )
                    })?;
                let http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
                (Io::Tls(Box::new(stream)), http2)
            }
            _ => (Io::Tcp(tcp), self.settings.protocol == Protocol::Http2),
        };
        if !options.upgrade {
            let negotiated = if http2 { HTTP2 } else { HTTP1 };
            endpoint.negotiated.store(negotiated, Ordering::Relaxed);
        }
        if !http2 {
            return Ok(LeasedConnection::Http1(Http1 {
                io,
                idle_since: None,
                max_head_bytes: self.head_bytes,
            }));
        }
        endpoint.open_http2(io).await.map_err(|error| {
            failure(
                FailureKind::Protocol,
                format!("failed to start HTTP ({error})"),
            )
        })
    }

    async fn dial(&self, endpoint: &Endpoint, within: Duration) -> Result<TcpStream, Failure> {
        match timeout(within, TcpStream::connect(endpoint.address)).await {
            Ok(Ok(tcp)) => {
                // Without this, a chunk may wait until the previous one is acknowledged.
                let _ = tcp.set_nodelay(true);
                Ok(tcp)
            }
            Ok(Err(error)) if error.kind() != io::ErrorKind::TimedOut => Err(failure(
                FailureKind::Connect,
                format!("cannot be connected to ({error})"),
            )),
            _ => {
                let limit = self.settings.timeouts.connect;
                Err(failure(
                    FailureKind::ConnectTimeout,
                    format!("did not accept a connection within {limit:?}"),
                ))
            }
        }
    }
}
