//! The checks of the soak test (`benches/soak`) find errors.

#[path = "../benches/soak/verify.rs"]
#[allow(dead_code)]
mod verify;

use serde_json::{Value, json};
use std::collections::BTreeMap;
use tokengauge_core::call::{CallRecord, Outcome};
use verify::{
    CallEnd, Expected, ReceivedCall, ReceivedHead, SentCall, memory, mismatch, not_restored, slope,
    verify,
};

fn record(changes: &[(&str, Value)]) -> CallRecord {
    let mut record = json!({
        "id": "i", "started_at": "2026-11-21T00:00:00.000Z", "route": "one", "upstream": "one", "endpoint": null,
        "dialect": "openai_chat", "operation": "chat", "model_requested": "m", "model": "m", "streamed": true,
        "status": 200, "outcome": "complete", "error_type": null, "finish_reasons": [], "session": null,
        "agent": null, "parent_agent": null, "user": null, "workload": null, "experiment": null, "variant": null,
        "trace_id": "t", "warm_up": false,
        "tokens": {
            "normalised": {"answer": 40, "reasoning": 0, "tool_call": 0, "output": 40, "input": null},
            "reported": {"input": null, "cached_input": null, "cache_write": null, "output": null, "reasoning": null},
            "source": "counted"},
        "seconds": {"ttft": null, "ttft_upstream": null, "first_answer": null, "connect": null, "upload": null,
            "last_token": null, "longest_gap": null, "duration": 1.0},
        "tps": {"output": null, "answer": null, "total": null, "unavailable": null},
        "frames": 40, "stalls": 0, "first_token_event": 1, "bytes": {"request": 10, "response": 30},
        "cost_usd": null, "cost_source": null, "engine": null,
    });
    for (pointer, value) in changes {
        *record.pointer_mut(pointer).expect("a field") = value.clone();
    }
    serde_json::from_value(record).expect("a record")
}

fn done() -> ReceivedCall {
    ReceivedCall {
        expected: Expected::Fixed {
            outcome: Outcome::Complete,
            output: Some(40),
        },
        sent: 10,
        head: Some(ReceivedHead {
            status: 200,
            ..ReceivedHead::default()
        }),
        received: 30,
        mismatch: None,
        due: None,
        ended: CallEnd::Complete,
    }
}

fn written() -> SentCall {
    SentCall {
        bytes: vec![b'x'; 30],
        begun: 1,
        truths: Vec::new(),
    }
}

fn wrong(done: &ReceivedCall, written: &SentCall, records: &[CallRecord]) -> Vec<String> {
    verify(done, written, records).0
}

#[test]
fn a_call_without_differences_passes() {
    let (wrong, tokens) = verify(&done(), &written(), &[record(&[])]);
    assert_eq!((wrong, tokens), (Vec::new(), 40));
}

#[test]
fn one_byte_one_token_one_record_or_another_outcome_is_wrong() {
    let found =
        |done: &ReceivedCall, records: &[CallRecord]| wrong(done, &written(), records).len();
    let flipped = ReceivedCall {
        mismatch: Some(7),
        ..done()
    };
    let short = ReceivedCall {
        received: 29,
        ..done()
    };
    let torn = ReceivedCall {
        ended: CallEnd::Truncated,
        ..done()
    };
    for done in [flipped, short, torn] {
        assert!(found(&done, &[record(&[])]) > 0, "{done:?}");
    }
    for change in [
        ("/tokens/normalised/output", json!(41)),
        ("/tokens/normalised/output", Value::Null),
        ("/outcome", json!("client_cancelled")),
        ("/status", json!(502)),
        ("/bytes/response", json!(31)),
        ("/bytes/request", json!(9)),
    ] {
        let records = [record(std::slice::from_ref(&change))];
        assert!(found(&done(), &records) > 0, "{change:?}");
    }
    assert!(found(&done(), &[]) > 0, "no record");
    assert!(
        found(&done(), &[record(&[]), record(&[])]) > 0,
        "two records"
    );
    let twice = SentCall {
        begun: 2,
        ..written()
    };
    assert!(
        !wrong(&done(), &twice, &[record(&[])]).is_empty(),
        "sent twice"
    );
}

#[test]
fn what_lagged_has_no_counts() {
    let lagged = ("/tps/unavailable", json!("lagged"));
    let silent = [lagged.clone(), ("/tokens/normalised/output", Value::Null)];
    assert!(wrong(&done(), &written(), &[record(&silent)]).is_empty());
    assert!(!wrong(&done(), &written(), &[record(&[lagged])]).is_empty());
}

#[test]
fn an_agent_that_left_before_the_head_may_have_no_record() {
    let left = ReceivedCall {
        head: None,
        received: 0,
        ended: CallEnd::Cancelled,
        ..done()
    };
    assert!(wrong(&left, &written(), &[]).is_empty());
}

#[test]
fn tokens_of_a_torn_stream_are_those_in_the_bytes_that_went_through() {
    let event = |text: &str| {
        format!("data: {{\"choices\":[{{\"delta\":{{\"content\":\"{text}\"}}}}]}}\n\n")
    };
    let bytes = [event(" the"), event(" the"), event(" the")]
        .concat()
        .into_bytes();
    let forwarded = event(" the").len() * 2 + 5;
    let written = SentCall { bytes, ..written() };
    let torn = ReceivedCall {
        expected: Expected::Fixed {
            outcome: Outcome::UpstreamReset,
            output: None,
        },
        head: Some(ReceivedHead {
            status: 200,
            content_type: Some("text/event-stream".to_owned()),
            ..ReceivedHead::default()
        }),
        received: forwarded as u64,
        ended: CallEnd::Truncated,
        ..done()
    };
    let with = |tokens: u64| {
        record(&[
            ("/outcome", json!("upstream_reset")),
            ("/bytes/response", json!(forwarded)),
            ("/tokens/normalised/output", json!(tokens)),
        ])
    };
    assert_eq!(wrong(&torn, &written, &[with(2)]), Vec::<String>::new());
    assert!(!wrong(&torn, &written, &[with(3)]).is_empty());
    assert!(!wrong(&torn, &written, &[with(1)]).is_empty());
}

#[test]
fn a_mismatch_is_found_where_it_is() {
    assert_eq!(mismatch(b"abcdef", b"abc"), None);
    assert_eq!(mismatch(b"abcdef", b"abX"), Some(2));
    assert_eq!(mismatch(b"abc", b"abcd"), Some(3), "more than was written");
}

#[test]
fn a_slope_is_computed_over_the_line_and_over_the_second_half() {
    let line: Vec<(f64, f64)> = (0..60)
        .map(|n| (f64::from(n) * 2.0, 1000.0 + f64::from(n)))
        .collect();
    assert!((slope(&line) - 30.0).abs() < 1e-6);
    let fills: Vec<(f64, f64)> = (0..60)
        .map(|n| (f64::from(n) * 2.0, f64::from(n.min(30)) * 100.0))
        .collect();
    let memory = memory(&fills).expect("enough");
    assert!(
        memory.slope.abs() < 1e-6,
        "filling up is not a leak: {memory:?}"
    );
    assert_eq!((memory.first, memory.most), (0.0, 3000.0));
    assert_eq!((memory.tenths[0], memory.tenths[9]), (250.0, 3000.0));
    assert_eq!(verify::memory(&line[..6]), None);
}

#[test]
fn a_gauge_one_higher_than_before_is_not_restored() {
    let figures = |files: f64| BTreeMap::from([("open files".to_owned(), files)]);
    assert!(not_restored(&figures(9.0), &figures(9.0)).is_empty());
    assert!(not_restored(&figures(9.0), &figures(8.0)).is_empty());
    assert_eq!(not_restored(&figures(9.0), &figures(10.0)).len(), 1);
}
