//! A fault of an upstream, and what agent and record must have of it.

use super::message::{Ending, Seen};
use super::script::Script;
use super::world::{World, ask, chat, request};
use serde_json::Value;

/// A fault of the backend's.
pub struct Fault {
    /// Also the session of its call, and its row in docs/reliability.md.
    pub name: &'static str,
    pub does: Script,
    /// What the agent says. The version is what differs.
    pub agent: &'static str,
    /// What the agent sees through the proxy.
    pub through: Observed,
    pub recorded: Recorded,
}

/// What the agent gets through the proxy, compared with what it gets without.
#[derive(Clone, Copy, Debug)]
pub enum Observed {
    /// The same.
    Same,
    /// No response came: one of the proxy's own says why.
    Refused(&'static str, &'static str),
    /// The same bytes; but where the connection was reset or the framing wrong, it closes.
    Short,
    /// The same bytes and a reset: HTTP/1.0 has no other way to say that a body is incomplete.
    Reset,
    /// The same until the proxy gives up.
    GivenUp,
    /// The same, with at most so many of the interim responses.
    Interim(usize),
}

/// What the record says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Recorded {
    pub outcome: &'static str,
    pub error: Option<&'static str>,
    /// Counted output.
    pub tokens: Option<u64>,
    /// Why there may be no speed, where that is of interest.
    pub without_speed: &'static [&'static str],
    pub stalls: u64,
}

/// A record of a call that broke off, with so many tokens until then.
pub fn reset(tokens: u64) -> Recorded {
    recorded("upstream_reset", Some("upstream_reset"), Some(tokens))
}

/// A record of a call that came whole.
pub fn complete(tokens: u64) -> Recorded {
    recorded("complete", None, Some(tokens))
}

pub fn recorded(
    outcome: &'static str,
    error: Option<&'static str>,
    tokens: Option<u64>,
) -> Recorded {
    Recorded {
        outcome,
        error,
        tokens,
        without_speed: &[],
        stalls: 0,
    }
}

/// A record of a call that came whole and could not be counted.
pub fn uncounted(why: &'static [&'static str]) -> Recorded {
    Recorded {
        without_speed: why,
        ..recorded("complete", None, None)
    }
}

pub fn fault(name: &'static str, does: Script, through: Observed, recorded: Recorded) -> Fault {
    Fault {
        name,
        does,
        agent: "HTTP/1.1",
        through,
        recorded,
    }
}

/// A fault in which the backend refuses the connection or there is none.
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
    fault(name, does, Observed::Refused(status, error), recorded)
}

/// Tries every fault, and reports all that is not as expected.
pub async fn all(world: &World, faults: Vec<Fault>) {
    let mut wrong = Vec::new();
    for fault in &faults {
        wrong.extend(one(world, fault).await.err());
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

async fn one(world: &World, fault: &Fault) -> Result<(), String> {
    let name = fault.name;
    let session = name.replace(' ', "-");
    world.backend.set_script(&fault.does);
    let script = match fault.agent {
        "HTTP/1.1" => request(&session),
        version => Script::default().send(chat(&session, version)),
    };
    let direct = ask(world.backend.address, &script).await;
    let through = ask(world.proxy(), &script).await;
    let record = world.record(&session).await;
    world.returns_to_idle(name).await;
    world.next_call_works().await;
    if !fault.through.holds(&direct, &through) {
        let (direct, through) = (brief(&direct), brief(&through));
        return Err(format!(
            "{name}: not {:?}:\n  direct  {direct}\n  through {through}\n  {record}",
            fault.through
        ));
    }
    let bytes = record["bytes"]["response"].as_u64();
    let refused = matches!(fault.through, Observed::Refused(..));
    if !refused && bytes != Some(through.body.len() as u64) {
        return Err(format!("{name}: {bytes:?} bytes of {}", brief(&through)));
    }
    if !fault.recorded.is(&record) {
        return Err(format!("{name}: not {:?}: {record}", fault.recorded));
    }
    Ok(())
}

impl Observed {
    fn holds(self, direct: &Seen, through: &Seen) -> bool {
        match self {
            Observed::Same => through == direct,
            Observed::Refused(status, error) => {
                through.what.as_deref() == Some(status)
                    && through.error.as_deref() == Some(error)
                    && through.end == Ending::Whole
            }
            Observed::Short => {
                let breaks = matches!(direct.end, Ending::Reset | Ending::Malformed);
                let closes = Ending::Short;
                breaks
                    && *through
                        == Seen {
                            end: closes,
                            ..direct.clone()
                        }
            }
            Observed::Reset => {
                let end = Ending::Reset;
                direct.end != Ending::Whole
                    && *through
                        == Seen {
                            end,
                            ..direct.clone()
                        }
            }
            Observed::GivenUp => {
                let closes = through.end == Ending::Short && through.what == direct.what;
                closes && direct.body.starts_with(&through.body)
            }
            Observed::Interim(most) => {
                let interim = through.interim;
                (1..=most).contains(&interim)
                    && *through
                        == Seen {
                            interim,
                            ..direct.clone()
                        }
            }
        }
    }
}

impl Recorded {
    pub fn is(&self, record: &Value) -> bool {
        let why = self.without_speed;
        record["outcome"] == self.outcome
            && record["error_type"].as_str() == self.error
            && record["tokens"]["normalised"]["output"].as_u64() == self.tokens
            && (why.is_empty() || why.iter().any(|why| record["tps"]["unavailable"] == *why))
            && record["stalls"] == self.stalls
    }
}

/// Without what would fill the screen.
fn brief(seen: &Seen) -> String {
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
