//! Posts messages to one receiver over a persistent connection, with HTTP or gRPC. The SDK's
//! threads have no runtime, so the work is done on our runtime and they wait for it.

use super::ExporterContext;
use super::grpc;
use super::losses::{Failure, Losses, Reason};
use super::retry::{self, Again, Attempt, Backoff};
use super::settings::{Destination, Transport};
use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, USER_AGENT};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use opentelemetry_http::{HttpClient, HttpError};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceResponse;
use prost::Message;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use tokengauge_net::client::{self, ClientResponse, NoClient};
use tokengauge_net::endpoint::Protocol;
use tokio::runtime::Handle;
use tokio::sync::watch;

/// Maximum number of bytes that are read of a response.
const MAX_BODY: usize = 1 << 20;

/// How long a message is retried after its first failure, in timeouts: one minute with the default
/// timeout of ten seconds.
const RETRY_FOR: u32 = 6;

#[derive(Clone, Debug)]
pub struct Client {
    to: Arc<Receiver>,
    runtime: Handle,
}

#[derive(Debug)]
struct Receiver {
    destination: Destination,
    client: client::Client,
    losses: Arc<Losses>,
    closing: watch::Sender<bool>,
}

/// A message could not be delivered. The losses contain the reason.
#[derive(Debug, thiserror::Error)]
#[error("the message was not delivered")]
pub(super) struct Undelivered;

impl Client {
    /// A client, not connected yet.
    ///
    /// # Errors
    /// Returns an error if a TLS file cannot be read.
    pub fn new(
        destination: Destination,
        losses: Arc<Losses>,
        around: &ExporterContext,
    ) -> Result<Client, NoClient> {
        let protocol = match destination.transport {
            Transport::Grpc => Protocol::Http2,
            Transport::Http => Protocol::Auto,
        };
        let client = client::Client::new(&destination.url, &destination.tls, protocol)?;
        let receiver = Receiver {
            client: client.max_body(MAX_BODY).keep_alive(),
            destination,
            losses,
            closing: watch::Sender::new(false),
        };
        Ok(Client {
            to: Arc::new(receiver),
            runtime: around.runtime.clone(),
        })
    }

    pub(super) fn settings(&self) -> Destination {
        self.to.destination.clone()
    }

    /// Posts a message with retries, and returns the body of the response. Every failure is counted
    /// in the losses.
    pub(super) async fn post(&self, message: Bytes, gzip: bool) -> Result<Bytes, Undelivered> {
        let to = Arc::clone(&self.to);
        let task = self
            .runtime
            .spawn(async move { to.deliver(message, gzip).await });
        task.await.unwrap_or(Err(Undelivered))
    }

    /// Disables retries: each message is posted once, and messages in backoff are tried at once for
    /// the last time.
    pub(super) fn close(&self) {
        self.to.closing.send_replace(true);
    }

    pub(super) async fn closed(&self) {
        let mut closing = self.to.closing.subscribe();
        // The sender is a field of `self`, so it is not dropped first.
        let _ = closing.wait_for(|closing| *closing).await;
    }
}

#[async_trait::async_trait]
impl HttpClient for Client {
    /// Takes only the body and the compression from the exporter's request. The client sets
    /// address, headers and framing.
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let gzip = request.headers().contains_key(CONTENT_ENCODING);
        let response = self.post(request.into_body(), gzip).await?;
        Ok(Response::new(response))
    }
}

impl Receiver {
    async fn deliver(&self, message: Bytes, gzip: bool) -> Result<Bytes, Undelivered> {
        let mut closing = self.closing.subscribe();
        let mut backoff = Backoff::new(self.destination.timeout.saturating_mul(RETRY_FOR));
        loop {
            let last = *closing.borrow();
            let Attempt { failure, again } = match self.post(&message, gzip).await {
                Ok(response) => {
                    self.losses.arrived();
                    return Ok(response);
                }
                Err(attempt) => attempt,
            };
            let wait = backoff.wait(again, Instant::now()).filter(|_| !last);
            self.losses.failed(failure);
            let wait = wait.ok_or(Undelivered)?;
            let _ = tokio::time::timeout(wait, closing.wait_for(|closing| *closing)).await;
        }
    }

    async fn post(&self, message: &Bytes, gzip: bool) -> Result<Bytes, Attempt> {
        let timeout = self.destination.timeout;
        let response = tokio::time::timeout(timeout, self.exchange(message, gzip)).await;
        let response = response.unwrap_or_else(|_| {
            Err(Failure {
                reason: Reason::Timeout,
                message: format!("the receiver did not answer within {timeout:?}"),
            })
        });
        let response = response.map_err(|failure| Attempt {
            failure,
            again: Again::After(Duration::ZERO),
        })?;
        let body = match self.destination.transport {
            Transport::Grpc => grpc::judge(&response)?,
            Transport::Http => judge(response)?,
        };
        self.count_rejected(&body);
        Ok(body)
    }

    /// The responses for all signals encode rejections in a compatible way.
    fn count_rejected(&self, body: &Bytes) {
        let response = ExportTraceServiceResponse::decode(body.clone());
        let partial = response.ok().and_then(|response| response.partial_success);
        let rejected = partial.map_or(0, |partial| partial.rejected_spans);
        if let Ok(items @ 1..) = usize::try_from(rejected) {
            let message = "the receiver accepted only a part of the message";
            let failure = Failure {
                reason: Reason::Rejected,
                message: message.to_owned(),
            };
            self.losses.lost(failure, items);
        }
    }

    async fn exchange(&self, message: &Bytes, gzip: bool) -> Result<ClientResponse, Failure> {
        let response = self.client.send(&self.request(message, gzip)).await;
        response.map_err(|failure| {
            let message = match failure {
                client::Failure::Connect(error) => {
                    format!("no connection to {}: {error}", self.client.address())
                }
                other => format!("the connection to the receiver was lost: {other}"),
            };
            Failure {
                reason: Reason::Connect,
                message,
            }
        })
    }

    fn request(&self, message: &Bytes, gzip: bool) -> Request<Bytes> {
        let mut request = Request::new(match self.destination.transport {
            Transport::Grpc => grpc::frame(message, gzip),
            Transport::Http => message.clone(),
        });
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.destination.url.clone();
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
}

fn judge(response: ClientResponse) -> Result<Bytes, Attempt> {
    if response.status.is_success() {
        return Ok(response.body);
    }
    let reason = match response.status {
        StatusCode::TOO_MANY_REQUESTS => Reason::Throttled,
        status if status.is_server_error() => Reason::Unavailable,
        _ => Reason::Refused,
    };
    Err(Attempt {
        failure: Failure {
            reason,
            message: format!("the receiver answered {}", response.status),
        },
        again: retry::of_status(response.status, &response.headers, SystemTime::now()),
    })
}
