//! Traces with the blocks of prompts.

use super::mooncake::Trace;
use super::weka::Conversations;
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::io::{self, Write};
use std::sync::Arc;
use tokengauge_core::call::CallRecord;

/// A file in memory that can be read after its writer is gone.
#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Shared {
    fn lines(&self) -> Vec<Value> {
        let bytes = self.0.lock();
        let text = std::str::from_utf8(&bytes).expect("UTF-8");
        let lines = text.lines().map(serde_json::from_str);
        lines.collect::<Result<_, _>>().expect("JSON")
    }
}

fn call(session: Option<&str>, agent: &str, prompt: (u64, &[u64])) -> CallRecord {
    let (tokens, blocks) = prompt;
    serde_json::from_value(json!({
        "id": "", "started_at": "2026-01-31T09:30:00.000Z", "route": "r", "upstream": "u", "dialect": "openai_chat",
        "operation": "chat", "operation_class": "generation", "model": "m", "streamed": true, "status": 200,
        "outcome": "complete", "finish_reasons": [], "warm_up": false, "session": session, "agent": agent,
        "tokens": {"normalised": {"output": 7}, "reported": {"input": tokens + 9, "output": 8}},
        "seconds": {"duration": 2.0, "ttft": 0.5}, "tps": {}, "frames": 0, "stalls": 0,
        "bytes": {"request": 0, "response": 0}, "prompt": {"user": tokens}, "prompt_blocks": blocks,
    }))
    .expect("a record")
}

const FIRST: &[u64] = &[9_000_000_000_000_001, 5, 77];

#[test]
fn a_line_has_the_numbered_blocks_of_the_whole_prompt_and_no_session() {
    let file = Shared::default();
    let mut trace = Trace::begin(Box::new(file.clone()));
    let longer = [FIRST, &[123]].concat();
    let calls = [
        call(Some("s"), "a", (192, FIRST)),
        call(Some("s"), "a", (256 + 5, &longer)),
        call(Some("t"), "a", (130, &[9_000_000_000_000_001, 5])),
    ];
    for (at, record) in calls.into_iter().enumerate() {
        trace.call(record, 1_000 * at as i64).expect("written");
    }
    trace.end().expect("written");
    let lines = file.lines();
    assert_eq!(
        lines[0],
        json!({"timestamp": 0, "input_length": 192, "output_length": 8, "hash_ids": [0, 1, 2]})
    );
    // The last number is the block that is not full, which no other prompt shares.
    assert_eq!(
        (&lines[1]["input_length"], &lines[1]["hash_ids"]),
        (&json!(261), &json!([0, 1, 2, 3, 4]))
    );
    assert_eq!(
        (&lines[2]["input_length"], &lines[2]["hash_ids"]),
        (&json!(130), &json!([0, 1, 5]))
    );
}

#[test]
fn lengths_fit_the_blocks_even_if_the_count_does_not() {
    let file = Shared::default();
    let mut trace = Trace::begin(Box::new(file.clone()));
    // The count is of 1,000 tokens, but only 3 blocks are known.
    trace
        .call(call(None, "a", (1_000, FIRST)), 0)
        .expect("written");
    trace.end().expect("written");
    let lines = file.lines();
    assert_eq!(
        (&lines[0]["input_length"], &lines[0]["hash_ids"]),
        (&json!(192), &json!([0, 1, 2]))
    );
}

#[test]
fn conversations_are_lines_with_the_turns_of_one_agent() {
    let file = Shared::default();
    let mut all = Conversations::begin(Box::new(file.clone()));
    let longer = [FIRST, &[123]].concat();
    for (record, began) in [
        (call(Some("secret name"), "a", (192, FIRST)), 5_000),
        (call(Some("secret name"), "b", (64, &[4])), 6_000),
        (call(Some("secret name"), "a", (256, &longer)), 8_500),
        (call(None, "a", (64, &[4])), 9_000),
    ] {
        all.call(record, began).expect("written");
    }
    assert_eq!(all.left_out, 1, "a call without a session");
    all.end().expect("written");
    let lines = file.lines();
    assert_eq!(lines.len(), 2);
    let first = json!({
        "id": "conversation-1", "models": ["m"], "block_size": 64, "hash_id_scope": "local",
        "requests": [
            {"t": 0.0, "type": "s", "model": "m", "in": 192, "out": 8, "hash_ids": [0, 1, 2],
             "api_time": 2.0, "ttft": 0.5},
            {"t": 3.5, "type": "s", "model": "m", "in": 256, "out": 8, "hash_ids": [0, 1, 2, 3],
             "api_time": 2.0, "ttft": 0.5, "think_time": 1.5},
        ],
    });
    assert_eq!(lines[0], first);
    assert_eq!(lines[1]["requests"][0]["hash_ids"], json!([0]));
    assert!(!lines[0].to_string().contains("secret"));
}

#[test]
fn conversations_beyond_the_limit_are_written_early() {
    let file = Shared::default();
    let mut all = Conversations::begin(Box::new(file.clone())).holding(10);
    for turn in 0..100 {
        let session = format!("s{}", turn % 7);
        let record = call(Some(&session), "a", (192, FIRST));
        all.call(record, turn * 10_000).expect("written");
        assert!(all.held() <= 10);
    }
    all.end().expect("written");
    let requests = |line: &Value| line["requests"].as_array().map_or(0, Vec::len);
    assert_eq!(file.lines().iter().map(requests).sum::<usize>(), 100);
}
