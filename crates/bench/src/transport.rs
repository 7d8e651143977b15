//! Connections to the backend: one for each call under way, used again when it is over.

use bytes::Bytes;
use http::uri::Scheme;
use http::{HeaderValue, Request, Response, Uri, header};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;
use tokengauge_core::observer::{FailureKind, ObservedCall};
use tokengauge_net::endpoint::Protocol;
use tokengauge_net::tls::{ClientTls, Connector};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use crate::error::Error;

/// Why a request has no response.
#[derive(Debug, thiserror::Error)]
#[error("{reason}")]
pub struct Failure {
    /// What failed.
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
    idle: Mutex<Vec<SendRequest<RequestBody>>>,
}

impl Pool {
    /// Connections to the address of `url`.
    ///
    /// # Errors
    /// Where the URL names no host or is neither `http` nor `https`, or a file that TLS needs cannot be used.
    pub fn new(url: &Uri, tls: &ClientTls) -> Result<Pool, Error> {
        let invalid = |reason: String| Error::Url {
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
        let connector = secure
            .then(|| Connector::new(tls, Protocol::Http1))
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
            idle: Mutex::default(),
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
        request
            .headers_mut()
            .insert(header::HOST, self.authority.clone());
        loop {
            let idle = self.idle.lock().pop();
            let reused = idle.is_some();
            let mut sender = match idle {
                Some(sender) => sender,
                None => self.connect().await?,
            };
            if sender.ready().await.is_err() && reused {
                continue;
            }
            request.body().call.connected(Instant::now(), reused);
            match sender.try_send_request(request).await {
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

    async fn connect(&self) -> Result<SendRequest<RequestBody>, Failure> {
        let mut addresses = tokio::net::lookup_host((self.host.as_str(), self.port))
            .await
            .map_err(|error| Failure::new(FailureKind::Dns, &error))?
            .peekable();
        if addresses.peek().is_none() {
            let error = io::Error::other("the name has no address");
            return Err(Failure::new(FailureKind::Dns, &error));
        }
        let addresses: Vec<_> = addresses.collect();
        let tcp = TcpStream::connect(&addresses[..])
            .await
            .map_err(|error| Failure::new(FailureKind::Connect, &error))?;
        let _ = tcp.set_nodelay(true);
        match &self.tls {
            None => handshake(tcp).await,
            Some(tls) => {
                let stream = tls.connect(tcp, &self.host).await;
                handshake(stream.map_err(|error| Failure::new(FailureKind::Tls, &error))?).await
            }
        }
    }
}

async fn handshake<S>(stream: S) -> Result<SendRequest<RequestBody>, Failure>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let connecting = http1::handshake(TokioIo::new(stream)).await;
    let (sender, connection) = connecting.map_err(|error| Failure::exchange(&error))?;
    // It ends when its sender is dropped and the response is over.
    tokio::spawn(async move { drop(connection.await) });
    Ok(sender)
}

impl Failure {
    fn new(kind: FailureKind, error: &io::Error) -> Failure {
        Failure {
            kind,
            reason: error.to_string(),
        }
    }

    fn exchange(error: &hyper::Error) -> Failure {
        let kind = match error.is_parse() {
            true => FailureKind::Protocol,
            false => FailureKind::Reset,
        };
        Failure {
            kind,
            reason: error.to_string(),
        }
    }
}

/// A connection while its response comes; it is idle again once the response was whole.
#[derive(Debug)]
pub struct Lease<'a> {
    pool: &'a Pool,
    sender: Option<SendRequest<RequestBody>>,
}

impl Lease<'_> {
    /// The response came whole, so that the connection can be used again.
    pub fn give_back(mut self) {
        if let Some(sender) = self.sender.take().filter(|sender| !sender.is_closed()) {
            self.pool.idle.lock().push(sender);
        }
    }
}

/// A request's body, which tells its observer when it was handed to the connection.
pub struct RequestBody {
    bytes: Option<Bytes>,
    length: u64,
    /// Who observes the call.
    call: Arc<dyn ObservedCall>,
}

impl RequestBody {
    /// The body of a call.
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
        self.call.request_frame(&bytes);
        self.call.sent(Instant::now());
        Poll::Ready(Some(Ok(http_body::Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.bytes.is_none()
    }

    fn size_hint(&self) -> http_body::SizeHint {
        http_body::SizeHint::with_exact(self.length)
    }
}
