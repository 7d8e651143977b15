//! Agents: each makes one call after the other, of a kind that its seed says.

use crate::backend::{Book, tokens_of};
use crate::client::{Answer, Connection, Manner, ask};
use crate::judge::{Done, Ended, Known, mismatch, without_usage};
use crate::kinds::{FATES, Fate, SHAPES, Shape};
use crate::random::Random;
use crate::realtime;
use crate::records::{Inbox, Over};
use crate::report::Report;
use bytes::Bytes;
use http::{Request, Version};
use http_body_util::Full;
use serde_json::json;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokengauge::call::Outcome;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

/// What all agents share.
#[derive(Clone)]
pub struct Shared {
    pub proxy: SocketAddr,
    pub book: Book,
    pub inbox: Inbox,
    pub report: Arc<Report>,
    pub seed: u64,
}

/// Lets `agents` work until `end`, and waits for their last calls. `phase` sets their
/// seeds apart from those of another phase.
pub async fn run(shared: &Shared, phase: u64, agents: u64, end: Instant) {
    let mut tasks = JoinSet::new();
    for number in 0..agents {
        let random = Random::new(shared.seed, phase * 100_000 + number);
        let agent = Agent {
            shared: shared.clone(),
            number,
            // Every kind comes early, whatever the dice say.
            next: (number as usize * FATES.len() / agents as usize) % FATES.len(),
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
                .violation(format!("an agent broke down: {error}"));
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

/// One call as it is going to be made.
pub struct Plan {
    pub id: String,
    pub fate: Fate,
    pub shape: &'static Shape,
    pub path: String,
    /// What the simulator is asked for.
    pub behaviour: String,
    pub body: String,
    pub known: Known,
    manner: Manner,
    way: Way,
}

/// Over which connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    StoredCall,
    New,
    Http2,
}

impl Agent {
    async fn work(mut self, end: Instant) {
        while Instant::now() < end {
            if self.session.is_empty() || self.random.once_in(12) {
                self.session = format!("session-{:016x}", self.random.bits());
            }
            let fate = self.fate();
            let plan = self.plan(fate);
            self.call(plan).await;
            let thinks = self.random.between(0, 500);
            tokio::time::sleep(Duration::from_millis(thinks)).await;
        }
    }

    /// Every third is the next of the list, the others are as the dice say.
    fn fate(&mut self) -> Fate {
        if self.random.once_in(3) {
            self.next = (self.next + 1) % FATES.len();
            return FATES[self.next].0;
        }
        let mut at = self
            .random
            .between(0, FATES.iter().map(|(_, weight)| weight).sum::<u64>() - 1);
        for (fate, weight) in FATES {
            match at.checked_sub(*weight) {
                Some(rest) => at = rest,
                None => return *fate,
            }
        }
        Fate::Whole
    }

    fn plan(&mut self, fate: Fate) -> Plan {
        let random = &mut self.random;
        let id = format!("{:016x}{:016x}", random.bits(), random.bits() | 1);
        let chat = fate.at_rogue().is_some()
            || fate.recording().is_some()
            || matches!(
                fate,
                Fate::Injected | Fate::Realtime | Fate::RealtimeLeft | Fate::Refused
            );
        let shape = match chat {
            true => &SHAPES[0],
            false => &SHAPES[random.between(0, SHAPES.len() as u64 - 1) as usize],
        };
        let must_stream = chat || matches!(fate, Fate::Flood | Fate::ErrorEvent);
        let (path, streamed) = match (shape.streamed, shape.whole) {
            (Some(path), Some(_)) if must_stream || !random.once_in(4) => (path, true),
            (_, Some(path)) => (path, false),
            (path, None) => (path.unwrap_or_default(), true),
        };
        let words = match fate {
            Fate::BigPrompt => random.between(50_000, 400_000),
            _ => random.between(1, 300),
        };
        let text = "word ".repeat(words as usize);
        let mut body = (shape.body)(&text);
        body["stream"] = json!(streamed);
        if fate == Fate::Injected
            && let Some(fields) = body.as_object_mut()
        {
            fields.remove("stream_options");
        }
        let prefix = match fate {
            Fate::Injected => "/injected".to_owned(),
            Fate::Refused => "/nobody".to_owned(),
            Fate::Silent => "/silent".to_owned(),
            _ => match fate.at_rogue() {
                Some(behaviour) => format!("/rogue/{behaviour}"),
                None => random.of(&["/one", "/one", "/two"]).to_owned(),
            },
        };
        let way = match (fate, random.between(0, 5)) {
            (Fate::AgentResets, _) | (_, 0 | 1) => Way::New,
            (_, 2) => Way::Http2,
            _ => Way::StoredCall,
        };
        Plan {
            known: known(fate, shape, &text),
            behaviour: behaviour(fate, random),
            manner: manner(fate, random),
            path: format!("{prefix}{path}"),
            body: body.to_string(),
            id,
            fate,
            shape,
            way,
        }
    }

    async fn call(&mut self, plan: Plan) {
        let what = format!("{} over {:?}, {}", plan.path, plan.way, plan.behaviour);
        let (done, why) = match plan.fate {
            Fate::Realtime | Fate::RealtimeLeft => {
                realtime::converse(&self.shared, &plan, &self.session, &mut self.random).await
            }
            Fate::Abandoned => (self.abandon(&plan).await, String::new()),
            _ => {
                let answer = self.ask(&plan).await;
                (self.done(&plan, &answer), answer.why)
            }
        };
        if let Some(hung) = why.strip_prefix("nothing more") {
            let report = &self.shared.report;
            report.violation(format!("{}: nothing more{hung}: {what}", plan.id));
        }
        self.shared.inbox.put(Over {
            what: format!("{what}, {:?} {why}", done.ended),
            id: plan.id,
            done,
            fate: plan.fate.name(),
            shape: plan.shape.name,
            at: Instant::now(),
        });
    }

    async fn ask(&mut self, plan: &Plan) -> Answer {
        let request = self.request(plan);
        let version = match plan.way {
            Way::Http2 => Version::HTTP_2,
            _ => Version::HTTP_11,
        };
        let kept = match plan.way {
            Way::StoredCall => self.http1.take(),
            Way::Http2 => self.http2.take(),
            Way::New => None,
        };
        let mut connection = match kept.filter(Connection::usable) {
            Some(connection) => connection,
            None => {
                let resets = plan.fate == Fate::AgentResets;
                match Connection::open(self.shared.proxy, version, resets).await {
                    Ok(connection) => connection,
                    Err(error) => return unreached(&error),
                }
            }
        };
        let answer = ask(&mut connection, request, plan.manner).await;
        // Over HTTP/1 what is left in the middle, or broken, is of no further use.
        match plan.way {
            Way::StoredCall if answer.ended == Ended::Whole => self.http1 = Some(connection),
            Way::Http2 => self.http2 = Some(connection),
            _ => {}
        }
        answer
    }

    fn request(&self, plan: &Plan) -> Request<Full<Bytes>> {
        let mut request = Request::post(&plan.path);
        if plan.way == Way::Http2 {
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
        if let Some(recording) = plan.fate.recording() {
            headers.push(("x-sim-body", recording.to_owned()));
        }
        headers
    }

    fn done(&self, plan: &Plan, answer: &Answer) -> Done {
        let mut body = answer.body.clone();
        let theirs = answer.head.as_ref().is_some_and(|head| !head.ours);
        if theirs && !body.is_empty() && self.shared.report.breaks("bytes") {
            let middle = body.len() / 2;
            body[middle] ^= 1;
        }
        let (due, mismatch) = self.shared.book.with(&plan.id, |written| match plan.fate {
            Fate::Injected => {
                let due = without_usage(&written.bytes);
                (Some(due.len() as u64), mismatch(&due, &body))
            }
            _ => (None, mismatch(&written.bytes, &body)),
        });
        Done {
            known: plan.known.clone(),
            sent: plan.body.len() as u64,
            head: answer.head.clone(),
            received: body.len() as u64,
            mismatch,
            due,
            ended: answer.ended,
        }
    }

    /// Announces a body, sends half of it, and leaves.
    async fn abandon(&mut self, plan: &Plan) -> Done {
        let mut head = format!(
            "POST {} HTTP/1.1\r\nhost: soak\r\ncontent-length: {}\r\n",
            plan.path,
            plan.body.len()
        );
        for (name, value) in self.headers(plan) {
            head += &format!("{name}: {value}\r\n");
        }
        let half = &plan.body[..plan.body.len() / 2];
        let stay = Duration::from_millis(self.random.between(0, 200));
        if let Ok(mut stream) = TcpStream::connect(self.shared.proxy).await {
            // Whether it got that far shows in the record.
            let _ = stream
                .write_all(format!("{head}\r\n{half}").as_bytes())
                .await;
            let _ = tokio::time::timeout(stay, stream.read(&mut [0; 1024])).await;
        }
        Done {
            known: plan.known.clone(),
            sent: half.len() as u64,
            head: None,
            received: 0,
            mismatch: None,
            due: None,
            ended: Ended::Left,
        }
    }
}

fn unreached(error: &std::io::Error) -> Answer {
    Answer {
        head: None,
        body: Vec::new(),
        ended: Ended::Broken,
        why: format!("no connection to the proxy: {error}"),
    }
}

fn known(fate: Fate, shape: &Shape, text: &str) -> Known {
    let fixed = |outcome, name: &str| Known::Fixed {
        outcome,
        output: tokens_of(name),
    };
    match fate {
        Fate::Realtime | Fate::RealtimeLeft => Known::Realtime,
        Fate::Garbage | Fate::HangUp | Fate::Short => {
            fixed(Outcome::UpstreamReset, fate.at_rogue().unwrap_or_default())
        }
        Fate::Interim | Fate::Bare => fixed(Outcome::Complete, fate.at_rogue().unwrap_or_default()),
        Fate::Silent => fixed(Outcome::Timeout, ""),
        Fate::Refused => fixed(Outcome::Unreachable, ""),
        Fate::InvalidText | Fate::BrokenGzip | Fate::Trickle | Fate::GiantEvent => {
            fixed(Outcome::Complete, fate.recording().unwrap_or_default())
        }
        // The simulator counts a token every four bytes.
        _ if shape.vectors && shape.name != "rerank" => Known::Simulated {
            input: Some((text.len() as u64).div_ceil(4)),
        },
        _ => Known::Simulated { input: None },
    }
}

/// How the simulated model behaves.
fn behaviour(fate: Fate, random: &mut Random) -> String {
    let tokens = random.between(8, 140);
    let mut settings = match fate {
        Fate::Flood => format!(
            "ttft=1ms,gap=0ms,tokens={},burst=16",
            random.between(2000, 5000)
        ),
        Fate::Trickle => "ttft=1ms,gap=0ms,cut=1".to_owned(),
        Fate::InvalidText => "ttft=1ms,gap=1ms,cut=random".to_owned(),
        Fate::BrokenGzip | Fate::GiantEvent => "ttft=1ms,gap=1ms".to_owned(),
        _ => format!(
            "ttft={}ms,gap=exp:{}ms,tokens={tokens},per_frame={}",
            random.between(1, 300),
            random.between(2, 25),
            random.between(1, 4)
        ),
    };
    if fate.recording().is_some() {
        return settings;
    }
    let tools = random.of(&["", "", "", ",tool=12", ",tool=9x2"]);
    settings += tools;
    settings += random.of(&["", "", "", ",reasoning=20"]);
    if fate != Fate::Injected {
        // The proxy takes usage out of what it can read.
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
    settings += &match fate {
        Fate::ErrorEvent => format!(",error=@{at}"),
        Fate::Reset => format!(",reset=@{at}"),
        Fate::Close => format!(",close=@{at}"),
        Fate::Status => format!(",status={}", random.of(&[400, 401, 429, 500, 503, 529])),
        _ => String::new(),
    };
    settings
}

fn manner(fate: Fate, random: &mut Random) -> Manner {
    let leaves = matches!(fate, Fate::Leaves | Fate::AgentResets);
    Manner {
        pause: match fate {
            Fate::SlowReader => Duration::from_millis(random.between(10, 80)),
            _ => Duration::ZERO,
        },
        leaves: leaves.then(|| Duration::from_millis(random.between(0, 1200))),
    }
}
