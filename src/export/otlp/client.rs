//! Posts messages to one receiver, as HTTP or as gRPC, over a connection that is kept.
//! The SDK's threads have no runtime of their own, so the work is done on ours and they
//! wait for it.

use super::grpc;
use super::losses::{Failure, Losses, Reason};
use super::settings::{Destination, Transport};
use crate::config::Protocol;
use crate::proxy::tls::{Connector, Invalid};
use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, HOST, RETRY_AFTER, USER_AGENT};
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use opentelemetry_http::{HttpClient, HttpError};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceResponse;
use prost::Message;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::sync::Mutex;

/// Bytes read of an answer.
const MAX_ANSWER: usize = 1 << 20;

/// A client for one signal.
#[derive(Clone, Debug)]
pub struct Client {
    to: Arc<Receiver>,
    runtime: Handle,
}

#[derive(Debug)]
struct Receiver {
    destination: Destination,
    tls: Option<Connector>,
    connection: Mutex<Option<Connection>>,
    losses: Arc<Losses>,
}

#[derive(Debug)]
enum Connection {
    Http1(http1::SendRequest<Full<Bytes>>),
    Http2(http2::SendRequest<Full<Bytes>>),
}

/// What the exporters need to know of a message that was not taken: whether to try again.
#[derive(Debug)]
pub(super) struct Refusal {
    status: StatusCode,
    wait: Option<HeaderValue>,
}

impl From<StatusCode> for Refusal {
    fn from(status: StatusCode) -> Refusal {
        Refusal { status, wait: None }
    }
}

impl From<Refusal> for Response<Bytes> {
    fn from(refusal: Refusal) -> Response<Bytes> {
        let mut response = Response::new(Bytes::new());
        *response.status_mut() = refusal.status;
        if let Some(wait) = refusal.wait {
            response.headers_mut().insert(RETRY_AFTER, wait);
        }
        response
    }
}

/// An answer, whole.
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) head: http::HeaderMap,
    pub(super) trailers: http::HeaderMap,
    pub(super) body: Bytes,
}

impl Client {
    /// No connection yet.
    ///
    /// # Errors
    /// When a file that TLS needs cannot be read.
    pub fn new(
        destination: Destination,
        losses: Arc<Losses>,
        runtime: Handle,
    ) -> Result<Client, Invalid> {
        let protocol = match destination.transport {
            Transport::Grpc => Protocol::Http2,
            Transport::Http => Protocol::Auto,
        };
        let secure = destination.url.scheme() == Some(&http::uri::Scheme::HTTPS);
        let tls = secure.then(|| Connector::new(&destination.tls, protocol));
        let receiver = Receiver {
            tls: tls.transpose()?,
            destination,
            connection: Mutex::default(),
            losses,
        };
        Ok(Client {
            to: Arc::new(receiver),
            runtime,
        })
    }

    /// Where it posts to.
    pub(super) fn settings(&self) -> Destination {
        self.to.destination.clone()
    }

    /// Posts one message, which may be compressed; gives the body of the answer. Every
    /// failure is told to the losses.
    pub(super) async fn post(&self, message: Bytes, gzip: bool) -> Result<Bytes, Refusal> {
        let to = Arc::clone(&self.to);
        let task = self
            .runtime
            .spawn(async move { to.post(message, gzip).await });
        let answer = task.await;
        answer.unwrap_or_else(|_| Err(StatusCode::SERVICE_UNAVAILABLE.into()))
    }
}

#[async_trait::async_trait]
impl HttpClient for Client {
    /// Takes the exporter's request apart: address, headers and frame are this client's.
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let gzip = request.headers().contains_key(CONTENT_ENCODING);
        let answer = self.post(request.into_body(), gzip).await;
        Ok(answer.map_or_else(Into::into, Response::new))
    }
}

impl Receiver {
    async fn post(&self, message: Bytes, gzip: bool) -> Result<Bytes, Refusal> {
        let timeout = self.destination.timeout;
        let answer = tokio::time::timeout(timeout, self.exchange(&message, gzip)).await;
        let answer = answer.unwrap_or_else(|_| {
            Err(Failure {
                reason: Reason::Timeout,
                message: format!("the receiver did not answer within {timeout:?}"),
            })
        });
        let judged = match answer {
            Ok(answer) => self.judge(answer),
            // As if the receiver had said so: what is asked again is what is busy.
            Err(failure) => Err((failure, StatusCode::SERVICE_UNAVAILABLE.into())),
        };
        judged.map_err(|(failure, refusal)| {
            self.losses.failed(failure);
            refusal
        })
    }

    fn judge(&self, answer: Answer) -> Result<Bytes, (Failure, Refusal)> {
        let (status, message, body) = match self.destination.transport {
            Transport::Grpc => grpc::judge(&answer),
            Transport::Http => {
                let message = format!("the receiver answered {}", answer.status);
                (answer.status, message, answer.body)
            }
        };
        if status.is_success() {
            self.count_rejected(&body);
            return Ok(body);
        }
        let reason = match status.as_u16() {
            429 => Reason::Throttled,
            500.. => Reason::Unavailable,
            _ => Reason::Refused,
        };
        let wait = answer.head.get(RETRY_AFTER).cloned();
        let refusal = Refusal { status, wait };
        Err((Failure { reason, message }, refusal))
    }

    /// The answers to all signals are alike in what they say of rejections.
    fn count_rejected(&self, body: &Bytes) {
        let answer = ExportTraceServiceResponse::decode(body.clone());
        let partial = answer.ok().and_then(|answer| answer.partial_success);
        let rejected = partial.map_or(0, |partial| partial.rejected_spans);
        if let Ok(items @ 1..) = usize::try_from(rejected) {
            let message = "the receiver took the message and left out some of it";
            self.losses.lost(Reason::Rejected, items, message);
        }
    }

    /// One exchange; over a new connection where the kept one turns out to be gone.
    async fn exchange(&self, message: &Bytes, gzip: bool) -> Result<Answer, Failure> {
        let mut kept = self.connection.lock().await;
        if let Some(mut connection) = kept.take()
            && let Ok(answer) = connection.send(self.request(message, gzip)).await
        {
            *kept = Some(connection);
            return Ok(answer);
        }
        let mut connection = self.connect().await?;
        let answer = connection.send(self.request(message, gzip)).await;
        let answer = answer.map_err(|error| Failure {
            reason: Reason::Connect,
            message: format!("the connection to the receiver was lost: {error}"),
        })?;
        *kept = Some(connection);
        Ok(answer)
    }

    fn request(&self, message: &Bytes, gzip: bool) -> Request<Full<Bytes>> {
        let body = match self.destination.transport {
            Transport::Grpc => grpc::frame(message, gzip),
            Transport::Http => message.clone(),
        };
        let mut request = Request::post(self.destination.url.clone())
            .body(Full::new(body))
            .expect("a URL is a target");
        let headers = request.headers_mut();
        for (name, value) in &self.destination.headers {
            headers.insert(name, value.clone());
        }
        let agent = concat!("tokengauge/", env!("CARGO_PKG_VERSION"));
        headers.insert(USER_AGENT, HeaderValue::from_static(agent));
        match self.destination.transport {
            Transport::Grpc => grpc::headers(headers, gzip, self.destination.timeout),
            Transport::Http => {
                let kind = HeaderValue::from_static("application/x-protobuf");
                headers.insert(CONTENT_TYPE, kind);
                if gzip {
                    headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
                }
            }
        }
        request
    }

    async fn connect(&self) -> Result<Connection, Failure> {
        let url = &self.destination.url;
        let host = url.host().unwrap_or_default();
        let default = if self.tls.is_some() { 443 } else { 80 };
        let port = url.port_u16().unwrap_or(default);
        let unreachable = |error: &dyn std::fmt::Display| Failure {
            reason: Reason::Connect,
            message: format!("no connection to {host}:{port}: {error}"),
        };
        let address = (host.trim_matches(['[', ']']), port);
        let tcp = TcpStream::connect(address).await;
        let tcp = tcp.map_err(|error| unreachable(&error))?;
        let _ = tcp.set_nodelay(true);
        let grpc = self.destination.transport == Transport::Grpc;
        let connected = match &self.tls {
            None => handshake(tcp, grpc).await,
            Some(tls) => {
                let stream = tls.connect(tcp, host).await;
                let stream = stream.map_err(|error| unreachable(&error))?;
                let http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
                handshake(stream, grpc || http2).await
            }
        };
        connected.map_err(|error| unreachable(&error))
    }
}

/// Starts a connection, which ends when nobody sends on it any more.
async fn handshake<S>(stream: S, http2: bool) -> hyper::Result<Connection>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let io = TokioIo::new(stream);
    if http2 {
        let (send, connection) = http2::handshake(TokioExecutor::new(), io).await?;
        tokio::spawn(connection);
        return Ok(Connection::Http2(send));
    }
    let (send, connection) = http1::handshake(io).await?;
    tokio::spawn(connection);
    Ok(Connection::Http1(send))
}

impl Connection {
    async fn send(&mut self, mut request: Request<Full<Bytes>>) -> Result<Answer, HttpError> {
        let response = match self {
            Connection::Http2(send) => {
                send.ready().await?;
                send.send_request(request).await?
            }
            Connection::Http1(send) => {
                address(&mut request)?;
                send.ready().await?;
                send.send_request(request).await?
            }
        };
        whole(response).await
    }
}

/// HTTP/1 has the path in the target and the address in `host`.
fn address(request: &mut Request<Full<Bytes>>) -> Result<(), HttpError> {
    let authority = request.uri().authority().map(|one| one.as_str().to_owned());
    let host = HeaderValue::from_str(&authority.unwrap_or_default())?;
    request.headers_mut().insert(HOST, host);
    *request.uri_mut() = request.uri().path().parse()?;
    Ok(())
}

async fn whole(response: Response<Incoming>) -> Result<Answer, HttpError> {
    let (parts, body) = response.into_parts();
    let collected = Limited::new(body, MAX_ANSWER).collect().await?;
    Ok(Answer {
        status: parts.status,
        head: parts.headers,
        trailers: collected.trailers().cloned().unwrap_or_default(),
        body: collected.to_bytes(),
    })
}
