//! Budgets and quotas in front of a real proxy: a caller over its limit is refused with an error of the dialect, and no
//! other caller is.

use crate::clock::SteppedClock;
use crate::process::Process;
use rustix::process::Signal;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokengauge_accounting::Accounting;
use tokengauge_accounting::cost::budget::Budgets;
use tokengauge_config::{Config, Listener};
use tokengauge_meter::{Meter, RecentCalls, Subscriber};
use tokengauge_proxy::{BoundListener, Forwarder, Shutdown, serve};
use tokengauge_test_support::TIMEOUT;
use tokengauge_test_support::connection::RawConnection;
use tokengauge_test_support::eventually;
use tokengauge_test_support::http_client::fetch;
use tokengauge_test_support::sim;
use tokengauge_test_support::skip::skipped;
use tokio::process::Command;

struct BudgetFixture {
    address: SocketAddr,
    meter: Arc<Meter>,
    recent: Arc<RecentCalls>,
    budgets: Arc<Budgets>,
    answered: AtomicUsize,
    _sim: sim::Sim,
}

async fn fixture(budget: &str) -> BudgetFixture {
    let table = format!("[[budget]]\nname = \"b\"\nblock = true\n{budget}");
    fixture_with("tokens=20,ttft=1ms,gap=1ms,usage=on,seed=3", &table).await
}

async fn fixture_with(profile: &str, tables: &str) -> BudgetFixture {
    let sim = sim::start(profile).await;
    let text = format!(
        "[[upstream]]\nname = \"sim\"\nurl = \"http://{}\"\n[[route]]\nupstream = \"sim\"\n\
         [[price]]\nmodel = \"m*\"\noutput = 1000\n{tables}",
        sim.address
    );
    let config = Config::parse(&text, "test").unwrap_or_else(|invalid| panic!("{invalid}"));
    let accounting = Accounting::new(&config.prices, &config.budgets, &config.quotas);
    let budgets = Arc::clone(&accounting.budgets);
    let recent = RecentCalls::new(100);
    let subscribers: Vec<Arc<dyn Subscriber>> = vec![recent.clone(), budgets.clone()];
    let meter = Meter::with(config.measure.clone(), accounting, subscribers, None);
    let any = Listener {
        address: SocketAddr::from(([127, 0, 0, 1], 0)),
        tls: None,
    };
    let bound = BoundListener::bind(&any).expect("bound");
    let address = bound.address();
    let limits = config.limits;
    let forwarder = Forwarder::new(config.forwarding(), meter.clone()).expect("usable");
    tokio::spawn(async move {
        serve(
            vec![bound],
            Arc::new(forwarder),
            &limits,
            Shutdown::new(),
            TIMEOUT,
        )
        .await
    });
    BudgetFixture {
        address,
        meter,
        recent,
        budgets,
        answered: AtomicUsize::new(0),
        _sim: sim,
    }
}

struct HttpResponse {
    head: String,
    body: String,
}

impl HttpResponse {
    fn status(&self) -> &str {
        self.head.split(' ').nth(1).expect("a status")
    }

    fn field(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (field, value) = line.split_once(':')?;
            field.eq_ignore_ascii_case(name).then_some(value.trim())
        })
    }

    fn json(&self) -> Value {
        serde_json::from_str(&self.body).expect("JSON")
    }
}

impl BudgetFixture {
    async fn call(&self, path: &str, headers: &str, body: Value) -> HttpResponse {
        let response = post(self.address, path, headers, &body).await;
        // A call is recorded a moment after its agent has the answer.
        let answered = self.answered.fetch_add(1, Ordering::SeqCst) + 1;
        let recorded = || {
            assert!(self.meter.flush(TIMEOUT));
            self.recent.newest(100).len() >= answered
        };
        eventually("the call is recorded", recorded).await;
        response
    }

    async fn chat(&self, session: &str, model: &str) -> HttpResponse {
        let session = session_field(session);
        self.call(CHAT, &session, chat(model)).await
    }
}

const CHAT: &str = "/v1/chat/completions";

fn session_field(session: &str) -> String {
    format!("x-tokengauge-session: {session}\r\n")
}

fn chat(model: &str) -> Value {
    json!({"model": model, "stream": true, "messages": [{"role": "user", "content": "Hi"}]})
}

async fn post(address: SocketAddr, path: &str, headers: &str, body: &Value) -> HttpResponse {
    let body = body.to_string();
    let mut agent = RawConnection::connect(address).await;
    let length = body.len();
    agent
        .write(format!(
            "POST {path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Type: application/json\r\n{headers}Content-Length: {length}\r\n\r\n{body}"
        ))
        .await;
    let all = agent.text_to_end().await;
    let (head, body) = all.split_once("\r\n\r\n").expect("a head");
    HttpResponse {
        head: head.to_owned(),
        body: body.to_owned(),
    }
}

/// Each call has 20 tokens at 0.001 USD, so two calls spend the budget.
const SPENT_BY_TWO: &str = "per = \"session\"\nusd = 0.03\nperiod = \"400d\"\n";

/// Twenty times the usual duration, for busy machines.
const SAVED_WITHIN: Duration = Duration::from_secs(10);

/// The configuration of a process with a budget, an objective and a state directory.
async fn with_state() -> (sim::Sim, TempDir, PathBuf) {
    let sim = sim::start("tokens=20,ttft=1ms,gap=1ms,usage=on,seed=3").await;
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("proxy.toml");
    let state = folder.path().join("state");
    let text = format!(
        "listen = \"127.0.0.1:0\"\nstate_dir = {state:?}\n[admin]\nlisten = \"127.0.0.1:0\"\n\
         [[upstream]]\nname = \"sim\"\nurl = \"http://{}\"\n[[route]]\nupstream = \"sim\"\n\
         [[price]]\nmodel = \"m*\"\noutput = 1000\n[[budget]]\nname = \"b\"\nblock = true\n{SPENT_BY_TWO}\
         [[slo]]\nname = \"up\"\navailability = true\nobjective = 0.9\n",
        sim.address
    );
    std::fs::write(&config, text).expect("written");
    (sim, folder, config)
}

async fn admitted(process: &Process) -> bool {
    let session = session_field("s-1");
    let response = post(process.addresses()[0], CHAT, &session, &chat("m-1")).await;
    response.status() != "429"
}

async fn spend(process: &Process) -> f64 {
    let end = Instant::now() + TIMEOUT;
    let mut calls = 0.0;
    while admitted(process).await {
        calls += 1.0;
        assert!(Instant::now() < end, "it is never spent");
    }
    calls
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_after_a_budget_was_spent_does_not_reset_it() {
    let (_sim, folder, config) = with_state().await;
    let process = Process::start(&config).await;
    spend(&process).await;
    let spent = Instant::now();
    let saved = || -> f64 {
        let file = folder.path().join("state/spending.json");
        let text = std::fs::read_to_string(file).unwrap_or_default();
        let saved: Value = serde_json::from_str(&text).unwrap_or_default();
        saved["b"]["spent"]["s-1"].as_f64().unwrap_or(0.0)
    };
    while saved() < 0.03 {
        assert!(spent.elapsed() < SAVED_WITHIN, "{} is saved", saved());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    process.signal(Signal::KILL);
    assert!(!process.ended().await.success());
    let process = Process::start(&config).await;
    assert!(!admitted(&process).await);
}

async fn good(process: &Process, count: f64) {
    let end = Instant::now() + TIMEOUT;
    loop {
        let body = fetch(process.admin, "/api/v1/slos").await.body;
        let status: Value = serde_json::from_str(&body).expect("JSON");
        if status["slos"][0]["good"] == count {
            return;
        }
        assert!(Instant::now() < end, "{status:#} has not {count}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_was_ahead_for_a_moment_loses_neither_spending_nor_counts() {
    const AHEAD: i64 = 400 * 86_400;
    let (_sim, folder, config) = with_state().await;
    let Some(clock) = SteppedClock::new(folder.path()) else {
        return skipped("no C compiler for a clock that can be set");
    };
    let start = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tokengauge"));
        command.args(["run", "--config"]).arg(&config);
        clock.apply(&mut command);
        Process::start_by(command)
    };
    let mut process = start().await;
    let mut calls = spend(&process).await;
    // While the process runs, and right after a restart.
    for restarted in [false, true] {
        if restarted {
            process.signal(Signal::TERM);
            assert!(process.ended().await.success());
            clock.set_ahead(AHEAD);
            process = start().await;
            good(&process, 0.0).await;
        }
        clock.set_ahead(AHEAD);
        assert!(admitted(&process).await, "a period later");
        calls += 1.0;
        clock.set_ahead(0);
        assert!(!admitted(&process).await, "spent, restarted: {restarted}");
        good(&process, calls).await;
    }
    process.signal(Signal::TERM);
    assert!(process.ended().await.success());
    clock.set_ahead(2 * AHEAD);
    process = start().await;
    assert!(admitted(&process).await, "two periods later");
    process.signal(Signal::TERM);
    assert!(process.ended().await.success());
    clock.set_ahead(0);
    process = start().await;
    assert!(!admitted(&process).await, "a wrong clock wrote the file");
    good(&process, calls + 1.0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_has_spent_its_budget_is_refused_and_no_other() {
    let fixture = fixture(SPENT_BY_TWO).await;
    for _ in 0..2 {
        assert_eq!(fixture.chat("a", "m-1").await.status(), "200");
    }
    let refused = fixture.chat("a", "m-1").await;
    assert_eq!(refused.status(), "429");
    assert_eq!(refused.field("x-tokengauge-error"), Some("budget_spent"));
    let wait: u64 = refused
        .field("retry-after")
        .expect("told")
        .parse()
        .expect("seconds");
    assert!((1..=400 * 24 * 3600).contains(&wait), "{wait}");
    let error = &refused.json()["error"];
    assert_eq!(error["type"], "rate_limit_error");
    let message = error["message"].as_str().expect("a message");
    assert!(
        message.contains("budget b of this session is spent: 0.04 of 0.03 USD"),
        "{message}"
    );
    assert_eq!(fixture.chat("b", "m-1").await.status(), "200");
    let record = &fixture.recent.newest(2)[1].record;
    assert_eq!(record.error_type.as_deref(), Some("budget_spent"));
    assert_eq!((record.status, record.cost_usd), (Some(429), None));
    let status = &fixture.budgets.statuses(0)[0];
    assert_eq!(status.blocked, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_in_the_body_is_refused_in_the_words_of_its_dialect() {
    let fixture = fixture(SPENT_BY_TWO).await;
    let user = json!({"user_id": "user_x_account_y_session_from-body"});
    let body = json!({"model": "m-1", "stream": true, "max_tokens": 9, "metadata": user,
        "messages": [{"role": "user", "content": "Hi"}]});
    let mut statuses = Vec::new();
    for _ in 0..3 {
        let response = fixture.call("/v1/messages", "", body.clone()).await;
        statuses.push(response.status().to_owned());
        if response.status() == "429" {
            assert_eq!(response.json()["type"], "error");
            assert_eq!(response.json()["error"]["type"], "rate_limit_error");
            assert!(response.field("retry-after").is_some());
        }
    }
    assert_eq!(statuses, ["200", "200", "429"]);
    let mut other = body;
    other["metadata"]["user_id"] = json!("user_x_account_y_session_another");
    assert_eq!(
        fixture.call("/v1/messages", "", other).await.status(),
        "200"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_budget_for_some_models_refuses_only_these() {
    let budget = "usd = 0.03\nperiod = \"400d\"\nselect = { model = \"m-big*\" }\n";
    let fixture = fixture(budget).await;
    for _ in 0..2 {
        assert_eq!(fixture.chat("a", "m-big-1").await.status(), "200");
    }
    assert_eq!(fixture.chat("a", "m-small").await.status(), "200");
    assert_eq!(fixture.chat("b", "m-big-2").await.status(), "429");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_decides_reaches_the_upstream_as_it_came() {
    let fixture = fixture(SPENT_BY_TWO).await;
    let long = "x".repeat(2 << 20);
    let body =
        json!({"model": "m-1", "stream": true, "messages": [{"role": "user", "content": long}]});
    let length = body.to_string().len() as u64;
    let response = fixture.call("/v1/chat/completions", "", body).await;
    assert_eq!(response.status(), "200", "too long to decide: it may pass");
    assert_eq!(fixture.recent.newest(1)[0].record.bytes.request, length);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_streamed_more_than_its_tokens_waits_and_no_other() {
    let quota = "[[quota]]\nname = \"q\"\nper = \"session\"\ntokens_per_minute = 60\n";
    let fixture = fixture_with("tokens=100,ttft=1ms,gap=1ms,usage=on,seed=3", quota).await;
    assert_eq!(fixture.chat("a", "m-1").await.status(), "200");
    let refused = fixture.chat("a", "m-1").await;
    assert_eq!(refused.status(), "429");
    assert_eq!(refused.field("x-tokengauge-error"), Some("rate_limited"));
    // 100 output tokens and the prompt's tokens, from a quota of 60 a minute.
    let input = fixture.recent.newest(2)[1].record.tokens.reported.input;
    let taken = 100 + input.expect("usage is on");
    let wait = refused.field("retry-after").expect("told");
    let wait: u64 = wait.parse().expect("seconds");
    assert!(
        (taken - 62..=taken - 57).contains(&wait),
        "{wait} s for {taken} tokens"
    );
    assert_eq!(refused.json()["error"]["type"], "rate_limit_error");
    assert_eq!(fixture.chat("b", "m-1").await.status(), "200");
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_calls_are_limited_for_each_key() {
    let quota = "[[quota]]\nname = \"q\"\nper = \"key\"\nconcurrent = 1\n";
    let fixture = fixture_with("tokens=50,ttft=1ms,gap=20ms,usage=on,seed=3", quota).await;
    let body =
        json!({"model": "m-1", "stream": true, "messages": [{"role": "user", "content": "Hi"}]});
    let (path, one, two) = (
        "/v1/chat/completions",
        "x-api-key: one\r\n",
        "x-api-key: two\r\n",
    );
    let second = async {
        while fixture
            .meter
            .streams(std::time::Instant::now(), 1)
            .is_empty()
        {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
        let same = fixture.call(path, one, body.clone()).await;
        (same, fixture.call(path, two, body.clone()).await)
    };
    let (first, (same, other)) = tokio::join!(fixture.call(path, one, body.clone()), second);
    assert_eq!(
        (first.status(), same.status(), other.status()),
        ("200", "429", "200")
    );
    assert!(!same.body.contains("one"), "{}", same.body);
    assert_eq!(
        fixture.call(path, one, body).await.status(),
        "200",
        "the place is free again"
    );
    let status = &fixture.meter.accounting().quotas.statuses()[0];
    assert_eq!(status.refused[2].1, 1);
}

#[test]
fn an_invalid_quota_is_reported_with_its_line() {
    let route = "[[upstream]]\nname = \"u\"\nurl = \"http://u\"\n[[route]]\nupstream = \"u\"\n";
    for (quota, expected) in [
        (
            "",
            "needs `requests_per_minute`, `tokens_per_minute` or `concurrent`",
        ),
        (
            "concurrent = 1\nwhile_burning = \"x\"\n",
            "there is no [[slo]] named `x`",
        ),
        ("tokens_per_minute = 0\n", "must be at least 1"),
        ("concurrent = 1\nper = \"body\"\n", "unknown variant `body`"),
        ("concurrent = 1\nselect = { route = \"x\" }\n", "`x`"),
        (
            "concurrent = 1\n[[quota]]\nname = \"q\"\nconcurrent = 1\n",
            "two quotas named `q`",
        ),
    ] {
        let text = format!("{route}[[quota]]\nname = \"q\"\n{quota}");
        let invalid = Config::parse(&text, "test.toml")
            .expect_err("no sense")
            .to_string();
        assert!(
            invalid.contains(expected) && invalid.contains("test.toml:"),
            "{invalid}"
        );
    }
}
