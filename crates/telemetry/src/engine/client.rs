//! Fetches an engine's metrics: one small request on a connection of its own, bounded
//! in time and in size. Nothing of it touches traffic.

use super::Scrape;
use bytes::Bytes;
use http::header::{ACCEPT, CONNECTION, HOST};
use http::uri::Scheme;
use http::{Request, StatusCode};
use http_body::Body;
use http_body_util::{BodyExt, Empty, LengthLimitError, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use std::time::Duration;
use tokengauge_net::endpoint::Protocol;
use tokengauge_net::tls::{Connector, Invalid};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// Bytes of an answer; engines need a tenth of it.
const MAX_BYTES: usize = 4 << 20;
/// How long it may take, where the interval is longer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Why metrics could not be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    /// No connection.
    #[error(
        "cannot be reached: {0}; is the upstream running, and does `metrics_url` name its port?"
    )]
    Unreachable(String),
    /// Too slow.
    #[error("took longer than {0:?}")]
    Timeout(Duration),
    /// Something other than 200.
    #[error(
        "answered {0}; does `metrics_url` name the path of its metrics, and are they switched on?"
    )]
    Status(StatusCode),
    /// Too long.
    #[error("sent more than {MAX_BYTES} bytes; are these an engine's metrics?")]
    TooLarge,
    /// Not HTTP, not whole or not text.
    #[error("sent what cannot be read: {0}")]
    Unreadable(String),
}

impl Failure {
    /// All words for reasons.
    pub(super) const WORDS: [&'static str; 5] = [
        "unreachable",
        "timeout",
        "status",
        "too_large",
        "unreadable",
    ];

    /// The word for it in labels.
    pub(super) fn word(&self) -> &'static str {
        let [unreachable, timeout, status, too_large, unreadable] = Self::WORDS;
        match self {
            Failure::Unreachable(_) => unreachable,
            Failure::Timeout(_) => timeout,
            Failure::Status(_) => status,
            Failure::TooLarge => too_large,
            Failure::Unreadable(_) => unreadable,
        }
    }
}

/// Where an engine's metrics are.
pub(super) struct Client {
    scrape: Scrape,
    patience: Duration,
    tls: Option<Connector>,
}

impl Client {
    /// Reads the files that TLS needs.
    pub(super) fn new(scrape: Scrape) -> Result<Client, Invalid> {
        let secure = scrape.endpoint.scheme == Scheme::HTTPS;
        let tls = secure.then(|| Connector::new(&scrape.tls, Protocol::Http1));
        Ok(Client {
            patience: PATIENCE.min(scrape.interval.max(Duration::from_secs(1))),
            tls: tls.transpose()?,
            scrape,
        })
    }

    /// The metrics as text.
    pub(super) async fn fetch(&self) -> Result<String, Failure> {
        match timeout(self.patience, self.fetch_slowly()).await {
            Ok(result) => result,
            Err(_) => Err(Failure::Timeout(self.patience)),
        }
    }

    async fn fetch_slowly(&self) -> Result<String, Failure> {
        let authority = &self.scrape.endpoint.authority;
        let host = authority.host().trim_matches(['[', ']']);
        let default = if self.tls.is_some() { 443 } else { 80 };
        let port = authority.port_u16().unwrap_or(default);
        let unreachable = |error: std::io::Error| Failure::Unreachable(error.to_string());
        let tcp = TcpStream::connect((host, port))
            .await
            .map_err(unreachable)?;
        match &self.tls {
            None => self.ask(tcp).await,
            Some(tls) => {
                let stream = tls.connect(tcp, host).await.map_err(unreachable)?;
                self.ask(stream).await
            }
        }
    }

    async fn ask<I>(&self, io: I) -> Result<String, Failure>
    where
        I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let unreadable = |error: hyper::Error| Failure::Unreadable(error.to_string());
        let endpoint = &self.scrape.endpoint;
        let request = Request::get(endpoint.base_path.as_str())
            .header(HOST, endpoint.authority.as_str())
            .header(ACCEPT, "text/plain;version=0.0.4")
            .header(CONNECTION, "close")
            .body(Empty::<Bytes>::new())
            .map_err(|error| Failure::Unreadable(error.to_string()))?;
        let (mut send, connection) = http1::handshake(TokioIo::new(io))
            .await
            .map_err(unreadable)?;
        // Ends with this function, whatever comes.
        let mut driver = JoinSet::new();
        driver.spawn(connection);
        let response = send.send_request(request).await.map_err(unreadable)?;
        if response.status() != StatusCode::OK {
            return Err(Failure::Status(response.status()));
        }
        if response.body().size_hint().lower() > MAX_BYTES as u64 {
            return Err(Failure::TooLarge);
        }
        let body = Limited::new(response.into_body(), MAX_BYTES);
        let bytes = body.collect().await.map_err(|error| {
            if error.is::<LengthLimitError>() {
                Failure::TooLarge
            } else {
                Failure::Unreadable(error.to_string())
            }
        })?;
        String::from_utf8(bytes.to_bytes().into())
            .map_err(|_| Failure::Unreadable("not UTF-8".to_owned()))
    }
}
