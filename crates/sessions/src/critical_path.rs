//! The critical path of a session: the chain of calls, and of time between calls, that makes up its
//! length. A call outside of the path could have been faster without ending the session sooner.
//!
//! The path is walked back from the end of the last call. The cause of a call is not recorded. It
//! is assumed to be the latest earlier event in its agent, in its parent agent or in its child
//! agents: the end of a call, or the start of a call that was still in flight. This is the rule of
//! the last arrival, which tools for distributed traces also use. See Yang and Miller, "Critical
//! Path Analysis for the Execution of Parallel and Distributed Programs", 1988.

use crate::session::Session;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashSet};
use tokengauge_core::prompt::WaitKind;
use tokengauge_core::time::RECORDED_RESOLUTION;
use tokengauge_store::history::{TimedCall, phases};
use tokengauge_store::query::PhaseName;

/// The chain of calls and of time between calls that makes up the length of a session.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct CriticalPath {
    /// Seconds from the start of the first call to the end of the last call. This is the sum of
    /// `parts`.
    pub seconds: f64,
    /// The parts of the path by phase, agent and model, the longest first.
    pub parts: Vec<PathPart>,
    /// The steps of the path in order of time, without gaps.
    pub steps: Vec<PathStep>,
    /// The number of calls that are not on the path.
    pub calls_beside: usize,
}

/// The part of the critical path that was spent in one phase by one agent and model.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct PathPart {
    /// The phase of the calls; `null` for time between calls.
    pub phase: Option<PhaseName>,
    /// Who took the time between calls: tools, a person, or the agent itself. `null` for calls, and
    /// if it is unknown.
    #[serde(default)]
    pub wait: Option<WaitKind>,
    /// The agent of the calls. For time between calls, the agent of the call that followed.
    pub agent: Option<String>,
    /// The model of the calls; `null` for time between calls.
    pub model: Option<String>,
    /// The duration of this part, in seconds.
    pub seconds: f64,
    /// The share of the session's length, from 0 to 1.
    pub share: f64,
}

/// One step of the critical path: a call, or the time before a call.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct PathStep {
    /// The id of the call; `null` for time between calls.
    pub call: Option<String>,
    /// Who took the time between calls. `null` for a call, and if it is unknown.
    #[serde(default)]
    pub wait: Option<WaitKind>,
    /// The agent of the call. For time between calls, the agent of the next call.
    pub agent: Option<String>,
    /// The start of the step, in seconds from the session's start.
    pub start: f64,
    /// The end of the step, in seconds from the session's start.
    pub end: f64,
}

/// A stretch of the path. `call` is the call itself or, if `between`, the call that follows.
struct Stretch {
    call: usize,
    between: bool,
    start: f64,
    end: f64,
}

pub fn critical_path(session: &Session<'_>) -> CriticalPath {
    let stretches = walk(session);
    let steps = stretches.iter().map(|one| step(session, one)).collect();
    let on_path: HashSet<usize> = stretches
        .iter()
        .filter(|one| !one.between)
        .map(|one| one.call)
        .collect();
    CriticalPath {
        seconds: session.seconds(),
        parts: parts(session, &stretches),
        steps,
        calls_beside: session.calls().len() - on_path.len(),
    }
}

fn step(session: &Session<'_>, stretch: &Stretch) -> PathStep {
    let record = session.calls()[stretch.call].record;
    PathStep {
        call: (!stretch.between).then(|| record.id.clone()),
        wait: wait_kind(session, stretch),
        agent: record.agent.clone(),
        start: stretch.start,
        end: stretch.end,
    }
}

/// Who took the time of a stretch between calls.
fn wait_kind(session: &Session<'_>, stretch: &Stretch) -> Option<WaitKind> {
    let wait = session.calls()[stretch.call].record.wait.as_deref();
    wait.filter(|_| stretch.between).map(|wait| wait.kind)
}

fn walk(session: &Session<'_>) -> Vec<Stretch> {
    let count = session.calls().len();
    let last = (0..count).max_by(|one, other| session.end(*one).total_cmp(&session.end(*other)));
    let mut path = Vec::new();
    let mut visited = HashSet::new();
    let (mut call, mut reached) = match last {
        Some(last) => (last, session.end(last)),
        None => return path,
    };
    loop {
        visited.insert(call);
        let start = session.start(call);
        path.push(Stretch {
            call,
            between: false,
            start,
            end: reached,
        });
        let Some((before, at)) = cause(session, call, &visited) else {
            if start > 0.0 {
                path.push(between(call, 0.0, start));
            }
            break;
        };
        if at < start {
            path.push(between(call, at, start));
        }
        (call, reached) = (before, at);
    }
    path.reverse();
    path
}

fn between(call: usize, start: f64, end: f64) -> Stretch {
    Stretch {
        call,
        between: true,
        start,
        end,
    }
}

/// The call that led to this one, and the time until which that call is on the path.
fn cause(session: &Session<'_>, call: usize, visited: &HashSet<usize>) -> Option<(usize, f64)> {
    let start = session.start(call);
    let others = || (0..session.calls().len()).filter(|other| !visited.contains(other));
    // The time of the event in the other call, and the time until which that call is on the path.
    let event = |other: usize| {
        let (began, ended) = (session.start(other), session.end(other));
        if ended <= start + RECORDED_RESOLUTION.as_secs_f64() {
            Some((ended, other, ended.min(start)))
        } else {
            (began < start).then_some((began, other, start))
        }
    };
    let latest = |events: &mut dyn Iterator<Item = (f64, usize, f64)>| {
        events.max_by(|(one, ..), (other, ..)| one.total_cmp(other))
    };
    let calls = session.calls();
    let mut of_related = others()
        .filter(|other| related(&calls[*other], &calls[call]))
        .filter_map(event);
    let found = latest(&mut of_related).or_else(|| latest(&mut others().filter_map(event)));
    found.map(|(_, other, until)| (other, until))
}

/// Whether both calls have one agent, or one agent started the other.
fn related(one: &TimedCall<'_>, other: &TimedCall<'_>) -> bool {
    let (one, other) = (one.record, other.record);
    let started =
        |parent: &Option<String>, agent: &Option<String>| parent.is_some() && parent == agent;
    one.agent == other.agent
        || started(&one.parent_agent, &other.agent)
        || started(&other.parent_agent, &one.agent)
}

type Kind<'a> = (
    Option<PhaseName>,
    Option<WaitKind>,
    Option<&'a str>,
    Option<&'a str>,
);

fn parts(session: &Session<'_>, path: &[Stretch]) -> Vec<PathPart> {
    let mut sums: BTreeMap<Kind<'_>, f64> = BTreeMap::new();
    for stretch in path {
        let record = session.calls()[stretch.call].record;
        let agent = record.agent.as_deref();
        if stretch.between {
            let kind = (None, wait_kind(session, stretch), agent, None);
            *sums.entry(kind).or_default() += stretch.end - stretch.start;
            continue;
        }
        let model = tokengauge_core::dimension::model_of(record);
        for phase in phases(record, stretch.start) {
            let seconds = phase.end.min(stretch.end) - phase.start;
            if seconds > 0.0 {
                let kind = (Some(phase.name), None, agent, model);
                *sums.entry(kind).or_default() += seconds;
            }
        }
    }
    let length = session.seconds();
    let mut parts: Vec<PathPart> = sums
        .into_iter()
        .map(|((phase, wait, agent, model), seconds)| PathPart {
            phase,
            wait,
            agent: agent.map(str::to_owned),
            model: model.map(str::to_owned),
            seconds,
            share: if length > 0.0 { seconds / length } else { 0.0 },
        })
        .collect();
    parts.sort_by(|one, other| other.seconds.total_cmp(&one.seconds));
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::tests::{TestCall, session_of};
    use proptest::prelude::*;
    use tokengauge_core::prompt::Wait;

    fn steps(calls: &[TestCall]) -> Vec<(Option<String>, f64, f64)> {
        let records: Vec<_> = calls.iter().map(TestCall::record).collect();
        let path = critical_path(&session_of(&records));
        path.steps
            .into_iter()
            .map(|step| (step.call, step.start, step.end))
            .collect()
    }

    fn of(name: &str, start: f64, end: f64) -> (Option<String>, f64, f64) {
        (Some(name.to_owned()), start, end)
    }

    #[test]
    fn one_call_after_the_other_with_tools_between() {
        let calls = [
            TestCall::new("a", "main", 0.0, 2.0),
            TestCall::new("b", "main", 5.0, 6.0),
        ];
        assert_eq!(
            steps(&calls),
            [of("a", 0.0, 2.0), (None, 2.0, 5.0), of("b", 5.0, 6.0)]
        );
    }

    #[test]
    fn time_between_calls_is_of_the_tools_or_the_person_that_took_it() {
        let wait = Wait {
            kind: WaitKind::Tools,
            seconds: 3.0,
            tools: vec!["search".to_owned()],
        };
        let mut records = [
            TestCall::new("a", "main", 0.0, 2.0).record(),
            TestCall::new("b", "main", 5.0, 6.0).record(),
            TestCall::new("c", "main", 7.0, 8.0).record(),
        ];
        records[1].wait = Some(Box::new(wait));
        let path = critical_path(&session_of(&records));
        let waits: Vec<_> = path.steps.iter().map(|step| step.wait).collect();
        assert_eq!(waits, [None, Some(WaitKind::Tools), None, None, None]);
        let part = path.parts.iter().find(|part| part.wait.is_some());
        assert_eq!(
            part.map(|part| (part.phase, part.seconds)),
            Some((None, 3.0))
        );
    }

    #[test]
    fn a_call_right_after_another_was_led_to_by_it() {
        // Starts are whole milliseconds, so the second call seems to begin 0.8 ms before the end of
        // the first.
        let calls = [
            TestCall::new("early", "main", 0.5, 1.0),
            TestCall::new("first", "main", 0.0, 2.0008),
            TestCall::new("second", "main", 2.0, 3.0),
        ];
        assert_eq!(
            steps(&calls),
            [of("first", 0.0, 2.0), of("second", 2.0, 3.0)]
        );
    }

    #[test]
    fn the_slower_of_two_subagents_is_on_the_path() {
        let calls = [
            TestCall::new("plan", "main", 0.0, 2.0),
            TestCall::new("quick", "one", 2.5, 4.0).parent("main"),
            TestCall::new("slow", "two", 2.5, 9.0).parent("main"),
            TestCall::new("sum", "main", 9.5, 10.0),
        ];
        let path = [
            of("plan", 0.0, 2.0),
            (None, 2.0, 2.5),
            of("slow", 2.5, 9.0),
            (None, 9.0, 9.5),
            of("sum", 9.5, 10.0),
        ];
        assert_eq!(steps(&calls), path);
        let records: Vec<_> = calls.iter().map(TestCall::record).collect();
        let found = critical_path(&session_of(&records));
        assert_eq!((found.seconds, found.calls_beside), (10.0, 1));
    }

    #[test]
    fn a_subagent_that_starts_during_a_call_was_started_by_it() {
        let calls = [
            TestCall::new("stream", "main", 0.0, 10.0),
            TestCall::new("sub", "sub", 4.0, 20.0).parent("main"),
        ];
        assert_eq!(
            steps(&calls),
            [of("stream", 0.0, 4.0), of("sub", 4.0, 20.0)]
        );
    }

    #[test]
    fn an_agent_beside_it_causes_nothing() {
        let calls = [
            TestCall::new("first", "main", 0.0, 1.0),
            TestCall::new("other", "stranger", 0.5, 3.9),
            TestCall::new("last", "main", 4.0, 6.0),
        ];
        assert_eq!(
            steps(&calls),
            [
                of("first", 0.0, 1.0),
                (None, 1.0, 4.0),
                of("last", 4.0, 6.0)
            ]
        );
    }

    #[test]
    fn a_session_without_calls_has_no_path() {
        assert_eq!(critical_path(&session_of(&[])), CriticalPath::default());
    }

    proptest! {
        /// For any calls, the path covers the session without gaps, and its parts add up to the
        /// session's length.
        #[test]
        fn the_path_covers_the_session(
            spans in prop::collection::vec((0_u32..50_000, 0_u32..20_000, 0_usize..4, 0_usize..4), 1..40)
        ) {
            let agents = ["main", "a", "b", "c"];
            let calls: Vec<TestCall> = spans
                .iter()
                .enumerate()
                .map(|(number, (start, length, agent, parent))| {
                    let (start, length) = (f64::from(*start) / 1e3, f64::from(*length) / 1e3);
                    TestCall::new(&format!("c{number}"), agents[*agent], start, start + length)
                        .parent(agents[*parent])
                })
                .collect();
            let records: Vec<_> = calls.iter().map(TestCall::record).collect();
            let session = session_of(&records);
            let path = critical_path(&session);
            let mut reached = 0.0;
            for step in &path.steps {
                prop_assert!((step.start - reached).abs() < 1e-9, "{:?}", path.steps);
                prop_assert!(step.end >= step.start);
                reached = step.end;
            }
            prop_assert!((reached - session.seconds()).abs() < 1e-9);
            let sum: f64 = path.parts.iter().map(|part| part.seconds).sum();
            prop_assert!((sum - session.seconds()).abs() < 1e-6, "{sum} {}", session.seconds());
        }
    }
}
