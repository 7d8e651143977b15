//! An OTLP receiver that is healthy, slow, unavailable and closed in turn.

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use prost::Message;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReceiverMode {
    Healthy,
    /// Answers after the exporters' time limit.
    Slow,
    /// 503 with `retry-after`.
    Unavailable,
    /// Closes every accepted connection.
    Closed,
}

const MODES: [ReceiverMode; 4] = [
    ReceiverMode::Healthy,
    ReceiverMode::Slow,
    ReceiverMode::Unavailable,
    ReceiverMode::Closed,
];

#[derive(Default)]
pub struct OtlpReceiver {
    mode: AtomicU8,
    /// Requests by mode; for `Closed`, connections.
    pub requests: [AtomicU64; 4],
    pub spans: AtomicU64,
    pub logs: AtomicU64,
    pub metrics: AtomicU64,
    /// Bodies that are not the OTLP message of their path.
    pub unreadable: AtomicU64,
}

impl OtlpReceiver {
    pub async fn start() -> anyhow::Result<(Arc<OtlpReceiver>, SocketAddr)> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let receiver = Arc::new(OtlpReceiver::default());
        let accepting = Arc::clone(&receiver);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(Arc::clone(&accepting).serve(stream));
            }
        });
        Ok((receiver, address))
    }

    pub fn set_mode(&self, mode: ReceiverMode) {
        self.mode.store(mode as u8, Ordering::Relaxed);
    }

    /// Changes to the next mode after each `every`, without end.
    pub async fn cycle_modes(self: Arc<Self>, every: Duration) {
        loop {
            for mode in MODES {
                self.set_mode(mode);
                tokio::time::sleep(every).await;
            }
        }
    }

    fn mode(&self) -> ReceiverMode {
        MODES[usize::from(self.mode.load(Ordering::Relaxed))]
    }

    async fn serve(self: Arc<Self>, stream: TcpStream) {
        if self.mode() == ReceiverMode::Closed {
            self.requests[ReceiverMode::Closed as usize].fetch_add(1, Ordering::Relaxed);
            return;
        }
        let response = service_fn(|request| self.answer(request));
        // An exporter that timed out has closed the connection.
        let _ = hyper::server::conn::http1::Builder::new()
            .serve_connection(TokioIo::new(stream), response)
            .await;
    }

    async fn answer(
        &self,
        request: Request<Incoming>,
    ) -> Result<Response<Full<Bytes>>, Infallible> {
        let mode = self.mode();
        self.requests[mode as usize].fetch_add(1, Ordering::Relaxed);
        let path = request.uri().path().to_owned();
        let body = request.into_body().collect().await;
        let body = body.map(|body| body.to_bytes()).unwrap_or_default();
        let mut response = Response::new(Full::default());
        let headers = response.headers_mut();
        headers.insert(
            "content-type",
            http::HeaderValue::from_static("application/x-protobuf"),
        );
        match mode {
            ReceiverMode::Healthy => self.count(&path, body),
            ReceiverMode::Slow => tokio::time::sleep(Duration::from_millis(2500)).await,
            ReceiverMode::Unavailable | ReceiverMode::Closed => {
                headers.insert("retry-after", http::HeaderValue::from_static("1"));
                *response.status_mut() = http::StatusCode::SERVICE_UNAVAILABLE;
            }
        }
        Ok(response)
    }

    fn count(&self, path: &str, body: Bytes) {
        let (counter, items) = match path {
            "/v1/traces" => (&self.spans, spans(body)),
            "/v1/logs" => (&self.logs, logs(body)),
            _ => (&self.metrics, metrics(body)),
        };
        match items {
            Ok(items) => counter.fetch_add(items, Ordering::Relaxed),
            Err(_) => self.unreadable.fetch_add(1, Ordering::Relaxed),
        };
    }
}

fn spans(body: Bytes) -> Result<u64, prost::DecodeError> {
    let message = ExportTraceServiceRequest::decode(body)?;
    let scopes = message.resource_spans.iter().flat_map(|of| &of.scope_spans);
    Ok(scopes.map(|scope| scope.spans.len() as u64).sum())
}

fn logs(body: Bytes) -> Result<u64, prost::DecodeError> {
    let message = ExportLogsServiceRequest::decode(body)?;
    let scopes = message.resource_logs.iter().flat_map(|of| &of.scope_logs);
    Ok(scopes.map(|scope| scope.log_records.len() as u64).sum())
}

fn metrics(body: Bytes) -> Result<u64, prost::DecodeError> {
    let message = ExportMetricsServiceRequest::decode(body)?;
    let scopes = message
        .resource_metrics
        .iter()
        .flat_map(|of| &of.scope_metrics);
    Ok(scopes.map(|scope| scope.metrics.len() as u64).sum())
}
