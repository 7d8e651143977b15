//! The HTTP client for one call: it sends a request in a dialect and measures the response with the meter.

use crate::clock::now;
use crate::endpoint::{EndpointType, Prompt, RequestSettings};
use crate::error::BenchError;
use crate::transport::{Failure, Pool, RequestBody};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri, header};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use tokengauge_core::observer::{CallStart, Chunk, End, FailureKind, ObservedCall, Observer};
use tokengauge_meter::Meter;
use tokengauge_net::tls::ClientTls;

pub const AGENT: &str = "tokengauge-bench";
/// The headers that tell a tokengauge proxy the agent, session and trace of a call.
const IDENTITY: [&str; 3] = ["x-tokengauge-agent", "x-tokengauge-session", "traceparent"];

#[derive(Clone, Debug)]
pub struct ClientSettings {
    pub endpoint: EndpointType,
    pub url: Uri,
    pub request: RequestSettings,
    /// Extra headers, including API keys.
    pub headers: HeaderMap,
    pub tls: ClientTls,
    /// Whether to use HTTP/2 instead of HTTP/1.1.
    pub http2: bool,
    pub timeout: Duration,
    /// Whether each call sends a session id and a trace id to a tokengauge proxy.
    pub identify: bool,
}

#[derive(Debug)]
pub struct Client {
    settings: ClientSettings,
    pool: Pool,
    route: Arc<str>,
}

#[derive(Clone, Debug)]
pub struct Prepared {
    body: Bytes,
    session: Option<String>,
}

#[derive(Clone, Copy, Debug)]
pub struct CallName<'a> {
    /// The session of the prompt, or of the trial if the prompt has none.
    pub session: &'a str,
    /// The W3C trace id, which finds the proxy's record of the call. Must not be 0.
    pub trace: u128,
}

impl Client {
    /// Creates a client of the backend.
    ///
    /// # Errors
    /// Returns an error if the URL cannot be called or a TLS file cannot be read.
    pub fn new(settings: ClientSettings) -> Result<Client, BenchError> {
        let pool = Pool::new(&settings.url, &settings.tls, settings.http2)?;
        Ok(Client {
            settings,
            pool,
            route: "bench".into(),
        })
    }

    pub fn url(&self) -> &Uri {
        &self.settings.url
    }

    pub fn prepare(&self, prompt: Prompt) -> Prepared {
        let body = self.settings.endpoint.body(&prompt, &self.settings.request);
        Prepared {
            body: Bytes::from(body.to_string()),
            session: prompt.session,
        }
    }

    /// Calls the backend and reports the response to the meter. The call is timed from `intended`, its scheduled start.
    ///
    /// # Errors
    /// Returns the reason why there was no response, which the meter also records.
    pub async fn call(
        &self,
        meter: &Meter,
        prepared: Prepared,
        name: CallName<'_>,
        intended: Instant,
    ) -> Result<(), Failure> {
        let mut headers = self.headers(&prepared, name);
        let call = OpenCall(meter.begin(CallStart {
            received: intended,
            started_at: SystemTime::now() - (now() - intended),
            method: &Method::POST,
            uri: &self.settings.url,
            headers: &headers,
            peer: None,
            port: None,
            route: &self.route,
            upstream: &self.route,
            dialect: None,
            workload: None,
            inject_usage: false,
            variant: None,
        }));
        if !self.settings.identify {
            for name in IDENTITY {
                headers.remove(name);
            }
        }
        let exchange = self.exchange(&call, headers, prepared.body);
        match tokio::time::timeout(self.settings.timeout, exchange).await {
            Ok(done) => done,
            Err(_) => {
                let kind = FailureKind::IdleTimeout;
                call.0.ended(now(), End::Failed(kind));
                let timeout = humantime::format_duration(self.settings.timeout);
                let reason = format!("the call took longer than {timeout} (--request-timeout)");
                Err(Failure { kind, reason })
            }
        }
    }

    fn headers(&self, prepared: &Prepared, name: CallName<'_>) -> HeaderMap {
        let mut headers = self.settings.headers.clone();
        let json = HeaderValue::from_static("application/json");
        headers.entry(header::CONTENT_TYPE).or_insert(json);
        for (header, value) in self.settings.endpoint.headers() {
            headers.entry(header).or_insert(value);
        }
        let session = prepared.session.as_deref().unwrap_or(name.session);
        let span = name.trace as u64 | 1;
        let parent = format!("00-{:032x}-{span:016x}-00", name.trace);
        for (name, value) in IDENTITY.into_iter().zip([AGENT, session, &parent]) {
            if let Ok(value) = HeaderValue::from_str(value) {
                headers.insert(HeaderName::from_static(name), value);
            }
        }
        headers
    }

    async fn exchange(
        &self,
        call: &OpenCall,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<(), Failure> {
        let observed = &call.0;
        observed.endpoint(&self.pool.address());
        let mut request = Request::new(RequestBody::new(body, Arc::clone(observed)));
        *request.method_mut() = Method::POST;
        *request.headers_mut() = headers;
        let target = self.settings.url.path_and_query().cloned();
        *request.uri_mut() = target.map(Uri::from).unwrap_or_default();
        let (response, lease) = match self.pool.send(request).await {
            Ok(response) => response,
            Err(failure) => {
                observed.ended(now(), End::Failed(failure.kind));
                return Err(failure);
            }
        };
        observed.head(now(), response.status(), response.headers());
        let end = read(observed, response.into_body()).await;
        if end == End::Complete {
            lease.give_back();
        }
        observed.ended(now(), end);
        Ok(())
    }
}

async fn read(observed: &Arc<dyn ObservedCall>, mut body: Incoming) -> End {
    while let Some(frame) = body.frame().await {
        let at = now();
        match frame.map(|frame| frame.into_data()) {
            Ok(Ok(bytes)) => observed.response_chunk(Chunk::new(at, bytes)),
            Ok(Err(_)) => {} // trailers
            Err(_) => return End::UpstreamReset,
        }
    }
    End::Complete
}

/// Reports the end of a call to the meter, even if the task of the call is dropped.
struct OpenCall(Arc<dyn ObservedCall>);

impl Drop for OpenCall {
    fn drop(&mut self) {
        self.0.ended(now(), End::ClientCancelled);
    }
}
