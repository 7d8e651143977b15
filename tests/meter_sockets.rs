//! OpenAI responses over WebSocket, and Gemini Live: a record for each answer, timed from the message that requested
//! it.

use http::{Method, StatusCode};
use std::sync::Arc;
use tokengauge_core::call::{CallRecord, Dialect, Operation, OperationClass, Outcome};
use tokengauge_core::observer::{CallStart, End, ObservedCall, Side};
use tokengauge_test_support::meter::{Bench, header_map};

const LIVE: &str =
    "/ws/google.ai.generativelanguage.v1beta.GenerativeService.BidiGenerateContent?key=k";

fn message(from: Side, binary: bool, text: &str) -> Vec<u8> {
    let masked = if from == Side::Agent { 0x80 } else { 0 };
    let mut frame = vec![if binary { 0x82 } else { 0x81 }];
    match u16::try_from(text.len()) {
        Ok(short) => {
            frame.push(masked | 126);
            frame.extend(short.to_be_bytes());
        }
        Err(_) => {
            frame.push(masked | 127);
            frame.extend((text.len() as u64).to_be_bytes());
        }
    }
    if from == Side::Agent {
        frame.extend([0; 4]);
    }
    frame.extend(text.bytes());
    frame
}

struct Socket {
    bench: Bench,
    call: Arc<dyn ObservedCall>,
    binary: bool,
}

impl Socket {
    fn asked(path: &str, headers: &[(&str, &str)]) -> (Bench, Arc<dyn ObservedCall>) {
        let bench = Bench::default();
        let headers: Vec<_> = [("upgrade", "websocket")]
            .iter()
            .chain(headers)
            .copied()
            .collect();
        let call = bench.begin_with(path, &headers, |start| CallStart {
            method: &Method::GET,
            ..start
        });
        bench.send(&*call, b"");
        (bench, call)
    }

    fn open(path: &str, headers: &[(&str, &str)]) -> Socket {
        let (bench, call) = Socket::asked(path, headers);
        let switching = StatusCode::SWITCHING_PROTOCOLS;
        call.head(bench.at(50), switching, &header_map(&[]));
        let binary = path == LIVE;
        Socket {
            bench,
            call,
            binary,
        }
    }

    fn responses() -> Socket {
        Socket::open("/v1/responses", &[])
    }

    fn live() -> Socket {
        let socket = Socket::open(LIVE, &[]);
        socket.agent(60, r#"{"setup":{"model":"models/gemini-live-1"}}"#);
        socket.upstream(70, r#"{"setupComplete":{"sessionId":"live-1"}}"#);
        socket
    }

    fn agent(&self, millis: u64, text: &str) {
        let bytes = message(Side::Agent, false, text);
        self.bench.tunnel(&*self.call, Side::Agent, millis, bytes);
    }

    fn upstream(&self, millis: u64, text: &str) {
        let bytes = message(Side::Upstream, self.binary, text);
        self.bench
            .tunnel(&*self.call, Side::Upstream, millis, bytes);
    }

    fn created(&self, millis: u64, id: &str) {
        self.upstream(
            millis,
            &format!(
                r#"{{"type":"response.created","response":{{"id":"{id}","model":"gpt-served","status":"in_progress","output":[]}}}}"#
            ),
        );
    }

    fn words(&self, millis: u64, count: usize) {
        let text = " word".repeat(count);
        self.upstream(
            millis,
            &format!(
                r#"{{"type":"response.output_text.delta","item_id":"i","output_index":0,"content_index":0,"delta":"{text}"}}"#
            ),
        );
    }

    fn completed(&self, millis: u64, id: &str, output: usize) {
        let text = " word".repeat(output);
        self.upstream(
            millis,
            &format!(
                r#"{{"type":"response.completed","response":{{"id":"{id}","model":"gpt-served","status":"completed","output":[{{"type":"message","content":[{{"type":"output_text","text":"{text}"}}]}}],"usage":{{"input_tokens":9,"output_tokens":{output}}}}}}}"#
            ),
        );
    }

    fn end(self, millis: u64, end: End) -> Vec<CallRecord> {
        self.call.ended(self.bench.at(millis), end);
        let finished_calls = self.bench.finished_calls();
        let records = finished_calls.iter().rev();
        records
            .map(|finished_call| finished_call.record.clone())
            .collect()
    }
}

fn near(is: Option<f64>, should: f64) -> bool {
    is.is_some_and(|is| (is - should).abs() < 1e-9)
}

#[test]
fn each_response_over_a_socket_is_one_record_with_the_facts_of_its_request() {
    let socket = Socket::responses();
    socket.agent(
        1000,
        r#"{"type":"response.create","model":"gpt-asked","input":"hi","user":"me","service_tier":"flex","prompt_cache_key":"k-1"}"#,
    );
    socket.created(1100, "resp_1");
    for chunk in 0..5 {
        socket.words(1300 + chunk * 100, 8);
    }
    socket.completed(1800, "resp_1", 40);
    socket.agent(
        5000,
        r#"{"type":"response.create","model":"gpt-other","input":"on","previous_response_id":"resp_1","conversation":"conv_1"}"#,
    );
    socket.created(5100, "resp_2");
    socket.words(5250, 3);
    socket.completed(5300, "resp_2", 3);
    let records = socket.end(9000, End::Complete);

    assert_eq!(records.len(), 2, "none for the connection itself");
    let (first, second) = (&records[0], &records[1]);
    for record in &records {
        assert_eq!(record.dialect, Dialect::OpenaiResponses);
        assert_eq!(record.operation, Operation::Chat);
        assert_eq!(record.operation_class, OperationClass::Generation);
        assert_eq!(record.outcome, Outcome::Complete);
        assert_eq!(record.streamed, Some(true));
        assert_eq!(record.model.as_deref(), Some("gpt-served"));
        assert_eq!(record.finish_reasons, ["completed"]);
        assert_eq!(record.path.as_deref(), Some("/v1/responses"));
    }
    assert!(near(first.seconds.ttft, 0.3) && near(second.seconds.ttft, 0.25));
    assert!(near(first.seconds.duration, 0.8) && near(second.seconds.duration, 0.3));
    assert!(near(first.tps.output, 80.0));
    assert_eq!(
        first.tokens.normalised.output,
        Some(40),
        "copies count once"
    );
    assert_eq!(second.tokens.normalised.output, Some(3));
    assert_eq!(first.tokens.reported.output, Some(40));
    assert_eq!(first.model_requested.as_deref(), Some("gpt-asked"));
    assert_eq!(second.model_requested.as_deref(), Some("gpt-other"));
    assert_eq!(first.response_id.as_deref(), Some("resp_1"));
    assert_eq!(second.response_id.as_deref(), Some("resp_2"));
    assert_eq!(first.service_tier.as_deref(), Some("flex"));
    assert!(first.user.is_some() && second.user.is_none());
    assert_eq!(first.session.as_deref(), Some("k-1"));
    assert_eq!(second.session.as_deref(), Some("conv_1"));
}

#[test]
fn responses_of_a_socket_are_one_session_unless_the_agent_says_one() {
    let turns = |socket: Socket| {
        for turn in 0..2 {
            let id = format!("resp_{turn}");
            socket.agent(
                1000 + turn * 1000,
                r#"{"type":"response.create","model":"m"}"#,
            );
            socket.created(1100 + turn * 1000, &id);
            socket.words(1200 + turn * 1000, 3);
            socket.completed(1300 + turn * 1000, &id, 3);
        }
        let records = socket.end(9000, End::Complete);
        let sessions = records.iter().map(|record| record.session.clone());
        sessions.collect::<Vec<_>>()
    };
    let sessions = turns(Socket::responses());
    assert!(sessions[0].is_some());
    assert_eq!(sessions[0], sessions[1]);
    let named = Socket::open("/v1/responses", &[("x-tokengauge-session", "mine")]);
    assert_eq!(turns(named), [Some("mine".into()), Some("mine".into())]);
}

#[test]
fn an_error_over_a_socket_fails_the_pending_request() {
    let socket = Socket::responses();
    socket.agent(1000, r#"{"type":"response.create","model":"m"}"#);
    socket.upstream(
        1200,
        r#"{"type":"error","status":400,"error":{"type":"invalid_request_error","code":"previous_response_not_found","message":"secret words"}}"#,
    );
    socket.agent(2000, r#"{"type":"response.create","model":"m"}"#);
    socket.created(2100, "resp_1");
    socket.words(2200, 3);
    socket.upstream(
        2300,
        r#"{"type":"error","code":"server_error","message":"x"}"#,
    );
    socket.upstream(
        2310,
        r#"{"type":"response.failed","response":{"id":"resp_1","status":"failed","error":{"code":"server_error"}}}"#,
    );
    socket.agent(3000, r#"{"type":"response.create","model":"m"}"#);
    socket.created(3100, "resp_2");
    socket.words(3200, 3);
    socket.completed(3300, "resp_2", 3);
    let records = socket.end(4000, End::Complete);
    let outcomes: Vec<_> = records.iter().map(|record| record.outcome).collect();
    assert_eq!(
        outcomes,
        [Outcome::ErrorEvent, Outcome::ErrorEvent, Outcome::Complete]
    );
    assert!(near(records[0].seconds.duration, 0.2));
    let error = records[0].error_type.as_deref();
    assert!(error.is_some_and(|error| !error.contains(' ')), "{error:?}");
    assert_eq!(records[1].tokens.normalised.output, Some(3));
    assert_eq!(records[2].error_type, None);
}

#[test]
fn a_response_that_waits_is_in_flight_and_fails_with_its_connection() {
    let socket = Socket::responses();
    let in_flight = || {
        let now = std::time::Instant::now();
        socket.bench.meter.stats(now).in_flight[0].2
    };
    assert_eq!(in_flight(), 0, "an idle connection is none");
    socket.agent(100, r#"{"type":"response.create","model":"m"}"#);
    assert_eq!(in_flight(), 1, "before anything was answered");
    let records = socket.end(400, End::UpstreamReset);
    assert_eq!(records.len(), 1);
    assert_eq!(records[0].outcome, Outcome::UpstreamReset);
    assert_eq!(records[0].operation_class, OperationClass::Generation);
    assert_eq!(records[0].model_requested.as_deref(), Some("m"));

    let socket = Socket::responses();
    socket.agent(100, r#"{"type":"response.create","model":"m"}"#);
    socket.created(150, "resp_1");
    socket.words(200, 4);
    socket.call.tunnel_over(Side::Agent);
    let records = socket.end(300, End::Complete);
    assert_eq!(records[0].outcome, Outcome::ClientCancelled);
    assert_eq!(records[0].tokens.normalised.output, Some(4));
}

#[test]
fn a_socket_without_requests_is_not_a_generation() {
    let idle = Socket::responses().end(200, End::Complete);
    let classes = |records: &[CallRecord]| {
        let classes = records.iter().map(|record| record.operation_class);
        classes.collect::<Vec<_>>()
    };
    assert_eq!(classes(&idle), [OperationClass::Other]);
    for (status, class) in [
        (404, OperationClass::Other),
        (426, OperationClass::Other),
        (429, OperationClass::Generation),
    ] {
        let (bench, call) = Socket::asked("/v1/responses", &[]);
        bench.answer(&*call, status, "application/json");
        bench.chunk(&*call, 60, r#"{"error":{"code":"no"}}"#);
        let record = bench.end(&*call, 100, End::Complete);
        assert_eq!(record.operation_class, class, "{status}");
    }
    let socket = Socket::responses();
    socket.agent(
        100,
        r#"{"type":"response.create","model":"m","generate":false}"#,
    );
    socket.created(150, "resp_1");
    socket.completed(160, "resp_1", 0);
    socket.agent(200, r#"{"type":"response.create","model":"m"}"#);
    socket.created(250, "resp_2");
    socket.words(300, 3);
    socket.completed(310, "resp_2", 3);
    let records = socket.end(400, End::Complete);
    assert_eq!(
        classes(&records),
        [OperationClass::Other, OperationClass::Generation],
        "one that only prepares"
    );
}

#[test]
fn each_turn_of_gemini_live_is_one_record() {
    let socket = Socket::live();
    let ask = r#"{"clientContent":{"turns":[{"role":"user","parts":[{"text":"hi"}]}],"turnComplete":true}}"#;
    socket.agent(1000, ask);
    for chunk in 0..5 {
        socket.upstream(
            1300 + chunk * 100,
            r#"{"serverContent":{"modelTurn":{"parts":[{"text":" word word word word word word word word"}]}}}"#,
        );
    }
    socket.upstream(1750, r#"{"serverContent":{"generationComplete":true}}"#);
    socket.upstream(
        3000,
        r#"{"serverContent":{"turnComplete":true},"usageMetadata":{"promptTokenCount":7,"responseTokenCount":40}}"#,
    );
    // Speech with a transcript, which the server answers on its own initiative.
    socket.agent(4000, r#"{"realtimeInput":{"audio":{"data":"AAAA"}}}"#);
    socket.upstream(
        5000,
        r#"{"serverContent":{"modelTurn":{"parts":[{"inlineData":{"mimeType":"audio/pcm","data":"AAAA"}}]}}}"#,
    );
    socket.upstream(
        5100,
        r#"{"serverContent":{"outputTranscription":{"text":" word word"}}}"#,
    );
    socket.upstream(5200, r#"{"serverContent":{"interrupted":true}}"#);
    socket.upstream(5210, r#"{"serverContent":{"turnComplete":true}}"#);
    socket.agent(6000, ask);
    socket.upstream(
        6200,
        r#"{"toolCall":{"functionCalls":[{"id":"f","name":"look","args":{"at":"boats"}}]}}"#,
    );
    socket.agent(8000, r#"{"toolResponse":{"functionResponses":[]}}"#);
    socket.upstream(
        8300,
        r#"{"serverContent":{"modelTurn":{"parts":[{"text":" word"}]}}}"#,
    );
    socket.upstream(8400, r#"{"serverContent":{"turnComplete":true}}"#);
    let records = socket.end(9000, End::Complete);

    assert_eq!(records.len(), 4);
    for record in &records {
        assert_eq!(record.dialect, Dialect::GeminiLive);
        assert_eq!(record.operation, Operation::Realtime);
        assert_eq!(record.outcome, Outcome::Complete);
        assert_eq!(record.session.as_deref(), Some("live-1"));
        assert_eq!(record.model_requested.as_deref(), Some("gemini-live-1"));
    }
    let output = |at: usize| records[at].tokens.normalised.output;
    assert_eq!(
        (output(0), output(1), output(3)),
        (Some(40), Some(2), Some(1))
    );
    assert!(records[2].tokens.normalised.tool_call > Some(0));
    assert!(near(records[0].seconds.ttft, 0.3));
    assert!(near(records[0].tps.output, 80.0));
    assert!(
        near(records[0].seconds.duration, 0.75),
        "until it is generated, not until it is played"
    );
    assert_eq!(records[0].tokens.reported.input, Some(7));
    assert_eq!(records[0].tokens.reported.output, Some(40));
    assert_eq!(records[1].finish_reasons, ["interrupted"]);
    assert_eq!(records[2].finish_reasons, ["tool_call"]);
    assert!(near(records[3].seconds.ttft, 0.3), "from the tool's answer");
    let path = records[0].path.as_deref().unwrap_or_default();
    assert!(path.ends_with("BidiGenerateContent"), "{path}");
}

#[test]
fn gemini_live_that_breaks_off_was_reset() {
    let socket = Socket::live();
    socket.agent(
        1000,
        r#"{"client_content":{"turns":[],"turn_complete":true}}"#,
    );
    let records = socket.end(2000, End::Complete);
    assert_eq!(records.len(), 1);
    assert_eq!(records[0].outcome, Outcome::UpstreamReset);
    assert_eq!(records[0].dialect, Dialect::GeminiLive);
}

#[test]
fn responses_that_gemini_live_begins_itself_have_no_ttft() {
    let socket = Socket::live();
    socket.agent(0, r#"{"setup":{"model":"models/gemini-live-1"}}"#);
    // An audio stream that got no answer ended long before the turn begins.
    socket.agent(1000, r#"{"realtimeInput":{"audioStreamEnd":true}}"#);
    for number in 0..40 {
        socket.upstream(
            100_000 + number * 25,
            r#"{"serverContent":{"modelTurn":{"parts":[{"text":" word"}]}}}"#,
        );
    }
    socket.upstream(102_000, r#"{"serverContent":{"turnComplete":true}}"#);
    let records = socket.end(103_000, End::Complete);
    let [record] = &records[..] else {
        panic!("{} records", records.len());
    };
    let seconds = record.seconds;
    assert_eq!(
        (seconds.ttft, seconds.ttft_upstream, seconds.first_answer),
        (None, None, None)
    );
    assert!(near(record.tps.output, 40.0), "{:?}", record.tps);
    assert!(near(seconds.last_token, 0.975), "{seconds:?}");
}

#[test]
fn a_long_request_over_a_socket_is_timed_without_being_parsed() {
    let socket = Socket::responses();
    let skipped = |socket: &Socket| {
        let now = std::time::Instant::now();
        socket.bench.meter.stats(now).skipped_bodies
    };
    let input = "a".repeat(1 << 20);
    let long = format!(r#"{{"type": "response.create","model":"long","input":"{input}"}}"#);
    socket.agent(100, &long);
    assert_eq!(
        skipped(&socket),
        1,
        "what it says is not read, and that is counted"
    );
    socket.created(150, "resp_1");
    socket.words(200, 4);
    socket.completed(300, "resp_1", 4);
    socket.agent(400, r#"{"type":"response.create","model":"short"}"#);
    socket.created(450, "resp_2");
    socket.words(500, 4);
    socket.completed(600, "resp_2", 4);
    // Longer than every bound: nothing after it can be read, which is also counted.
    let beyond = format!(
        r#"{{"type":"response.create","input":"{}"}}"#,
        "a".repeat(9 << 20)
    );
    socket.agent(700, &beyond);
    assert_eq!(skipped(&socket), 2);
    let records = socket.end(800, End::Complete);
    let asked: Vec<_> = records
        .iter()
        .map(|record| record.model_requested.as_deref())
        .collect();
    assert_eq!(asked, [None, Some("short")]);
    assert!(
        near(records[0].seconds.ttft, 0.1),
        "{:?}",
        records[0].seconds
    );
    assert!(
        near(records[1].seconds.ttft, 0.1),
        "{:?}",
        records[1].seconds
    );
}
