//! A fault of an upstream with the expected response to the agent and the expected call record.

use super::fixture::{ProxyFixture, ask, chat, request};
use super::message::{MessageEnd, ObservedMessage};
use super::script::Script;
use serde_json::Value;

pub struct Fault {
    /// The name of the fault. It is also the session of the fault's call, and the first cell of the fault's row in
    /// docs/reliability.md.
    pub name: &'static str,
    pub does: Script,
    /// HTTP version of the request.
    pub agent: &'static str,
    pub through: ExpectedResponse,
    pub recorded: ExpectedRecord,
}

/// The response that the agent must get through the proxy, compared with the response without the proxy.
#[derive(Clone, Copy, Debug)]
pub enum ExpectedResponse {
    Same,
    /// The proxy answers with an error response: status and `x-tokengauge-error`.
    Refused(&'static str, &'static str),
    /// The bytes are equal. Where the upstream reset the connection or its framing was wrong, the proxy closes the
    /// connection.
    Short,
    /// The bytes are equal, then the proxy resets the connection: in HTTP/1.0 only a reset shows that a body is
    /// incomplete.
    Reset,
    /// The bytes are equal until the proxy times out and closes.
    GivenUp,
    /// The final response is equal, with at most this number of interim responses.
    Interim(usize),
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ExpectedRecord {
    pub outcome: &'static str,
    pub error: Option<&'static str>,
    pub tokens: Option<u64>,
    /// Reasons why the call may have no speed; empty if the test does not check it.
    pub without_speed: &'static [&'static str],
    pub stalls: u64,
}

/// A record of a call that broke off after this number of tokens.
pub fn reset(tokens: u64) -> ExpectedRecord {
    recorded("upstream_reset", Some("upstream_reset"), Some(tokens))
}

pub fn complete(tokens: u64) -> ExpectedRecord {
    recorded("complete", None, Some(tokens))
}

pub fn recorded(
    outcome: &'static str,
    error: Option<&'static str>,
    tokens: Option<u64>,
) -> ExpectedRecord {
    ExpectedRecord {
        outcome,
        error,
        tokens,
        without_speed: &[],
        stalls: 0,
    }
}

/// A record of a complete call whose tokens could not be counted.
pub fn uncounted(why: &'static [&'static str]) -> ExpectedRecord {
    ExpectedRecord {
        without_speed: why,
        ..recorded("complete", None, None)
    }
}

pub fn fault(
    name: &'static str,
    does: Script,
    through: ExpectedResponse,
    recorded: ExpectedRecord,
) -> Fault {
    Fault {
        name,
        does,
        agent: "HTTP/1.1",
        through,
        recorded,
    }
}

pub fn refused(
    name: &'static str,
    does: Script,
    status: &'static str,
    error: &'static str,
) -> Fault {
    let outcome = match (error, status) {
        (_, "504") => "timeout",
        ("upstream_tls" | "upstream_dns" | "upstream_connect", _) => "unreachable",
        _ => "upstream_reset",
    };
    let recorded = recorded(outcome, Some(error), None);
    fault(
        name,
        does,
        ExpectedResponse::Refused(status, error),
        recorded,
    )
}

pub async fn all(fixture: &ProxyFixture, faults: Vec<Fault>) {
    let mut wrong = Vec::new();
    for fault in &faults {
        wrong.extend(one(fixture, fault).await.err());
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

async fn one(fixture: &ProxyFixture, fault: &Fault) -> Result<(), String> {
    let name = fault.name;
    let session = name.replace(' ', "-");
    fixture.backend.set_script(&fault.does);
    let script = match fault.agent {
        "HTTP/1.1" => request(&session),
        version => Script::default().send(chat(&session, version)),
    };
    let direct = ask(fixture.backend.address, &script).await;
    let through = ask(fixture.proxy(), &script).await;
    let record = fixture.record(&session).await;
    fixture.returns_to_idle(name).await;
    fixture.next_call_works().await;
    if !fault.through.holds(&direct, &through) {
        let (direct, through) = (brief(&direct), brief(&through));
        return Err(format!(
            "{name}: not {:?}:\n  direct  {direct}\n  through {through}\n  {record}",
            fault.through
        ));
    }
    let bytes = record["bytes"]["response"].as_u64();
    let refused = matches!(fault.through, ExpectedResponse::Refused(..));
    if !refused && bytes != Some(through.body.len() as u64) {
        return Err(format!("{name}: {bytes:?} bytes of {}", brief(&through)));
    }
    if !fault.recorded.is(&record) {
        return Err(format!("{name}: not {:?}: {record}", fault.recorded));
    }
    Ok(())
}

impl ExpectedResponse {
    fn holds(self, direct: &ObservedMessage, through: &ObservedMessage) -> bool {
        match self {
            ExpectedResponse::Same => through == direct,
            ExpectedResponse::Refused(status, error) => {
                through.what.as_deref() == Some(status)
                    && through.error.as_deref() == Some(error)
                    && through.end == MessageEnd::Whole
            }
            ExpectedResponse::Short => {
                let breaks = matches!(direct.end, MessageEnd::Reset | MessageEnd::Malformed);
                let closes = MessageEnd::Short;
                breaks
                    && *through
                        == ObservedMessage {
                            end: closes,
                            ..direct.clone()
                        }
            }
            ExpectedResponse::Reset => {
                let end = MessageEnd::Reset;
                direct.end != MessageEnd::Whole
                    && *through
                        == ObservedMessage {
                            end,
                            ..direct.clone()
                        }
            }
            ExpectedResponse::GivenUp => {
                let closes = through.end == MessageEnd::Short && through.what == direct.what;
                closes && direct.body.starts_with(&through.body)
            }
            ExpectedResponse::Interim(most) => {
                let interim = through.interim;
                (1..=most).contains(&interim)
                    && *through
                        == ObservedMessage {
                            interim,
                            ..direct.clone()
                        }
            }
        }
    }
}

impl ExpectedRecord {
    pub fn is(&self, record: &Value) -> bool {
        let why = self.without_speed;
        record["outcome"] == self.outcome
            && record["error_type"].as_str() == self.error
            && record["tokens"]["normalised"]["output"].as_u64() == self.tokens
            && (why.is_empty() || why.iter().any(|why| record["tps"]["unavailable"] == *why))
            && record["stalls"] == self.stalls
    }
}

/// Shortens what would fill the screen.
fn brief(seen: &ObservedMessage) -> String {
    let start = &seen.body[..seen.body.len().min(400)];
    format!(
        "{:?} {:?} after {} interim, {} bytes, trailers {:?}, error {:?}: {:?}",
        seen.what,
        seen.end,
        seen.interim,
        seen.body.len(),
        seen.trailers,
        seen.error,
        String::from_utf8_lossy(start)
    )
}
