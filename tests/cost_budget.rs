//! Budgets in front of a real proxy: who has spent theirs is refused in the words of the
//! dialect, and nobody else.

use crate::serving::{Agent, PATIENCE};
use crate::sim_support;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::Arc;
use tokengauge::config::{Config, Listener, Measure};
use tokengauge::cost::budget::Budgets;
use tokengauge::meter::{Meter, RecentCalls};
use tokengauge::proxy::{Bound, Forwarder, Shutdown, serve};
use tokio::net::TcpStream;

struct Desk {
    address: SocketAddr,
    meter: Arc<Meter>,
    recent: Arc<RecentCalls>,
    budgets: Arc<Budgets>,
    _sim: sim_support::Sim,
}

async fn desk(budget: &str) -> Desk {
    let sim = sim_support::start("tokens=20,ttft=1ms,gap=1ms,usage=on,seed=3").await;
    let text = format!(
        "[[upstream]]\nname = \"sim\"\nurl = \"http://{}\"\n[[route]]\nupstream = \"sim\"\n\
         [[price]]\nmodel = \"m*\"\noutput = 1000\n[[budget]]\nname = \"b\"\nblock = true\n{budget}",
        sim.address
    );
    let config = Config::parse(&text, "test").unwrap_or_else(|invalid| panic!("{invalid}"));
    let budgets = Budgets::new(&config.budgets);
    let recent = RecentCalls::new(100);
    let measure = Measure {
        budgets: Arc::clone(&budgets),
        ..config.measure.clone()
    };
    let meter = Meter::new(measure, vec![recent.clone(), budgets.clone()]);
    let any = Listener {
        address: SocketAddr::from(([127, 0, 0, 1], 0)),
        tls: None,
    };
    let bound = Bound::bind(&any).expect("bound");
    let address = bound.address();
    let limits = config.limits;
    let forwarder = Forwarder::new(Arc::new(config), meter.clone()).expect("usable");
    tokio::spawn(async move {
        serve(
            vec![bound],
            Arc::new(forwarder),
            &limits,
            Shutdown::new(),
            PATIENCE,
        )
        .await
    });
    Desk {
        address,
        meter,
        recent,
        budgets,
        _sim: sim,
    }
}

/// What an agent got.
struct Got {
    head: String,
    body: String,
}

impl Got {
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

impl Desk {
    async fn call(&self, path: &str, headers: &str, body: Value) -> Got {
        let body = body.to_string();
        let mut agent = Agent::new(TcpStream::connect(self.address).await.expect("connected"));
        let length = body.len();
        agent
            .send(&format!(
                "POST {path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Type: application/json\r\n{headers}Content-Length: {length}\r\n\r\n{body}"
            ))
            .await;
        let all = agent.rest().await;
        assert!(self.meter.flush(PATIENCE));
        let (head, body) = all.split_once("\r\n\r\n").expect("a head");
        Got {
            head: head.to_owned(),
            body: body.to_owned(),
        }
    }

    async fn chat(&self, session: &str, model: &str) -> Got {
        let session = format!("x-tokengauge-session: {session}\r\n");
        let body = json!({"model": model, "stream": true, "messages": [{"role": "user", "content": "Hi"}]});
        self.call("/v1/chat/completions", &session, body).await
    }
}

/// 20 tokens at 0.001 USD: two calls spend it.
const SPENT_BY_TWO: &str = "per = \"session\"\nusd = 0.03\nperiod = \"400d\"\n";

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_has_spent_its_budget_is_refused_and_no_other() {
    let desk = desk(SPENT_BY_TWO).await;
    for _ in 0..2 {
        assert_eq!(desk.chat("a", "m-1").await.status(), "200");
    }
    let refused = desk.chat("a", "m-1").await;
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
    assert_eq!(desk.chat("b", "m-1").await.status(), "200");
    let record = &desk.recent.newest(2)[1].record;
    assert_eq!(record.error_type.as_deref(), Some("budget_spent"));
    assert_eq!((record.status, record.cost_usd), (Some(429), None));
    let standing = &desk.budgets.standings(0)[0];
    assert_eq!(standing.blocked, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_in_the_body_is_refused_in_the_words_of_its_dialect() {
    let desk = desk(SPENT_BY_TWO).await;
    let user = json!({"user_id": "user_x_account_y_session_from-body"});
    let body = json!({"model": "m-1", "stream": true, "max_tokens": 9, "metadata": user,
        "messages": [{"role": "user", "content": "Hi"}]});
    let mut statuses = Vec::new();
    for _ in 0..3 {
        let got = desk.call("/v1/messages", "", body.clone()).await;
        statuses.push(got.status().to_owned());
        if got.status() == "429" {
            assert_eq!(got.json()["type"], "error");
            assert_eq!(got.json()["error"]["type"], "rate_limit_error");
            assert!(got.field("retry-after").is_some());
        }
    }
    assert_eq!(statuses, ["200", "200", "429"]);
    let mut other = body;
    other["metadata"]["user_id"] = json!("user_x_account_y_session_another");
    assert_eq!(desk.call("/v1/messages", "", other).await.status(), "200");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_budget_for_some_models_refuses_those_alone() {
    let budget = "usd = 0.03\nperiod = \"400d\"\nselect = { model = \"m-big*\" }\n";
    let desk = desk(budget).await;
    for _ in 0..2 {
        assert_eq!(desk.chat("a", "m-big-1").await.status(), "200");
    }
    assert_eq!(desk.chat("a", "m-small").await.status(), "200");
    assert_eq!(desk.chat("b", "m-big-2").await.status(), "429");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_decides_reaches_the_upstream_as_it_came() {
    let desk = desk(SPENT_BY_TWO).await;
    let long = "x".repeat(2 << 20);
    let body =
        json!({"model": "m-1", "stream": true, "messages": [{"role": "user", "content": long}]});
    let length = body.to_string().len() as u64;
    let got = desk.call("/v1/chat/completions", "", body).await;
    assert_eq!(got.status(), "200", "too long to decide: it may pass");
    assert_eq!(desk.recent.newest(1)[0].record.bytes.request, length);
}
