//! HTTP client for everything except proxied calls: alert receivers, OTLP collectors, metrics of engines, and the API
//! of a running proxy.

use crate::endpoint::Protocol;
use crate::tls::{ClientTls, Connector, Invalid};
use bytes::Bytes;
use http::uri::Scheme;
use http::{HeaderMap, Request, Response, StatusCode, Uri, header};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::{Body, Incoming};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio::task::JoinSet;

/// Default limit on a response body, in bytes.
const MAX_BODY: usize = 32 << 20;
/// How long a connection that accepts no further requests may take to end.
const ENDS_WITHIN: Duration = Duration::from_secs(1);

#[derive(Clone, Debug)]
pub struct ClientResponse {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
    pub trailers: HeaderMap,
}

impl ClientResponse {
    /// The value of `retry-after` if it is a number of seconds.
    pub fn retry_after(&self) -> Option<Duration> {
        let value = self.headers.get(header::RETRY_AFTER)?.to_str().ok()?;
        value.parse().ok().map(Duration::from_secs)
    }
}

#[derive(Debug, thiserror::Error)]
pub enum NoClient {
    #[error("the URL has no host")]
    NoHost,
    #[error("the URL must start with http:// or https://")]
    Scheme,
    #[error(transparent)]
    Tls(#[from] Invalid),
}

#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The connection or its TLS handshake failed.
    #[error("{0}")]
    Connect(io::Error),
    /// The connection was lost, or the response is not valid HTTP.
    #[error("{}", with_causes(.0))]
    Exchange(#[from] hyper::Error),
    /// The response body exceeds the limit, in bytes.
    #[error("sent more than {0} bytes")]
    TooLarge(usize),
}

/// Formats the error with its causes. For example, a server that requires a client certificate sends a TLS alert, which
/// is the cause of a `connection error`.
fn with_causes(error: &hyper::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text += &format!(": {error}");
        cause = error.source();
    }
    text
}

/// Sends requests to one server.
#[derive(Debug)]
pub struct Client {
    host: String,
    port: u16,
    authority: header::HeaderValue,
    tls: Option<Connector>,
    http2: bool,
    max_body: usize,
    /// Connects to this address instead of resolving the host name.
    at: Option<SocketAddr>,
    /// The idle keep-alive connection.
    kept: Option<Mutex<Option<Connection>>>,
}

impl Client {
    /// Creates a client for the server in `url` that opens a connection for each request. Without TLS, HTTP/2 is used
    /// only if `protocol` is HTTP/2.
    ///
    /// # Errors
    /// Returns an error if the URL has no host, its scheme is neither `http` nor `https`, or a TLS file cannot be used.
    pub fn new(url: &Uri, tls: &ClientTls, protocol: Protocol) -> Result<Client, NoClient> {
        let authority = url.authority().ok_or(NoClient::NoHost)?;
        let secure = match url.scheme() {
            Some(scheme) if *scheme == Scheme::HTTP => false,
            Some(scheme) if *scheme == Scheme::HTTPS => true,
            _ => return Err(NoClient::Scheme),
        };
        let connector = secure.then(|| Connector::new(tls, protocol)).transpose()?;
        let named = authority.as_str().rsplit('@').next().unwrap_or_default();
        Ok(Client {
            host: authority.host().to_owned(),
            port: authority
                .port_u16()
                .unwrap_or(if secure { 443 } else { 80 }),
            authority: named.parse().map_err(|_| NoClient::NoHost)?,
            tls: connector,
            http2: protocol == Protocol::Http2,
            max_body: MAX_BODY,
            at: None,
            kept: None,
        })
    }

    /// Sets the limit on a response body, in bytes.
    pub fn max_body(self, max_body: usize) -> Client {
        Client { max_body, ..self }
    }

    /// Enables keep-alive. Requests are then sent one after the other.
    pub fn keep_alive(self) -> Client {
        let kept = Some(Mutex::default());
        Client { kept, ..self }
    }

    /// Connects to this address instead of resolving the host name.
    pub fn at(self, address: SocketAddr) -> Client {
        let at = Some(address);
        Client { at, ..self }
    }

    /// Host and port, for messages.
    pub fn address(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    /// Sends a request and returns the complete response, without a timeout. The request must be idempotent: if an idle
    /// connection turns out to be closed, it is sent again over a new one.
    ///
    /// # Errors
    /// Returns an error if no complete response arrives.
    pub async fn send(&self, request: &Request<Bytes>) -> Result<ClientResponse, Failure> {
        let Some(kept) = &self.kept else {
            return self.connect().await?.send(self, request).await;
        };
        let mut kept = kept.lock().await;
        if let Some(mut connection) = kept.take()
            && let Ok(response) = connection.send(self, request).await
        {
            *kept = Some(connection);
            return Ok(response);
        }
        let mut connection = self.connect().await?;
        let response = connection.send(self, request).await?;
        *kept = Some(connection);
        Ok(response)
    }

    /// Sends a request over a separate connection and returns when the response head has arrived.
    ///
    /// # Errors
    /// Returns an error if no response head arrives.
    pub async fn stream(&self, request: &Request<Bytes>) -> Result<StreamedResponse, Failure> {
        let mut connection = self.connect().await?;
        let (head, body) = connection.begin(self, request).await?.into_parts();
        Ok(StreamedResponse {
            status: head.status,
            body,
            _connection: connection,
        })
    }

    async fn connect(&self) -> Result<Connection, Failure> {
        let tcp = match self.at {
            Some(address) => TcpStream::connect(address).await,
            None => TcpStream::connect((self.host.trim_matches(['[', ']']), self.port)).await,
        };
        let tcp = tcp.map_err(Failure::Connect)?;
        let _ = tcp.set_nodelay(true);
        let Some(tls) = &self.tls else {
            return Connection::new(tcp, self.http2).await;
        };
        let stream = tls.connect(tcp, &self.host).await;
        let stream = stream.map_err(Failure::Connect)?;
        let http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
        Connection::new(stream, self.http2 || http2).await
    }
}

/// A connection, closed on drop.
#[derive(Debug)]
struct Connection {
    sender: Sender,
    driver: JoinSet<hyper::Result<()>>,
}

#[derive(Debug)]
enum Sender {
    Http1(http1::SendRequest<Full<Bytes>>),
    Http2(http2::SendRequest<Full<Bytes>>),
}

impl Connection {
    async fn new<S>(stream: S, http2: bool) -> Result<Connection, Failure>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let io = TokioIo::new(stream);
        let mut driver = JoinSet::new();
        let sender = if http2 {
            let (sender, connection) = http2::handshake(TokioExecutor::new(), io).await?;
            driver.spawn(connection);
            Sender::Http2(sender)
        } else {
            let (sender, connection) = http1::handshake(io).await?;
            driver.spawn(connection);
            Sender::Http1(sender)
        };
        Ok(Connection { sender, driver })
    }

    async fn send(
        &mut self,
        client: &Client,
        request: &Request<Bytes>,
    ) -> Result<ClientResponse, Failure> {
        let response = self.begin(client, request).await?;
        whole(response, client.max_body).await
    }

    async fn begin(
        &mut self,
        client: &Client,
        request: &Request<Bytes>,
    ) -> Result<Response<Incoming>, Failure> {
        match self.head(client, request).await {
            Ok(response) => Ok(response),
            Err(error) => Err(Failure::Exchange(self.cause(error).await)),
        }
    }

    /// Returns why the connection was lost before the request was sent, which only the connection's task knows.
    async fn cause(&mut self, error: hyper::Error) -> hyper::Error {
        if !error.is_canceled() && !error.is_closed() {
            return error;
        }
        match tokio::time::timeout(ENDS_WITHIN, self.driver.join_next()).await {
            Ok(Some(Ok(Err(cause)))) => cause,
            _ => error,
        }
    }

    async fn head(
        &mut self,
        client: &Client,
        request: &Request<Bytes>,
    ) -> hyper::Result<Response<Incoming>> {
        let mut request = request.clone().map(Full::new);
        match &mut self.sender {
            Sender::Http2(sender) => {
                sender.ready().await?;
                sender.send_request(request).await
            }
            // In HTTP/1, the target has only the path, and the address is in `host`.
            Sender::Http1(sender) => {
                let target = request.uri().path_and_query().cloned();
                *request.uri_mut() = target.map(Uri::from).unwrap_or_default();
                let headers = request.headers_mut();
                headers.insert(header::HOST, client.authority.clone());
                sender.ready().await?;
                sender.send_request(request).await
            }
        }
    }
}

/// A response with a streamed body. Dropping it closes the connection.
#[derive(Debug)]
pub struct StreamedResponse {
    pub status: StatusCode,
    body: Incoming,
    _connection: Connection,
}

impl StreamedResponse {
    /// Returns the next bytes of the body, or `None` at its end.
    ///
    /// # Errors
    /// Returns an error if the connection is lost.
    pub async fn next(&mut self) -> Result<Option<Bytes>, Failure> {
        while let Some(frame) = self.body.frame().await {
            if let Ok(bytes) = frame?.into_data() {
                return Ok(Some(bytes));
            }
        }
        Ok(None)
    }
}

async fn whole(response: Response<Incoming>, max_body: usize) -> Result<ClientResponse, Failure> {
    let (head, body) = response.into_parts();
    if body.size_hint().lower() > max_body as u64 {
        return Err(Failure::TooLarge(max_body));
    }
    let collected = Limited::new(body, max_body).collect().await;
    let collected = collected.map_err(|error| match error.downcast::<hyper::Error>() {
        Ok(error) => Failure::Exchange(*error),
        Err(other) => {
            debug_assert!(other.is::<LengthLimitError>());
            Failure::TooLarge(max_body)
        }
    })?;
    Ok(ClientResponse {
        status: head.status,
        headers: head.headers,
        trailers: collected.trailers().cloned().unwrap_or_default(),
        body: collected.to_bytes(),
    })
}

/// Sends `request` to its absolute URL and waits at most `timeout` for the complete response.
///
/// # Errors
/// Returns an error if no complete response arrives in time. The text says why.
pub async fn fetch(request: Request<Bytes>, timeout: Duration) -> io::Result<ClientResponse> {
    fetch_with(request, timeout, &ClientTls::default()).await
}

/// [`fetch`] with TLS settings.
///
/// # Errors
/// Returns an error if no complete response arrives in time. The text says why.
pub async fn fetch_with(
    request: Request<Bytes>,
    timeout: Duration,
    tls: &ClientTls,
) -> io::Result<ClientResponse> {
    let client = Client::new(request.uri(), tls, Protocol::Http1)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
    match tokio::time::timeout(timeout, client.send(&request)).await {
        Ok(response) => response.map_err(|failure| match failure {
            Failure::Connect(error) => error,
            other => io::Error::other(other),
        }),
        Err(_) => Err(io::Error::new(
            io::ErrorKind::TimedOut,
            format!("no answer within {}", humantime::format_duration(timeout)),
        )),
    }
}
