//! Scrapes an engine's metrics: one request on a new connection, bounded in time and size,
//! independent of traffic.

use super::Scrape;
use bytes::Bytes;
use http::header::{ACCEPT, CONNECTION};
use http::{HeaderValue, Request, StatusCode};
use std::time::Duration;
use tokengauge_net::client::{self, NoClient};
use tokengauge_net::endpoint::Protocol;
use tokio::time::timeout;

/// Maximum size of a response in bytes; engines need a tenth of it.
const MAX_BYTES: usize = 4 << 20;
/// Timeout of a scrape, if the interval is longer.
const TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    #[error(
        "cannot be reached: {0}; check that the upstream is running and that `metrics_url` has its \
         port"
    )]
    Unreachable(String),
    #[error("took longer than {0:?}")]
    Timeout(Duration),
    /// A status other than 200.
    #[error(
        "answered {0}; check that `metrics_url` has the path of the metrics and that the engine's \
         metrics are enabled"
    )]
    Status(StatusCode),
    #[error("sent more than {MAX_BYTES} bytes; are these an engine's metrics?")]
    TooLarge,
    /// Not HTTP, incomplete, or not text.
    #[error("sent a response that cannot be parsed: {0}")]
    Unreadable(String),
}

impl Failure {
    pub(super) const WORDS: [&'static str; 5] = [
        "unreachable",
        "timeout",
        "status",
        "too_large",
        "unreadable",
    ];

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

pub(super) struct Client {
    client: client::Client,
    request: Request<Bytes>,
    timeout: Duration,
}

impl Client {
    pub(super) fn new(scrape: &Scrape) -> Result<Client, NoClient> {
        let url = scrape.endpoint.url();
        let client = client::Client::new(&url, &scrape.tls, Protocol::Http1)?;
        let mut request = Request::new(Bytes::new());
        *request.uri_mut() = url;
        let headers = request.headers_mut();
        let accept = HeaderValue::from_static("text/plain;version=0.0.4");
        headers.insert(ACCEPT, accept);
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
        Ok(Client {
            client: client.max_body(MAX_BYTES),
            request,
            timeout: TIMEOUT.min(scrape.interval.max(Duration::from_secs(1))),
        })
    }

    pub(super) async fn fetch(&self) -> Result<String, Failure> {
        let response = timeout(self.timeout, self.client.send(&self.request)).await;
        let response = response.map_err(|_| Failure::Timeout(self.timeout))??;
        if response.status != StatusCode::OK {
            return Err(Failure::Status(response.status));
        }
        String::from_utf8(response.body.into())
            .map_err(|_| Failure::Unreadable("not UTF-8".to_owned()))
    }
}

impl From<client::Failure> for Failure {
    fn from(failure: client::Failure) -> Failure {
        match failure {
            client::Failure::Connect(error) => Failure::Unreachable(error.to_string()),
            client::Failure::Exchange(error) => Failure::Unreadable(error.to_string()),
            client::Failure::TooLarge(_) => Failure::TooLarge,
        }
    }
}
