use super::*;
use crate::query::{Dimension, Filter, PhaseName, SeriesMetric, SessionQuery, SessionSort};
use serde_json::{Value, json};
use std::time::{Duration, UNIX_EPOCH};
use tokengauge_core::call::CallRecord;
use tokengauge_core::time::rfc3339_nanos;

/// A chat that starts `second` seconds after 1970 and takes 4 seconds: 0.5 s to connect and upload,
/// and tokens from second 1 to 3 at 20 per second, the first half of them reasoning.
fn call(second: u64, changes: Value) -> CallRecord {
    let started = UNIX_EPOCH + Duration::from_secs(second);
    let mut record = json!({
        "id": format!("{second:08}"), "started_at": rfc3339_nanos(started).to_string(),
        "route": "r", "upstream": "u", "dialect": "openai_chat", "operation": "chat", "operation_class": "generation",
        "model_requested": "asked", "model": "m", "streamed": true, "status": 200,
        "outcome": "complete", "finish_reasons": ["stop"], "session": "s", "agent": "a/1",
        "warm_up": false,
        "tokens": {
            "normalised": {"answer": 20, "reasoning": 20, "tool_call": 0, "output": 41},
            "reported": {"input": 100, "output": 50}, "source": "reported",
        },
        "seconds": {
            "connect": 0.25, "upload": 0.25, "ttft": 1.0, "first_answer": 2.0,
            "last_token": 3.0, "longest_gap": 0.1, "duration": 4.0,
        },
        "tps": {"output": 20.0}, "frames": 41, "stalls": 0,
        "bytes": {"request": 10, "response": 20},
    });
    merge(&mut record, changes);
    serde_json::from_value(record).expect("a record")
}

fn merge(into: &mut Value, changes: Value) {
    match (into, changes) {
        (Value::Object(into), Value::Object(changes)) => {
            for (key, value) in changes {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, value) => *into = value,
    }
}

fn pasts(calls: &[CallRecord]) -> impl Iterator<Item = TimedCall<'_>> {
    calls.iter().map(TimedCall::of)
}

#[test]
fn a_session_is_summed_up_and_its_time_is_the_models_or_between() {
    let calls = [
        call(100, json!({"cost_usd": 0.5, "workload": "w"})),
        // Overlaps the first call by one second.
        call(
            103,
            json!({"agent": "b", "model": "n", "outcome": "timeout", "tps": {"output": null}}),
        ),
        call(
            117,
            json!({"experiment": "e", "outcome": "client_cancelled"}),
        ),
        call(500, json!({"session": null})),
    ];
    let sessions = sessions(pasts(&calls), &SessionQuery::default());
    let [session] = &sessions[..] else {
        panic!("one session, the call without has none: {sessions:?}");
    };
    assert_eq!((session.calls, session.errors), (3, 1));
    assert_eq!(session.agents, ["a/1", "b"]);
    assert_eq!(session.models, ["m", "n"]);
    assert_eq!(session.workload.as_deref(), Some("w"));
    assert_eq!(session.experiment.as_deref(), Some("e"));
    assert_eq!(session.tokens.input, Some(300));
    assert_eq!(session.tokens.output, Some(150), "the provider's counts");
    assert_eq!(
        session.tokens.reasoning,
        Some(60),
        "ours: none was reported"
    );
    assert_eq!(session.tokens.cached_input, None);
    assert_eq!((session.cost_usd, session.unpriced_calls), (Some(0.5), 2));
    let seconds = session.seconds;
    assert_eq!(
        (seconds.wall, seconds.model, seconds.tools),
        (21.0, 11.0, 10.0)
    );
    assert_eq!(seconds.ttft_p50, Some(1.0));
    assert_eq!(session.tps.output, Some(20.0));
    assert_eq!(session.started_at.to_string(), "1970-01-01T00:01:40.000Z");
    assert_eq!(session.last_at.to_string(), "1970-01-01T00:02:01.000Z");
}

#[test]
fn sessions_are_sorted_and_what_is_unknown_comes_last() {
    let calls = [
        call(1, json!({"session": "one", "cost_usd": 1.0})),
        call(2, json!({"session": "two", "cost_usd": 2.0})),
        call(3, json!({"session": "none"})),
    ];
    let ids = |query: SessionQuery| {
        let rows = sessions(pasts(&calls), &query).into_iter();
        rows.map(|row| row.id).collect::<Vec<_>>()
    };
    let by = |sort, ascending| SessionQuery {
        sort,
        ascending,
        ..SessionQuery::default()
    };
    assert_eq!(ids(by(SessionSort::Cost, true)), ["one", "two", "none"]);
    assert_eq!(ids(by(SessionSort::Cost, false)), ["two", "one", "none"]);
    assert_eq!(ids(by(SessionSort::LastAt, false)), ["none", "two", "one"]);
    let search = SessionQuery {
        search: Some("WO".to_owned()),
        ..SessionQuery::default()
    };
    assert_eq!(ids(search), ["two"]);
}

#[test]
fn a_session_is_meant_where_each_part_of_the_filter_has_a_call() {
    let calls = [
        call(100, json!({"model": "big"})),
        call(200, json!({"agent": "helper", "model": "small"})),
        call(300, json!({"session": "other", "model": "big"})),
    ];
    let ids = |filter: Filter| {
        let query = SessionQuery {
            filter,
            ..SessionQuery::default()
        };
        let rows = sessions(pasts(&calls), &query).into_iter();
        rows.map(|row| (row.id, row.calls)).collect::<Vec<_>>()
    };
    let filter = Filter {
        names: [
            (Dimension::Model, Some("big".to_owned())),
            (Dimension::Agent, Some("helper".to_owned())),
        ]
        .into(),
        ..Filter::default()
    };
    assert_eq!(ids(filter), [("s".to_owned(), 2)], "with all its calls");
    let late = Filter {
        since: Some(UNIX_EPOCH + Duration::from_secs(250)),
        ..Filter::default()
    };
    assert_eq!(ids(late), [("other".to_owned(), 1)]);
}

#[test]
fn a_waterfall_has_every_part_of_every_call_and_the_waits_between() {
    let calls = [
        call(109, json!({})),
        call(100, json!({"engine": {"prompt_seconds": 0.375}})),
        call(
            110,
            json!({"outcome": "unreachable", "seconds": {
            "connect": null, "upload": null, "ttft": null, "first_answer": null,
            "last_token": null, "duration": 1.0}}),
        ),
    ];
    let (session, rows) = waterfall(pasts(&calls)).expect("calls");
    assert_eq!((session.id.as_str(), session.calls), ("s", 3));
    let waits: Vec<_> = rows
        .iter()
        .map(|row| (row.offset, row.wait_before))
        .collect();
    assert_eq!(waits, [(0.0, None), (9.0, Some(5.0)), (10.0, Some(0.0))]);
    let parts = |row: usize| {
        let phases = rows[row].phases.iter();
        phases
            .map(|phase| (phase.name, phase.start, phase.end))
            .collect::<Vec<_>>()
    };
    use PhaseName::{Answer, Connect, Other, Prefill, Queue, Reasoning, Upload};
    assert_eq!(
        parts(0),
        [
            (Connect, 0.0, 0.25),
            (Upload, 0.25, 0.5),
            (Queue, 0.5, 0.625),
            (Prefill, 0.625, 1.0),
            (Reasoning, 1.0, 2.0),
            (Answer, 2.0, 3.0),
            (Other, 3.0, 4.0)
        ]
    );
    assert_eq!(
        parts(1)[2],
        (Prefill, 9.5, 10.0),
        "no engine reported a queue"
    );
    assert_eq!(parts(2), [(Other, 10.0, 11.0)]);
    assert!(waterfall(pasts(&[])).is_none());
}

#[test]
fn a_call_that_only_thought_has_no_answer_and_one_that_did_not_think_no_reasoning() {
    let names = |changes| {
        let call = call(1, changes);
        let phases = phases(&call, 0.0).into_iter();
        phases.map(|phase| phase.name).collect::<Vec<_>>()
    };
    let thought = names(json!({"seconds": {"first_answer": null}}));
    assert!(thought.contains(&PhaseName::Reasoning) && !thought.contains(&PhaseName::Answer));
    let answered = names(json!({"seconds": {"first_answer": 1.0}}));
    assert!(answered.contains(&PhaseName::Answer) && !answered.contains(&PhaseName::Reasoning));
}

#[test]
fn calls_are_grouped_with_their_tails_their_bands_and_their_price() {
    let mut calls: Vec<_> = (1..=100)
        .map(|n| {
            call(
                n,
                json!({"tps": {"output": n}, "seconds": {"ttft": n as f64 / 100.0}}),
            )
        })
        .collect();
    calls.push(call(
        200,
        json!({"tps": {"output": null}, "cost_usd": 0.001, "workload": "w"}),
    ));
    let rows = groups(pasts(&calls), &[Dimension::Model]);
    let row = &rows[0];
    assert_eq!((row.name.as_deref(), row.calls), (Some("m"), 101));
    let tps = row.tps;
    assert_eq!(
        (tps.p50, tps.p10, tps.p5, tps.p1),
        (Some(50.0), Some(10.0), Some(5.0), Some(1.0))
    );
    assert_eq!((tps.calls, row.ttft.calls), (100, 101));
    // Each call is decoded from its own first token to second 3.
    let (tokens, seconds) = (1..=100).fold((0.0, 0.0), |(tokens, seconds), n| {
        let decode = 3.0 - f64::from(n) / 100.0;
        (tokens + f64::from(n) * decode, seconds + decode)
    });
    let mean = tps.mean.expect("speeds");
    assert!((mean - tokens / seconds).abs() < 1e-9, "{mean}");
    assert_eq!((row.ttft.p95, row.ttft.p99), (Some(0.96), Some(1.0)));
    let bands: Vec<_> = row
        .bands
        .iter()
        .map(|band| (band.from, band.to, band.calls))
        .collect();
    let is = [
        (0.0, Some(5.0), 4),
        (5.0, Some(15.0), 10),
        (15.0, Some(30.0), 15),
        (30.0, Some(60.0), 30),
        (60.0, None, 41),
    ];
    assert_eq!(bands, is);
    assert_eq!(row.usd_per_million_output, Some(20.0), "0.001 for 50");
    assert_eq!(row.unpriced_calls, 100);
    let two = groups(pasts(&calls), &[Dimension::Workload, Dimension::Outcome]);
    let names: Vec<_> = two.iter().map(|row| row.names.clone()).collect();
    let complete = Some("complete".to_owned());
    assert_eq!(names[0], [None, complete.clone()]);
    assert_eq!(names[1], [Some("w".to_owned()), complete]);
}

#[test]
fn a_time_series_has_a_point_for_every_step_and_is_bounded() {
    let calls = [
        call(60, json!({})),
        call(119, json!({"tps": {"output": 40.0}})),
        call(200, json!({"tps": {"output": null}})),
    ];
    let minute = Duration::from_secs(60);
    let series = timeseries(pasts(&calls), SeriesMetric::Tps, minute, None);
    let points: Vec<_> = series
        .points
        .iter()
        .map(|point| (point.at.to_string(), point.calls, point.p10, point.p90))
        .collect();
    let is = [
        ("1970-01-01T00:01:00.000Z", 2, Some(20.0), Some(40.0)),
        ("1970-01-01T00:02:00.000Z", 0, None, None),
        ("1970-01-01T00:03:00.000Z", 1, None, None),
    ];
    let is = is.map(|(at, calls, p10, p90)| (at.to_owned(), calls, p10, p90));
    assert_eq!(points, is);
    // The tokens of the second call arrived in the minute after its start.
    assert_eq!(series.points[0].tokens_per_second, Some(41.0 / 60.0));
    assert_eq!(series.points[1].tokens_per_second, Some(41.0 / 60.0));
    let far = [call(0, json!({})), call(1_000_000, json!({}))];
    let second = Duration::from_secs(1);
    let series = timeseries(pasts(&far), SeriesMetric::Ttft, second, None);
    assert_eq!(series.points.len(), MAX_POINTS);
    assert_eq!(
        series.points.iter().rev().find_map(|point| point.p50),
        Some(1.0),
        "the newest stay"
    );
}

#[test]
fn a_filter_means_calls_by_whole_names_and_half_open_times() {
    let one = call(100, json!({"model": null, "workload": "w"}));
    let past = TimedCall::of(&one);
    let at = |second| Some(UNIX_EPOCH + Duration::from_secs(second));
    let is = |filter: Filter| matches(&filter, &past);
    let name = |name: &str| Some(name.to_owned());
    assert!(is(Filter {
        since: at(100),
        until: at(101),
        ..Filter::default()
    }));
    assert!(!is(Filter {
        until: at(100),
        ..Filter::default()
    }));
    assert!(!is(Filter {
        since: at(101),
        ..Filter::default()
    }));
    assert!(
        is(Filter {
            names: [(Dimension::Model, name("asked"))].into(),
            ..Filter::default()
        }),
        "the one asked for"
    );
    assert!(is(Filter {
        names: [
            (Dimension::Workload, name("w")),
            (Dimension::Agent, name("a/1"))
        ]
        .into(),
        ..Filter::default()
    }));
    assert!(!is(Filter {
        names: [
            (Dimension::Workload, name("w")),
            (Dimension::Agent, name("a"))
        ]
        .into(),
        ..Filter::default()
    }));
    assert!(!is(Filter {
        names: [(Dimension::User, name("nobody"))].into(),
        ..Filter::default()
    }));
}
