//! The class of a call: it generates, reads earlier output, or neither.

use crate::objectives::{ObjectivesFixture, only};
use http::{Method, StatusCode};
use std::sync::Arc;
use std::time::Instant;
use tokengauge_config::Measure;
use tokengauge_core::call::{
    CallRecord, Dialect, Operation, OperationClass, Outcome, Tokens, TpsUnavailable,
};
use tokengauge_core::observer::{CallStart, End, ObservedCall, Observer};
use tokengauge_telemetry::export::prometheus::Prometheus;
use tokengauge_telemetry::export::text::Format;
use tokengauge_test_support::meter::{Bench, DONE, finish, header_map, started_at, words};

fn call(bench: &Bench, method: &Method, path: &str) -> Arc<dyn ObservedCall> {
    let begun = bench.meter.begin(CallStart {
        received: bench.start,
        started_at: started_at(),
        method,
        uri: &path.parse().expect("a path"),
        headers: &header_map(&[]),
        peer: None,
        port: None,
        route: &bench.route,
        upstream: &bench.upstream,
        dialect: None,
        workload: None,
        inject_usage: false,
        variant: None,
    });
    begun.connected(bench.at(2), true);
    begun.sent(bench.at(5));
    begun
}

fn head(bench: &Bench, call: &dyn ObservedCall, status: u16, content_type: &str) {
    let status = StatusCode::from_u16(status).expect("a status");
    call.head(
        bench.at(50),
        status,
        &header_map(&[("content-type", content_type)]),
    );
}

fn answered(bench: &Bench, method: &Method, path: &str, status: u16, body: &str) -> CallRecord {
    let call = call(bench, method, path);
    head(bench, &*call, status, "application/json");
    bench.chunk(&*call, 60, body);
    bench.end(&*call, 70, End::Complete)
}

#[test]
fn only_generations_count_in_objectives() {
    let fixture =
        ObjectivesFixture::new("[[slo]]\nname = \"x\"\navailability = true\nobjective = 0.5\n");
    for _ in 0..10 {
        answered(
            &fixture.bench,
            &Method::POST,
            "/v1/chat/completions",
            503,
            "{}",
        );
    }
    for _ in 0..90 {
        let body = r#"{"object":"list","data":[]}"#;
        let record = answered(&fixture.bench, &Method::GET, "/v1/models", 200, body);
        assert_eq!(record.operation_class, OperationClass::Other);
    }
    let hello = answered(&fixture.bench, &Method::HEAD, "/api/hello", 404, "");
    assert_eq!(hello.operation_class, OperationClass::Other);
    assert_eq!(fixture.counts(100), only("bad http_error", 10));
}

#[test]
fn a_record_says_what_was_asked_for_without_names_and_ids() {
    let bench = Bench::default();
    let path = "/v1/responses/resp_0f3a?include[]=x&key=sk-secret";
    let record = answered(&bench, &Method::DELETE, path, 200, "{}");
    assert_eq!(record.method.as_deref(), Some("DELETE"));
    assert_eq!(record.path.as_deref(), Some("/v1/responses/{id}"));
    assert_eq!(record.operation_class, OperationClass::Other);
}

#[test]
fn an_unknown_path_that_generates_is_a_generation() {
    let bench = Bench::default();
    let posted = call(&bench, &Method::POST, "/own/gateway/ask");
    head(&bench, &*posted, 200, "text/event-stream");
    for chunk in 0..5 {
        bench.chunk(&*posted, 100 + chunk * 100, words(10));
    }
    bench.chunk(&*posted, 600, finish(None) + DONE);
    let record = bench.end(&*posted, 600, End::Complete);
    assert_eq!(record.operation_class, OperationClass::Generation);
    assert_eq!(record.tokens.normalised.output, Some(50));
}

fn asked(bench: &Bench, path: &str, body: &[u8]) -> CallRecord {
    let call = bench.begin(path, &[]);
    let request = br#"{"model":"asked","messages":[{"role":"user","content":"Hello"}]}"#;
    bench.send(&*call, request);
    head(bench, &*call, 200, "application/json; charset=utf-8");
    for (piece, millis) in body.chunks(1000).zip(60..) {
        bench.chunk(&*call, millis, piece);
    }
    bench.end(&*call, 1000, End::Complete)
}

const CHAT: &str = r#"{"model":"m","choices":[{"index":0,"message":{"content":" word word"},"finish_reason":"stop"}]}"#;

#[test]
fn an_unknown_path_whose_body_is_an_answer_is_a_generation() {
    let bench = Bench::default();
    let long = CHAT.replace(" word", &" word".repeat(10_000));
    for (body, output) in [(CHAT, 2), (&*long, 20_000)] {
        let record = asked(&bench, "/own/gateway/ask", body.as_bytes());
        assert_eq!(record.operation_class, OperationClass::Generation);
        assert_eq!(record.dialect, Dialect::OpenaiChat);
        assert_eq!(record.tokens.normalised.output, Some(output));
        assert_eq!(record.tokens.normalised.input, Some(1));
        let models = (record.model.as_deref(), record.model_requested.as_deref());
        assert_eq!(models, (Some("m"), Some("asked")));
        let reason = record.tps.unavailable;
        assert_eq!(reason, Some(TpsUnavailable::NotStreamed));
    }
    let stats = bench.meter.stats(Instant::now());
    assert_eq!((stats.held_bytes, stats.skipped_bodies), (0, 0));
}

#[test]
fn a_body_of_no_known_dialect_is_not_an_answer_on_an_unknown_path() {
    let bench = Bench::default();
    let huge = CHAT.replace(" word", &" word".repeat(60_000));
    let cached = r#"{"name":"cachedContents/1","usageMetadata":{"totalTokenCount":1000}}"#;
    for (path, body) in [
        ("/own/gateway/ask", r#"{"answer":" word"}"#),
        ("/own/gateway/ask", r#"{"error":{"message":"busy"}}"#),
        ("/own/gateway/ask", r#"{"token":"secret"}"#),
        ("/own/gateway/ask", "<html>"),
        ("/own/gateway/ask", ""),
        ("/own/gateway/ask", &huge),
        ("/v1beta/cachedContents", cached),
        // These responses were generated earlier.
        ("/v1/chat/completions/c_1", CHAT),
        (
            "/v1/responses/resp_1/cancel",
            r#"{"object":"response","status":"cancelled","output":[],"usage":{"input_tokens":1,"output_tokens":2}}"#,
        ),
    ] {
        let record = asked(&bench, path, body.as_bytes());
        let place = &body[..body.len().min(40)];
        assert_eq!(record.operation_class, OperationClass::Other, "{place}");
        assert_eq!(record.dialect, Dialect::Unknown, "{place}");
        assert_eq!(record.outcome, Outcome::Complete, "{place}");
        assert_eq!(record.tokens, Tokens::default(), "{place}");
        assert_eq!(record.model_requested, None, "{place}");
        let events = (record.skipped_events, record.tps.unavailable);
        assert_eq!(events, (0, Some(TpsUnavailable::Unparsed)), "{place}");
    }
    let stats = bench.meter.stats(Instant::now());
    assert_eq!((stats.held_bytes, stats.skipped_bodies), (0, 0));
    assert_eq!(stats.lagged_chunks, 0);
}

#[test]
fn the_request_of_a_stream_on_an_unknown_path_is_read() {
    let bench = Bench::default();
    let request = br#"{"model":"asked","messages":[{"role":"user","content":"Hello"}]}"#;
    for (chunk, model) in [
        (words(10) + &finish(None) + DONE, Some("asked")),
        ("data: {\"odd\":1}\n\n".to_owned(), None),
    ] {
        let call = bench.begin("/own/gateway/ask", &[("content-type", "application/json")]);
        bench.send(&*call, request);
        head(&bench, &*call, 200, "text/event-stream");
        bench.chunk(&*call, 60, chunk);
        let record = bench.end(&*call, 70, End::Complete);
        assert_eq!(record.model_requested.as_deref(), model);
        assert_eq!(record.tokens.normalised.input, model.map(|_| 1));
    }
    let upload = bench.begin("/own/upload", &[("content-type", "multipart/form-data")]);
    bench.send(&*upload, &[0; 100_000]);
    assert_eq!(bench.meter.stats(Instant::now()).held_bytes, 0);
}

#[test]
fn a_stored_answer_that_is_streamed_again_was_counted_before() {
    let measure = Measure::default();
    let prometheus = Prometheus::new(&[], &measure);
    let bench = Bench::new(measure, vec![prometheus.clone()]);
    let path = "/v1/chat/completions/chatcmpl-1?stream=true";
    let again = call(&bench, &Method::GET, path);
    head(&bench, &*again, 200, "text/event-stream");
    for chunk in 0..20 {
        bench.chunk(&*again, 100 + chunk, words(10));
    }
    bench.chunk(&*again, 130, finish(Some(200)) + DONE);
    let record = bench.end(&*again, 130, End::Complete);
    assert_eq!(record.operation, Operation::Retrieve);
    assert_eq!(record.operation_class, OperationClass::Retrieve);
    assert_eq!(record.tokens, Tokens::default());
    assert_eq!(
        (record.tps.output, record.tps.total, record.seconds.ttft),
        (None, None, None)
    );
    assert_eq!(
        (record.cost_usd, record.outcome.as_str()),
        (None, "complete")
    );
    let now = Instant::now();
    let text = prometheus.render(now, &bench.meter.stats(now), Format::OpenMetrics);
    let counted = text
        .lines()
        .filter(|line| line.starts_with("tokengauge_tokens_total"));
    assert!(
        counted.into_iter().all(|line| line.ends_with(" 0")),
        "{text}"
    );
    assert!(bench.tick(20_000).deltas.is_empty());
}

#[test]
fn a_background_response_is_counted_once_when_its_usage_is_there() {
    let config = crate::objectives::config(
        "[[price]]\nmodel = \"*\"\nupstream = \"upstream\"\ninput = 1.0\noutput = 10.0\n",
    );
    let bench = crate::objectives::bench(&config, Vec::new());
    let response = |status: &str, usage: &str| {
        format!(
            r#"{{"id":"resp_1","object":"response","status":"{status}","model":"m-1","output":[],"usage":{usage}}}"#
        )
    };
    let asked = call(&bench, &Method::POST, "/v1/responses");
    let body = br#"{"model":"m-1","background":true,"input":"Tell me of rivers."}"#;
    asked.request_chunk(&body[..].into());
    head(&bench, &*asked, 200, "application/json");
    bench.chunk(&*asked, 60, response("queued", "null"));
    let queued = bench.end(&*asked, 70, End::Complete);
    assert_eq!(
        (queued.cost_usd, queued.tokens.source),
        (None, None),
        "nothing is known yet"
    );
    let poll = |status: &str, usage: &str| {
        answered(
            &bench,
            &Method::GET,
            "/v1/responses/resp_1",
            200,
            &response(status, usage),
        )
    };
    assert_eq!(poll("in_progress", "null").cost_usd, None);
    let usage = r#"{"input_tokens":100,"output_tokens":50,"total_tokens":150}"#;
    let first = poll("completed", usage);
    assert_eq!(first.tokens.reported.output, Some(50));
    let cost = first.cost_usd.expect("a price");
    assert!((cost - (100.0 + 500.0) / 1e6).abs() < 1e-12, "{cost}");
    let second = poll("completed", usage);
    assert_eq!(
        (second.cost_usd, second.tokens.reported.output),
        (None, None)
    );
}

/// The records of calls by method, path, media type and answer.
#[test]
fn paths_other_than_chats_are_measured_or_have_a_class() {
    let bench = Bench::default();
    let usage = |input, output| (Some(input), Some(output));
    let (json, sse) = ("application/json", "text/event-stream");
    let (unknown, generation) = ((None, None), OperationClass::Generation);
    let compacted = r#"{"id":"r","object":"response.compaction","output":[{"type":"message","role":"user","content":[{"type":"input_text","text":"asked"}]}],"usage":{"input_tokens":9,"output_tokens":5}}"#;
    let picture = r#"{"created":1,"data":[{"b64_json":"AAAA"}],"usage":{"input_tokens":50,"output_tokens":60}}"#;
    let pictures = "data: {\"type\":\"image_generation.partial_image\",\"b64_json\":\"A\"}\n\ndata: {\"type\":\"image_generation.completed\",\"usage\":{\"input_tokens\":50,\"output_tokens\":60}}\n\n";
    let ids =
        r#"{"request_id":"v","choices":[{"index":0,"finish_reason":"stop","token_ids":[1,2,3]}]}"#;
    let created = r#"{"id":"conv_1","object":"conversation"}"#;
    let said = r#"{"object":"conversation.response","conversation_id":"c","outputs":[{"type":"message.output","content":"Hello"}],"usage":{"prompt_tokens":4,"completion_tokens":1}}"#;
    let triton = "data: {\"model_name\":\"m\",\"text_output\":\"Hello\"}\n\n";
    let batch = r#"{"id":"msgbatch_1","type":"message_batch"}"#;
    for (path, content_type, body, reported, text, class) in [
        (
            "/v1/responses/compact",
            json,
            compacted,
            usage(9, 5),
            Some(0),
            generation,
        ),
        (
            "/v1/images/generations",
            json,
            picture,
            usage(50, 60),
            None,
            generation,
        ),
        (
            "/v1/images/generations",
            sse,
            pictures,
            usage(50, 60),
            None,
            generation,
        ),
        (
            "/v1/audio/speech",
            "audio/mpeg",
            "ID3",
            unknown,
            None,
            generation,
        ),
        (
            "/inference/v1/generate",
            json,
            ids,
            (None, Some(3)),
            None,
            generation,
        ),
        (
            "/v1/conversations",
            json,
            created,
            unknown,
            None,
            OperationClass::Other,
        ),
        (
            "/v1/conversations",
            json,
            said,
            usage(4, 1),
            Some(1),
            generation,
        ),
        (
            "/v2/models/m/generate_stream",
            sse,
            triton,
            unknown,
            Some(1),
            generation,
        ),
        (
            "/v1/messages/batches",
            json,
            batch,
            unknown,
            None,
            OperationClass::Other,
        ),
        (
            "/v1/files",
            json,
            "{}",
            unknown,
            None,
            OperationClass::Other,
        ),
    ] {
        let posted = call(&bench, &Method::POST, path);
        head(&bench, &*posted, 200, content_type);
        bench.chunk(&*posted, 60, body);
        let record = bench.end(&*posted, 70, End::Complete);
        let name = format!("{path} {content_type}");
        let tokens = (record.tokens.reported.input, record.tokens.reported.output);
        assert_eq!(tokens, reported, "{name}");
        assert_eq!(record.operation_class, class, "{name}");
        assert_eq!(record.outcome.as_str(), "complete", "{name}");
        let counted = record.tokens.normalised.output;
        assert!(
            counted == text || class == OperationClass::Other,
            "{name}: {counted:?}"
        );
    }
}
