//! Every call ends with exactly one outcome.

use http::{HeaderMap, HeaderName, HeaderValue};
use tokengauge_core::call::{CallRecord, Dialect, Outcome, TpsUnavailable};
use tokengauge_core::observer::{End, FailureKind};
use tokengauge_test_support::meter::{Bench, DONE, event, finish, words};

fn play(bench: &Bench, chunks: &[String], end: End) -> CallRecord {
    let call = bench.chat();
    for (chunk, body) in chunks.iter().enumerate() {
        bench.chunk(&*call, 100 + chunk as u64 * 100, body);
    }
    bench.end(&*call, 10_000, end)
}

fn outcome(chunks: &[String], end: End) -> (Outcome, Option<String>) {
    let record = play(&Bench::default(), chunks, end);
    (record.outcome, record.error_type)
}

fn error_event() -> String {
    "data: {\"error\":{\"type\":\"overloaded\",\"message\":\"secret prompt\"}}\n\n".to_owned()
}

#[test]
fn a_terminator_or_a_finish_reason_completes_a_stream() {
    let done = [words(3), DONE.to_owned()];
    assert_eq!(outcome(&done, End::Complete), (Outcome::Complete, None));
    let finished = [words(3), finish(None)];
    assert_eq!(outcome(&finished, End::Complete), (Outcome::Complete, None));
}

#[test]
fn a_stream_that_stops_without_either_was_reset() {
    let cut = [words(3), "data: {\"choices\":[{\"ind".to_owned()];
    let reset = (Outcome::UpstreamReset, Some("unterminated".to_owned()));
    assert_eq!(outcome(&cut, End::Complete), reset);
    assert_eq!(outcome(&[], End::Complete), reset, "nor was there anything");
}

/// The record of a stream of these payloads that the request did not ask for.
fn streamed(path: &str, payloads: &[&str], end: End) -> CallRecord {
    asked(r#"{"stream":true}"#, path, payloads, end)
}

fn asked(request: &str, path: &str, payloads: &[&str], end: End) -> CallRecord {
    let bench = Bench::default();
    let call = bench.begin(path, &[]);
    bench.send(&*call, request.as_bytes());
    bench.answer(&*call, 200, "text/event-stream");
    for (n, payload) in payloads.iter().enumerate() {
        bench.chunk(&*call, 100 + n as u64, format!("data: {payload}\n\n"));
    }
    bench.end(&*call, 10_000, end)
}

/// Streams with unknown events on known paths are not read.
#[test]
fn a_stream_that_is_not_understood_and_ended_as_http_says_is_complete_and_unparsed() {
    for (path, events) in [
        // Format of Writer.
        (
            "/v1/completions",
            [r#"{"value":"Once"}"#, r#"{"value":" upon"}"#],
        ),
        (
            "/v1/chat/completions",
            [r#"{"piece":"Once"}"#, r#"{"piece":" upon"}"#],
        ),
        (
            "/generate_stream",
            [r#"{"word":"Once"}"#, r#"{"word":" upon"}"#],
        ),
        (
            "/api/v1/chat",
            [
                r#"{"type":"prompt_processing.start"}"#,
                r#"{"type":"prompt_processing.end"}"#,
            ],
        ),
    ] {
        for (end, expected) in [
            (End::Complete, (Outcome::Complete, None)),
            (
                End::UpstreamReset,
                (Outcome::UpstreamReset, Some("upstream_reset".to_owned())),
            ),
        ] {
            let record = streamed(path, &events, end);
            assert_eq!((record.outcome, record.error_type), expected, "{path}");
            assert_eq!(record.dialect, Dialect::Unknown, "{path}");
            let unavailable = record.tps.unavailable;
            assert_eq!(unavailable, Some(TpsUnavailable::Unparsed), "{path}");
            assert_eq!(record.tokens.normalised.output, None, "{path}");
        }
    }
}

#[test]
fn a_request_for_text_that_gets_only_other_events_has_no_answer() {
    let empty = Some("empty_response".to_owned());
    for (path, request) in [
        ("/v1/chat/completions", r#"{"model":"m","stream":true}"#),
        ("/v1/messages", r#"{"model":"m","stream":true}"#),
        (
            "/api/chat",
            r#"{"messages":[{"role":"user","content":"Hello"}]}"#,
        ),
        ("/generate_stream", r#"{"inputs":"Hello"}"#),
        ("/v1beta/models/m:streamGenerateContent?alt=sse", "{}"),
    ] {
        let pings = [r#"{"type":"ping"}"#; 3];
        let record = asked(request, path, &pings, End::Complete);
        let ended = (record.outcome, record.error_type);
        assert_eq!(ended, (Outcome::ErrorEvent, empty.clone()), "{path}");
        assert_eq!(record.tokens.normalised.input, None, "{path}");
        let record = asked(request, path, &pings, End::ClientCancelled);
        assert_eq!(record.outcome, Outcome::ClientCancelled, "{path}");
    }
}

#[test]
fn the_streams_of_engines_own_apis_are_measured_and_end_as_they_say() {
    for (path, events) in [
        // Format of llama.cpp.
        (
            "/completions",
            [
                r#"{"index":0,"content":"Once","tokens":[9038],"stop":false,"id_slot":-1,"tokens_predicted":1,"tokens_evaluated":4}"#,
                r#"{"index":0,"content":"","tokens":[],"stop":true,"model":"tiny","tokens_predicted":2,"tokens_evaluated":4,"timings":{"prompt_n":4,"predicted_n":2}}"#,
            ],
        ),
        (
            "/v1beta/interactions",
            [
                r#"{"event_type":"content.delta","index":0,"delta":{"type":"text","text":"Once"}}"#,
                r#"{"event_type":"interaction.complete","interaction":{"id":"v1","status":"completed"}}"#,
            ],
        ),
        // Format of Triton.
        (
            "/v2/models/m/generate_stream",
            [
                r#"{"model_name":"m","model_version":"1","text_output":"Once"}"#,
                r#"{"model_name":"m","model_version":"1","text_output":" upon"}"#,
            ],
        ),
        // Format of LM Studio.
        (
            "/api/v1/chat",
            [
                r#"{"type":"message.delta","content":"Once"}"#,
                r#"{"type":"chat.end","result":{"stats":{"total_output_tokens":2}}}"#,
            ],
        ),
    ] {
        for (end, expected) in [
            (End::Complete, (Outcome::Complete, None)),
            (
                End::UpstreamReset,
                (Outcome::UpstreamReset, Some("upstream_reset".to_owned())),
            ),
        ] {
            let record = streamed(path, &events, end);
            assert_eq!((record.outcome, record.error_type), expected, "{path}");
            assert_ne!(record.dialect, Dialect::Unknown, "{path}");
            assert_ne!(
                record.tps.unavailable,
                Some(TpsUnavailable::Unparsed),
                "{path}"
            );
            let tokens = record.tokens.normalised.output;
            assert!(
                tokens.is_some_and(|tokens| tokens > 0),
                "{path}: {tokens:?}"
            );
        }
    }
}

#[test]
fn the_status_in_the_trailers_decides_how_a_grpc_call_ended() {
    for (status, expected) in [
        ("0", (Outcome::Complete, None)),
        (
            "8",
            (Outcome::ErrorEvent, Some("resource_exhausted".to_owned())),
        ),
        ("99", (Outcome::ErrorEvent, Some("unknown".to_owned()))),
    ] {
        let fields = HeaderMap::from_iter([(
            HeaderName::from_static("grpc-status"),
            HeaderValue::from_static(status),
        )]);
        let bench = Bench::default();
        let call = bench.begin("/inference.GRPCInferenceService/ModelStreamInfer", &[]);
        bench.answer(&*call, 200, "application/grpc+proto");
        bench.chunk(&*call, 100, "a message");
        call.trailers(&fields);
        let record = bench.end(&*call, 200, End::Complete);
        assert_eq!((record.outcome, record.error_type), expected, "{status}");
        // This status is not a gRPC status.
        let call = bench.begin("/v1/anything", &[]);
        bench.answer(&*call, 200, "text/plain");
        call.trailers(&fields);
        let record = bench.end(&*call, 200, End::Complete);
        assert_eq!(record.outcome, Outcome::Complete, "{status}");
    }
}

#[test]
fn a_cut_event_at_the_end_of_a_lost_connection_is_not_a_parse_error() {
    let cut = [words(3), "data: {\"choices\":[{\"ind".to_owned()];
    let record = play(&Bench::default(), &cut, End::UpstreamReset);
    assert_eq!(record.outcome, Outcome::UpstreamReset);
    assert_eq!(record.error_type.as_deref(), Some("upstream_reset"));
    assert_eq!(
        record.tokens.normalised.output,
        Some(3),
        "tokens that came count"
    );
}

#[test]
fn an_agent_that_leaves_has_cancelled_unless_the_terminator_was_there() {
    let cancelled = (Outcome::ClientCancelled, None);
    assert_eq!(outcome(&[words(3)], End::ClientCancelled), cancelled);
    let whole = [words(3), finish(None), DONE.to_owned()];
    assert_eq!(
        outcome(&whole, End::ClientCancelled),
        (Outcome::Complete, None)
    );
}

#[test]
fn a_response_that_is_cut_by_the_end_of_the_proxy_is_drained_unless_the_terminator_was_there() {
    let whole = [words(3), finish(None), DONE.to_owned()];
    assert_eq!(outcome(&[words(3)], End::Drained), (Outcome::Drained, None));
    assert_eq!(outcome(&whole, End::Drained), (Outcome::Complete, None));
}

#[test]
fn an_agent_that_takes_nothing_has_cancelled_and_the_reason_is_named() {
    let end = End::Failed(FailureKind::AgentSendTimeout);
    let record = play(&Bench::default(), &[words(3)], end.clone());
    assert_eq!(record.outcome, Outcome::ClientCancelled);
    assert_eq!(record.error_type.as_deref(), Some("agent_send_timeout"));
    assert_eq!(record.tokens.normalised.output, Some(3));
    let whole = [words(3), finish(None), DONE.to_owned()];
    assert_eq!(outcome(&whole, end), (Outcome::Complete, None));
}

#[test]
fn an_error_inside_a_200_is_recorded_by_its_type_and_never_by_its_message() {
    let chunks = [words(3), error_event()];
    for end in [End::Complete, End::ClientCancelled, End::UpstreamReset] {
        let record = play(&Bench::default(), &chunks, end);
        assert_eq!(record.outcome, Outcome::ErrorEvent);
        let error = record.error_type.expect("a type");
        assert_eq!(error, "overloaded");
    }
}

#[test]
fn a_status_of_400_and_above_is_an_http_error_with_the_bodys_type() {
    let bench = Bench::default();
    for (status, body, kind) in [
        (
            429,
            "{\"error\":{\"type\":\"rate_limit_error\",\"message\":\"m\"}}",
            "rate_limit_error",
        ),
        (503, "<html>oops</html>", "503"),
    ] {
        let call = bench.begin("/v1/chat/completions", &[]);
        bench.send(
            &*call,
            br#"{"model":"m","messages":[{"role":"user","content":"a prompt of words"}]}"#,
        );
        bench.answer(&*call, status, "application/json");
        bench.chunk(&*call, 100, body);
        let record = bench.end(&*call, 200, End::Complete);
        assert_eq!(
            (record.outcome, record.status),
            (Outcome::HttpError, Some(status))
        );
        assert_eq!(record.error_type.as_deref(), Some(kind));
        assert_eq!(record.tokens.normalised.output, None);
        let tokens = &record.tokens;
        assert_eq!((tokens.normalised.input, tokens.source), (None, None));
    }
}

#[test]
fn failures_of_ours_have_our_status_and_their_own_name() {
    use FailureKind::*;
    for (kind, outcome) in [
        (Dns, Outcome::Unreachable),
        (Connect, Outcome::Unreachable),
        (Tls, Outcome::Unreachable),
        (ConnectTimeout, Outcome::Timeout),
        (HeadTimeout, Outcome::Timeout),
        (IdleTimeout, Outcome::Timeout),
        (SendTimeout, Outcome::Timeout),
        (AgentSendTimeout, Outcome::ClientCancelled),
        (Reset, Outcome::UpstreamReset),
        (Protocol, Outcome::UpstreamReset),
        (NoRoute, Outcome::Rejected),
        (BadRequest, Outcome::Rejected),
        (RateLimited, Outcome::Rejected),
        (OverBudget, Outcome::Rejected),
        (Overloaded, Outcome::Rejected),
        (ConfigRefused, Outcome::Rejected),
    ] {
        let bench = Bench::default();
        let call = bench.begin("/v1/chat/completions", &[]);
        let record = bench.end(&*call, 10, End::Failed(kind));
        assert_eq!(record.outcome, outcome, "{kind:?}");
        assert_eq!(record.error_type.as_deref(), Some(kind.as_str()));
        assert_eq!(record.status, Some(kind.status().as_u16()));
        assert_eq!((record.streamed, record.tokens.source), (None, None));
    }
}

#[test]
fn an_idle_timeout_during_a_stream_keeps_the_upstreams_status_and_the_tokens() {
    let end = End::Failed(FailureKind::IdleTimeout);
    let record = play(&Bench::default(), &[words(40)], end);
    assert_eq!(
        (record.outcome, record.status),
        (Outcome::Timeout, Some(200))
    );
    assert_eq!(record.tokens.normalised.output, Some(40));
}

#[test]
fn only_the_first_end_counts() {
    let bench = Bench::default();
    let call = bench.chat();
    bench.chunk(&*call, 100, words(3) + DONE);
    call.ended(bench.at(200), End::Complete);
    call.ended(bench.at(300), End::UpstreamReset);
    bench.chunk(&*call, 400, words(3));
    drop(call);
    let finished_calls = bench.finished_calls();
    assert_eq!(finished_calls.len(), 1);
    assert_eq!(finished_calls[0].record.outcome, Outcome::Complete);
    assert_eq!(finished_calls[0].record.seconds.duration, Some(0.2));
}

#[test]
fn a_call_without_an_end_was_cancelled_at_the_last_instant_seen() {
    let bench = Bench::default();
    let call = bench.chat();
    bench.chunk(&*call, 700, words(3));
    drop(call);
    let record = bench.newest();
    assert_eq!(record.outcome, Outcome::ClientCancelled);
    assert_eq!(record.seconds.duration, Some(0.7));
}

#[test]
fn a_head_request_and_a_204_need_no_terminator() {
    let bench = Bench::default();
    let head = bench.begin_with("/v1/chat/completions", &[], |mut start| {
        start.method = &http::Method::HEAD;
        start
    });
    bench.answer(&*head, 200, "text/event-stream");
    assert_eq!(
        bench.end(&*head, 100, End::Complete).outcome,
        Outcome::Complete
    );
    let empty = bench.begin("/v1/chat/completions", &[]);
    bench.answer(&*empty, 204, "text/event-stream");
    assert_eq!(
        bench.end(&*empty, 100, End::Complete).outcome,
        Outcome::Complete
    );
}

#[test]
fn calls_after_an_upstream_was_unreachable_are_warm_up() {
    use tokengauge_config::Measure;
    let measure = Measure {
        warm_up_calls: 1,
        warm_up_for: std::time::Duration::ZERO,
        ..Measure::default()
    };
    let bench = Bench::new(measure, Vec::new());
    let warm_up = |end| {
        let call = bench.begin("/v1/chat/completions", &[]);
        if end == End::Complete {
            bench.send(&*call, b"{}");
            bench.answer(&*call, 200, "text/event-stream");
            bench.chunk(&*call, 100, event("{\"content\":\"a\"}") + DONE);
        }
        bench.end(&*call, 200, end).warm_up
    };
    assert!(warm_up(End::Complete), "the first of the process");
    assert!(!warm_up(End::Complete));
    assert!(!warm_up(End::Failed(FailureKind::Connect)));
    assert!(warm_up(End::Complete), "the first after it was unreachable");
    assert!(!warm_up(End::Complete));
}

/// The record of a call whose body was read for a limit is made in the background and may wait there.
#[test]
fn calls_right_after_an_upstream_was_unreachable_are_warm_up() {
    use tokengauge_config::Measure;
    let measure = Measure {
        warm_up_calls: 1,
        warm_up_for: std::time::Duration::ZERO,
        ..Measure::default()
    };
    let bench = Bench::new(measure, Vec::new());
    let first = bench.chat();
    bench.end(&*first, 200, End::Complete);
    for failure in [
        FailureKind::Connect,
        FailureKind::ConnectTimeout,
        FailureKind::Dns,
        FailureKind::Tls,
    ] {
        let away = bench.begin("/v1/chat/completions", &[]);
        away.request_chunk(
            &br#"{"model":"asked","messages":[{"role":"user","content":"a b"}]}"#[..].into(),
        );
        away.sent(bench.at(5));
        away.ended(bench.at(200), End::Failed(failure));
        let next = bench.chat();
        let record = bench.end(&*next, 200, End::Complete);
        assert!(record.warm_up, "{failure:?}");
        let second = bench.chat();
        assert!(
            !bench.end(&*second, 200, End::Complete).warm_up,
            "{failure:?}"
        );
    }
}
