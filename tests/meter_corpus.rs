//! Recordings of real providers through the whole meter. Records must match what was checked by hand.
//!
//! `TOKENGAUGE_CORPUS` names the folder of the recordings. Without it these tests are skipped. `meter_fixtures.rs` has
//! the fixtures.

use crate::corpus::corpus;
use bytes::Bytes;
use http::StatusCode;
use serde_json::Value;
use std::path::{Path, PathBuf};
use tokengauge_core::call::{CallRecord, Dialect};
use tokengauge_core::observer::{End, Side};
use tokengauge_test_support::meter::{Bench, dialect, header_map};

/// Bytes of a chunk; small enough to cut most events.
const CHUNK: usize = 97;

fn json(path: PathBuf) -> Value {
    let text = std::fs::read(&path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
    serde_json::from_slice(&text).unwrap_or_else(|error| panic!("{path:?}: {error}"))
}

fn dialect_of(folder: &str) -> Option<Dialect> {
    Some(match folder {
        "openai-chat" | "azure-openai-chat" => Dialect::OpenaiChat,
        "anthropic-messages" => Dialect::Anthropic,
        "ollama-chat" | "ollama-generate" => Dialect::Ollama,
        "other" => return None,
        name => dialect(&name.replace('-', "_")),
    })
}

fn recordings(corpus: &Path) -> Vec<(PathBuf, Dialect)> {
    let entries = |path: &Path| {
        let entries = std::fs::read_dir(path).expect("a folder");
        let mut paths: Vec<_> = entries
            .map(|entry| entry.expect("an entry").path())
            .collect();
        paths.retain(|path| path.is_dir());
        paths.sort();
        paths
    };
    let mut found = Vec::new();
    for folder in entries(corpus) {
        let name = folder
            .file_name()
            .expect("a name")
            .to_string_lossy()
            .into_owned();
        if let Some(dialect) = dialect_of(&name) {
            found.extend(entries(&folder).into_iter().map(|path| (path, dialect)));
        }
    }
    found.retain(|(path, _)| json(path.join("expected.json"))["trusted"] == true);
    found
}

fn play(path: &Path, dialect: Dialect) -> (CallRecord, usize) {
    let bench = Bench::default();
    let meta = json(path.join("meta.json"));
    let target = meta["request_path"].as_str().unwrap_or("/");
    let uri = target.parse().is_ok_and(|_: http::Uri| true);
    let call = bench.begin_with(if uri { target } else { "/" }, &[], |mut start| {
        start.dialect = Some(dialect);
        start
    });
    let request = std::fs::read(path.join("request.json")).unwrap_or_default();
    bench.send(&*call, &request);
    let headers = ["content-type", "content-encoding"].map(|name| {
        let value = meta[name.replace('-', "_")].as_str();
        (name, value)
    });
    let headers: Vec<_> = headers
        .iter()
        .filter_map(|(name, value)| Some((*name, (*value)?)))
        .collect();
    let status = meta["status"].as_u64().unwrap_or(200) as u16;
    let status = StatusCode::from_u16(status).expect("a status");
    call.head(bench.at(50), status, &header_map(&headers));
    let body = std::fs::read(path.join("response.body")).expect("a body");
    for (chunk, piece) in body.chunks(CHUNK).enumerate() {
        bench.chunk(&*call, 100 + chunk as u64 * 10, piece);
    }
    let record = bench.end(&*call, 10_000_000, End::Complete);
    assert_eq!(
        bench.meter.stats(std::time::Instant::now()).held_bytes,
        0,
        "{path:?}"
    );
    (record, body.len())
}

fn differences(record: &CallRecord, expected: &Value) -> Vec<String> {
    let mut found = Vec::new();
    let mut differ = |field: &str, is: Value| {
        if is != expected[field] {
            found.push(format!("{field}: {is}, should be {}", expected[field]));
        }
    };
    let normalised = record.tokens.normalised;
    let generates = !matches!(record.dialect, Dialect::Embeddings | Dialect::Rerank);
    if generates && record.status.is_some_and(|status| status < 300) {
        differ("output_tokens_total", normalised.output.into());
        differ("visible_tokens", normalised.answer.into());
        differ("reasoning_tokens", normalised.reasoning.into());
        differ("tool_call_tokens", normalised.tool_call.into());
    }
    differ("finish_reasons", record.finish_reasons.clone().into());
    differ("model", record.model.clone().into());
    differ("first_token_event_index", record.first_token_event.into());
    differ("stream", record.streamed.into());
    found
}

/// Recordings whose answer begins with `<think>`. The hand-checked counts treat all of it as visible text, but a record
/// counts it as reasoning.
const REASONING_IN_THE_ANSWER: [&str; 2] = [
    "lcgo-huggingface-router-testhuggingfacellmwithprovider-0",
    "pydai-together-hf-model-thinking-part-iter-0",
];

fn reasoning_is_counted(record: &CallRecord) -> Vec<String> {
    let counted = record.tokens.normalised;
    let found = (counted.answer, counted.reasoning, counted.output);
    let should = [
        (Some(0), Some(52), Some(52)),
        (Some(629), Some(301), Some(930)),
    ];
    if should.contains(&found) {
        Vec::new()
    } else {
        vec![format!("tokens: {found:?}")]
    }
}

#[test]
fn every_trusted_recording_gives_the_record_that_was_checked_by_hand() {
    let Some(corpus) = corpus() else { return };
    let (mut wrong, mut played, mut bytes) = (Vec::new(), 0, 0);
    for (path, dialect) in recordings(&corpus) {
        if dialect == Dialect::OpenaiRealtime {
            continue;
        }
        let (record, length) = play(&path, dialect);
        assert_eq!(record.repetition, None, "{}", path.display());
        let name = path.file_name().and_then(|name| name.to_str());
        let mut found = if name.is_some_and(|name| REASONING_IN_THE_ANSWER.contains(&name)) {
            reasoning_is_counted(&record)
        } else {
            differences(&record, &json(path.join("expected.json")))
        };
        if record.bytes.response != length as u64 {
            found.push(format!("bytes: {:?}", record.bytes));
        }
        if record.dialect != dialect {
            found.push(format!("dialect: {:?}", record.dialect));
        }
        played += 1;
        bytes += length;
        if !found.is_empty() {
            wrong.push(format!("{path:?}\n    {}", found.join("\n    ")));
        }
    }
    println!("{played} recordings, {bytes} bytes");
    assert!(played > 300, "{played} recordings are too few");
    assert!(
        wrong.is_empty(),
        "{} wrong:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

fn websocket(text: &str, side: Side) -> Vec<u8> {
    let masked = if side == Side::Agent { 0x80 } else { 0 };
    let length = text.len();
    let mut frame = vec![0x81];
    match length {
        0..126 => frame.push(masked | length as u8),
        126..65_536 => {
            frame.push(masked | 126);
            frame.extend((length as u16).to_be_bytes());
        }
        _ => {
            frame.push(masked | 127);
            frame.extend((length as u64).to_be_bytes());
        }
    }
    if side == Side::Agent {
        let mask = [1, 2, 3, 4];
        frame.extend(mask);
        frame.extend(
            text.bytes()
                .zip(mask.iter().cycle())
                .map(|(byte, mask)| byte ^ mask),
        );
    } else {
        frame.extend(text.bytes());
    }
    frame
}

/// Plays a recorded connection with 10 ms a message, and returns the records, oldest first.
fn play_realtime(path: &Path) -> Vec<CallRecord> {
    let bench = Bench::default();
    let call = bench.begin("/v1/realtime?model=m", &[]);
    bench.send(&*call, b"");
    call.head(
        bench.at(50),
        StatusCode::SWITCHING_PROTOCOLS,
        &header_map(&[]),
    );
    let session = std::fs::read_to_string(path.join("session.jsonl")).expect("both directions");
    let mut millis = 50;
    for line in session.lines() {
        let message: Value = serde_json::from_str(line).expect("a message");
        let side = if message["dir"] == "sent" {
            Side::Agent
        } else {
            Side::Upstream
        };
        let text = message["data"]
            .as_str()
            .map_or_else(|| message["data"].to_string(), str::to_owned);
        millis += 10;
        for piece in websocket(&text, side).chunks(500) {
            let bytes = Bytes::copy_from_slice(piece);
            let chunk = tokengauge_core::observer::Chunk::new(bench.at(millis), bytes);
            call.tunnel_chunk(side, chunk);
        }
    }
    call.ended(bench.at(millis), End::Complete);
    let finished_calls = bench.finished_calls();
    assert!(
        bench
            .meter
            .stats(std::time::Instant::now())
            .in_flight
            .iter()
            .all(|(.., streams)| *streams == 0)
    );
    finished_calls
        .iter()
        .rev()
        .map(|finished_call| finished_call.record.clone())
        .collect()
}

#[test]
fn every_recorded_realtime_connection_gives_one_record_per_response() {
    let Some(corpus) = corpus() else { return };
    let mut played = 0;
    for (path, dialect) in recordings(&corpus) {
        if dialect != Dialect::OpenaiRealtime || !path.join("session.jsonl").exists() {
            continue;
        }
        played += 1;
        let expected = json(path.join("expected.json"));
        let records = play_realtime(&path);
        let responses = expected["finish_reasons"].as_array().map_or(0, Vec::len);
        assert_eq!(records.len(), responses.max(1), "{path:?}");
        let output: u64 = records
            .iter()
            .filter_map(|record| record.tokens.normalised.output)
            .sum();
        assert_eq!(expected["output_tokens_total"], output, "{path:?}");
        let reasons: Vec<_> = records
            .iter()
            .flat_map(|record| record.finish_reasons.clone())
            .collect();
        assert_eq!(expected["finish_reasons"], Value::from(reasons), "{path:?}");
        let first = records.iter().find_map(|record| record.first_token_event);
        assert_eq!(
            expected["first_token_event_index"],
            Value::from(first),
            "{path:?}"
        );
        let model = records.last().and_then(|record| record.model.clone());
        assert_eq!(expected["model"], Value::from(model), "{path:?}");
        for record in records {
            assert_eq!(record.streamed, Some(true));
            assert!(
                record.seconds.ttft.is_none_or(|ttft| ttft < 3.0),
                "{path:?}"
            );
        }
    }
    assert!(played > 5, "{played} connections are too few");
}
