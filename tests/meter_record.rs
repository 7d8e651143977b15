//! The JSON of the call record is a public interface: field names, and `null` for unknown values.

use serde_json::{Value, json};
use tokengauge_core::observer::{End, FailureKind};
use tokengauge_test_support::meter::{Bench, DONE, finish, thoughts, words};

#[test]
fn a_finished_stream_has_exactly_these_fields_and_values() {
    let bench = Bench::default();
    let workload: std::sync::Arc<str> = "voice".into();
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    let headers = [
        ("x-tokengauge-session", "s-1"),
        ("x-tokengauge-experiment", "e-1"),
        ("user-agent", "agent/1.0 (x)"),
        ("traceparent", &format!("00-{trace}-00f067aa0ba902b7-01")),
    ];
    let call = bench.meter.begin(tokengauge_core::observer::CallStart {
        received: bench.start,
        started_at: std::time::UNIX_EPOCH + std::time::Duration::from_millis(1_700_000_000_123),
        method: &http::Method::POST,
        uri: &"/v1/chat/completions".parse().expect("a path"),
        headers: &tokengauge_test_support::meter::header_map(&headers),
        peer: None,
        port: None,
        route: &bench.route,
        upstream: &bench.upstream,
        dialect: None,
        workload: Some(&workload),
        inject_usage: false,
        variant: None,
    });
    use tokengauge_core::observer::Observer;
    bench.send(
        &*call,
        br#"{"model":"asked","stream":true,"user":"ada","messages":[]}"#,
    );
    bench.answer(&*call, 200, "text/event-stream");
    bench.chunk(&*call, 250, thoughts(4));
    for chunk in 1..=4 {
        bench.chunk(&*call, 250 + chunk * 250, words(8));
    }
    bench.chunk(&*call, 1500, finish(Some(50)) + DONE);
    let record = bench.end(&*call, 2000, End::Complete);
    let mut is = serde_json::to_value(&record).expect("JSON");
    let id = is["id"].take();
    assert!(id.as_str().is_some_and(|id| id.len() == 36), "{id}");
    let user = is["user"].take();
    assert!(
        user.as_str()
            .is_some_and(|user| user.len() == 32 && !user.contains("ada"))
    );
    let bytes = is["bytes"]["response"].take();
    assert!(bytes.as_u64().is_some_and(|bytes| bytes > 500));
    let mut should = json!({
        "id": null, "started_at": "2023-11-14T22:13:20.123Z", "route": "route",
        "upstream": "upstream", "upstream_facts": null, "endpoint": "127.0.0.1:9", "dialect": "openai_chat",
        "operation": "chat", "operation_class": "generation", "method": "POST", "path": "/v1/chat/completions", "model_requested": "asked", "model": "m-1", "streamed": true,
        "status": 200, "outcome": "complete", "error_type": null, "finish_reasons": ["stop"],
        "session": "s-1", "agent": "agent/1.0", "parent_agent": null, "user": null, "workload": "voice",
        "experiment": "e-1", "variant": null, "trace_id": trace, "hop": null, "response_id": "c1", "service_tier": null, "warm_up": true,
        "tokens": {
            "normalised": {"answer": 32, "reasoning": 4, "tool_call": 0, "output": 36, "input": null},
            "reported": {"input": 7, "cached_input": null, "cache_write": null, "output": 50, "reasoning": null},
            "source": "reported",
        },
        "seconds": {
            "ttft": 0.25, "ttft_upstream": 0.245, "first_answer": 0.5, "connect": 0.002,
            "upload": 0.003, "last_token": 1.25, "longest_gap": 0.25, "duration": 2.0, "agent_blocked": 0.0,
        },
        "tps": {"output": 32.0, "answer": null, "total": 18.0, "reported": 32.0 * 50.0 / 36.0, "prefill": 7.0 / 0.245, "unavailable": null,
            "total_unavailable": null},
        "frames": 5, "stalls": 0, "segments": [], "first_token_event": 0,
        "bytes": {"request": 58, "response": null}, "cost_usd": null,
        "cost_source": null,
    });
    // One call of the macro cannot hold more members.
    should["engine"] = Value::Null;
    should["session_guess"] = Value::Null;
    should["seconds"]["server_tools"] = json!(0.0);
    should["skipped_events"] = json!(0);
    should["cost_unavailable"] = json!("no_price");
    for absent in [
        "team",
        "cost_center",
        "tenant",
        "key_hash",
        "tools",
        "served_by",
        "reasoning_effort",
        "prompt",
        "wait",
        "cache_break",
        "retry_of",
        "repetition",
        "prompt_blocks",
    ] {
        should[absent] = Value::Null;
    }
    assert_eq!(is, should);
}

#[test]
fn what_is_unknown_is_null_and_never_zero() {
    let bench = Bench::default();
    let call = bench.begin("/v1/chat/completions", &[]);
    let record = bench.end(&*call, 10, End::Failed(FailureKind::Connect));
    let record = serde_json::to_value(&record).expect("JSON");
    let unknown = [
        "/endpoint",
        "/model_requested",
        "/model",
        "/streamed",
        "/session",
        "/agent",
        "/parent_agent",
        "/user",
        "/workload",
        "/experiment",
        "/variant",
        "/trace_id",
        "/tokens/normalised/answer",
        "/tokens/normalised/reasoning",
        "/tokens/normalised/tool_call",
        "/tokens/normalised/output",
        "/tokens/normalised/input",
        "/tokens/reported/input",
        "/tokens/reported/cached_input",
        "/tokens/reported/cache_write",
        "/tokens/reported/output",
        "/tokens/reported/reasoning",
        "/tokens/source",
        "/seconds/ttft",
        "/seconds/ttft_upstream",
        "/seconds/first_answer",
        "/seconds/connect",
        "/seconds/upload",
        "/seconds/last_token",
        "/seconds/longest_gap",
        "/tps/output",
        "/tps/answer",
        "/tps/total",
        "/first_token_event",
        "/cost_usd",
        "/cost_source",
        "/engine",
        "/prompt",
        "/wait",
        "/cache_break",
        "/retry_of",
        "/repetition",
        "/prompt_blocks",
    ];
    for pointer in unknown {
        assert_eq!(record.pointer(pointer), Some(&Value::Null), "{pointer}");
    }
    assert_eq!(record["finish_reasons"], json!([]));
}

#[test]
fn the_engines_own_figures_are_recorded_as_well() {
    let bench = Bench::default();
    let call = bench.chat();
    bench.chunk(&*call, 100, words(3));
    let timings = "{\"prompt_n\":11,\"prompt_ms\":20.0,\"predicted_n\":3,\"predicted_ms\":150.0}";
    let last = format!(
        "data: {{\"choices\":[{{\"index\":0,\"delta\":{{}},\"finish_reason\":\"stop\"}}],\"timings\":{timings}}}\n\n"
    );
    bench.chunk(&*call, 200, last + DONE);
    let engine = bench
        .end(&*call, 300, End::Complete)
        .engine
        .expect("timings");
    assert_eq!(
        (engine.prompt_tokens, engine.output_tokens),
        (Some(11), Some(3))
    );
    assert_eq!(
        (engine.prompt_seconds, engine.output_seconds),
        (Some(0.02), Some(0.15))
    );
}
