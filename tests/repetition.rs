//! Answers that repeat themselves, through the real binary: found while they stream and in whole bodies, in several
//! dialects and channels, and shown, counted and priced.

use crate::process::Process;
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokengauge_test_support::TIMEOUT;
use tokengauge_test_support::connection::RawConnection;
use tokengauge_test_support::http_client::fetch_json;
use tokengauge_test_support::sim::{self, Sim};

const BEFORE: u64 = 300;
const PERIOD: u64 = 11;
const TOKENS: u64 = 2_000;
const REPEATED: u64 = TOKENS - BEFORE - PERIOD;

struct Fixture {
    _folder: TempDir,
    _simulator: Sim,
    process: Process,
}

impl Fixture {
    async fn start() -> Fixture {
        let simulator = sim::start("ttft=0ms,gap=0ms,tokens=2000,finish=length").await;
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("proxy.toml");
        let config = format!(
            "listen = \"127.0.0.1:0\"\n[admin]\nlisten = \"127.0.0.1:0\"\n\
             [[upstream]]\nname = \"up\"\nurl = \"http://{}\"\n[[route]]\nupstream = \"up\"\n\
             [[price]]\nmodel = \"*\"\ninput = 1\noutput = 1000\n",
            simulator.address
        );
        std::fs::write(&file, config).expect("written");
        let process = Process::start(&file).await;
        Fixture {
            _folder: folder,
            _simulator: simulator,
            process,
        }
    }

    async fn send(&self, path: &str, settings: &str, body: &Value) -> RawConnection {
        let body = body.to_string();
        let mut agent = RawConnection::connect(self.process.addresses()[0]).await;
        let length = body.len();
        agent
            .write(format!(
                "POST {path} HTTP/1.1\r\nhost: proxy\r\nconnection: close\r\nx-sim: {settings}\r\n\
                 content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
            ))
            .await;
        agent
    }

    async fn api(&self, path: &str) -> Value {
        fetch_json(self.process.admin, path, &[]).await
    }

    /// The records of this many calls, newest first.
    async fn records(&self, calls: usize) -> Vec<Value> {
        let end = Instant::now() + TIMEOUT;
        loop {
            let found = self.api("/api/v1/calls").await["calls"].take();
            let found = found.as_array().cloned().unwrap_or_default();
            if found.len() >= calls {
                return found;
            }
            assert!(Instant::now() < end, "{} of {calls} calls", found.len());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn metric(&self, name: &str) -> f64 {
        let metrics = self.process.metrics().await;
        let series = metrics
            .iter()
            .filter(|(series, _)| series.starts_with(name));
        series.map(|(_, value)| value).sum()
    }
}

fn near(value: &Value, expected: u64) -> bool {
    value
        .as_u64()
        .is_some_and(|value| value.abs_diff(expected) <= 4)
}

fn assert_repeats(record: &Value) {
    let found = &record["repetition"];
    let right = near(&found["start"], BEFORE) && near(&found["tokens"], REPEATED);
    assert!(right && found["period"] == PERIOD, "{record}");
    let share = found["share"].as_f64().expect("a share");
    assert!(
        (share - REPEATED as f64 / TOKENS as f64).abs() < 0.01,
        "{share}"
    );
}

#[tokio::test]
async fn repetitions_are_found_in_every_dialect_streamed_or_not_and_priced() {
    let fixture = Fixture::start().await;
    let message = json!([{"role": "user", "content": "Go on."}]);
    let mut calls = 0;
    for streamed in [true, false] {
        for (path, body) in [
            (
                "/v1/chat/completions",
                json!({"model": "m", "messages": message, "stream": streamed}),
            ),
            (
                "/v1/messages",
                json!({"model": "m", "max_tokens": 9_000, "messages": message, "stream": streamed}),
            ),
            (
                "/v1/responses",
                json!({"model": "m", "input": "Go on.", "stream": streamed}),
            ),
            (
                "/api/chat",
                json!({"model": "m", "messages": message, "stream": streamed}),
            ),
        ] {
            let settings = format!("usage=on,repeat={PERIOD}@{BEFORE}");
            fixture
                .send(path, &settings, &body)
                .await
                .text_to_end()
                .await;
            calls += 1;
            let records = fixture.records(calls).await;
            assert_eq!(records[0]["streamed"], streamed, "{path}");
            assert_repeats(&records[0]);
        }
    }
    let body = json!({"model": "m", "messages": message, "stream": true});
    fixture
        .send("/v1/chat/completions", "", &body)
        .await
        .text_to_end()
        .await;
    let records = fixture.records(calls + 1).await;
    assert_eq!(records[0]["repetition"], Value::Null, "an ordinary answer");

    let id = records[1]["id"].as_str().expect("an id");
    let call = fixture.api(&format!("/api/v1/calls/{id}")).await;
    let cost = call["repetition_cost_usd"].as_f64().expect("a cost");
    let expected = REPEATED as f64 * 1000.0 / 1e6;
    assert!((cost / expected - 1.0).abs() < 0.01, "{cost} {expected}");

    assert_eq!(
        fixture.metric("tokengauge_repeating_calls_total{").await,
        calls as f64
    );
    let tokens = fixture.metric("tokengauge_repeated_tokens_total{").await;
    let expected = (calls as u64 * REPEATED) as f64;
    assert!(
        (tokens / expected - 1.0).abs() < 0.01,
        "{tokens} {expected}"
    );
}

#[tokio::test]
async fn a_stream_that_repeats_itself_says_so_before_it_ends() {
    let fixture = Fixture::start().await;
    let body =
        json!({"model": "m", "messages": [{"role": "user", "content": "Go on."}], "stream": true});
    let settings = "gap=1ms,tokens=60000,per_frame=4,repeat=3@100";
    let agent = fixture.send("/v1/chat/completions", settings, &body).await;
    let end = Instant::now() + TIMEOUT;
    let found = loop {
        let streams = fixture.api("/api/v1/streams").await;
        let stream = &streams["streams"][0];
        if !stream["repetition"].is_null() {
            break stream.clone();
        }
        assert!(Instant::now() < end, "{streams}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    let repetition = &found["repetition"];
    assert!(
        near(&repetition["start"], 100) && repetition["period"] == 3,
        "{found}"
    );
    assert!(found["tokens"]["output"].as_u64() < Some(60_000), "{found}");
    drop(agent);
    let record = fixture.records(1).await.remove(0);
    assert_eq!(record["outcome"], "client_cancelled");
    assert_eq!(record["repetition"]["period"], 3);
}
