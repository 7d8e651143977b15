//! Runaway sessions and prompt-cache breaks over the real binary: detected as calls end, shown, counted, sent to a
//! receiver, and stopped by a quota for such sessions only.

use crate::process::Process;
use rustix::process::Signal;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokengauge_test_support::TIMEOUT;
use tokengauge_test_support::connection::RawConnection;
use tokengauge_test_support::http_client::fetch;
use tokengauge_test_support::otlp::{Receiver, ReceiverBehaviour};
use tokio::net::TcpListener;

/// Must not appear in any answer, metric or message.
const ARGUMENTS: &str = "the-arguments-of-a-tool";

/// An upstream that answers each request with its header `x-answer`, and with the status in `x-status`.
pub async fn upstream() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((tcp, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut peer = RawConnection::new(tcp);
                while let Some(head) = peer.next_head().await {
                    let field = |name: &str| {
                        let mut lines = head.lines().filter_map(|line| line.split_once(": "));
                        let found = lines.find(|(field, _)| field.eq_ignore_ascii_case(name));
                        found.map_or("", |(_, value)| value)
                    };
                    let length = field("content-length").parse().expect("a length");
                    peer.read_exact(length).await;
                    let (body, status) = (field("x-answer"), field("x-status"));
                    let status = if status.is_empty() { "200" } else { status };
                    let length = body.len();
                    peer.write(format!(
                        "HTTP/1.1 {status} Some\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
                    ))
                    .await;
                }
            });
        }
    });
    address
}

struct Fixture {
    folder: TempDir,
    process: Process,
    head: String,
}

impl Fixture {
    async fn start(tables: &str) -> Fixture {
        let folder = tempfile::tempdir().expect("a folder");
        let head = format!(
            "listen = \"127.0.0.1:0\"\n[admin]\nlisten = \"127.0.0.1:0\"\nurl = \"https://gauge.example\"\n\
             [[upstream]]\nname = \"up\"\nurl = \"http://{}\"\n[[route]]\nupstream = \"up\"\n\
             [[price]]\nmodel = \"m\"\ninput = 10\ncached_input = 1\noutput = 1000\n",
            upstream().await
        );
        let file = folder.path().join("proxy.toml");
        std::fs::write(&file, format!("{head}{tables}")).expect("written");
        let process = Process::start(&file).await;
        Fixture {
            folder,
            process,
            head,
        }
    }

    async fn call(&self, session: &str, response: &Value) -> (u16, String) {
        let body = json!({"model": "m", "messages": [{"role": "user", "content": "go on"}]});
        let body = body.to_string();
        let mut agent = RawConnection::connect(self.process.addresses()[0]).await;
        agent
            .write(format!(
                "POST /v1/chat/completions HTTP/1.1\r\nhost: proxy\r\nconnection: close\r\n\
                 x-tokengauge-session: {session}\r\nx-tokengauge-agent: coder\r\nx-answer: {response}\r\n\
                 content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
                body.len()
            ))
            .await;
        let response = agent.text_to_end().await;
        let (head, body) = response.split_once("\r\n\r\n").expect("a head");
        let status = head.split(' ').nth(1).and_then(|word| word.parse().ok());
        (status.expect("a status"), body.to_owned())
    }

    async fn metric(&self, name: &str, least: f64) -> f64 {
        let end = Instant::now() + TIMEOUT;
        loop {
            let metrics = self.process.metrics().await;
            let value = metrics.get(name).copied().unwrap_or(-1.0);
            if value >= least {
                return value;
            }
            assert!(Instant::now() < end, "{name} is {value}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Waits until metrics show this number of ended calls, because a test makes turns faster than an agent.
    async fn ended(&self, calls: f64) {
        let end = Instant::now() + TIMEOUT;
        loop {
            let metrics = self.process.metrics().await;
            let requests = metrics
                .iter()
                .filter(|(series, _)| series.starts_with("tokengauge_requests_total{"));
            if requests.map(|(_, value)| value).sum::<f64>() >= calls {
                return;
            }
            assert!(Instant::now() < end, "fewer than {calls} calls have ended");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn runaways(&self) -> Value {
        let response = fetch(self.process.admin, "/api/v1/runaways").await;
        assert_eq!(response.status, 200, "{}", response.body);
        serde_json::from_str(&response.body).expect("JSON")
    }
}

fn usage(input: u64, cached: u64, output: u64) -> Value {
    json!({
        "prompt_tokens": input,
        "completion_tokens": output,
        "total_tokens": input + output,
        "prompt_tokens_details": {"cached_tokens": cached},
    })
}

fn text(usage: Value) -> Value {
    json!({
        "id": "c", "object": "chat.completion", "model": "m", "usage": usage,
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "done"}}],
    })
}

fn tool_call(query: &str) -> Value {
    let arguments = json!({"query": format!("{ARGUMENTS} {query}")}).to_string();
    json!({
        "id": "c", "object": "chat.completion", "model": "m", "usage": usage(10, 0, 1),
        "choices": [{"index": 0, "finish_reason": "tool_calls", "message": {
            "role": "assistant", "content": null,
            "tool_calls": [{"id": "t", "type": "function", "function": {"name": "search", "arguments": arguments}}],
        }}],
    })
}

#[tokio::test]
async fn a_turn_that_misses_the_prompt_cache_is_counted_with_its_cause_and_cost() {
    let fixture = Fixture::start("").await;
    let turns = [(4_000, 0), (4_500, 3_968), (5_000, 0)];
    for ((input, cached), calls) in turns.into_iter().zip([1.0, 2.0, 3.0]) {
        let (status, _) = fixture.call("a", &text(usage(input, cached, 1))).await;
        assert_eq!(status, 200);
        fixture.ended(calls).await;
    }
    let cause = "{cause=\"evicted\"}";
    let breaks = format!("tokengauge_prompt_cache_breaks_total{cause}");
    assert_eq!(fixture.metric(&breaks, 1.0).await, 1.0);
    // 4,500 tokens at the difference of the two prices.
    let usd = format!("tokengauge_prompt_cache_break_usd_total{cause}");
    let usd = fixture.metric(&usd, 0.0).await;
    assert!((usd - 4_500.0 * 9.0 / 1e6).abs() < 1e-9, "{usd}");
    let idle = "tokengauge_prompt_cache_breaks_total{cause=\"idle\"}";
    assert_eq!(fixture.metric(idle, 0.0).await, 0.0);
}

#[tokio::test]
async fn the_same_tool_call_over_and_over_is_found_told_and_stopped() {
    let receiver = Receiver::start(ReceiverBehaviour::default()).await;
    let fixture = Fixture::start(&format!(
        "[runaway]\nsame_tool_calls = 5\n[[quota]]\nname = \"runaways\"\nwhile_runaway = true\nconcurrent = 0\n\
         [[notify]]\nkind = \"webhook\"\nurl = \"http://{}/alerts\"\n",
        receiver.address
    ))
    .await;
    for turn in 0..10 {
        let (status, _) = fixture.call("work", &tool_call(&turn.to_string())).await;
        assert_eq!(status, 200);
    }
    for turn in 0..5 {
        assert_eq!(fixture.runaways().await["total"], 0, "at turn {turn}");
        let (status, _) = fixture.call("circle", &tool_call("weather")).await;
        assert_eq!(status, 200);
    }
    let gauge = "tokengauge_runaway_sessions{reason=\"same_tool_call\"}";
    assert_eq!(fixture.metric(gauge, 1.0).await, 1.0);
    let found = "tokengauge_runaway_sessions_found_total{reason=\"same_tool_call\"}";
    assert_eq!(fixture.metric(found, 1.0).await, 1.0);
    let all = fixture.runaways().await;
    let one = &all["runaways"][0];
    assert_eq!(
        (&all["total"], &one["session"]),
        (&json!(1), &json!("circle"))
    );
    assert_eq!(one["agent"], "coder");
    let figure = json!({"reason": "same_tool_call", "value": 5.0, "limit": 5.0});
    assert_eq!(one["figures"], json!([figure]));

    // The quota takes up to a second to apply.
    let end = Instant::now() + TIMEOUT;
    let refusal = loop {
        let (status, body) = fixture.call("circle", &text(usage(1, 0, 1))).await;
        if status == 429 {
            break body;
        }
        assert!(Instant::now() < end, "it continues: {status}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    assert!(
        refusal.contains("while this session runs away"),
        "{refusal}"
    );
    let (status, _) = fixture.call("work", &tool_call("more")).await;
    assert_eq!(status, 200, "others go on");

    let alert = notified(&receiver).await;
    let annotations = &alert["annotations"];
    let description = annotations["description"].as_str().expect("a description");
    assert!(
        description.contains("circle of coder: the same tool call 5 times"),
        "{description}"
    );
    assert_eq!(annotations["summary"], "1 session runs away");
    let page = annotations["page"].as_str().expect("a page");
    assert!(page.starts_with("https://gauge.example/sessions"), "{page}");
    let runbook = annotations["runbook_url"].as_str().expect("a runbook");
    assert!(runbook.ends_with("#tokengaugerunaway"), "{runbook}");
    nothing_of_arguments(&fixture, &alert).await;
}

#[tokio::test]
async fn the_file_with_a_receivers_address_is_read_again_for_each_message() {
    let receiver = Receiver::start(ReceiverBehaviour::default()).await;
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("url");
    // Nothing listens at the old address.
    std::fs::write(&file, "http://127.0.0.1:9/old\n").expect("written");
    let fixture = Fixture::start(&format!(
        "[runaway]\nsame_tool_calls = 3\n[[notify]]\nkind = \"webhook\"\nurl_file = {file:?}\n"
    ))
    .await;
    for _ in 0..3 {
        fixture.call("circle", &tool_call("weather")).await;
    }
    fixture
        .process
        .line("an alert could not be delivered")
        .await;
    std::fs::write(&file, format!("http://{}/new\n", receiver.address)).expect("written");
    let alert = notified(&receiver).await;
    assert_eq!(alert["annotations"]["summary"], "1 session runs away");
}

async fn notified(receiver: &Receiver) -> Value {
    let end = Instant::now() + TIMEOUT;
    loop {
        if let Some(first) = receiver.received().first() {
            let body: Value = serde_json::from_slice(&first.message).expect("JSON");
            let alert = body["alerts"][0].clone();
            assert_eq!(
                alert["labels"]["alertname"], "TokengaugeRunaway",
                "{body:#}"
            );
            return alert;
        }
        assert!(Instant::now() < end, "no alert came");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn nothing_of_arguments(fixture: &Fixture, alert: &Value) {
    let mut all = vec![alert.to_string()];
    for path in [
        "/api/v1/runaways",
        "/api/v1/calls",
        "/api/v1/sessions/circle",
        "/api/v1/marks",
        "/metrics",
    ] {
        all.push(fetch(fixture.process.admin, path).await.body);
    }
    all.push(fixture.process.line("a session runs away").await);
    for text in all {
        assert!(!text.contains(ARGUMENTS), "{text}");
    }
}

#[tokio::test]
async fn a_session_that_spends_many_times_what_is_usual_runs_away() {
    let ceilings =
        "[runaway]\nwindow = \"1m\"\nusd_per_minute = 0\ntimes_usual = 10\nusual_sessions = 5\n";
    let fixture = Fixture::start(ceilings).await;
    // The usual amount is not known yet.
    fixture.call("first", &text(usage(90_000, 0, 10))).await;
    for session in 0..8 {
        fixture
            .call(&format!("s-{session}"), &text(usage(90, 0, 10)))
            .await;
    }
    // The usual amount is computed again after some milliseconds.
    fixture.ended(9.0).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    fixture.call("greedy", &text(usage(1_900, 0, 10))).await;
    let end = Instant::now() + TIMEOUT;
    let found = loop {
        let all = fixture.runaways().await;
        let mut found = all["runaways"].as_array().expect("a list").iter();
        if let Some(found) = found.find(|one| one["session"] == "greedy") {
            break found.clone();
        }
        assert!(Instant::now() < end, "{all:#}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    let figure = &found["figures"][0];
    let is = (&figure["reason"], &figure["usual"], &figure["limit"]);
    assert_eq!(
        is,
        (&json!("tokens"), &json!(100.0), &json!(1000.0)),
        "{found:#}"
    );
    let all = fixture.runaways().await;
    let named: Vec<_> = all["runaways"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|one| one["session"].clone())
        .collect();
    assert!(
        named
            .iter()
            .all(|session| session == "greedy" || session == "first"),
        "{all:#}"
    );
}

#[tokio::test]
async fn dollars_a_minute_are_a_ceiling_that_a_reload_can_raise() {
    let fixture = Fixture::start("[runaway]\nwindow = \"1m\"\nusd_per_minute = 0.5\n").await;
    // 0.4 USD of output each.
    for session in ["dear", "modest", "dear"] {
        fixture.call(session, &text(usage(0, 0, 400))).await;
    }
    let gauge = "tokengauge_runaway_sessions{reason=\"dollars\"}";
    assert_eq!(fixture.metric(gauge, 1.0).await, 1.0);
    let all = fixture.runaways().await;
    assert_eq!(all["runaways"][0]["session"], "dear");
    let figure = &all["runaways"][0]["figures"][0];
    assert_eq!(
        (&figure["reason"], &figure["limit"]),
        (&json!("dollars"), &json!(0.5))
    );
    let value = figure["value"].as_f64().expect("a number");
    assert!((value - 0.8).abs() < 1e-9, "{value}");

    let file = fixture.folder.path().join("proxy.toml");
    let raised = "[runaway]\nwindow = \"1m\"\nusd_per_minute = 0\n";
    std::fs::write(file, format!("{}{raised}", fixture.head)).expect("written");
    fixture.process.signal(Signal::HUP);
    fixture.process.has_reloaded("applied", 1.0).await;
    assert_eq!(
        fixture.runaways().await,
        json!({"total": 0, "runaways": []})
    );
}
