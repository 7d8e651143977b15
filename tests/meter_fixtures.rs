//! Fixtures through the whole meter. A record must match the fixture's events, with the tokens of each text counted as
//! one string.

use crate::wire_dialects::{Fixture, fixtures, folder_of};
use crate::wire_requests::written_requests;
use http::{Method, StatusCode};
use serde_json::Value;
use std::collections::BTreeMap;
use tokengauge_core::call::{CallRecord, Dialect, Outcome, Usage};
use tokengauge_core::observer::{CallStart, End, Side};
use tokengauge_test_support::meter::{Bench, header_map};
use tokengauge_test_support::wire::encode::{CODINGS, encode};
use tokengauge_test_support::wire::frames::{Frame, socket};
use tokengauge_tokenizer as tokens;
use tokengauge_wire::DIALECTS;

/// Bytes of a chunk; small enough to cut most events.
const CHUNK: usize = 97;

/// Expected values of a record.
#[derive(Debug, Default, PartialEq)]
struct Said {
    /// Tokens of answer, reasoning and tool calls, in this order.
    tokens: [u64; 3],
    model: Option<String>,
    finish_reasons: Vec<String>,
    first_token_event: Option<u64>,
    reported: Usage,
}

/// The texts of a response, by choice, index and channel.
type Texts = BTreeMap<(String, String), String>;

const CHANNELS: [&str; 3] = ["answer", "reasoning", "tool_call"];

impl Said {
    fn count(&mut self, texts: &Texts) {
        for ((_, channel), text) in texts {
            let at = CHANNELS.iter().position(|name| name == channel);
            // Reasoning inside the text of the answer.
            let split = text.split_inclusive("</think>").next().unwrap_or_default();
            let thought = if channel == "answer" && text.starts_with("<think>") {
                split
            } else {
                ""
            };
            self.tokens[1] += tokens::count(thought);
            self.tokens[at.expect("a channel")] += tokens::count(&text[thought.len()..]);
        }
    }

    fn by_events(events: &str) -> Said {
        let mut said = Said::default();
        let mut texts = Texts::new();
        let mut finish = BTreeMap::new();
        let mut messages = 0;
        for line in events.lines() {
            let (kind, rest) = line.split_once(' ').unwrap_or((line, ""));
            let string = |text: &str| serde_json::from_str::<String>(text).expect("a string");
            match kind {
                "message" => messages += 1,
                "delta" => {
                    let (place, rest) = rest.split_once(' ').expect("a place");
                    let (channel, text) = rest.split_once(' ').expect("a channel");
                    let key = (place.to_owned(), channel.to_owned());
                    *texts.entry(key).or_default() += &string(text);
                    said.first_token_event.get_or_insert(messages - 1);
                }
                "model" => said.model = Some(string(rest)),
                "finish" => {
                    let (choice, reason) = rest.split_once(' ').expect("a choice");
                    let choice: u32 = choice.parse().expect("a number");
                    finish.insert(choice, string(reason));
                }
                "usage" => said.reported.overlay(usage(rest)),
                _ => {}
            }
        }
        said.finish_reasons = finish.into_values().collect();
        said.count(&texts);
        said
    }

    fn by_record(record: &CallRecord) -> Said {
        let counted = record.tokens.normalised;
        let count = |tokens: Option<u64>| tokens.unwrap_or(0);
        Said {
            tokens: [counted.answer, counted.reasoning, counted.tool_call].map(count),
            model: record.model.clone(),
            finish_reasons: record.finish_reasons.clone(),
            first_token_event: record.first_token_event,
            reported: record.tokens.reported,
        }
    }
}

/// Parses `input=3 output=4` of an `.events` file.
fn usage(counts: &str) -> Usage {
    let mut usage = Usage::default();
    for count in counts.split(' ') {
        let (name, number) = count.split_once('=').expect("a count");
        let number = Some(number.parse().expect("a number"));
        match name {
            "input" => usage.input = number,
            "cached" => usage.cached_input = number,
            "written" => usage.cache_write = number,
            "written_1h" => usage.cache_write_1h = number,
            "output" => usage.output = number,
            "reasoning" => usage.reasoning = number,
            "billed_input" => usage.details.billed_input = number,
            "billed_output" => usage.details.billed_output = number,
            "unsent" => usage.details.unsent_output = number,
            "audio_input" => usage.details.audio_input = number,
            "cached_audio_input" => usage.details.cached_audio_input = number,
            "audio_output" => usage.details.audio_output = number,
            "image_output" => usage.details.image_output = number,
            "searches" => usage.details.searches = number,
            "other_tools" => usage.details.other_tools = number,
            "regional" => usage.details.regional = number.map(|flag| flag == 1),
            "searched" => usage.details.searched = number.map(|flag| flag == 1),
            name => panic!("{name}"),
        }
    }
    usage
}

fn play(fixture: &Fixture, dialect: Dialect, coding: Option<&str>) -> CallRecord {
    let bench = Bench::default();
    let requests = written_requests();
    let request = requests.iter().find(|request| request.dialect == dialect);
    let request = request.expect("a request of the dialect");
    let call = bench.begin(&request.path, &[]);
    bench.send(&*call, request.body.get().as_bytes());
    let mut headers = vec![("content-type", fixture.content_type())];
    headers.extend(coding.map(|coding| ("content-encoding", coding)));
    call.head(bench.at(50), StatusCode::OK, &header_map(&headers));
    let encoded = coding.map(|coding| encode(coding, &fixture.body));
    let body = encoded.as_ref().unwrap_or(&fixture.body);
    for (chunk, piece) in body.chunks(CHUNK).enumerate() {
        bench.chunk(&*call, 100 + chunk as u64 * 10, piece);
    }
    let record = bench.end(&*call, 10_000_000, End::Complete);
    let held = bench.meter.stats(std::time::Instant::now()).held_bytes;
    assert_eq!(held, 0, "{}", fixture.path.display());
    assert_eq!(record.bytes.response, body.len() as u64);
    record
}

fn is_socket(dialect: Dialect) -> bool {
    matches!(dialect, Dialect::OpenaiRealtime | Dialect::GeminiLive)
}

#[test]
fn a_record_says_what_its_response_says() {
    let (mut wrong, mut played) = (Vec::new(), 0);
    for registration in DIALECTS.iter().filter(|it| !is_socket(it.dialect)) {
        let dialect = registration.dialect;
        for fixture in fixtures(&folder_of(dialect)) {
            let name = fixture.path.display();
            // A body that could not be read leaves the counts of its record unknown.
            let read = fixture.events.as_ref();
            let Some(events) =
                read.filter(|events| !events.contains("unparsed") && !events.contains("damaged"))
            else {
                continue;
            };
            let coding = CODINGS.get(played % (CODINGS.len() + 1)).copied();
            let record = play(&fixture, dialect, coding);
            let (is, should) = (Said::by_record(&record), Said::by_events(events));
            if is != should {
                wrong.push(format!("{name}\n    {is:?}\n    should be {should:?}"));
            }
            let (is, should) = (record.streamed, Some(fixture.is_stream()));
            if is != should || record.dialect != dialect {
                wrong.push(format!("{name}: {:?}, streamed: {is:?}", record.dialect));
            }
            played += 1;
        }
    }
    assert!(
        wrong.is_empty(),
        "{} wrong:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    assert!(played > 100, "{played} responses are too few");
}

/// Plays the messages of a Realtime connection, 10 ms each, and returns the records, oldest first.
fn play_socket(fixture: &Fixture) -> Vec<CallRecord> {
    let bench = Bench::default();
    let call = bench.begin_with("/v1/realtime?model=m", &[], |start| CallStart {
        method: &Method::GET,
        ..start
    });
    bench.send(&*call, b"");
    let switching = StatusCode::SWITCHING_PROTOCOLS;
    call.head(bench.at(50), switching, &header_map(&[]));
    let mut millis = 50;
    let mut send = |from: Side, message: &[u8]| {
        millis += 10;
        let frame = Frame {
            mask: (from == Side::Agent).then_some([1, 2, 3, 4]),
            fragment: Some(CHUNK),
            ..Frame::default()
        };
        let bytes = socket(&[message.to_vec()], &frame);
        bench.tunnel(&*call, from, millis, bytes);
    };
    for message in fixture.body.split(|byte| *byte == b'\n') {
        let Ok(Value::Object(read)) = serde_json::from_slice(message) else {
            continue;
        };
        if read["type"] == "response.created" {
            send(Side::Agent, br#"{"type":"response.create"}"#);
        }
        send(Side::Upstream, message);
    }
    call.ended(bench.at(10_000), End::Complete);
    let finished = bench.finished_calls();
    let records = finished.iter().rev().map(|call| call.record.clone());
    records.collect()
}

#[test]
fn each_turn_of_a_realtime_connection_is_a_record() {
    let mut played = 0;
    for fixture in fixtures(&folder_of(Dialect::OpenaiRealtime)) {
        let name = fixture.path.display();
        let Some(events) = &fixture.events else {
            continue;
        };
        let records = play_socket(&fixture);
        let turns: Vec<Said> = events
            .split_inclusive("turn_ended\n")
            .filter(|turn| turn.ends_with("turn_ended\n"))
            .map(Said::by_events)
            .collect();
        assert_eq!(records.len(), turns.len(), "{name}");
        let whole = Said::by_events(events);
        for (record, turn) in records.iter().zip(&turns) {
            let said = Said::by_record(record);
            assert_eq!(said.tokens, turn.tokens, "{name}");
            assert_eq!(said.finish_reasons, turn.finish_reasons, "{name}");
            assert_eq!(said.reported, turn.reported, "{name}");
            assert_eq!(said.model, whole.model, "{name}");
            assert_eq!(record.outcome, Outcome::Complete, "{name}");
        }
        let first = records.iter().find_map(|record| record.first_token_event);
        assert_eq!(first, whole.first_token_event, "{name}");
        played += 1;
    }
    assert!(played >= 5, "{played} connections are too few");
}
