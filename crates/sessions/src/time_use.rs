//! What a session and each of its agents spent their time on.

use crate::call_sums::CallSums;
use crate::session::Session;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use tokengauge_core::prompt::WaitKind;
use tokengauge_store::history::{TimedCall, phases};
use tokengauge_store::query::PhaseName;

/// The use of a stretch of time. If several apply, the first counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    Model,
    Proxy,
    Tools,
    Human,
}

/// The uses of a duration, in seconds. The parts add up to `wall`.
#[derive(Clone, Copy, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct TimeUse {
    /// From the start of the first call to the end of the last call.
    pub wall: f64,
    /// With at least one call that an upstream was working on.
    pub model: f64,
    /// Until the upstream of a call had the request: connecting and sending. Without time in
    /// `model`.
    pub proxy: f64,
    /// Without a call, while the agent ran tools.
    pub tools: f64,
    /// Without a call and tools, until a person sent a message.
    pub human: f64,
    /// The rest: the agent itself, and waits of unknown kind.
    pub other: f64,
}

/// What one agent of a session did.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct AgentUse {
    /// The agent. `null` for calls that name no agent.
    pub agent: Option<String>,
    /// Sums over the agent's calls.
    #[serde(flatten)]
    pub sums: CallSums,
    /// The agent's time, from its first call to the end of its last call, in seconds.
    pub seconds: TimeUse,
}

struct Stretch {
    of: Use,
    start: f64,
    end: f64,
}

/// The time of the whole session.
pub(crate) fn time_use(session: &Session<'_>) -> TimeUse {
    let all = (0..session.calls().len()).flat_map(|call| stretches(session, call));
    split(all.collect(), 0.0, session.seconds())
}

/// The time of each agent, the agent with the longest time first.
pub(crate) fn by_agent(session: &Session<'_>) -> Vec<AgentUse> {
    let mut agents: BTreeMap<Option<&str>, Vec<usize>> = BTreeMap::new();
    for (number, call) in session.calls().iter().enumerate() {
        let agent = call.record.agent.as_deref();
        agents.entry(agent).or_default().push(number);
    }
    let mut all: Vec<AgentUse> = agents
        .into_iter()
        .map(|(agent, calls)| {
            let starts = calls.iter().map(|call| session.start(*call));
            let ends = calls.iter().map(|call| session.end(*call));
            let (start, end) = (
                starts.fold(f64::INFINITY, f64::min),
                ends.fold(0.0, f64::max),
            );
            let stretches = calls.iter().flat_map(|call| stretches(session, *call));
            AgentUse {
                agent: agent.map(str::to_owned),
                sums: CallSums::of(calls.iter().map(|call| &session.calls()[*call])),
                seconds: split(stretches.collect(), start, end),
            }
        })
        .collect();
    all.sort_by(|one, other| other.seconds.wall.total_cmp(&one.seconds.wall));
    all
}

/// The wait before a call, and the phases of the call.
fn stretches(session: &Session<'_>, number: usize) -> Vec<Stretch> {
    let call = &session.calls()[number];
    let start = session.start(number);
    let mut found: Vec<Stretch> = wait(call, start).into_iter().collect();
    let of_phases = phases(call.record, start).into_iter();
    found.extend(of_phases.map(|phase| Stretch {
        of: match phase.name {
            PhaseName::Connect | PhaseName::Upload => Use::Proxy,
            _ => Use::Model,
        },
        start: phase.start,
        end: phase.end,
    }));
    found
}

fn wait(call: &TimedCall<'_>, start: f64) -> Option<Stretch> {
    let wait = call.record.wait.as_deref()?;
    let of = match wait.kind {
        WaitKind::Tools => Use::Tools,
        WaitKind::Human => Use::Human,
        WaitKind::Other => return None,
    };
    let began = start - wait.seconds.max(0.0);
    Some(Stretch {
        of,
        start: began,
        end: start,
    })
}

/// Splits the time from `start` to `end`.
fn split(stretches: Vec<Stretch>, start: f64, end: f64) -> TimeUse {
    let mut changes: Vec<(f64, usize, i32)> = Vec::with_capacity(stretches.len() * 2);
    for stretch in stretches {
        let of = stretch.of as usize;
        changes.push((stretch.start.clamp(start, end), of, 1));
        changes.push((stretch.end.clamp(start, end), of, -1));
    }
    changes.sort_by(|one, other| one.0.total_cmp(&other.0));
    changes.push((end, 0, 0));
    let (mut sums, mut active, mut reached) = ([0.0; 5], [0_i32; 4], start);
    for (at, of, change) in changes {
        let first = active.iter().position(|count| *count > 0);
        sums[first.unwrap_or(Use::Human as usize + 1)] += at - reached;
        reached = at;
        active[of] += change;
    }
    let [model, proxy, tools, human, other] = sums;
    TimeUse {
        wall: end - start,
        model,
        proxy,
        tools,
        human,
        other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::tests::{TestCall, session_of};
    use proptest::prelude::*;
    use tokengauge_core::call::CallRecord;
    use tokengauge_core::prompt::Wait;

    fn record(call: TestCall, kind: WaitKind, seconds: f64) -> CallRecord {
        let wait = Wait {
            kind,
            seconds,
            tools: vec!["search".to_owned()],
        };
        CallRecord {
            wait: Some(Box::new(wait)),
            ..call.record()
        }
    }

    fn close(one: f64, other: f64) -> bool {
        (one - other).abs() < 1e-9
    }

    #[test]
    fn time_between_calls_is_of_tools_or_people() {
        let records = [
            TestCall::new("a", "main", 0.0, 10.0).record(),
            record(TestCall::new("b", "main", 14.0, 24.0), WaitKind::Tools, 4.0),
            record(TestCall::new("c", "main", 30.0, 40.0), WaitKind::Human, 6.0),
            record(TestCall::new("d", "main", 45.0, 50.0), WaitKind::Other, 5.0),
        ];
        let found = time_use(&session_of(&records));
        // A test call connects for a tenth of its length.
        assert!(
            close(found.model, 31.5) && close(found.proxy, 3.5),
            "{found:?}"
        );
        assert!(
            close(found.tools, 4.0) && close(found.human, 6.0),
            "{found:?}"
        );
        assert!(
            close(found.other, 5.0) && close(found.wall, 50.0),
            "{found:?}"
        );
    }

    #[test]
    fn an_agent_waits_for_its_tool_while_another_agent_works() {
        let records = [
            TestCall::new("a", "main", 0.0, 1.0).record(),
            TestCall::new("sub", "helper", 1.0, 1.8)
                .parent("main")
                .record(),
            record(TestCall::new("b", "main", 1.8, 3.0), WaitKind::Tools, 0.8),
        ];
        let session = session_of(&records);
        assert!(
            close(time_use(&session).tools, 0.0),
            "the helper's call is its tool"
        );
        let agents = by_agent(&session);
        assert_eq!(agents[0].agent.as_deref(), Some("main"));
        assert!(close(agents[0].seconds.tools, 0.8), "{agents:?}");
        assert!(
            close(agents[1].seconds.wall, 0.8) && agents[1].sums.calls == 1,
            "{agents:?}"
        );
    }

    proptest! {
        /// The parts add up to the length of the session, and of each agent.
        #[test]
        fn the_parts_add_up(
            calls in prop::collection::vec((0_u32..50_000, 0_u32..20_000, 0_usize..3, 0_usize..3, 0_u32..9_000), 1..30)
        ) {
            let kinds = [WaitKind::Tools, WaitKind::Human, WaitKind::Other];
            let records: Vec<CallRecord> = calls
                .iter()
                .enumerate()
                .map(|(number, (start, length, agent, kind, wait))| {
                    let (start, length) = (f64::from(*start) / 1e3, f64::from(*length) / 1e3);
                    let call = TestCall::new(&format!("c{number}"), ["a", "b", "c"][*agent], start, start + length);
                    record(call, kinds[*kind], f64::from(*wait) / 1e3)
                })
                .collect();
            let session = session_of(&records);
            let agents = by_agent(&session);
            for one in agents.iter().map(|agent| agent.seconds).chain([time_use(&session)]) {
                let parts = [one.model, one.proxy, one.tools, one.human, one.other];
                prop_assert!(parts.iter().all(|part| *part >= 0.0), "{one:?}");
                prop_assert!((parts.iter().sum::<f64>() - one.wall).abs() < 1e-6, "{one:?}");
            }
        }
    }
}
