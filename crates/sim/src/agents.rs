//! Simulated agents for the demo. They run sessions of calls in several dialects.

mod conversation;

use super::text_gen::Random;
use bytes::Bytes;
use conversation::{Conversation, Style};
use http::{Request, header};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

/// A kind of agent: its endpoint, the behaviour of its model, and its sessions.
struct AgentKind {
    name: &'static str,
    path: &'static str,
    models: &'static [&'static str],
    behaviour: &'static str,
    calls: (u64, u64),
    style: Style,
    /// Range of words in the first message.
    prompt: (u64, u64),
    /// Range of words in later messages and in results of tools.
    adds: (u64, u64),
    thinks: (f64, f64),
    subagents: &'static [&'static str],
    /// Creates the request body for a model and a conversation.
    body: fn(&str, &Conversation) -> Value,
}

/// Model names stand for speeds and not for products, because the backend is simulated.
const AGENT_KINDS: &[AgentKind] = &[
    AgentKind {
        name: "coder",
        path: "/anthropic/v1/messages",
        models: &["claude-sonnet-4-5", "claude-haiku-4-5"],
        behaviour: "tokens=40..220,reasoning=60,tool=32,per_frame=3",
        calls: (4, 14),
        style: Style::Tools,
        prompt: (200, 1500),
        adds: (100, 1200),
        thinks: (0.2, 0.8),
        subagents: &["explore", "review", "write-tests"],
        body: |model, conversation| conversation.anthropic(model),
    },
    AgentKind {
        name: "chat",
        path: "/openai/v1/chat/completions",
        models: &["gpt-4.1-mini", "gpt-4.1"],
        behaviour: "tokens=60..300",
        calls: (2, 6),
        style: Style::Chat,
        prompt: (20, 400),
        adds: (10, 200),
        thinks: (1.0, 5.0),
        subagents: &[],
        body: |model, conversation| {
            let usage = json!({"include_usage": true});
            let messages = conversation.messages();
            json!({"model": model, "stream": true, "stream_options": usage, "messages": messages})
        },
    },
    AgentKind {
        name: "voice",
        path: "/openai/v1/chat/completions",
        models: &["gpt-4.1-nano"],
        behaviour: "ttft=90ms,gap=8ms~3ms,tokens=30..70",
        calls: (6, 20),
        style: Style::Chat,
        prompt: (10, 80),
        adds: (5, 40),
        thinks: (0.5, 2.0),
        subagents: &[],
        body: |model, conversation| {
            let messages = conversation.messages();
            json!({"model": model, "stream": true, "messages": messages})
        },
    },
    AgentKind {
        name: "research",
        path: "/openai/v1/responses",
        models: &["gpt-5", "gpt-5-mini"],
        behaviour: "ttft=600ms,gap=exp:22ms,tokens=150..500,reasoning=240,stall=1500ms@200",
        calls: (1, 4),
        style: Style::Single,
        prompt: (4000, 20_000),
        adds: (4000, 20_000),
        thinks: (2.0, 8.0),
        subagents: &[],
        body: |model, conversation| json!({"model": model, "stream": true, "input": conversation.prompt()}),
    },
    AgentKind {
        name: "summary",
        path: "/gemini/v1beta/models/{model}:streamGenerateContent?alt=sse",
        models: &["gemini-2.5-flash", "gemini-2.5-pro"],
        behaviour: "per_frame=16,gap=90ms~40ms,tokens=120..400",
        calls: (1, 5),
        style: Style::Single,
        prompt: (2000, 12_000),
        adds: (2000, 12_000),
        thinks: (1.0, 6.0),
        subagents: &[],
        body: |_, conversation| json!({"contents": [{"role": "user", "parts": [{"text": conversation.prompt()}]}]}),
    },
    AgentKind {
        name: "local",
        path: "/ollama/api/chat",
        models: &["llama3.1:8b", "qwen3:4b"],
        behaviour: "ttft=400ms,gap=45ms~15ms,tokens=40..160",
        calls: (2, 8),
        style: Style::Chat,
        prompt: (50, 1500),
        adds: (20, 300),
        thinks: (0.5, 4.0),
        subagents: &[],
        body: |model, conversation| json!({"model": model, "messages": conversation.messages()}),
    },
];

/// An agent starts its subagents after the first of each group of this many calls.
const CALLS_PER_ROUND: u64 = 3;
const SUBAGENT_CALLS: (u64, u64) = (3, 6);

/// The subagent whose system prompt changes with each call, so that no prompt comes from a cache.
const UNCACHED_SUBAGENT: &str = "review";

/// Runs `agents` agents that call through the proxy until `shutdown`. Each runs one session after
/// the other, with pauses between calls. With `mishaps` a few calls fail and a few are cancelled.
pub async fn run(
    proxy: SocketAddr,
    agents: u16,
    mishaps: bool,
    shutdown: impl Future<Output = ()>,
) {
    let mut tasks = JoinSet::new();
    for number in 0..agents {
        let kind = &AGENT_KINDS[usize::from(number) % AGENT_KINDS.len()];
        let random = Random::new(u64::from(number) + 1);
        tasks.spawn(
            Agent {
                proxy,
                kind,
                subagent: None,
                number,
                mishaps,
                random,
                connection: None,
            }
            .work(),
        );
    }
    shutdown.await;
}

struct Agent {
    proxy: SocketAddr,
    kind: &'static AgentKind,
    /// The name of the agent if another agent started it.
    subagent: Option<&'static str>,
    number: u16,
    mishaps: bool,
    random: Random,
    connection: Option<Connection>,
}

/// A connection and the task that drives it. Dropping it ends the task.
struct Connection {
    sender: SendRequest<Full<Bytes>>,
    _driver: JoinSet<()>,
}

impl Agent {
    async fn work(mut self) {
        // A random delay, so that the agents do not begin together.
        let head_start = self.between(0.0, 3.0);
        tokio::time::sleep(head_start).await;
        for session in 1u64.. {
            let model = self.kind.models[self.random.below(self.kind.models.len() as u64) as usize];
            let name = format!("{}-{}-{session}", self.kind.name, self.number);
            let (fewest, most) = self.kind.calls;
            let calls = fewest + self.random.below(most - fewest + 1);
            let mut conversation = self.conversation();
            for first in (1..=calls).step_by(CALLS_PER_ROUND as usize) {
                let last = calls.min(first + CALLS_PER_ROUND - 1);
                self.calls(model, &name, first..=first, &mut conversation)
                    .await;
                self.start_subagents(model, &name, first).await;
                self.calls(model, &name, first + 1..=last, &mut conversation)
                    .await;
            }
        }
    }

    fn conversation(&mut self) -> Conversation {
        let words = self.random.within(self.kind.prompt);
        Conversation::begin(self.kind.style, words, &mut self.random)
    }

    /// Makes calls with pauses. Each call continues the conversation.
    async fn calls(
        &mut self,
        model: &str,
        session: &str,
        numbers: RangeInclusive<u64>,
        conversation: &mut Conversation,
    ) {
        for number in numbers {
            if self.subagent == Some(UNCACHED_SUBAGENT) {
                conversation.number(number);
            }
            let body = (self.kind.body)(model, conversation).to_string();
            if self.call(model, session, number, body).await.is_none() {
                self.connection = None;
                tokio::time::sleep(Duration::from_millis(300)).await;
            }
            let words = self.random.within(self.kind.adds);
            conversation.next(words, &mut self.random);
            let (shortest, longest) = self.kind.thinks;
            let pause = self.between(shortest, longest);
            tokio::time::sleep(pause).await;
        }
    }

    async fn start_subagents(&mut self, model: &'static str, session: &str, after: u64) {
        let mut tasks = JoinSet::new();
        for subagent in self.kind.subagents {
            let mut agent = Agent {
                subagent: Some(subagent),
                connection: None,
                random: Random::new(self.random.below(u64::MAX)),
                ..*self
            };
            let session = session.to_owned();
            tasks.spawn(async move {
                let (fewest, most) = SUBAGENT_CALLS;
                let calls = fewest + agent.random.below(most - fewest + 1);
                let mut conversation = agent.conversation();
                let first = after * SUBAGENT_CALLS.1 + 1;
                agent
                    .calls(
                        model,
                        &session,
                        first..=first + calls - 1,
                        &mut conversation,
                    )
                    .await;
            });
        }
        tasks.join_all().await;
    }

    fn between(&mut self, low: f64, high: f64) -> Duration {
        Duration::from_secs_f64(low + (high - low) * self.random.fraction())
    }

    /// Makes one call. Returns `None` if the connection cannot be used again.
    async fn call(&mut self, model: &str, session: &str, call: u64, body: String) -> Option<()> {
        // One call in fifty fails in one of these ways. One in forty is cancelled.
        let mishap = match self.random.below(200) {
            _ if !self.mishaps => "",
            0 => ",status=429",
            1 => ",status=503",
            2 => ",error=@30",
            3 => ",reset=@25",
            _ => "",
        };
        let gives_up = self.random.below(40) == 0 && self.mishaps;
        let gives_up_after = gives_up.then(|| self.between(0.5, 2.5));
        let mut request = Request::post(self.kind.path.replace("{model}", model))
            .header(header::HOST, self.proxy.to_string())
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::USER_AGENT, self.main_agent())
            .header("x-tokengauge-session", session)
            .header("x-sim", format!("{}{mishap}", self.kind.behaviour))
            .header("x-sim-id", self.call_id(session, call));
        if let Some(subagent) = self.subagent {
            request = request
                .header(
                    "x-tokengauge-agent",
                    format!("demo-{}/{subagent}", self.kind.name),
                )
                .header("x-tokengauge-parent-agent", self.main_agent());
        }
        let request = request.body(Full::new(Bytes::from(body))).ok()?;
        let response = self.exchange(request);
        match gives_up_after {
            None => response.await,
            // A timeout closes the connection, as a stopped agent does.
            Some(timeout) => tokio::time::timeout(timeout, response).await.ok().flatten(),
        }
    }

    fn main_agent(&self) -> String {
        format!("demo-{}/1.0", self.kind.name)
    }

    fn call_id(&self, session: &str, call: u64) -> String {
        match self.subagent {
            None => format!("{session}.{call}"),
            Some(subagent) => format!("{session}.{subagent}.{call}"),
        }
    }

    async fn exchange(&mut self, request: Request<Full<Bytes>>) -> Option<()> {
        if self
            .connection
            .as_ref()
            .is_none_or(|connection| connection.sender.is_closed())
        {
            self.connection = Some(Connection::open(self.proxy).await?);
        }
        let sender = &mut self.connection.as_mut()?.sender;
        sender.ready().await.ok()?;
        let mut body = sender.send_request(request).await.ok()?.into_body();
        while let Some(frame) = body.frame().await {
            frame.ok()?;
        }
        Some(())
    }
}

impl Connection {
    async fn open(proxy: SocketAddr) -> Option<Connection> {
        let stream = TcpStream::connect(proxy).await.ok()?;
        stream.set_nodelay(true).ok()?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await.ok()?;
        let mut driver = JoinSet::new();
        driver.spawn(async move { drop(connection.await) });
        Some(Connection {
            sender,
            _driver: driver,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Ending, Profile, Simulator};
    use std::collections::HashSet;
    use std::time::Instant;
    use tokio::net::TcpListener;

    /// A test that takes longer has hung.
    const HANGS: Duration = Duration::from_secs(60);

    #[test]
    fn every_trade_behaves_in_a_way_that_can_be() {
        for kind in AGENT_KINDS {
            kind.behaviour.parse::<Profile>().expect(kind.name);
        }
    }

    /// The simulator ignores prefixes of paths, so agents can call it directly.
    #[tokio::test]
    async fn agents_of_every_trade_call_until_shutdown_and_no_longer() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        let simulator = Simulator::new(Profile::default());
        let server = tokio::spawn(simulator.clone().serve(listener, std::future::pending()));
        let enough = async {
            // By then all agents have begun.
            tokio::time::sleep(Duration::from_millis(3_500)).await;
            let end = Instant::now() + HANGS;
            while Instant::now() < end {
                let truths = simulator.truths();
                let complete = truths.iter().any(|truth| truth.outcome == Ending::Complete);
                if complete && truths.len() as u64 + simulator.in_flight() >= 12 {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        run(address, 12, true, enough).await;
        let end = Instant::now() + HANGS;
        while simulator.in_flight() > 0 && Instant::now() < end {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(simulator.in_flight(), 0, "a call outlived its agent");
        let truths = simulator.truths();
        let dialects: HashSet<_> = truths.iter().map(|truth| truth.dialect).collect();
        assert_eq!(dialects.len(), 5, "{dialects:?}");
        assert!(truths.iter().all(|truth| truth.session.is_some()));
        server.abort();
    }
}
