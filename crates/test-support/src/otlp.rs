//! An OTLP receiver with configurable behaviour, and exporters that send to it.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue, any_value};
use opentelemetry_proto::tonic::logs::v1::LogRecord;
use opentelemetry_proto::tonic::metrics::v1::Metric;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};
use tokengauge_telemetry::export::otlp::Conventions;
use tokengauge_telemetry::export::otlp::{ExporterContext, Otlp};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

#[derive(Clone, Copy, Debug, Default)]
pub struct ReceiverBehaviour {
    /// The status to send instead of 200.
    pub status: Option<u16>,
    /// The gRPC status to send instead of 0.
    pub grpc_status: u8,
    pub slow: Duration,
    pub retry_after: Option<u32>,
    /// The number of messages that get this response before all others succeed; `None` for all.
    pub times: Option<usize>,
}

/// One message, unframed.
#[derive(Clone, Debug)]
pub struct Received {
    pub path: String,
    pub headers: HeaderMap,
    pub message: Bytes,
    pub at: Instant,
    /// Whether the response reported success.
    pub taken: bool,
}

#[derive(Clone)]
pub struct Receiver {
    pub address: SocketAddr,
    received: Arc<Mutex<Vec<Received>>>,
}

impl Receiver {
    pub async fn start(behaviour: ReceiverBehaviour) -> Receiver {
        Receiver::serve(behaviour, None).await
    }

    pub async fn start_tls(tls: rustls::ServerConfig) -> Receiver {
        let acceptor = TlsAcceptor::from(Arc::new(tls));
        Receiver::serve(ReceiverBehaviour::default(), Some(acceptor)).await
    }

    pub async fn start_at(address: SocketAddr) -> Receiver {
        let listener = TcpListener::bind(address).await.expect("bound");
        Receiver::listen(listener, ReceiverBehaviour::default(), None)
    }

    async fn serve(behaviour: ReceiverBehaviour, tls: Option<TlsAcceptor>) -> Receiver {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
        Receiver::listen(listener, behaviour, tls)
    }

    fn listen(
        listener: TcpListener,
        behaviour: ReceiverBehaviour,
        tls: Option<TlsAcceptor>,
    ) -> Receiver {
        let receiver = Receiver {
            address: listener.local_addr().expect("an address"),
            received: Arc::default(),
        };
        let accepting = receiver.clone();
        tokio::spawn(async move {
            while let Ok((tcp, _)) = listener.accept().await {
                let receiver = accepting.clone();
                let response = service_fn(move |request| {
                    let receiver = receiver.clone();
                    async move { Ok::<_, Infallible>(receiver.answer(request, behaviour).await) }
                });
                let tls = tls.clone();
                tokio::spawn(async move {
                    let server = auto::Builder::new(TokioExecutor::new());
                    let Some(tls) = tls else {
                        let _ = server.serve_connection(TokioIo::new(tcp), response).await;
                        return;
                    };
                    if let Ok(stream) = tls.accept(tcp).await {
                        let _ = server
                            .serve_connection(TokioIo::new(stream), response)
                            .await;
                    }
                });
            }
        });
        receiver
    }

    async fn answer(
        &self,
        request: Request<Incoming>,
        behaviour: ReceiverBehaviour,
    ) -> Response<http_body_util::combinators::BoxBody<Bytes, Infallible>> {
        let before = self.received.lock().unwrap().len();
        let behaves = behaviour.times.is_some_and(|times| before >= times);
        let behaviour = if behaves {
            ReceiverBehaviour::default()
        } else {
            behaviour
        };
        tokio::time::sleep(behaviour.slow).await;
        let (parts, body) = request.into_parts();
        let body = body.collect().await.map(|body| body.to_bytes());
        let grpc = parts.headers.get("content-type") == Some(&"application/grpc".parse().unwrap());
        let mut message = body.unwrap_or_default();
        if grpc {
            assert_eq!(message[1..5], (message.len() as u32 - 5).to_be_bytes());
            message = message.slice(5..);
        }
        self.received.lock().unwrap().push(Received {
            path: parts.uri.path().to_owned(),
            headers: parts.headers,
            message,
            at: Instant::now(),
            taken: behaviour.status.is_none() && behaviour.grpc_status == 0,
        });
        let mut response = if grpc {
            Response::new(trailed(behaviour.grpc_status))
        } else {
            Response::new(Full::default().boxed())
        };
        if let Some(status) = behaviour.status {
            *response.status_mut() = status.try_into().expect("a status");
        }
        if let Some(seconds) = behaviour.retry_after {
            let headers = response.headers_mut();
            headers.insert("retry-after", HeaderValue::from(seconds));
        }
        response
    }

    pub fn received(&self) -> Vec<Received> {
        self.received.lock().unwrap().clone()
    }

    fn messages<T: Message + Default>(&self, what: &str) -> Vec<T> {
        let all = self.received();
        let wanted = all
            .iter()
            .filter(|received| received.taken && received.path.contains(what));
        wanted
            .map(|received| T::decode(received.message.clone()).expect("a message"))
            .collect()
    }

    pub fn spans(&self) -> Vec<Span> {
        let messages = self.messages::<ExportTraceServiceRequest>("trace");
        let all = messages
            .into_iter()
            .flat_map(|message| message.resource_spans)
            .flat_map(|resource| resource.scope_spans);
        all.flat_map(|scope| scope.spans).collect()
    }

    pub fn resources(&self) -> Vec<BTreeMap<String, String>> {
        let messages = self.messages::<ExportTraceServiceRequest>("trace");
        let all = messages
            .into_iter()
            .flat_map(|message| message.resource_spans)
            .filter_map(|spans| spans.resource);
        all.map(|resource| attributes(&resource.attributes))
            .collect()
    }

    pub fn metrics(&self) -> Vec<Metric> {
        let messages = self.messages::<ExportMetricsServiceRequest>("metrics");
        let all = messages
            .into_iter()
            .flat_map(|message| message.resource_metrics)
            .flat_map(|resource| resource.scope_metrics);
        all.flat_map(|scope| scope.metrics).collect()
    }

    pub fn logs(&self) -> Vec<LogRecord> {
        let messages = self.messages::<ExportLogsServiceRequest>("logs");
        let all = messages
            .into_iter()
            .flat_map(|message| message.resource_logs)
            .flat_map(|resource| resource.scope_logs);
        all.flat_map(|scope| scope.log_records).collect()
    }
}

/// The empty message of a gRPC response, followed by its status.
fn trailed(status: u8) -> http_body_util::combinators::BoxBody<Bytes, Infallible> {
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from(u16::from(status)));
    let frames = [
        Ok(Frame::data(Bytes::from_static(&[0; 5]))),
        Ok(Frame::trailers(trailers)),
    ];
    let stream = futures_util::stream::iter(frames);
    http_body_util::StreamBody::new(stream).boxed()
}

pub fn attributes(all: &[KeyValue]) -> BTreeMap<String, String> {
    let pair = |one: &KeyValue| (one.key.clone(), text(one.value.as_ref()));
    all.iter().map(pair).collect()
}

pub fn text(value: Option<&AnyValue>) -> String {
    use any_value::Value;
    match value.and_then(|value| value.value.as_ref()) {
        Some(Value::StringValue(text)) => text.clone(),
        Some(Value::IntValue(number)) => number.to_string(),
        Some(Value::DoubleValue(number)) => number.to_string(),
        Some(Value::BoolValue(is)) => is.to_string(),
        Some(Value::ArrayValue(array)) => {
            let items = array.values.iter().map(|item| text(Some(item)));
            items.collect::<Vec<_>>().join(",")
        }
        Some(Value::KvlistValue(list)) => format!("{:?}", attributes(&list.values)),
        other => format!("{other:?}"),
    }
}

/// Items counted as lost: exporter, reason, number.
pub type LostItems = Arc<Mutex<Vec<(&'static str, &'static str, u64)>>>;

/// Exporters configured by `variables`, and the counters of the items that they lose.
pub fn exporters(variables: &[(&str, String)], conventions: Conventions) -> (Otlp, LostItems) {
    exporters_for(variables, conventions, false)
}

/// Exporters configured by `variables`, with or without Langfuse's attributes.
pub fn exporters_for(
    variables: &[(&str, String)],
    conventions: Conventions,
    langfuse: bool,
) -> (Otlp, LostItems) {
    let lost = LostItems::default();
    let counted = Arc::clone(&lost);
    let around = ExporterContext {
        conventions,
        langfuse,
        instance: "this-process".to_owned(),
        count: Arc::new(move |exporter, reason, items| {
            counted.lock().unwrap().push((exporter, reason, items));
        }),
        max_models: 3,
        clock: Instant::now,
        wall: SystemTime::now,
        runtime: tokio::runtime::Handle::current(),
    };
    let named = |name: &str| {
        let found = variables.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| value.clone())
    };
    (Otlp::start(&named, false, &around), lost)
}
