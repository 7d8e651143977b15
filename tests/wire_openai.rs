//! Oddities of the OpenAI family by provider: each body under `fixtures/` has a file with the expected reading. All are
//! read whole, cut at every byte, and compressed.

use crate::wire_dialects::folder_of;
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};
use tokengauge_core::call::{Channel, Dialect, Segment, Usage};
use tokengauge_test_support::wire::encode::{CODINGS, encode};
use tokengauge_test_support::wire::frames::{self, Frame};
use tokengauge_test_support::wire::reading::{Reading, read, read_cut};
use tokengauge_wire::{DIALECTS, Decoder, Framing, Limits, ResponseHead, SocketRequests};

fn rendered(reading: &Reading) -> Value {
    let mut found = Map::new();
    let mut put = |name: &str, value: Value| {
        if !matches!(&value, Value::Null) && value != json!(0) && value != json!([]) {
            found.insert(name.to_owned(), value);
        }
    };
    put("dialect", json!(reading.dialect));
    put("messages", json!(reading.messages));
    put("comments", json!(reading.comments));
    put(
        "is_stream",
        if reading.is_stream {
            Value::Null
        } else {
            json!(false)
        },
    );
    put("first_token_event", json!(reading.first_token_event));
    put("model", json!(reading.model));
    let text = |(at, text): (&Segment, &String)| json!([at.choice, at.channel, text]);
    put("texts", reading.segments.iter().map(text).collect());
    put("finish", reading.finish.values().cloned().collect());
    if reading.usage != Usage::default() {
        put("usage", known(json!(reading.usage)));
    }
    put(
        "engine",
        reading
            .engine
            .map_or(Value::Null, |engine| known(json!(engine))),
    );
    put("error", json!(reading.error));
    put("ends", json!(reading.ends));
    put("unparsed", json!(reading.unparsed));
    put("skipped", json!(reading.skipped));
    if reading.turns != (0, 0) {
        put("turns", json!(reading.turns));
    }
    put(
        "broken",
        reading
            .broken
            .map_or(Value::Null, |broken| json!(broken.to_string())),
    );
    // Index 0 must be rendered here, although an empty reading also has it.
    if reading.first_token_event == Some(0) {
        found.insert("first_token_event".to_owned(), json!(0));
    }
    Value::Object(found)
}

fn known(mut object: Value) -> Value {
    if let Some(members) = object.as_object_mut() {
        members.retain(|_, value| !value.is_null());
    }
    object
}

fn fixtures(folder: &str) -> Vec<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures")
        .join(folder);
    let entries = std::fs::read_dir(path).expect("fixtures");
    let paths = entries.map(|entry| entry.expect("entry").path());
    let mut bodies: Vec<PathBuf> = paths
        .filter(|path| !path.to_string_lossy().ends_with(".expected.json"))
        .collect();
    bodies.sort();
    assert!(!bodies.is_empty(), "no fixtures in {folder}");
    bodies
}

fn decoder(path: &Path, dialect: Dialect, coding: Option<&str>) -> Decoder {
    let content_type = match path.extension().and_then(|extension| extension.to_str()) {
        Some("sse") => "text/event-stream; charset=utf-8",
        Some("ndjson") => "application/x-ndjson",
        _ => "application/json",
    };
    let head = ResponseHead {
        status: 200,
        content_type: Some(content_type),
        content_encoding: coding,
    };
    Decoder::new(dialect, &head, Limits::default())
}

fn check(folder: &str, dialect: Dialect) {
    let expecting = |path: &PathBuf| path.with_extension("expected.json").exists();
    for path in fixtures(folder).into_iter().filter(expecting) {
        let name = path.display();
        let body = std::fs::read(&path).expect("body");
        let expected = std::fs::read(path.with_extension("expected.json")).expect("expected");
        let expected: Value = serde_json::from_slice(&expected).expect("expected");
        let whole = read(decoder(&path, dialect, None), &body);
        let found = rendered(&whole);
        assert_eq!(found, expected, "{name}\nfound: {found:#}");
        for cut in 1..body.len() {
            let reading = read_cut(decoder(&path, dialect, None), &body, [cut]);
            assert_eq!(reading, whole, "{name} cut at {cut}");
        }
        let reading = read_cut(decoder(&path, dialect, None), &body, 1..body.len());
        assert_eq!(reading, whole, "{name} byte by byte");
        for coding in CODINGS {
            let encoded = encode(coding, &body);
            let reading = read(decoder(&path, dialect, Some(coding)), &encoded);
            assert_eq!(reading, whole, "{name} encoded with {coding}");
        }
    }
}

#[test]
fn responses_of_every_dialect_read_as_their_providers_mean_them() {
    std::thread::scope(|scope| {
        for registration in DIALECTS.iter() {
            let dialect = registration.dialect;
            scope.spawn(move || check(&folder_of(dialect), dialect));
        }
    });
}

#[test]
fn an_unknown_path_is_read_once_the_first_event_shows_the_dialect() {
    for (folder, dialect) in [
        ("openai_chat", Dialect::OpenaiChat),
        ("openai_completions", Dialect::OpenaiCompletions),
        ("openai_responses", Dialect::OpenaiResponses),
        ("openai_realtime", Dialect::OpenaiRealtime),
    ] {
        let mut shown = 0;
        for path in fixtures(folder) {
            let body = std::fs::read(&path).expect("body");
            let known = read(decoder(&path, dialect, None), &body);
            let unknown = read(decoder(&path, Dialect::Unknown, None), &body);
            if unknown.dialect != Dialect::Unknown {
                assert_eq!(unknown, known, "{}", path.display());
                shown += 1;
            }
        }
        assert!(shown > 0, "none in {folder}");
    }
}

fn realtime_body() -> Vec<Vec<u8>> {
    let path = fixtures("openai_realtime").remove(0);
    let body = std::fs::read(path).expect("body");
    body.split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
        .map(<[u8]>::to_vec)
        .collect()
}

fn over_websocket(extensions: Option<&str>, bytes: &[u8], cuts: Vec<usize>) -> Reading {
    let limits = Limits::default();
    let dialect = Dialect::OpenaiRealtime;
    let decoder = Decoder::with_framing(dialect, Framing::WebSocket, extensions, limits);
    read_cut(decoder, bytes, cuts)
}

#[test]
fn a_socket_reads_like_its_messages_masked_fragmented_or_compressed() {
    let messages = realtime_body();
    let path = fixtures("openai_realtime").remove(0);
    let lines = std::fs::read(&path).expect("body");
    let expected = read(decoder(&path, Dialect::OpenaiRealtime, None), &lines);
    for frame in [
        Frame::default(),
        Frame {
            mask: Some([1, 2, 3, 4]),
            ..Frame::default()
        },
        Frame {
            fragment: Some(7),
            ..Frame::default()
        },
        Frame {
            fragment: Some(1),
            mask: Some([9, 0, 255, 7]),
            ping: true,
            ..Frame::default()
        },
        Frame {
            deflate: true,
            ..Frame::default()
        },
        Frame {
            deflate: true,
            fragment: Some(5),
            ping: true,
            ..Frame::default()
        },
    ] {
        let bytes = frames::socket(&messages, &frame);
        let extensions = frame
            .deflate
            .then_some("permessage-deflate; client_max_window_bits=15");
        assert_eq!(
            over_websocket(extensions, &bytes, vec![]),
            expected,
            "{frame:?}"
        );
        for cut in (1..bytes.len()).step_by(if frame.deflate { 11 } else { 3 }) {
            let reading = over_websocket(extensions, &bytes, vec![cut]);
            assert_eq!(reading, expected, "{frame:?} cut at {cut}");
        }
    }
}

#[test]
fn a_compressed_message_that_was_not_agreed_on_is_unparsed_and_the_next_is_read() {
    let mut messages = realtime_body();
    messages.truncate(2);
    let first = frames::socket(
        &messages[..1],
        &Frame {
            deflate: true,
            ..Frame::default()
        },
    );
    let second = frames::socket(&messages[1..], &Frame::default());
    let reading = over_websocket(None, &[first, second].concat(), vec![]);
    assert_eq!((reading.unparsed, reading.messages), (1, 2));
    assert_eq!(reading.model.as_deref(), Some("rt-1"));
}

#[test]
fn a_request_for_a_response_is_seen_on_the_agents_side() {
    let messages: Vec<Vec<u8>> = [
        "{\"type\":\"session.update\",\"session\":{}}",
        "{\"type\":\"response.create\"}",
        "{\"type\":\"input_audio_buffer.append\",\"audio\":\"response.create\"}",
        "not json",
        "{\"event_id\":\"e\",\"type\":\"response.create\",\"response\":{}}",
    ]
    .map(|text| text.as_bytes().to_vec())
    .to_vec();
    let frame = Frame {
        mask: Some([5, 6, 7, 8]),
        fragment: Some(11),
        ping: true,
        ..Frame::default()
    };
    let bytes = frames::socket(&messages, &frame);
    for size in [1, 2, 13, bytes.len()] {
        let dialect = Dialect::OpenaiRealtime;
        let mut requests = SocketRequests::new(dialect, None, Limits::default());
        let mut seen = 0;
        for piece in bytes.chunks(size) {
            requests.push(piece, &mut |_| seen += 1).expect("frames");
        }
        assert_eq!(seen, 2, "in pieces of {size}");
    }
    let dialect = Dialect::OpenaiRealtime;
    let mut requests = SocketRequests::new(dialect, None, Limits::default());
    assert!(requests.push(&[0xff; 64], &mut |_| {}).is_err());
    assert!(requests.push(b"", &mut |_| {}).is_err(), "stays broken");
}

#[test]
fn events_do_not_contain_error_messages() {
    for folder in ["openai_chat", "openai_responses", "openai_realtime"] {
        for path in fixtures(folder) {
            let body = std::fs::read(&path).expect("body");
            let reading = read(decoder(&path, Dialect::OpenaiChat, None), &body);
            let word = reading.error.unwrap_or_default();
            assert!(
                !word.contains(' ') && !word.contains("secret"),
                "{}",
                path.display()
            );
        }
    }
}

#[test]
fn texts_keep_their_order_within_the_response() {
    let path = fixtures("openai_responses")
        .into_iter()
        .find(|path| path.ends_with("stream.sse"))
        .expect("fixture");
    let body = std::fs::read(&path).expect("body");
    let reading = read(decoder(&path, Dialect::OpenaiResponses, None), &body);
    assert_eq!(reading.visible(), "Hi youNo.");
    assert!(
        reading
            .segments
            .keys()
            .any(|at| at.channel == Channel::Reasoning)
    );
}
