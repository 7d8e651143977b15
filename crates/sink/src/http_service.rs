//! The HTTP client that `object_store` uses for S3, with tokengauge's TLS settings. Each request
//! opens a connection, because files are few.

use async_trait::async_trait;
use bytes::Bytes;
use http::Response;
use http_body_util::{BodyExt, Full};
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse,
    HttpResponseBody, HttpService,
};
use std::time::Duration;
use tokengauge_net::client::{Client, Failure};
use tokengauge_net::endpoint::Protocol;
use tokengauge_net::tls::ClientTls;

#[derive(Clone, Debug)]
pub(crate) struct Connector {
    pub(crate) tls: ClientTls,
    pub(crate) timeout: Duration,
}

impl HttpConnector for Connector {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(self.clone()))
    }
}

#[async_trait]
impl HttpService for Connector {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let (head, body) = request.into_parts();
        let body = body.collect().await?.to_bytes();
        let request = http::Request::from_parts(head, body);
        let client = Client::new(request.uri(), &self.tls, Protocol::Http1)
            .map_err(|error| HttpError::new(HttpErrorKind::Unknown, error))?;
        let received = tokio::time::timeout(self.timeout, client.send(&request)).await;
        let received =
            received.map_err(|elapsed| HttpError::new(HttpErrorKind::Timeout, elapsed))?;
        let received = received.map_err(|failure| {
            let kind = match failure {
                Failure::Connect(_) => HttpErrorKind::Connect,
                Failure::Exchange(_) => HttpErrorKind::Interrupted,
                Failure::TooLarge(_) => HttpErrorKind::Decode,
            };
            HttpError::new(kind, failure)
        })?;
        let mut response = Response::new(whole(received.body));
        *response.status_mut() = received.status;
        *response.headers_mut() = received.headers;
        Ok(response)
    }
}

fn whole(body: Bytes) -> HttpResponseBody {
    HttpResponseBody::new(Full::new(body).map_err(|never| match never {}))
}
