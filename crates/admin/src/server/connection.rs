//! A connection: TLS if configured, the protocol, and the timeouts.

use super::activity::{Liveness, TrackedBody};
use super::slots::{Closed, Slot, Source};
use super::{TIMEOUT, Timeouts};
use crate::api::Problem;
use crate::health;
use axum::Router;
use axum::http::{HeaderValue, Request, Response, StatusCode, header};
use axum::response::IntoResponse;
use hyper::body::Incoming;
use hyper::service::Service;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use std::convert::Infallible;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;
use tokengauge_net::tls::Acceptor;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};

const STREAMS: u32 = 32;
const HEAD_BYTES: u32 = 32 * 1024;
const PING_EVERY: Duration = Duration::from_secs(10);
const PONG_WITHIN: Duration = Duration::from_secs(10);

pub(super) struct Connection {
    pub(super) slot: Slot,
    pub(super) service: Router,
    pub(super) timeouts: Timeouts,
    pub(super) ending: watch::Receiver<bool>,
}

/// The protocol. It is not detected from the first bytes, since they may never come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Protocol {
    Http1,
    Http2,
}

impl Connection {
    pub(super) async fn run(self, tcp: TcpStream, tls: Option<Arc<Acceptor>>) {
        let _ = tcp.set_nodelay(true);
        let slot = &self.slot;
        tokio::select! {
            () = self.handshake(tcp, tls) => {}
            () = slot.evicted() => {}
        }
    }

    async fn handshake(&self, tcp: TcpStream, tls: Option<Arc<Acceptor>>) {
        let Some(tls) = tls else {
            return self.converse(tcp, Protocol::Http1).await;
        };
        match timeout(self.timeouts.head, tls.accept(tcp)).await {
            Ok(Ok(stream)) => {
                let protocol = match stream.get_ref().1.alpn_protocol() {
                    Some(b"h2") => Protocol::Http2,
                    _ => Protocol::Http1,
                };
                self.converse(stream, protocol).await;
            }
            Ok(Err(error)) => {
                tracing::debug!(%error, "a TLS handshake at the admin address failed");
            }
            Err(_) => {
                self.slot.count(Closed::Timeout);
                tracing::debug!("a TLS handshake at the admin address took too long");
            }
        }
    }

    #[cfg(test)]
    pub(super) async fn http2(&self, io: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) {
        self.converse(io, Protocol::Http2).await;
    }

    async fn converse<I>(&self, io: I, protocol: Protocol)
    where
        I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let builder = builder(protocol, !self.slot.reserved);
        let service = Tracked {
            slot: &self.slot,
            service: TowerToHyperService::new(self.service.clone()),
        };
        let mut connection = pin!(builder.serve_connection(TokioIo::new(io), service));
        let mut ending = self.ending.clone();
        // Once a graceful shutdown has begun, the instant at which the connection is closed.
        let mut ends_by: Option<Instant> = None;
        loop {
            let now = Instant::now();
            let wake_at = match (ends_by, self.slot.activity.verdict(now, &self.timeouts)) {
                (Some(end), _) if now >= end => return self.slot.count(Closed::Timeout),
                (_, Liveness::Stalled) => return self.slot.count(Closed::Timeout),
                (None, Liveness::Idle) => {
                    connection.as_mut().graceful_shutdown();
                    let end = now + self.timeouts.stalled;
                    ends_by = Some(end);
                    end
                }
                (Some(end), Liveness::Idle) => end,
                (end, Liveness::Fine(until)) => end.map_or(until, |end| end.min(until)),
            };
            tokio::select! {
                // A client that disconnects is not an error.
                _ = connection.as_mut() => return,
                _ = ending.wait_for(|ending| *ending), if ends_by.is_none() => {
                    connection.as_mut().graceful_shutdown();
                    ends_by = Some(Instant::now() + TIMEOUT);
                }
                () = sleep_until(wake_at) => {}
            }
        }
    }
}

fn builder(protocol: Protocol, keep_alive: bool) -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .max_buf_size(HEAD_BYTES as usize)
        .keep_alive(keep_alive);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS)
        .max_header_list_size(HEAD_BYTES)
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PONG_WITHIN);
    match protocol {
        Protocol::Http1 => builder.http1_only(),
        Protocol::Http2 => builder.http2_only(),
    }
}

/// Serves requests. Each request is in flight until its response has been read.
struct Tracked<'a> {
    slot: &'a Slot,
    service: TowerToHyperService<Router>,
}

type ServiceResult = Result<Response<TrackedBody>, Infallible>;

impl Service<Request<Incoming>> for Tracked<'_> {
    type Response = Response<TrackedBody>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = ServiceResult> + Send>>;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        let in_progress = self.slot.activity.begin();
        if self.slot.reserved && !health::PATHS.contains(&request.uri().path()) {
            self.slot.count(Closed::Refused);
            let body = |body| TrackedBody::new(body, in_progress);
            return Box::pin(std::future::ready(Ok(no_room().map(body))));
        }
        request.extensions_mut().insert::<Source>(self.slot.source);
        let response = self.service.call(request);
        Box::pin(async move {
            Ok(response
                .await?
                .map(|body| TrackedBody::new(body, in_progress)))
        })
    }
}

fn no_room() -> Response<axum::body::Body> {
    let message = "too many connections are open; close some, or try again later";
    let mut response = Problem::new(StatusCode::SERVICE_UNAVAILABLE, message).into_response();
    let close = HeaderValue::from_static("close");
    response.headers_mut().insert(header::CONNECTION, close);
    response
}
