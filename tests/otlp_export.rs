//! Export of calls to an OTLP receiver, and the cost of a receiver with faults.

use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::{Span, span::SpanKind, status::StatusCode};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use tokengauge_config::{Conventions, Measure};
use tokengauge_core::observer::{End, FailureKind};
use tokengauge_telemetry::export::otlp::Otlp;
use tokengauge_test_support::TIMEOUT;
use tokengauge_test_support::meter::{Bench, DONE, event, finish, thoughts, words};
use tokengauge_test_support::otlp::{
    LostItems, Receiver, ReceiverBehaviour, attributes, exporters, text,
};

const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

fn endpoint(receiver: &Receiver) -> (&'static str, String) {
    let url = format!("http://{}", receiver.address);
    ("OTEL_EXPORTER_OTLP_ENDPOINT", url)
}

fn traces(receiver: &Receiver) -> Vec<(&'static str, String)> {
    vec![
        endpoint(receiver),
        ("OTEL_METRICS_EXPORTER", "none".to_owned()),
    ]
}

fn bench(otlp: &Otlp) -> Bench {
    Bench::tracing(Measure::default(), otlp.subscribers(), otlp.tracer())
}

/// Sends all queued items, and returns whether the last of them arrived.
async fn flush(bench: &Bench, otlp: Otlp) -> bool {
    assert!(bench.meter.flush(TIMEOUT));
    let shutdown = tokio::task::spawn_blocking(move || otlp.shutdown(TIMEOUT));
    shutdown.await.expect("no panic")
}

fn hex(id: &[u8]) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn of_kind(spans: &[Span], kind: SpanKind) -> &Span {
    let mut found = spans.iter().filter(|span| span.kind == kind as i32);
    let only = found.next().expect("a span of that kind");
    assert!(found.next().is_none(), "one span of a kind");
    only
}

fn code(span: &Span) -> StatusCode {
    span.status
        .as_ref()
        .map(|status| status.code())
        .expect("a status")
}

/// A chat with reasoning, an answer and a stall, under the agent's span.
fn chat(bench: &Bench) -> String {
    let headers = [("traceparent", PARENT), ("x-session-id", "s-1")];
    let call = bench.begin("/v1/chat/completions", &headers);
    let upstream = call.upstream_trace().expect("tracing is on");
    assert!(upstream.keeps_state);
    bench.send(&*call, br#"{"model":"asked","stream":true,"messages":[]}"#);
    bench.answer(&*call, 200, "text/event-stream");
    bench.chunk(&*call, 100, thoughts(10));
    bench.chunk(&*call, 300, words(10));
    bench.chunk(&*call, 1800, words(10));
    bench.chunk(&*call, 2000, finish(Some(33)));
    bench.chunk(&*call, 2000, DONE);
    let record = bench.end(&*call, 2100, End::Complete);
    assert_eq!(record.trace_id.as_deref(), Some(TRACE));
    upstream.traceparent.to_str().expect("text").to_owned()
}

async fn spans_of_a_chat(variables: &[(&str, String)], receiver: &Receiver) -> Vec<Span> {
    let (otlp, lost) = exporters(variables, Conventions::Current);
    let bench = bench(&otlp);
    let traceparent = chat(&bench);
    assert!(flush(&bench, otlp).await);
    assert!(lost.lock().unwrap().is_empty(), "{lost:?}");
    let spans = receiver.spans();
    let client = of_kind(&spans, SpanKind::Client);
    let expected = format!("00-{TRACE}-{}-01", hex(&client.span_id));
    assert_eq!(traceparent, expected, "the upstream gets the CLIENT span");
    spans
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_is_a_server_span_with_a_client_child_in_the_agents_trace() {
    let receiver = Receiver::start(ReceiverBehaviour::default()).await;
    let spans = spans_of_a_chat(&traces(&receiver), &receiver).await;
    let (server, client) = (
        of_kind(&spans, SpanKind::Server),
        of_kind(&spans, SpanKind::Client),
    );
    assert_eq!(
        (server.name.as_str(), &client.name),
        ("chat asked", &server.name)
    );
    assert_eq!(
        [&server.trace_id, &client.trace_id].map(|id| hex(id)),
        [TRACE; 2]
    );
    assert_eq!(hex(&server.parent_span_id), "00f067aa0ba902b7");
    assert_eq!(client.parent_span_id, server.span_id);
    for span in [server, client] {
        let nanos = span.end_time_unix_nano - span.start_time_unix_nano;
        assert_eq!(nanos, 2_100_000_000, "both end with the stream");
        assert_eq!(code(span), StatusCode::Unset);
    }
    let events: Vec<_> = client
        .events
        .iter()
        .map(|event| {
            let millis = (event.time_unix_nano - client.start_time_unix_nano) / 1_000_000;
            (event.name.as_str(), millis)
        })
        .collect();
    assert_eq!(
        events,
        [("first_token", 100), ("first_answer", 300), ("stall", 1800)]
    );
    assert_eq!(
        attributes(&client.events[2].attributes)["tokengauge.gap"],
        "1.5"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_client_span_has_the_conventions_attributes_and_the_server_span_ours() {
    let receiver = Receiver::start(ReceiverBehaviour::default()).await;
    let spans = spans_of_a_chat(&traces(&receiver), &receiver).await;
    let client = attributes(&of_kind(&spans, SpanKind::Client).attributes);
    for (name, value) in [
        ("gen_ai.operation.name", "chat"),
        ("gen_ai.provider.name", "openai"),
        ("gen_ai.request.model", "asked"),
        ("gen_ai.request.stream", "true"),
        ("gen_ai.response.model", "m-1"),
        ("gen_ai.response.id", "c1"),
        ("gen_ai.response.finish_reasons", "stop"),
        ("gen_ai.response.time_to_first_chunk", "0.1"),
        ("gen_ai.usage.input_tokens", "7"),
        ("gen_ai.usage.output_tokens", "33"),
        ("gen_ai.conversation.id", "s-1"),
        ("server.address", "127.0.0.1"),
        ("server.port", "9"),
        ("http.response.status_code", "200"),
        ("tokengauge.tokens.normalised", "30"),
        ("tokengauge.phase.connect", "0.002"),
        ("tokengauge.phase.upload", "0.003"),
        ("tokengauge.phase.wait", "0.095"),
        ("tokengauge.phase.generate", "1.7"),
        ("tokengauge.phase.finish", "0.3"),
        ("tokengauge.stalls", "1"),
    ] {
        assert_eq!(client.get(name).map(String::as_str), Some(value), "{name}");
    }
    let server = attributes(&of_kind(&spans, SpanKind::Server).attributes);
    for (name, value) in [
        ("tokengauge.ttft", "0.1"),
        ("tokengauge.outcome", "complete"),
        ("tokengauge.session.id", "s-1"),
        ("tokengauge.route", "route"),
    ] {
        assert_eq!(server.get(name).map(String::as_str), Some(value), "{name}");
    }
    let generation = server.keys().filter(|name| name.starts_with("gen_ai."));
    assert_eq!(generation.count(), 0, "no token is counted twice");
    let resource = receiver.resources().remove(0);
    assert_eq!(resource["service.name"], "tokengauge");
    assert_eq!(resource["service.instance.id"], "this-process");
}

#[tokio::test(flavor = "multi_thread")]
async fn grpc_carries_the_same_spans_headers_and_compression() {
    let receiver = Receiver::start(ReceiverBehaviour::default()).await;
    let mut variables = traces(&receiver);
    variables.push(("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc".to_owned()));
    variables.push(("OTEL_EXPORTER_OTLP_HEADERS", "api-key=k1".to_owned()));
    let over_grpc = spans_of_a_chat(&variables, &receiver).await;
    let other = Receiver::start(ReceiverBehaviour::default()).await;
    let over_http = spans_of_a_chat(&traces(&other), &other).await;
    let bare = |spans: &[Span]| -> Vec<_> {
        let one = |span: &Span| (span.name.clone(), span.kind, span.events.clone());
        spans.iter().map(one).collect()
    };
    assert_eq!(bare(&over_grpc), bare(&over_http));
    let headers = &receiver.received()[0].headers;
    assert_eq!(
        (&headers["api-key"], &headers["te"]),
        (&"k1".parse().unwrap(), &"trailers".parse().unwrap())
    );
}

/// Status code and `error.type` of both spans of a call that ends with `end` after `status`.
async fn ending(
    status: Option<u16>,
    chunks: &[String],
    end: End,
) -> [(StatusCode, Option<String>); 2] {
    let receiver = Receiver::start(ReceiverBehaviour::default()).await;
    let (otlp, _) = exporters(&traces(&receiver), Conventions::Current);
    let bench = bench(&otlp);
    let call = bench.begin("/v1/chat/completions", &[]);
    bench.send(&*call, br#"{"model":"asked","stream":true,"messages":[]}"#);
    if let Some(status) = status {
        bench.answer(&*call, status, "text/event-stream");
    }
    for chunk in chunks {
        bench.chunk(&*call, 100, chunk);
    }
    bench.end(&*call, 200, end);
    assert!(flush(&bench, otlp).await);
    let spans = receiver.spans();
    [SpanKind::Server, SpanKind::Client].map(|kind| {
        let span = of_kind(&spans, kind);
        let error = attributes(&span.attributes).remove("error.type");
        (code(span), error)
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn the_status_of_each_span_says_whose_failure_it_was() {
    let unset = (StatusCode::Unset, None);
    let error = |word: &str| (StatusCode::Error, Some(word.to_owned()));
    let some = [words(5)];
    let failed = [
        words(5),
        "data: {\"error\":{\"type\":\"overloaded\"}}\n\n".to_owned(),
    ];
    let refused = ending(Some(404), &[], End::Complete).await;
    assert_eq!(
        refused,
        [unset.clone(), error("404")],
        "the agent's own doing"
    );
    let broken = ending(Some(503), &[], End::Complete).await;
    assert_eq!(broken, [error("503"), error("503")]);
    let reset = ending(Some(200), &some, End::UpstreamReset).await;
    assert_eq!(reset, [error("upstream_reset"), error("upstream_reset")]);
    let inside = ending(Some(200), &failed, End::Complete).await;
    assert_eq!(inside, [error("error_event"), error("error_event")]);
    let left = ending(Some(200), &some, End::ClientCancelled).await;
    assert_eq!(
        left,
        [unset.clone(), unset.clone()],
        "a disconnect is not an error"
    );
    let nobody = ending(None, &[], End::Failed(FailureKind::Connect)).await;
    assert_eq!(
        nobody,
        [error("upstream_connect"), error("upstream_connect")]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_draft_names_come_where_they_are_requested_and_not_the_newest() {
    for newest in [false, true] {
        let receiver = Receiver::start(ReceiverBehaviour::default()).await;
        let mut variables = traces(&receiver);
        let opt_in = "http, gen_ai_latest_experimental".to_owned();
        variables.extend(newest.then_some(("OTEL_SEMCONV_STABILITY_OPT_IN", opt_in)));
        let (otlp, _) = exporters(&variables, Conventions::Draft);
        let bench = bench(&otlp);
        chat(&bench);
        assert!(flush(&bench, otlp).await);
        let client = attributes(&of_kind(&receiver.spans(), SpanKind::Client).attributes);
        assert_eq!(client.contains_key("gen_ai.system"), !newest);
        assert_eq!(client.contains_key("gen_ai.provider.name"), newest);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn call_records_go_out_as_logs_with_their_trace() {
    let receiver = Receiver::start(ReceiverBehaviour::default()).await;
    let mut variables = traces(&receiver);
    variables.push(("OTEL_LOGS_EXPORTER", "otlp".to_owned()));
    let (otlp, _) = exporters(&variables, Conventions::Current);
    let bench = bench(&otlp);
    chat(&bench);
    assert!(flush(&bench, otlp).await);
    let logs = receiver.logs();
    assert_eq!(
        (logs.len(), logs[0].event_name.as_str()),
        (1, "tokengauge.call")
    );
    assert_eq!(hex(&logs[0].trace_id), TRACE);
    let body = logs[0].body.as_ref().and_then(|body| body.value.as_ref());
    let Some(Value::KvlistValue(record)) = body else {
        panic!("the record is a map: {body:?}");
    };
    let fields: BTreeMap<_, _> = record
        .values
        .iter()
        .map(|one| (one.key.as_str(), text(one.value.as_ref())))
        .collect();
    assert_eq!(
        (fields["outcome"].as_str(), fields["frames"].as_str()),
        ("complete", "3")
    );
    assert!(!fields.contains_key("cost_usd"), "unknown is left out");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_without_a_trace_begins_one_that_its_record_names() {
    let receiver = Receiver::start(ReceiverBehaviour::default()).await;
    let (otlp, _) = exporters(&traces(&receiver), Conventions::Current);
    let bench = bench(&otlp);
    for malformed in [None, Some("00-xyz-00f067aa0ba902b7-01")] {
        let headers: Vec<_> = malformed
            .map(|value| ("traceparent", value))
            .into_iter()
            .collect();
        let call = bench.begin("/v1/chat/completions", &headers);
        let upstream = call.upstream_trace().expect("tracing is on");
        assert!(
            !upstream.keeps_state,
            "the agent's state is of no trace we know"
        );
        let record = bench.end(&*call, 10, End::ClientCancelled);
        let trace = record.trace_id.expect("the trace that was begun");
        assert!(
            upstream
                .traceparent
                .to_str()
                .expect("text")
                .contains(&trace)
        );
    }
    assert!(flush(&bench, otlp).await);
    let spans = receiver.spans();
    assert_eq!(spans.len(), 2, "no request went out: no CLIENT span");
    assert_ne!(spans[0].trace_id, spans[1].trace_id);
}

async fn losses(
    behaviour: ReceiverBehaviour,
    extra: &[(&'static str, &str)],
) -> Vec<(&'static str, &'static str, u64)> {
    let receiver = Receiver::start(behaviour).await;
    let mut variables = traces(&receiver);
    variables.extend(
        extra
            .iter()
            .map(|(name, value)| (*name, (*value).to_owned())),
    );
    let (otlp, lost) = exporters(&variables, Conventions::Current);
    let bench = bench(&otlp);
    let started = Instant::now();
    (0..20).for_each(|_| drop(chat(&bench)));
    assert!(
        started.elapsed() < Duration::from_secs(2),
        "calls do not wait"
    );
    flush(&bench, otlp).await;
    lost.lock().unwrap().clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_in_trouble_costs_a_counter_and_nothing_else() {
    let timeout = ("OTEL_EXPORTER_OTLP_TIMEOUT", "1500");
    let status = |status| ReceiverBehaviour {
        status: Some(status),
        ..ReceiverBehaviour::default()
    };
    let slow = ReceiverBehaviour {
        slow: Duration::from_secs(30),
        ..ReceiverBehaviour::default()
    };
    let busy = ReceiverBehaviour {
        grpc_status: 8,
        ..ReceiverBehaviour::default()
    };
    let grpc = ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc");
    let down = (
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
        "http://127.0.0.1:9/v1/traces",
    );
    let lost = |reason| vec![("otlp_traces", reason, 40)];
    assert_eq!(losses(status(429), &[timeout]).await, lost("throttled"));
    assert_eq!(losses(status(401), &[timeout]).await, lost("refused"));
    assert_eq!(losses(status(503), &[timeout]).await, lost("unavailable"));
    assert_eq!(
        losses(slow, &[("OTEL_EXPORTER_OTLP_TIMEOUT", "300")]).await,
        lost("timeout")
    );
    assert_eq!(losses(busy, &[timeout, grpc]).await, lost("throttled"));
    assert_eq!(
        losses(ReceiverBehaviour::default(), &[timeout, down]).await,
        lost("connect")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_does_not_fit_into_the_queue_is_counted_while_a_receiver_hangs() {
    let receiver = Receiver::start(ReceiverBehaviour {
        slow: Duration::from_secs(60),
        ..ReceiverBehaviour::default()
    })
    .await;
    let (otlp, lost): (Otlp, LostItems) = exporters(&traces(&receiver), Conventions::Current);
    let bench = bench(&otlp);
    let call = || {
        let call = bench.begin("/v1/chat/completions", &[]);
        bench.send(&*call, event("{}").as_bytes());
        call.ended(bench.at(10), End::ClientCancelled);
    };
    (0..1500).for_each(|_| call());
    assert!(bench.meter.flush(TIMEOUT));
    let dropped: u64 = lost
        .lock()
        .unwrap()
        .iter()
        .map(|(_, reason, items)| {
            assert_eq!(*reason, "full");
            *items
        })
        .sum();
    assert_eq!(dropped, 3000 - 2048, "the queue holds 2048 spans");
    let started = Instant::now();
    let within = Duration::from_millis(500);
    let shutdown = tokio::task::spawn_blocking(move || otlp.shutdown(within));
    assert!(!shutdown.await.expect("no panic"));
    assert!(
        started.elapsed() < Duration::from_secs(5),
        "the end is bounded"
    );
}
