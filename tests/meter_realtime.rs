//! Realtime connections: a record for each response, timed from the event that requested it.

use http::StatusCode;
use std::sync::Arc;
use tokengauge_core::call::{CallRecord, Outcome};
use tokengauge_core::observer::{End, ObservedCall, Side};
use tokengauge_test_support::meter::{Bench, header_map};

fn message(from: Side, text: &str) -> Vec<u8> {
    let masked = if from == Side::Agent { 0x80 } else { 0 };
    let mut frame = vec![0x81, masked | 126];
    frame.extend((text.len() as u16).to_be_bytes());
    if from == Side::Agent {
        frame.extend([0; 4]);
    }
    frame.extend(text.bytes());
    frame
}

struct Socket {
    bench: Bench,
    call: Arc<dyn ObservedCall>,
}

impl Socket {
    fn open() -> Socket {
        let bench = Bench::default();
        let call = bench.begin("/v1/realtime?model=gpt-realtime", &[]);
        bench.send(&*call, b"");
        call.head(
            bench.at(50),
            StatusCode::SWITCHING_PROTOCOLS,
            &header_map(&[]),
        );
        Socket { bench, call }
    }

    fn agent(&self, millis: u64, text: &str) {
        self.bench
            .tunnel(&*self.call, Side::Agent, millis, message(Side::Agent, text));
    }

    fn upstream(&self, millis: u64, text: &str) {
        self.bench.tunnel(
            &*self.call,
            Side::Upstream,
            millis,
            message(Side::Upstream, text),
        );
    }

    fn begin(&self, millis: u64) {
        self.upstream(
            millis,
            r#"{"type":"response.created","response":{"id":"r","status":"in_progress"}}"#,
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

    fn done(&self, millis: u64, status: &str, output: u64) {
        self.upstream(
            millis,
            &format!(
                r#"{{"type":"response.done","response":{{"id":"r","status":"{status}","output":[],"usage":{{"input_tokens":9,"output_tokens":{output}}}}}}}"#
            ),
        );
    }

    fn end(self, millis: u64, end: End) -> Vec<CallRecord> {
        self.call.ended(self.bench.at(millis), end);
        let finished_calls = self.bench.finished_calls();
        finished_calls
            .iter()
            .rev()
            .map(|finished_call| finished_call.record.clone())
            .collect()
    }
}

#[test]
fn each_response_is_timed_from_what_asked_for_it() {
    let socket = Socket::open();
    socket.upstream(
        60,
        r#"{"type":"session.created","session":{"model":"gpt-realtime-1"}}"#,
    );
    socket.agent(1000, r#"{"type":"response.create"}"#);
    socket.begin(1100);
    for chunk in 0..5 {
        socket.words(1300 + chunk * 100, 8);
    }
    socket.done(1800, "completed", 40);
    socket.begin(5000);
    socket.words(5200, 3);
    socket.done(5300, "completed", 3);
    let records = socket.end(9000, End::Complete);

    assert_eq!(records.len(), 2, "none for the connection itself");
    let (asked, spoken) = (&records[0], &records[1]);
    let near = |is: Option<f64>, should: f64| is.is_some_and(|is| (is - should).abs() < 1e-9);
    assert!(
        near(asked.seconds.ttft, 0.3),
        "from response.create: {:?}",
        asked.seconds
    );
    assert!(near(spoken.seconds.ttft, 0.2), "from response.created");
    assert!(near(asked.seconds.duration, 0.8) && near(spoken.seconds.duration, 0.3));
    assert!(near(asked.tps.output, 80.0));
    for record in &records {
        assert_eq!(record.model.as_deref(), Some("gpt-realtime-1"));
        assert_eq!(record.model_requested.as_deref(), Some("gpt-realtime"));
        assert_eq!(
            (record.status, record.outcome),
            (Some(101), Outcome::Complete)
        );
        assert_eq!(record.finish_reasons, ["completed"]);
    }
    assert_eq!(asked.tokens.normalised.output, Some(40));
    assert_eq!(spoken.tokens.normalised.output, Some(3));
    assert_eq!(
        (asked.tokens.reported.output, spoken.tokens.reported.output),
        (Some(40), Some(3))
    );
    assert_eq!(asked.started_at.to_string(), "2023-11-14T22:13:21.000Z");
    assert_ne!(asked.id, spoken.id);
}

#[test]
fn the_turns_of_a_connection_are_one_session() {
    let turns = |socket: Socket| {
        for turn in 0..2 {
            socket.begin(1000 + turn * 1000);
            socket.words(1200 + turn * 1000, 3);
            socket.done(1300 + turn * 1000, "completed", 3);
        }
        let records = socket.end(9000, End::Complete);
        let sessions = records.iter().map(|record| record.session.clone());
        sessions.collect::<Vec<_>>()
    };
    let socket = Socket::open();
    socket.upstream(
        60,
        r#"{"type":"session.created","session":{"id":"sess_1","model":"gpt-realtime-1"}}"#,
    );
    assert_eq!(
        turns(socket),
        [Some("sess_1".into()), Some("sess_1".into())]
    );
    let sessions = turns(Socket::open());
    assert!(sessions[0].is_some(), "the connection itself");
    assert_eq!(sessions[0], sessions[1]);
    assert_ne!(sessions, turns(Socket::open()));
}

#[test]
fn every_text_counts_once_whatever_it_is_called() {
    let delta = |name: &str, part: u32| {
        format!(
            r#"{{"type":"response.{name}.delta","output_index":0,"content_index":{part},"delta":" word word"}}"#
        )
    };
    let done = |name: &str, part: u32, member: &str| {
        format!(
            r#"{{"type":"response.{name}.done","output_index":0,"content_index":{part},"{member}":" word word"}}"#
        )
    };
    let part = r#"{"type":"response.content_part.done","output_index":0,"content_index":1,"part":{"type":"audio","transcript":" word word"}}"#;
    let item = r#"{"type":"response.output_item.done","output_index":0,"item":{"type":"message","content":[{"type":"audio","transcript":" word word"},{"type":"text","text":" word word"}]}}"#;
    let call = r#"{"type":"response.function_call_arguments.done","output_index":1,"arguments":" word word"}"#;
    for (name, member) in [
        ("output_audio_transcript", "transcript"),
        ("audio_transcript", "transcript"),
        ("audio.transcript", "transcript"),
        ("output_audio.transcript", "transcript"),
        ("output_text", "text"),
        ("text", "text"),
    ] {
        for (messages, tokens) in [
            (vec![delta(name, 0), done(name, 0, member)], 2),
            (vec![done(name, 0, member)], 2),
            (
                vec![delta(name, 0), done(name, 0, member), done(name, 1, member)],
                4,
            ),
            (
                vec![
                    delta(name, 0),
                    done(name, 1, member),
                    done(name, 0, member),
                    item.into(),
                ],
                4,
            ),
            (vec![delta(name, 1), done(name, 0, member)], 2),
            (
                vec![
                    delta(name, 0),
                    done(name, 0, member),
                    part.into(),
                    item.into(),
                ],
                4,
            ),
            (vec![delta(name, 0), item.into()], 4),
            (vec![delta(name, 0), call.into()], 4),
        ] {
            let socket = Socket::open();
            socket.begin(100);
            for message in &messages {
                socket.upstream(200, message);
            }
            socket.done(300, "completed", tokens);
            let record = socket.end(400, End::Complete).remove(0);
            assert_eq!(
                record.tokens.normalised.output,
                Some(tokens),
                "{messages:?}"
            );
        }
    }
}

#[test]
fn only_responses_are_streams_in_flight() {
    let socket = Socket::open();
    let in_flight = || {
        socket
            .bench
            .meter
            .stats(std::time::Instant::now())
            .in_flight[0]
            .2
    };
    assert_eq!(in_flight(), 0, "an idle connection is none");
    socket.begin(100);
    socket.words(200, 1);
    assert_eq!(in_flight(), 1);
    assert_eq!(
        socket.bench.meter.streams(socket.bench.at(300), 10).len(),
        1
    );
    socket.done(400, "completed", 1);
    assert_eq!(in_flight(), 0);
}

#[test]
fn a_connection_without_a_response_gives_one_record() {
    let socket = Socket::open();
    socket.agent(100, r#"{"type":"session.update"}"#);
    let records = socket.end(200, End::Complete);
    assert_eq!(records.len(), 1);
    assert_eq!(records[0].outcome, Outcome::Complete);
    assert_eq!(records[0].seconds.duration, Some(0.2));
    assert!(records[0].bytes.request > 10);
}

#[test]
fn a_connection_that_ends_during_a_response_ends_that_response() {
    for (end, outcome) in [
        (End::Complete, Outcome::UpstreamReset),
        (End::UpstreamReset, Outcome::UpstreamReset),
        (End::ClientCancelled, Outcome::ClientCancelled),
    ] {
        let socket = Socket::open();
        socket.begin(100);
        socket.words(200, 2);
        let records = socket.end(300, end);
        assert_eq!((records.len(), records[0].outcome), (1, outcome));
        assert_eq!(records[0].tokens.normalised.output, Some(2));
    }
}

#[test]
fn an_error_that_the_response_survived_is_not_its_outcome() {
    let socket = Socket::open();
    socket.begin(100);
    socket.upstream(150, r#"{"type":"error","error":{"type":"invalid_request_error","code":"input_audio_buffer_commit_empty"}}"#);
    socket.words(200, 2);
    socket.done(300, "completed", 2);
    let records = socket.end(400, End::Complete);
    assert_eq!(records[0].outcome, Outcome::Complete);
}

#[test]
fn another_websocket_is_one_unmeasured_call() {
    let bench = Bench::default();
    let call = bench.begin("/chat-over-something-else", &[]);
    call.head(
        bench.at(50),
        StatusCode::SWITCHING_PROTOCOLS,
        &header_map(&[]),
    );
    bench.tunnel(
        &*call,
        Side::Upstream,
        100,
        message(Side::Upstream, "hello"),
    );
    let record = bench.end(&*call, 200, End::Complete);
    assert_eq!(
        (record.outcome, record.status),
        (Outcome::Complete, Some(101))
    );
}

#[test]
fn an_agent_that_hangs_up_in_a_response_has_cancelled_it_whatever_the_upstream_does_then() {
    for end in [End::Complete, End::UpstreamReset] {
        let socket = Socket::open();
        socket.begin(100);
        socket.words(200, 3);
        socket.call.tunnel_over(Side::Agent);
        socket.words(210, 2);
        socket.call.tunnel_over(Side::Upstream);
        let records = socket.end(300, end);
        assert_eq!(records.len(), 1);
        assert_eq!(records[0].outcome, Outcome::ClientCancelled);
        assert_eq!(records[0].tokens.normalised.output, Some(5));
    }
    let socket = Socket::open();
    socket.begin(100);
    socket.words(200, 3);
    socket.call.tunnel_over(Side::Upstream);
    socket.call.tunnel_over(Side::Agent);
    let records = socket.end(300, End::Complete);
    assert_eq!(records[0].outcome, Outcome::UpstreamReset, "it left first");
}
