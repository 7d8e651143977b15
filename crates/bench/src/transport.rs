//! The connection pool of the backend. With HTTP/1.1, each call in flight has a connection, which is reused afterwards.
//! With HTTP/2, calls share a connection, up to a number of streams that every server allows.

use crate::clock::now;
use bytes::Bytes;
use http::uri::Scheme;
use http::{HeaderValue, Request, Response, Uri, header};
use hyper::body::Incoming;
use hyper::client::conn::{TrySendError, http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use parking_lot::Mutex;
use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokengauge_core::observer::{FailureKind, ObservedCall};
use tokengauge_net::endpoint::Protocol;
use tokengauge_net::tls::{ClientTls, Connector};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use crate::error::BenchError;

#[derive(Debug, thiserror::Error)]
#[error("{reason}")]
pub struct Failure {
    pub kind: FailureKind,
    pub reason: String,
}

#[derive(Debug)]
pub struct Pool {
    host: String,
    port: u16,
    authority: HeaderValue,
    tls: Option<Connector>,
    http2: bool,
    idle: Mutex<Vec<http1::SendRequest<RequestBody>>>,
    /// HTTP/2 connections. The lock is held while a connection is opened, so that simultaneous calls share it.
    shared: tokio::sync::Mutex<Vec<Shared>>,
}

/// The maximum number of streams per connection. RFC 9113, 6.5.2, recommends that servers allow at least 100.
const MAX_STREAMS: usize = 100;

#[derive(Clone, Debug)]
struct Shared {
    sender: http2::SendRequest<RequestBody>,
    /// Counts references: one of the pool, and one for each stream.
    streams: Arc<()>,
}

#[derive(Debug)]
enum Sender {
    Http1(http1::SendRequest<RequestBody>),
    Http2(Shared),
}

impl Sender {
    async fn ready(&mut self) -> hyper::Result<()> {
        match self {
            Sender::Http1(sender) => sender.ready().await,
            Sender::Http2(shared) => shared.sender.ready().await,
        }
    }

    async fn send(
        &mut self,
        request: Request<RequestBody>,
    ) -> Result<Response<Incoming>, TrySendError<Request<RequestBody>>> {
        match self {
            Sender::Http1(sender) => sender.try_send_request(request).await,
            Sender::Http2(shared) => shared.sender.try_send_request(request).await,
        }
    }
}

impl Pool {
    /// Creates a pool for the address of `url`, with HTTP/1.1 or HTTP/2 (over TLS by ALPN, otherwise by prior
    /// knowledge).
    ///
    /// # Errors
    /// Returns an error if the URL names no host, if its scheme is neither `http` nor `https`, or if a TLS file cannot
    /// be used.
    pub fn new(url: &Uri, tls: &ClientTls, http2: bool) -> Result<Pool, BenchError> {
        let invalid = |reason: String| BenchError::Url {
            url: url.to_string(),
            reason,
        };
        let authority = url
            .authority()
            .ok_or_else(|| invalid("names no host".to_owned()))?;
        let secure = match url.scheme() {
            Some(scheme) if *scheme == Scheme::HTTP => false,
            Some(scheme) if *scheme == Scheme::HTTPS => true,
            _ => {
                return Err(invalid(
                    "the URL must start with http:// or https://".to_owned(),
                ));
            }
        };
        let protocol = if http2 {
            Protocol::Http2
        } else {
            Protocol::Http1
        };
        let connector = secure
            .then(|| Connector::new(tls, protocol))
            .transpose()
            .map_err(|error| invalid(error.to_string()))?;
        let named = authority.as_str().rsplit('@').next().unwrap_or_default();
        Ok(Pool {
            host: authority.host().trim_matches(['[', ']']).to_owned(),
            port: authority
                .port_u16()
                .unwrap_or(if secure { 443 } else { 80 }),
            authority: named
                .parse()
                .map_err(|_| invalid("names no host".to_owned()))?,
            tls: connector,
            http2,
            idle: Mutex::default(),
            shared: tokio::sync::Mutex::default(),
        })
    }

    pub fn address(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    /// Sends a request, whose URI is a path, and returns the head of the response. If an idle connection was closed
    /// before the request was written, the request is sent on a new connection.
    ///
    /// # Errors
    /// Returns an error if there is no response head.
    pub async fn send(
        &self,
        mut request: Request<RequestBody>,
    ) -> Result<(Response<Incoming>, Lease<'_>), Failure> {
        self.address_request(&mut request);
        loop {
            let (mut sender, reused) = self.sender().await?;
            if sender.ready().await.is_err() && reused {
                continue;
            }
            request.body().call.connected(now(), reused);
            match sender.send(request).await {
                Ok(response) => {
                    let sender = Some(sender);
                    return Ok((response, Lease { pool: self, sender }));
                }
                Err(mut error) => match error.take_message().filter(|_| reused) {
                    Some(unsent) => request = unsent,
                    None => return Err(Failure::exchange(error.error())),
                },
            }
        }
    }

    /// Sets the authority in the Host header, or with HTTP/2 in the URI.
    fn address_request(&self, request: &mut Request<RequestBody>) {
        if !self.http2 {
            let host = self.authority.clone();
            request.headers_mut().insert(header::HOST, host);
            return;
        }
        let scheme = match self.tls {
            Some(_) => Scheme::HTTPS,
            None => Scheme::HTTP,
        };
        let path = request.uri().path_and_query().cloned();
        let url = Uri::builder()
            .scheme(scheme)
            .authority(self.authority.as_bytes())
            .path_and_query(path.map_or("/".to_owned(), |path| path.to_string()));
        if let Ok(url) = url.build() {
            *request.uri_mut() = url;
        }
    }

    /// Returns a connection with room for a call, and whether it was already open.
    async fn sender(&self) -> Result<(Sender, bool), Failure> {
        if self.http2 {
            let mut shared = self.shared.lock().await;
            shared.retain(|connection| !connection.sender.is_closed());
            let open = shared
                .iter()
                .find(|connection| Arc::strong_count(&connection.streams) <= MAX_STREAMS);
            if let Some(connection) = open {
                return Ok((Sender::Http2(connection.clone()), true));
            }
            let sender = self.connect().await?;
            if let Sender::Http2(connection) = &sender {
                shared.push(connection.clone());
            }
            return Ok((sender, false));
        }
        let idle = self.idle.lock().pop();
        match idle {
            Some(sender) => Ok((Sender::Http1(sender), true)),
            None => Ok((self.connect().await?, false)),
        }
    }

    async fn connect(&self) -> Result<Sender, Failure> {
        let addresses: Vec<_> = tokio::net::lookup_host((self.host.as_str(), self.port))
            .await
            .map_err(|error| Failure::new(FailureKind::Dns, &error))?
            .collect();
        if addresses.is_empty() {
            let error = io::Error::other("the host name has no address");
            return Err(Failure::new(FailureKind::Dns, &error));
        }
        let tcp = TcpStream::connect(&addresses[..])
            .await
            .map_err(|error| Failure::new(FailureKind::Connect, &error))?;
        let _ = tcp.set_nodelay(true);
        match &self.tls {
            None => handshake(tcp, self.http2).await,
            Some(tls) => {
                let stream = tls.connect(tcp, &self.host).await;
                let stream = stream.map_err(|error| Failure::new(FailureKind::Tls, &error))?;
                handshake(stream, self.http2).await
            }
        }
    }
}

/// Starts HTTP on a connection. The connection ends when its senders are dropped and its responses have ended.
async fn handshake<S>(stream: S, http2: bool) -> Result<Sender, Failure>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let stream = TokioIo::new(stream);
    if http2 {
        let connecting = http2::handshake(TokioExecutor::new(), stream).await;
        let (sender, connection) = connecting.map_err(|error| Failure::exchange(&error))?;
        tokio::spawn(async move { drop(connection.await) });
        let streams = Arc::default();
        return Ok(Sender::Http2(Shared { sender, streams }));
    }
    let connecting = http1::handshake(stream).await;
    let (sender, connection) = connecting.map_err(|error| Failure::exchange(&error))?;
    tokio::spawn(async move { drop(connection.await) });
    Ok(Sender::Http1(sender))
}

impl Failure {
    fn new(kind: FailureKind, error: &io::Error) -> Failure {
        Failure {
            kind,
            reason: error.to_string(),
        }
    }

    fn exchange(error: &hyper::Error) -> Failure {
        let kind = if error.is_parse() {
            FailureKind::Protocol
        } else {
            FailureKind::Reset
        };
        Failure {
            kind,
            reason: error.to_string(),
        }
    }
}

/// The use of a connection during a response. After a complete response, an HTTP/1.1 connection becomes idle again, and
/// an HTTP/2 stream ends.
#[derive(Debug)]
pub struct Lease<'a> {
    pool: &'a Pool,
    sender: Option<Sender>,
}

impl Lease<'_> {
    pub fn give_back(mut self) {
        if let Some(Sender::Http1(sender)) = self.sender.take()
            && !sender.is_closed()
        {
            self.pool.idle.lock().push(sender);
        }
    }
}

/// A request body that reports to its observer when the connection has taken it.
pub struct RequestBody {
    bytes: Option<Bytes>,
    length: u64,
    call: Arc<dyn ObservedCall>,
}

impl RequestBody {
    pub fn new(bytes: Bytes, call: Arc<dyn ObservedCall>) -> RequestBody {
        RequestBody {
            length: bytes.len() as u64,
            bytes: Some(bytes),
            call,
        }
    }
}

impl http_body::Body for RequestBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, Infallible>>> {
        let Some(bytes) = self.bytes.take() else {
            return Poll::Ready(None);
        };
        self.call.request_chunk(&bytes);
        self.call.sent(now());
        Poll::Ready(Some(Ok(http_body::Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.bytes.is_none()
    }

    fn size_hint(&self) -> http_body::SizeHint {
        http_body::SizeHint::with_exact(self.length)
    }
}
