//! Attributes of a call's spans.

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::trace::v1::{Span, span::SpanKind};
use prost::Message;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokengauge_config::{Conventions, Measure};
use tokengauge_core::call::Operation;
use tokengauge_core::observer::{End, FailureKind, ObservedCall, Phase};
use tokengauge_meter::{FinishedCall, Subscriber};
use tokengauge_telemetry::export::otlp::Otlp;
use tokengauge_telemetry::export::prometheus::Prometheus;
use tokengauge_test_support::TIMEOUT;
use tokengauge_test_support::meter::{Bench, DONE, finish, words};
use tokengauge_test_support::otlp::{Receiver, ReceiverBehaviour, attributes, exporters_for};

const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const STREAM: &str = "text/event-stream";

struct WithMethodAndPath(Vec<Arc<dyn Subscriber>>);

impl Subscriber for WithMethodAndPath {
    fn finished(&self, finished_call: &Arc<FinishedCall>) {
        let mut finished_call = FinishedCall::clone(finished_call);
        finished_call.record.method = Some("POST".to_owned());
        finished_call.record.path = Some("/v1/models/{model}".to_owned());
        let finished_call = Arc::new(finished_call);
        self.0.iter().for_each(|one| one.finished(&finished_call));
    }
}

struct TracingFixture {
    receiver: Receiver,
    otlp: Otlp,
    bench: Bench,
    series: Arc<Prometheus>,
}

impl TracingFixture {
    async fn new(langfuse: bool) -> TracingFixture {
        let receiver = Receiver::start(ReceiverBehaviour::default()).await;
        let url = format!("http://{}", receiver.address);
        let variables = [("OTEL_EXPORTER_OTLP_ENDPOINT", url)];
        let (otlp, _) = exporters_for(&variables, Conventions::Current, langfuse);
        let routed: Arc<dyn Subscriber> = Arc::new(WithMethodAndPath(otlp.subscribers()));
        let bench = Bench::tracing(Measure::default(), vec![routed], otlp.tracer());
        let series = Prometheus::new(&[], &Measure::default());
        otlp.begin_metrics(&series, &bench.meter);
        TracingFixture {
            receiver,
            otlp,
            bench,
            series,
        }
    }

    fn call(&self, path: &str, headers: &[(&str, &str)], body: &str) -> Arc<dyn ObservedCall> {
        let call = self.bench.begin(path, headers);
        self.bench.send(&*call, body.as_bytes());
        call
    }

    fn stream(&self, headers: &[(&str, &str)], body: &str) {
        let call = self.call("/v1/chat/completions", headers, body);
        call.overhead(Phase::Head, Duration::from_micros(1500));
        self.bench.answer(&*call, 200, STREAM);
        self.bench.chunk(&*call, 100, words(10));
        self.bench.chunk(&*call, 300, words(10));
        self.bench.chunk(&*call, 300, finish(Some(33)) + DONE);
        self.bench.end(&*call, 310, End::Complete);
    }

    async fn end(self) -> Receiver {
        assert!(self.bench.meter.flush(TIMEOUT));
        let otlp = self.otlp;
        let ended = tokio::task::spawn_blocking(move || otlp.shutdown(TIMEOUT));
        assert!(ended.await.expect("no panic"));
        drop(self.series);
        self.receiver
    }
}

fn only(spans: &[Span], kind: SpanKind) -> &Span {
    let mut found = spans.iter().filter(|span| span.kind == kind as i32);
    let only = found.next().expect("a span of that kind");
    assert!(found.next().is_none(), "one span of a kind");
    only
}

fn of(spans: &[Span], kind: SpanKind) -> BTreeMap<String, String> {
    attributes(&only(spans, kind).attributes)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_client_span_has_the_parameters_of_the_request() {
    let fixture = TracingFixture::new(false).await;
    let body = r#"{"model":"asked","stream":true,"messages":[],"n":2,"seed":7,"temperature":0.5,"top_p":0.9,
        "max_completion_tokens":100,"frequency_penalty":0.25,"presence_penalty":-1,"stop":["END"],"user":"somebody",
        "service_tier":"flex","response_format":{"type":"json_object"}}"#;
    fixture.stream(&[], body);
    let spans = fixture.end().await.spans();
    let client = of(&spans, SpanKind::Client);
    for (name, value) in [
        ("gen_ai.request.choice.count", "2"),
        ("gen_ai.request.seed", "7"),
        ("gen_ai.request.temperature", "0.5"),
        ("gen_ai.request.top_p", "0.9"),
        ("gen_ai.request.max_tokens", "100"),
        ("gen_ai.request.frequency_penalty", "0.25"),
        ("gen_ai.request.presence_penalty", "-1"),
        ("gen_ai.request.stop_sequences", "END"),
        ("gen_ai.output.type", "json"),
        ("openai.api.type", "chat_completions"),
        ("openai.request.service_tier", "flex"),
        ("http.request.method", "POST"),
    ] {
        assert_eq!(client.get(name).map(String::as_str), Some(value), "{name}");
    }
    assert!(!client.contains_key("gen_ai.usage.cost"), "nobody asked");
    let server = of(&spans, SpanKind::Server);
    for (name, value) in [
        ("http.request.method", "POST"),
        ("http.response.status_code", "200"),
        ("url.path", "/v1/models/{model}"),
        ("http.route", "/v1/models/{model}"),
    ] {
        assert_eq!(server.get(name).map(String::as_str), Some(value), "{name}");
    }
    let user = &server["user.id"];
    assert_eq!(Some(user), client.get("user.id"));
    assert!(user != "somebody" && user.len() >= 8, "{user}");
}

#[tokio::test(flavor = "multi_thread")]
async fn parameters_that_were_not_requested_are_not_reported() {
    let fixture = TracingFixture::new(false).await;
    let body = r#"{"model":"asked","stream":true,"messages":[],"n":1,"service_tier":"auto"}"#;
    fixture.stream(&[], body);
    let client = of(&fixture.end().await.spans(), SpanKind::Client);
    let reported = |name: &&String| {
        let request = name.starts_with("gen_ai.request.") || name.starts_with("openai.");
        request || name.starts_with("gen_ai.output.")
    };
    let found: Vec<_> = client.keys().filter(reported).collect();
    let expected = [
        "gen_ai.request.model",
        "gen_ai.request.stream",
        "openai.api.type",
    ];
    assert_eq!(found, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_agents_trace_state_is_kept_in_the_spans_of_its_trace() {
    let fixture = TracingFixture::new(false).await;
    let body = r#"{"model":"asked","stream":true,"messages":[]}"#;
    let state = ("tracestate", "vendor=1,other=x:y");
    fixture.stream(&[("traceparent", PARENT), state], body);
    fixture.stream(&[state], body);
    let spans = fixture.end().await.spans();
    let states: Vec<_> = spans.iter().map(|span| span.trace_state.as_str()).collect();
    assert_eq!(states, ["vendor=1,other=x:y", "vendor=1,other=x:y", "", ""]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_server_span_is_longer_than_the_client_span_by_what_the_proxy_takes() {
    let fixture = TracingFixture::new(false).await;
    fixture.stream(&[], r#"{"model":"asked","stream":true,"messages":[]}"#);
    let spans = fixture.end().await.spans();
    let [server, client] = [SpanKind::Server, SpanKind::Client].map(|kind| {
        let span = only(&spans, kind);
        (span.start_time_unix_nano, span.end_time_unix_nano)
    });
    assert_eq!(server.1, client.1, "both end with the stream");
    assert_eq!(client.0 - server.0, 1_500_000, "what the heads took");
}

#[tokio::test(flavor = "multi_thread")]
async fn spans_and_metrics_name_their_schema_and_their_sdk() {
    let fixture = TracingFixture::new(false).await;
    fixture.stream(&[], r#"{"model":"asked","stream":true,"messages":[]}"#);
    let receiver = fixture.end().await;
    let schema = "https://opentelemetry.io/schemas/1.41.0";
    let all = receiver.received();
    let traces = all.iter().find(|one| one.path == "/v1/traces");
    let message = traces.expect("a message").message.clone();
    let traces = ExportTraceServiceRequest::decode(message).expect("spans");
    assert_eq!(traces.resource_spans[0].scope_spans[0].schema_url, schema);
    let resource = &receiver.resources()[0];
    assert_eq!(resource["telemetry.sdk.language"], "rust");
    assert_eq!(resource["telemetry.sdk.name"], "opentelemetry");
    assert!(resource["telemetry.sdk.version"].starts_with("0."));
}

#[tokio::test(flavor = "multi_thread")]
async fn langfuse_gets_cost_and_first_token_under_its_names_where_asked_for() {
    let fixture = TracingFixture::new(true).await;
    let body = r#"{"model":"gpt-4o","stream":true,"messages":[]}"#;
    let call = fixture.call("/v1/chat/completions", &[], body);
    fixture.bench.answer(&*call, 200, STREAM);
    let named =
        r#"data: {"id":"c","model":"gpt-4o","choices":[{"index":0,"delta":{"content":"hi"}}]}"#;
    fixture.bench.chunk(&*call, 100, format!("{named}\n\n"));
    fixture.bench.chunk(&*call, 300, finish(Some(33)) + DONE);
    let record = fixture.bench.end(&*call, 310, End::Complete);
    let client = of(&fixture.end().await.spans(), SpanKind::Client);
    let first = &client["langfuse.observation.completion_start_time"];
    assert_eq!(first, "2023-11-14T22:13:20.100Z");
    let cost = client.get("gen_ai.usage.cost");
    let expected = record.cost_usd.map(|usd| usd.to_string());
    assert_eq!(cost, expected.as_ref());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_phases_of_every_call_add_up_to_its_duration() {
    const WHOLE: &str = r#"{"model":"m","choices":[{"index":0,"message":{"content":"hello there"},"finish_reason":"stop"}]}"#;
    type PlayedCall = Box<dyn Fn(&TracingFixture)>;
    let ends: [(&str, PlayedCall); 4] = [
        (
            "whole",
            Box::new(|fixture: &TracingFixture| {
                let call = fixture.call(
                    "/v1/chat/completions",
                    &[],
                    r#"{"model":"m","messages":[]}"#,
                );
                fixture.bench.answer(&*call, 200, "application/json");
                fixture.bench.chunk(&*call, 400, WHOLE);
                fixture.bench.end(&*call, 410, End::Complete);
            }),
        ),
        (
            "refused",
            Box::new(|fixture| {
                let call = fixture.call("/v1/chat/completions", &[], "{}");
                fixture.bench.answer(&*call, 503, "application/json");
                fixture.bench.end(&*call, 410, End::Complete);
            }),
        ),
        (
            "silent",
            Box::new(|fixture| {
                let call = fixture.call("/v1/chat/completions", &[], "{}");
                fixture.bench.end(&*call, 410, End::ClientCancelled);
            }),
        ),
        (
            "streamed",
            Box::new(|fixture| {
                fixture.stream(&[], r#"{"model":"asked","stream":true,"messages":[]}"#);
            }),
        ),
    ];
    for (name, end) in ends {
        let fixture = TracingFixture::new(false).await;
        end(&fixture);
        let client = of(&fixture.end().await.spans(), SpanKind::Client);
        let phases = client
            .iter()
            .filter(|(name, _)| name.starts_with("tokengauge.phase."));
        let seconds: Vec<_> = phases
            .map(|(_, value)| value.parse::<f64>().expect("seconds"))
            .collect();
        let duration: f64 = client["tokengauge.duration"].parse().expect("seconds");
        let sum: f64 = seconds.iter().sum();
        assert!(
            (sum - duration).abs() < 1e-9,
            "{name}: {seconds:?} of {duration}"
        );
        assert!(
            client.contains_key("tokengauge.phase.wait"),
            "{name}: {client:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn span_and_metric_have_one_error_type() {
    let inside = "data: {\"error\":{\"type\":\"overloaded\"}}\n\n";
    let broken = || End::Failed(FailureKind::Connect);
    let kinds: [(Option<u16>, Option<&str>, End, &str); 4] = [
        (Some(503), None, End::Complete, "503"),
        (Some(200), Some(inside), End::Complete, "error_event"),
        (Some(200), None, End::UpstreamReset, "upstream_reset"),
        (None, None, broken(), "upstream_connect"),
    ];
    for (status, chunk, end, expected) in kinds {
        let fixture = TracingFixture::new(false).await;
        let body = r#"{"model":"asked","stream":true,"messages":[]}"#;
        let call = fixture.call("/v1/chat/completions", &[], body);
        if let Some(status) = status {
            fixture.bench.answer(&*call, status, STREAM);
            fixture.bench.chunk(&*call, 100, words(5));
        }
        if let Some(chunk) = chunk {
            fixture.bench.chunk(&*call, 200, chunk);
        }
        fixture.bench.end(&*call, 300, end);
        let receiver = fixture.end().await;
        let spans = receiver.spans();
        for kind in [SpanKind::Server, SpanKind::Client] {
            assert_eq!(of(&spans, kind)["error.type"], expected);
        }
        let metrics = receiver.metrics();
        let duration = metrics
            .iter()
            .find(|one| one.name == "gen_ai.client.operation.duration");
        let Some(Data::Histogram(histogram)) = duration.and_then(|one| one.data.clone()) else {
            panic!("no histogram");
        };
        let point = attributes(&histogram.data_points[0].attributes);
        assert_eq!(point["error.type"], expected);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_generation_on_an_unknown_path_is_one_by_what_is_on_the_wire() {
    let chat = words(10) + &finish(Some(33)) + DONE;
    let gemini = r#"data: {"candidates":[{"content":{"parts":[{"text":"one two three"}]},"finishReason":"STOP"}],
        "usageMetadata":{"promptTokenCount":5,"candidatesTokenCount":3},"modelVersion":"m-1"}"#;
    let gemini = gemini.replace('\n', "") + "\n\n";
    let nobodys = "data: {\"odd\":\"one two three\"}\n\n".to_owned();
    let whole = r#"{"model":"m-1","choices":[{"index":0,"message":{"content":" word"},"finish_reason":"stop"}],
        "usage":{"prompt_tokens":7,"completion_tokens":33}}"#;
    const JSON: &str = "application/json";
    for (name, kind, response, operation, provider, tokens) in [
        (
            "chat",
            STREAM,
            chat,
            Some("chat"),
            Some("openai"),
            Some("33"),
        ),
        (
            "gemini",
            STREAM,
            gemini,
            Some("generate_content"),
            Some("gcp.gemini"),
            Some("3"),
        ),
        (
            "whole",
            JSON,
            whole.to_owned(),
            Some("chat"),
            Some("openai"),
            Some("33"),
        ),
        ("nobody's", STREAM, nobodys, None, None, None),
        ("odd", JSON, "{\"odd\":1}".to_owned(), None, None, None),
    ] {
        let fixture = TracingFixture::new(false).await;
        let body = r#"{"model":"asked","stream":true,"messages":[]}"#;
        let call = fixture.call("/ml/v1/text/chat_stream", &[], body);
        fixture.bench.answer(&*call, 200, kind);
        fixture.bench.chunk(&*call, 100, response);
        let record = fixture.bench.end(&*call, 310, End::Complete);
        assert_eq!(record.operation, Operation::Unknown, "{name}");
        let receiver = fixture.end().await;
        let spans = receiver.spans();
        let client = of(&spans, SpanKind::Client);
        let has = |name: &str| client.get(name).map(String::as_str);
        assert_eq!(
            has("gen_ai.operation.name"),
            operation,
            "{name}: {client:?}"
        );
        assert_eq!(has("gen_ai.provider.name"), provider, "{name}");
        assert_eq!(has("gen_ai.usage.output_tokens"), tokens, "{name}");
        let model = operation.and(Some("m-1"));
        assert_eq!(has("gen_ai.response.model"), model, "{name}");
        let model = operation.and(Some("asked"));
        assert_eq!(has("gen_ai.request.model"), model, "{name}");
        let expected = operation.map_or("call route".to_owned(), |word| format!("{word} asked"));
        for kind in [SpanKind::Server, SpanKind::Client] {
            assert_eq!(only(&spans, kind).name, expected);
        }
        let metrics = receiver.metrics();
        let mut names = metrics.iter().map(|one| one.name.as_str());
        let counted = names.any(|name| name == "gen_ai.client.token.usage");
        assert_eq!(counted, operation.is_some(), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_span_of_a_refused_call_has_no_tokens() {
    let body = r#"{"model":"asked","stream":true,"messages":[{"role":"user","content":"a prompt of words"}]}"#;
    let usage = r#"{"error":{"type":"busy"},"usage":{"prompt_tokens":9,"completion_tokens":2}}"#;
    for (status, kind, response, counts) in [
        (429, "application/json", usage.to_owned(), false),
        (
            200,
            STREAM,
            format!("data: {usage}\n\n")
                .replace(r#","usage":{"prompt_tokens":9,"completion_tokens":2}"#, ""),
            false,
        ),
        (200, STREAM, words(20) + DONE, true),
    ] {
        let fixture = TracingFixture::new(false).await;
        let call = fixture.call("/v1/chat/completions", &[], body);
        fixture.bench.answer(&*call, status, kind);
        fixture.bench.chunk(&*call, 100, response);
        fixture.bench.end(&*call, 200, End::Complete);
        let spans = fixture.end().await.spans();
        let client = of(&spans, SpanKind::Client);
        let attribute = |name: &str| client.get(name).cloned().unwrap_or("0".to_owned());
        let input = client.contains_key("gen_ai.usage.input_tokens");
        assert_eq!(input, counts, "{status}: {client:?}");
        let output = attribute("gen_ai.usage.output_tokens") != "0";
        assert_eq!(output, counts, "{status}: {client:?}");
    }
}
