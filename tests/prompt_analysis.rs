//! The analysis of prompts over the real binary: an agent with tools in two dialects, whose request fails once and
//! whose system prompt changes.

use crate::process::Process;
use crate::runaway::upstream;
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokengauge_test_support::TIMEOUT;
use tokengauge_test_support::connection::RawConnection;
use tokengauge_test_support::http_client::fetch;
use tokengauge_tokenizer::count;

/// Must not appear in any answer or metric.
const SECRET: &str = "the-secret-of-a-prompt";
/// The shortest time that a tool runs.
const TOOL_TIME: Duration = Duration::from_millis(300);

struct Agent {
    process: Process,
    session: &'static str,
    _folder: TempDir,
}

impl Agent {
    async fn start(session: &'static str, tables: &str) -> Agent {
        let folder = tempfile::tempdir().expect("a folder");
        let text = format!(
            "listen = \"127.0.0.1:0\"\n[admin]\nlisten = \"127.0.0.1:0\"\n\
             [[upstream]]\nname = \"up\"\nurl = \"http://{}\"\n[[route]]\nupstream = \"up\"\n\
             [[price]]\nmodel = \"m\"\ninput = 10\ncached_input = 1\noutput = 1000\n{tables}",
            upstream().await
        );
        let file = folder.path().join("proxy.toml");
        std::fs::write(&file, text).expect("written");
        let process = Process::start(&file).await;
        Agent {
            process,
            session,
            _folder: folder,
        }
    }

    /// Sends a turn, and returns its record once the call has ended.
    async fn turn(&self, path: &str, body: &Value, answer: &Value, status: u16) -> Value {
        let known = self.calls().await.len();
        let (body, session) = (body.to_string(), self.session);
        let mut connection = RawConnection::connect(self.process.addresses()[0]).await;
        connection
            .write(format!(
                "POST {path} HTTP/1.1\r\nhost: proxy\r\nconnection: close\r\nx-tokengauge-session: {session}\r\n\
                 x-tokengauge-agent: coder\r\nx-answer: {answer}\r\nx-status: {status}\r\n\
                 content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
                body.len()
            ))
            .await;
        connection.text_to_end().await;
        let end = Instant::now() + TIMEOUT;
        loop {
            let calls = self.calls().await;
            if calls.len() > known {
                return calls[0].clone();
            }
            assert!(Instant::now() < end, "the call is not recorded");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Finished calls, newest first.
    async fn calls(&self) -> Vec<Value> {
        let response = fetch(self.process.admin, "/api/v1/calls").await;
        assert!(!response.body.contains(SECRET), "{}", response.body);
        let body: Value = serde_json::from_str(&response.body).expect("JSON");
        body["calls"].as_array().expect("rows").clone()
    }
}

fn system(minute: u32) -> String {
    format!(
        "It is 12:{minute:02}. {SECRET} {}",
        "Be careful with the river. ".repeat(400)
    )
}

struct Dialect {
    path: &'static str,
    /// The body of a turn with this system prompt and with the first messages.
    body: fn(&str, usize) -> Value,
    answer: fn(u64, u64) -> Value,
}

const RESULT: &str = "42 boats carry stones.";

fn chat(system: &str, messages: usize) -> Value {
    let mut all = vec![
        json!({"role": "system", "content": system}),
        json!({"role": "user", "content": "How many boats?"}),
        json!({"role": "assistant", "content": null, "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "count", "arguments": "{\"what\":\"boats\"}"}}]}),
        json!({"role": "tool", "tool_call_id": "c1", "content": RESULT}),
        json!({"role": "assistant", "content": "There are 42."}),
        json!({"role": "user", "content": "Thank you. And stones?"}),
    ];
    all.truncate(messages + 1);
    json!({"model": "m", "messages": all, "tools": [{"type": "function", "function": {"name": "count"}}]})
}

fn chat_answer(input: u64, cached: u64) -> Value {
    json!({"id": "c", "object": "chat.completion", "model": "m",
        "usage": {"prompt_tokens": input, "completion_tokens": 1, "total_tokens": input + 1, "prompt_tokens_details": {"cached_tokens": cached}},
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "done"}}]})
}

fn anthropic(system: &str, messages: usize) -> Value {
    let mut all = vec![
        json!({"role": "user", "content": "How many boats?"}),
        json!({"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "count", "input": {"what": "boats"}}]}),
        json!({"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": RESULT}]}),
        json!({"role": "assistant", "content": "There are 42."}),
        json!({"role": "user", "content": "Thank you. And stones?"}),
    ];
    all.truncate(messages);
    json!({"model": "m", "max_tokens": 9, "messages": all, "tools": [{"name": "count", "input_schema": {"type": "object"}}],
        "system": [{"type": "text", "text": system, "cache_control": {"type": "ephemeral"}}]})
}

fn anthropic_answer(input: u64, cached: u64) -> Value {
    json!({"id": "m", "type": "message", "role": "assistant", "model": "m", "content": [{"type": "text", "text": "done"}],
        "stop_reason": "end_turn", "usage": {"input_tokens": 10, "cache_read_input_tokens": cached,
        "cache_creation_input_tokens": input - cached - 10, "output_tokens": 1}})
}

const DIALECTS: [Dialect; 2] = [
    Dialect {
        path: "/v1/chat/completions",
        body: chat,
        answer: chat_answer,
    },
    Dialect {
        path: "/v1/messages",
        body: anthropic,
        answer: anthropic_answer,
    },
];

#[tokio::test]
async fn a_session_tells_parts_waits_repetitions_and_the_change_that_broke_its_cache() {
    for (dialect, session) in DIALECTS.iter().zip(["chat", "messages"]) {
        let agent = Agent::start(session, "[analysis]\nprompt_blocks = true\n").await;
        let Dialect { path, body, answer } = dialect;
        let first = agent
            .turn(path, &body(&system(0), 1), &answer(2_800, 0), 200)
            .await;
        let parts = &first["prompt"];
        assert_eq!(parts["system"], count(&system(0)), "{first}");
        assert_eq!(parts["user"], count("How many boats?"));
        let (blocks, rest) = (
            first["prompt_blocks"].as_array().expect("blocks"),
            &first["wait"],
        );
        assert!(blocks.len() > 30 && rest.is_null(), "{first}");
        let between = Instant::now();
        tokio::time::sleep(TOOL_TIME).await;
        let failed = agent
            .turn(path, &body(&system(0), 3), &json!({}), 529)
            .await;
        let wait = &failed["wait"];
        assert_eq!(
            (&wait["kind"], &wait["tools"]),
            (&json!("tools"), &json!(["count"])),
            "{failed}"
        );
        let seconds = wait["seconds"].as_f64().expect("seconds");
        let bounds = TOOL_TIME.as_secs_f64() - 0.05..between.elapsed().as_secs_f64() + 0.5;
        assert!(bounds.contains(&seconds), "{seconds}");
        assert!(failed["prompt"].is_null(), "nobody processed it: {failed}");
        let second = agent
            .turn(path, &body(&system(0), 3), &answer(2_850, 2_700), 200)
            .await;
        assert_eq!(second["retry_of"], failed["id"]);
        assert_eq!(second["prompt"]["tool_results"], count(RESULT));
        assert_eq!(second["prompt"]["tools"][0]["name"], "count");
        assert_eq!(second["prompt"]["tools"][0]["calls"], 1, "{second}");
        let third = agent
            .turn(path, &body(&system(1), 5), &answer(2_900, 0), 200)
            .await;
        let (wait, missed) = (&third["wait"], &third["cache_break"]);
        assert_eq!(
            (&wait["kind"], &third["retry_of"]),
            (&json!("human"), &Value::Null),
            "{third}"
        );
        assert_eq!(
            (&missed["cause"], &missed["section"]),
            (&json!("changed"), &json!("system")),
            "{third}"
        );
        assert!(
            missed["tokens"].as_u64() >= Some(2_700) && missed["cost_usd"].as_f64() > Some(0.0)
        );
        assert_eq!(
            (&second["cache_break"], &first["cache_break"]),
            (&Value::Null, &Value::Null)
        );
        let metrics = agent.process.metrics().await;
        let changed = "tokengauge_prompt_cache_breaks_total{cause=\"prefix_changed\"}";
        assert_eq!(metrics.get(changed), Some(&1.0));
        assert!(metrics["tokengauge_analysis_bytes"] > 1_000.0);
        assert_eq!(metrics["tokengauge_analysis_skipped_calls_total"], 0.0);
        let potential =
            "tokengauge_prompt_cache_potential_ratio{upstream=\"up\",cache=\"infinite\"}";
        assert!(metrics.contains_key(potential), "{metrics:?}");
    }
}

#[tokio::test]
async fn nothing_is_analyzed_if_the_analysis_is_off() {
    let agent = Agent::start("off", "[analysis]\nenabled = false\n").await;
    let Dialect { path, body, answer } = &DIALECTS[0];
    for (number, minute) in [(1, 0), (3, 1)] {
        let call = agent
            .turn(
                path,
                &body(&system(minute), number),
                &answer(2_800, 1_000),
                200,
            )
            .await;
        for field in ["prompt", "wait", "cache_break", "retry_of", "prompt_blocks"] {
            assert!(call[field].is_null(), "{field}: {call}");
        }
    }
    let metrics = agent.process.metrics().await;
    assert_eq!(metrics["tokengauge_analysis_bytes"], 0.0);
}
