//! Connections to the backend. With HTTP/1.1 one for each call under way, used again when it is over; with HTTP/2 calls share one,
//! up to a number of streams that every server allows.

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
    /// The reason, as the system gives it.
    pub reason: String,
}

/// Connections to one address.
#[derive(Debug)]
pub struct Pool {
    host: String,
    port: u16,
    authority: HeaderValue,
    tls: Option<Connector>,
    http2: bool,
    idle: Mutex<Vec<http1::SendRequest<RequestBody>>>,
    /// Connections of HTTP/2; held while one is made, so that calls that begin together share it.
    shared: tokio::sync::Mutex<Vec<Shared>>,
}

/// Streams of one connection at once: servers should allow no fewer (RFC 9113, 6.5.2).
const MAX_STREAMS: usize = 100;

/// A connection of HTTP/2.
#[derive(Clone, Debug)]
struct Shared {
    sender: http2::SendRequest<RequestBody>,
    /// One for the pool, and one for each stream.
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
    /// Connections to the address of `url`, of HTTP/2 (over TLS by ALPN, else by prior knowledge) or of HTTP/1.1.
    ///
    /// # Errors
    /// Where the URL names no host or is neither `http` nor `https`, or a file that TLS needs cannot be used.
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
            _ => return Err(invalid("must start with http:// or https://".to_owned())),
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

    /// Host and port.
    pub fn address(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    /// Sends a request, whose URI is a path, and returns the head of the response. An idle connection that turns out to be
    /// closed before the request was written is replaced by a new one.
    ///
    /// # Errors
    /// Where there is no response head.
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

    /// Says where the request goes: in a header, or in HTTP/2 in the URI.
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

    /// A connection with room for a call, and whether there was one.
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
            let error = io::Error::other("the name has no address");
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

/// Begins HTTP on a connection. The connection ends when its senders are dropped and responses are over.
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

/// A connection while its response comes. One of HTTP/1.1 is idle again once the response was whole; of HTTP/2 a stream is over.
#[derive(Debug)]
pub struct Lease<'a> {
    pool: &'a Pool,
    sender: Option<Sender>,
}

impl Lease<'_> {
    /// The response came whole, so that the connection can be used again.
    pub fn give_back(mut self) {
        if let Some(Sender::Http1(sender)) = self.sender.take()
            && !sender.is_closed()
        {
            self.pool.idle.lock().push(sender);
        }
    }
}

/// A request's body, which tells its observer when it was handed to the connection.
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
