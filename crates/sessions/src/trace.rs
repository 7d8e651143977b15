//! Exports a session as a trace file: in the [Trace Event Format] for Perfetto and
//! chrome://tracing, or in [OTLP's JSON encoding]. The files contain no prompt, answer or key.
//! Users are hashed if they are hashed in the records.
//!
//! [Trace Event Format]:
//! https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
//! [OTLP's JSON encoding]: https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding

use crate::critical_path::critical_path;
use crate::session::Session;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};
use tokengauge_core::call::{CallRecord, Operation};
use tokengauge_core::dimension::model_of;
use tokengauge_core::prompt::WaitKind;
use tokengauge_core::time::duration_since_1970;
use tokengauge_store::history::{TimedCall, phases};
use tokengauge_store::query::Phase;

/// The thread of the critical path. The threads of agents follow.
const PATH_THREAD: usize = 0;

/// The session as a file for Perfetto. The session is one process. It has one thread for the
/// critical path, and one for each agent, or several if the agent's calls overlap. Times are
/// microseconds since 1970.
pub fn perfetto(id: &str, session: &Session<'_>) -> Value {
    let name = |what: &str, thread: usize, name: &str| json!({"ph": "M", "pid": 1, "tid": thread, "name": what, "args": {"name": name}});
    let mut events = vec![
        name("process_name", PATH_THREAD, &format!("session {id}")),
        name("thread_name", PATH_THREAD, "critical path"),
    ];
    let begin = micros(session.started());
    let span = |name: String, category: &str, thread: usize, start: f64, end: f64, args: Value| {
        let from = begin + start * 1e6;
        json!({
            "ph": "X", "pid": 1, "tid": thread, "name": name, "cat": category,
            "ts": from, "dur": (end - start) * 1e6, "args": args,
        })
    };
    for step in critical_path(session).steps {
        let (call, agent) = (step.call, step.agent);
        let what = match step.wait {
            _ if call.is_some() => "call",
            Some(WaitKind::Tools) => "tools",
            Some(WaitKind::Human) => "wait for a person",
            _ => "between calls",
        };
        let name = match &agent {
            Some(agent) => format!("{what} of {agent}"),
            None => what.to_owned(),
        };
        let args = json!({"call": call});
        events.push(span(name, "path", PATH_THREAD, step.start, step.end, args));
    }
    let threads = Threads::of(session);
    for (thread, agent) in threads.names.iter().enumerate() {
        events.push(name("thread_name", thread + 1, agent));
    }
    for (number, call) in session.calls().iter().enumerate() {
        let (thread, start) = (threads.of_call[number] + 1, session.start(number));
        let args = json!({"id": call.record.id, "facts": facts(call.record)});
        let end = session.end(number);
        events.push(span(title(call.record), "call", thread, start, end, args));
        for Phase { name, start, end } in phases(call.record, start) {
            let name = <&str>::from(name).to_owned();
            events.push(span(name, "phase", thread, start, end, json!({})));
        }
    }
    json!({"displayTimeUnit": "ms", "traceEvents": events})
}

/// The thread on which each call is drawn. Calls of one thread do not overlap.
struct Threads {
    names: Vec<String>,
    of_call: Vec<usize>,
}

impl Threads {
    fn of(session: &Session<'_>) -> Threads {
        let mut threads = Threads {
            names: Vec::new(),
            of_call: Vec::new(),
        };
        // The threads of each agent, and when each becomes free.
        let mut taken: BTreeMap<&str, Vec<(usize, f64)>> = BTreeMap::new();
        for (number, call) in session.calls().iter().enumerate() {
            let agent = call.record.agent.as_deref().unwrap_or("no agent");
            let (start, end) = (session.start(number), session.end(number));
            let of_agent = taken.entry(agent).or_default();
            let free = of_agent.iter_mut().find(|(_, until)| *until <= start);
            let thread = match free {
                Some((thread, until)) => {
                    *until = end;
                    *thread
                }
                None => {
                    let thread = threads.names.len();
                    threads.names.push(match of_agent.len() {
                        0 => agent.to_owned(),
                        before => format!("{agent} ({})", before + 1),
                    });
                    of_agent.push((thread, end));
                    thread
                }
            };
            threads.of_call.push(thread);
        }
        threads
    }
}

/// The session as one trace in OTLP's JSON, in the form of an `ExportTraceServiceRequest`.
///
/// The trace has a span for the session, a child span for each call with the attributes of the GenAI
/// conventions, and under that a span for each phase. Ids are derived from the ids of the session
/// and the calls, so the trace of a session is always equal. The trace that the agent named is a
/// link.
pub fn otlp(id: &str, session: &Session<'_>) -> Value {
    let trace = hex(&digest(&["session", id])[..16]);
    let root = hex(&digest(&["session span", id])[..8]);
    let begin = session.started();
    let span = |span: String,
                parent: Option<&str>,
                name: String,
                start: f64,
                end: f64,
                kind: u8| {
        json!({
            "traceId": trace, "spanId": span, "parentSpanId": parent.unwrap_or(""), "name": name,
            "kind": kind, "startTimeUnixNano": nanos(begin, start), "endTimeUnixNano": nanos(begin, end),
        })
    };
    let (internal, client) = (1, 3);
    let name = format!("session {id}");
    let mut spans = vec![span(
        root.clone(),
        None,
        name,
        0.0,
        session.seconds(),
        internal,
    )];
    spans[0]["attributes"] = attributes(vec![("gen_ai.conversation.id", json!(id))]);
    for (number, call) in session.calls().iter().enumerate() {
        let record = call.record;
        let (start, end) = (session.start(number), session.end(number));
        let own = hex(&digest(&["call", &record.id])[..8]);
        let mut of_call = span(own.clone(), Some(&root), title(record), start, end, client);
        of_call["attributes"] = attributes(facts_of_conventions(record));
        if call.failed() {
            of_call["status"] = json!({"code": 2});
        }
        if let Some(link) = link(call) {
            of_call["links"] = json!([link]);
        }
        spans.push(of_call);
        for phase in phases(record, start) {
            let name = <&str>::from(phase.name);
            let id = hex(&digest(&["phase", &record.id, name])[..8]);
            let name = name.to_owned();
            spans.push(span(id, Some(&own), name, phase.start, phase.end, internal));
        }
    }
    let scope = json!({"name": "tokengauge", "version": env!("CARGO_PKG_VERSION")});
    json!({"resourceSpans": [{
        "resource": {"attributes": attributes(vec![("service.name", json!("tokengauge"))])},
        "scopeSpans": [{"scope": scope, "spans": spans}],
    }]})
}

/// A link to the trace that the agent named. OTLP requires a span id, so the link has one that no
/// span uses.
fn link(call: &TimedCall<'_>) -> Option<Value> {
    let trace = call
        .record
        .trace_id
        .as_deref()
        .filter(|id| id.len() == 32)?;
    let span = hex(&digest(&["link", &call.record.id])[..8]);
    Some(json!({"traceId": trace, "spanId": span}))
}

fn title(record: &CallRecord) -> String {
    let operation = serde_json::to_value(record.operation)
        .ok()
        .and_then(|name| Some(name.as_str()?.to_owned()))
        .filter(|_| record.operation != Operation::Unknown);
    let words = [operation.as_deref(), model_of(record)];
    let words: Vec<&str> = words.into_iter().flatten().collect();
    if words.is_empty() {
        record.route.clone()
    } else {
        words.join(" ")
    }
}

/// Facts about a call for the reader of the file, without unknown values.
fn facts(record: &CallRecord) -> Value {
    let facts = facts_of_conventions(record).into_iter();
    let known = facts.filter(|(_, value)| !value.is_null());
    Value::Object(
        known
            .map(|(name, value)| (name.to_owned(), value))
            .collect(),
    )
}

fn facts_of_conventions(record: &CallRecord) -> Vec<(&'static str, Value)> {
    let reported = &record.tokens.reported;
    vec![
        ("gen_ai.operation.name", json!(record.operation)),
        ("gen_ai.request.model", json!(record.model_requested)),
        ("gen_ai.response.model", json!(record.model)),
        ("gen_ai.response.id", json!(record.response_id)),
        ("gen_ai.usage.input_tokens", json!(reported.input)),
        ("gen_ai.usage.output_tokens", json!(reported.output)),
        (
            "gen_ai.usage.cache_read.input_tokens",
            json!(reported.cached_input),
        ),
        (
            "gen_ai.usage.cache_creation.input_tokens",
            json!(reported.cache_write),
        ),
        (
            "gen_ai.usage.reasoning.output_tokens",
            json!(reported.reasoning),
        ),
        ("http.response.status_code", json!(record.status)),
        ("error.type", json!(record.error_type)),
        ("tokengauge.call.id", json!(record.id)),
        ("tokengauge.route", json!(record.route)),
        ("tokengauge.upstream", json!(record.upstream)),
        ("tokengauge.outcome", json!(record.outcome)),
        ("tokengauge.agent", json!(record.agent)),
        ("tokengauge.parent_agent", json!(record.parent_agent)),
        ("tokengauge.ttft", json!(record.seconds.ttft)),
        ("tokengauge.output_tps", json!(record.tps.output)),
        ("tokengauge.stalls", json!(record.stalls)),
        ("tokengauge.cost_usd", json!(record.cost_usd)),
    ]
}

/// Attributes in OTLP's JSON, without unknown values. OTLP writes 64-bit integers as strings.
fn attributes(facts: Vec<(&'static str, Value)>) -> Value {
    let value = |value: Value| match value {
        Value::String(text) => Some(json!({"stringValue": text})),
        Value::Bool(flag) => Some(json!({"boolValue": flag})),
        Value::Number(number) => Some(match number.as_u64() {
            Some(whole) => json!({"intValue": whole.to_string()}),
            None => json!({"doubleValue": number}),
        }),
        _ => None,
    };
    let known = facts
        .into_iter()
        .filter_map(|(key, fact)| Some((key, value(fact)?)));
    known
        .map(|(key, value)| json!({"key": key, "value": value}))
        .collect()
}

fn digest(parts: &[&str]) -> [u8; 32] {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(part.as_bytes());
        hash.update([0]);
    }
    hash.finalize().into()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn micros(at: SystemTime) -> f64 {
    duration_since_1970(at).as_micros() as f64
}

fn nanos(begin: SystemTime, offset: f64) -> String {
    let offset = Duration::try_from_secs_f64(offset).unwrap_or_default();
    (duration_since_1970(begin) + offset).as_nanos().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::tests::{TestCall, session_of};
    use std::collections::HashSet;

    fn records() -> Vec<CallRecord> {
        let calls = [
            TestCall::new("a", "main", 0.0, 2.0),
            TestCall::new("b", "main", 1.0, 3.0),
            TestCall::new("c", "sub", 2.5, 4.0).parent("main"),
            TestCall::new("d", "main", 4.5, 6.0),
        ];
        let mut records: Vec<_> = calls.iter().map(TestCall::record).collect();
        records[2].trace_id = Some("0123456789abcdef0123456789abcdef".to_owned());
        records
    }

    #[test]
    fn calls_of_a_thread_do_not_overlap() {
        let records = records();
        let trace = perfetto("s", &session_of(&records));
        let events = trace["traceEvents"].as_array().expect("events");
        let calls: Vec<&Value> = events
            .iter()
            .filter(|event| event["cat"] == "call")
            .collect();
        assert_eq!(calls.len(), 4);
        for (number, one) in calls.iter().enumerate() {
            for other in &calls[number + 1..] {
                let end =
                    |call: &Value| call["ts"].as_f64().unwrap() + call["dur"].as_f64().unwrap();
                let apart = one["tid"] != other["tid"] || end(one) <= other["ts"].as_f64().unwrap();
                assert!(apart, "{one} {other}");
            }
        }
        let names: HashSet<&str> = events
            .iter()
            .filter(|event| event["name"] == "thread_name")
            .filter_map(|event| event["args"]["name"].as_str())
            .collect();
        assert_eq!(names, ["critical path", "main", "main (2)", "sub"].into());
    }

    #[test]
    fn spans_have_ids_of_their_own_and_parents_within_the_trace() {
        let records = records();
        let trace = otlp("s", &session_of(&records));
        let spans = trace["resourceSpans"][0]["scopeSpans"][0]["spans"].clone();
        let spans = spans.as_array().expect("spans");
        let ids: HashSet<&str> = spans
            .iter()
            .filter_map(|span| span["spanId"].as_str())
            .collect();
        assert_eq!(ids.len(), spans.len());
        for span in &spans[1..] {
            assert!(ids.contains(span["parentSpanId"].as_str().expect("a parent")));
            let nanos = |name: &str| span[name].as_str().unwrap().parse::<u64>().unwrap();
            assert!(nanos("startTimeUnixNano") <= nanos("endTimeUnixNano"));
        }
        let linked = spans.iter().find(|span| span["links"].is_array());
        assert_eq!(
            linked.expect("a link")["links"][0]["traceId"],
            "0123456789abcdef0123456789abcdef"
        );
        assert_eq!(
            trace,
            otlp("s", &session_of(&records)),
            "the same each time"
        );
    }
}
