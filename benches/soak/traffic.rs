//! Agents that make one call after the other, with scenarios from their seed.

use crate::backend::{SentCalls, tokens_of};
use crate::client::{Connection, ReadBehaviour, ReceivedResponse, ask};
use crate::random::Random;
use crate::realtime;
use crate::records::{EndedCall, Inbox};
use crate::report::Report;
use crate::scenarios::{ENDPOINTS, Endpoint, SCENARIOS, Scenario};
use crate::verify::{CallEnd, Expected, ReceivedCall, mismatch, without_usage};
use bytes::Bytes;
use http::{Request, Version};
use http_body_util::Full;
use serde_json::json;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokengauge_core::call::Outcome;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

#[derive(Clone)]
pub struct Shared {
    pub proxy: SocketAddr,
    pub sent_calls: SentCalls,
    pub inbox: Inbox,
    pub report: Arc<Report>,
    pub seed: u64,
}

/// Runs `agents` agents until `end`, and waits for their last calls. Their seeds depend on `phase`, so that phases
/// differ.
pub async fn run(shared: &Shared, phase: u64, agents: u64, end: Instant) {
    let mut tasks = JoinSet::new();
    for number in 0..agents {
        let random = Random::new(shared.seed, phase * 100_000 + number);
        let agent = Agent {
            shared: shared.clone(),
            number,
            // Every scenario occurs early, whatever the random numbers are.
            next: (number as usize * SCENARIOS.len() / agents as usize) % SCENARIOS.len(),
            random,
            http1: None,
            http2: None,
            session: String::new(),
        };
        tasks.spawn(agent.work(end));
    }
    while let Some(ended) = tasks.join_next().await {
        if let Err(error) = ended {
            shared
                .report
                .violation(format!("the task of an agent failed: {error}"));
        }
    }
}

struct Agent {
    shared: Shared,
    number: u64,
    next: usize,
    random: Random,
    http1: Option<Connection>,
    http2: Option<Connection>,
    session: String,
}

pub struct Plan {
    pub id: String,
    pub scenario: Scenario,
    pub endpoint: &'static Endpoint,
    pub path: String,
    /// The behaviour that the simulator is asked for: the value of `x-sim`.
    pub behaviour: String,
    pub body: String,
    pub expected: Expected,
    reading: ReadBehaviour,
    connection: ConnectionUse,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ConnectionUse {
    /// The agent's HTTP/1.1 connection of the previous call.
    Reused,
    New,
    Http2,
}

impl Agent {
    async fn work(mut self, end: Instant) {
        while Instant::now() < end {
            if self.session.is_empty() || self.random.once_in(12) {
                self.session = format!("session-{:016x}", self.random.bits());
            }
            let scenario = self.scenario();
            let plan = self.plan(scenario);
            self.call(plan).await;
            let thinks = self.random.between(0, 500);
            tokio::time::sleep(Duration::from_millis(thinks)).await;
        }
    }

    /// The next scenario: every third comes from the list in order, the others are random.
    fn scenario(&mut self) -> Scenario {
        if self.random.once_in(3) {
            self.next = (self.next + 1) % SCENARIOS.len();
            return SCENARIOS[self.next].0;
        }
        let mut at = self.random.between(
            0,
            SCENARIOS.iter().map(|(_, weight)| weight).sum::<u64>() - 1,
        );
        for (scenario, weight) in SCENARIOS {
            match at.checked_sub(*weight) {
                Some(rest) => at = rest,
                None => return *scenario,
            }
        }
        Scenario::Complete
    }

    fn plan(&mut self, scenario: Scenario) -> Plan {
        let random = &mut self.random;
        let id = format!("{:016x}{:016x}", random.bits(), random.bits() | 1);
        let chat = scenario.rogue_behaviour().is_some()
            || scenario.recording().is_some()
            || matches!(
                scenario,
                Scenario::Injected
                    | Scenario::Realtime
                    | Scenario::RealtimeLeft
                    | Scenario::Refused
            );
        let endpoint = if chat {
            &ENDPOINTS[0]
        } else {
            &ENDPOINTS[random.between(0, ENDPOINTS.len() as u64 - 1) as usize]
        };
        let must_stream = chat || matches!(scenario, Scenario::Flood | Scenario::ErrorEvent);
        let (path, streamed) = match (endpoint.streamed, endpoint.whole) {
            (Some(path), Some(_)) if must_stream || !random.once_in(4) => (path, true),
            (_, Some(path)) => (path, false),
            (path, None) => (path.unwrap_or_default(), true),
        };
        let words = match scenario {
            Scenario::BigPrompt => random.between(50_000, 400_000),
            _ => random.between(1, 300),
        };
        let text = "word ".repeat(words as usize);
        let mut body = (endpoint.body)(&text);
        body["stream"] = json!(streamed);
        if scenario == Scenario::Injected
            && let Some(fields) = body.as_object_mut()
        {
            fields.remove("stream_options");
        }
        let prefix = match scenario {
            Scenario::Injected => "/injected".to_owned(),
            Scenario::Refused => "/closed".to_owned(),
            Scenario::Silent => "/silent".to_owned(),
            _ => match scenario.rogue_behaviour() {
                Some(behaviour) => format!("/rogue/{behaviour}"),
                None => random.of(&["/one", "/one", "/two"]).to_owned(),
            },
        };
        let connection = match (scenario, random.between(0, 5)) {
            (Scenario::AgentResets, _) | (_, 0 | 1) => ConnectionUse::New,
            (_, 2) => ConnectionUse::Http2,
            _ => ConnectionUse::Reused,
        };
        Plan {
            expected: expected(scenario, endpoint, &text),
            behaviour: behaviour(scenario, random),
            reading: reading(scenario, random),
            path: format!("{prefix}{path}"),
            body: body.to_string(),
            id,
            scenario,
            endpoint,
            connection,
        }
    }

    async fn call(&mut self, plan: Plan) {
        let what = format!(
            "{} over {:?}, {}",
            plan.path, plan.connection, plan.behaviour
        );
        let (received, why) = match plan.scenario {
            Scenario::Realtime | Scenario::RealtimeLeft => {
                realtime::converse(&self.shared, &plan, &self.session, &mut self.random).await
            }
            Scenario::Abandoned => (self.abandon(&plan).await, String::new()),
            _ => {
                let response = self.ask(&plan).await;
                (self.received(&plan, &response), response.why)
            }
        };
        if let Some(hung) = why.strip_prefix("nothing more") {
            let report = &self.shared.report;
            report.violation(format!("{}: nothing more{hung}: {what}", plan.id));
        }
        self.shared.inbox.put(EndedCall {
            what: format!("{what}, {:?} {why}", received.ended),
            id: plan.id,
            received,
            scenario: plan.scenario.name(),
            endpoint: plan.endpoint.name,
            at: Instant::now(),
        });
    }

    async fn ask(&mut self, plan: &Plan) -> ReceivedResponse {
        let request = self.request(plan);
        let version = match plan.connection {
            ConnectionUse::Http2 => Version::HTTP_2,
            _ => Version::HTTP_11,
        };
        let open = match plan.connection {
            ConnectionUse::Reused => self.http1.take(),
            ConnectionUse::Http2 => self.http2.take(),
            ConnectionUse::New => None,
        };
        let mut connection = match open.filter(Connection::usable) {
            Some(connection) => connection,
            None => {
                let resets = plan.scenario == Scenario::AgentResets;
                match Connection::open(self.shared.proxy, version, resets).await {
                    Ok(connection) => connection,
                    Err(error) => return unreached(&error),
                }
            }
        };
        let response = ask(&mut connection, request, plan.reading).await;
        // An HTTP/1.1 connection whose response was not read to its end cannot be reused.
        match plan.connection {
            ConnectionUse::Reused if response.ended == CallEnd::Complete => {
                self.http1 = Some(connection)
            }
            ConnectionUse::Http2 => self.http2 = Some(connection),
            _ => {}
        }
        response
    }

    fn request(&self, plan: &Plan) -> Request<Full<Bytes>> {
        let mut request = Request::post(&plan.path);
        if plan.connection == ConnectionUse::Http2 {
            request = Request::post(format!("http://{}{}", self.shared.proxy, plan.path));
        } else {
            request = request.header("host", self.shared.proxy.to_string());
        }
        for (name, value) in self.headers(plan) {
            request = request.header(name, value);
        }
        let body = Full::new(Bytes::from(plan.body.clone()));
        request.body(body).expect("a request of printable parts")
    }

    fn headers(&self, plan: &Plan) -> Vec<(&'static str, String)> {
        let trade = ["chat", "voice", "batch"][self.number as usize % 3];
        let mut headers = vec![
            ("content-type", "application/json".to_owned()),
            ("user-agent", format!("soak-{trade}/1.0")),
            ("authorization", format!("Bearer key-{}", self.number)),
            ("traceparent", format!("00-{}-00f067aa0ba902b7-01", plan.id)),
            ("x-tokengauge-session", self.session.clone()),
            ("x-tokengauge-user", format!("user-{}", self.number)),
            (
                "x-tokengauge-experiment",
                format!("soak/{}", self.number % 2),
            ),
            ("x-sim-id", plan.id.clone()),
            ("x-sim", plan.behaviour.clone()),
        ];
        if let Some(recording) = plan.scenario.recording() {
            headers.push(("x-sim-body", recording.to_owned()));
        }
        headers
    }

    fn received(&self, plan: &Plan, response: &ReceivedResponse) -> ReceivedCall {
        let mut body = response.body.clone();
        let theirs = response.head.as_ref().is_some_and(|head| !head.from_proxy);
        if theirs && !body.is_empty() && self.shared.report.breaks("bytes") {
            let middle = body.len() / 2;
            body[middle] ^= 1;
        }
        let (due, mismatch) =
            self.shared
                .sent_calls
                .with(&plan.id, |written| match plan.scenario {
                    Scenario::Injected => {
                        let due = without_usage(&written.bytes);
                        (Some(due.len() as u64), mismatch(&due, &body))
                    }
                    _ => (None, mismatch(&written.bytes, &body)),
                });
        ReceivedCall {
            expected: plan.expected.clone(),
            sent: plan.body.len() as u64,
            head: response.head.clone(),
            received: body.len() as u64,
            mismatch,
            due,
            ended: response.ended,
        }
    }

    /// Sends a head and half of the body, and disconnects.
    async fn abandon(&mut self, plan: &Plan) -> ReceivedCall {
        let mut head = format!(
            "POST {} HTTP/1.1\r\nhost: soak\r\ncontent-length: {}\r\n",
            plan.path,
            plan.body.len()
        );
        for (name, value) in self.headers(plan) {
            head += &format!("{name}: {value}\r\n");
        }
        let half = &plan.body[..plan.body.len() / 2];
        let wait = Duration::from_millis(self.random.between(0, 200));
        if let Ok(mut stream) = TcpStream::connect(self.shared.proxy).await {
            // The record shows whether the write succeeded.
            let _ = stream
                .write_all(format!("{head}\r\n{half}").as_bytes())
                .await;
            let _ = tokio::time::timeout(wait, stream.read(&mut [0; 1024])).await;
        }
        ReceivedCall {
            expected: plan.expected.clone(),
            sent: half.len() as u64,
            head: None,
            received: 0,
            mismatch: None,
            due: None,
            ended: CallEnd::Cancelled,
        }
    }
}

fn unreached(error: &std::io::Error) -> ReceivedResponse {
    ReceivedResponse {
        head: None,
        body: Vec::new(),
        ended: CallEnd::Truncated,
        why: format!("no connection to the proxy: {error}"),
    }
}

fn expected(scenario: Scenario, endpoint: &Endpoint, text: &str) -> Expected {
    let fixed = |outcome, name: &str| Expected::Fixed {
        outcome,
        output: tokens_of(name),
    };
    match scenario {
        Scenario::Realtime | Scenario::RealtimeLeft => Expected::Realtime,
        Scenario::Garbage | Scenario::HangUp | Scenario::Short => fixed(
            Outcome::UpstreamReset,
            scenario.rogue_behaviour().unwrap_or_default(),
        ),
        Scenario::Interim | Scenario::Bare => fixed(
            Outcome::Complete,
            scenario.rogue_behaviour().unwrap_or_default(),
        ),
        Scenario::Silent => fixed(Outcome::Timeout, ""),
        Scenario::Refused => fixed(Outcome::Unreachable, ""),
        Scenario::InvalidText | Scenario::BrokenGzip | Scenario::Trickle | Scenario::GiantEvent => {
            fixed(Outcome::Complete, scenario.recording().unwrap_or_default())
        }
        // The simulator counts a token every four bytes.
        _ if endpoint.vectors && endpoint.name != "rerank" => Expected::Simulated {
            input: Some((text.len() as u64).div_ceil(4)),
        },
        _ => Expected::Simulated { input: None },
    }
}

/// The value of `x-sim`, which sets the behaviour of the simulated model.
fn behaviour(scenario: Scenario, random: &mut Random) -> String {
    let tokens = random.between(8, 140);
    let mut settings = match scenario {
        Scenario::Flood => format!(
            "ttft=1ms,gap=0ms,tokens={},burst=16",
            random.between(2000, 5000)
        ),
        Scenario::Trickle => "ttft=1ms,gap=0ms,cut=1".to_owned(),
        Scenario::InvalidText => "ttft=1ms,gap=1ms,cut=random".to_owned(),
        Scenario::BrokenGzip | Scenario::GiantEvent => "ttft=1ms,gap=1ms".to_owned(),
        _ => format!(
            "ttft={}ms,gap=exp:{}ms,tokens={tokens},per_frame={}",
            random.between(1, 300),
            random.between(2, 25),
            random.between(1, 4)
        ),
    };
    if scenario.recording().is_some() {
        return settings;
    }
    let tools = random.of(&["", "", "", ",tool=12", ",tool=9x2"]);
    settings += tools;
    settings += random.of(&["", "", "", ",reasoning=20"]);
    if scenario != Scenario::Injected {
        // The proxy can remove usage only from uncompressed streams.
        settings += random.of(&["", "", "", ",gzip"]);
    }
    settings += random.of(&[
        "",
        "",
        "",
        "",
        ",stall=700ms@5",
        ",slow_start=3x@6",
        ",empty=3,ping=100ms",
        ",burst=3",
        ",finish=length",
        ",head=50ms",
    ]);
    let at = random.between(1, tokens);
    settings += &match scenario {
        Scenario::ErrorEvent => format!(",error=@{at}"),
        Scenario::Reset => format!(",reset=@{at}"),
        Scenario::Close => format!(",close=@{at}"),
        Scenario::Status => format!(",status={}", random.of(&[400, 401, 429, 500, 503, 529])),
        _ => String::new(),
    };
    settings
}

fn reading(scenario: Scenario, random: &mut Random) -> ReadBehaviour {
    let leaves = matches!(scenario, Scenario::Leaves | Scenario::AgentResets);
    ReadBehaviour {
        pause: match scenario {
            Scenario::SlowReader => Duration::from_millis(random.between(10, 80)),
            _ => Duration::ZERO,
        },
        leaves: leaves.then(|| Duration::from_millis(random.between(0, 1200))),
    }
}
