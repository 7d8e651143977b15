//! Tests of reports with known figures.

use super::figures::Report;
use super::{document::document, html, text};
use serde_json::json;
use std::collections::BTreeMap;
use std::time::{Duration, UNIX_EPOCH};
use tokengauge_core::call::{CallRecord, CostUnavailable};
use tokengauge_core::time::rfc3339_nanos;
use tokengauge_store::query::Dimension;

/// A call of `model` that decodes `tps` tokens per second from second 1 to 3.
fn call(second: u64, model: &str, tps: f64, warm_up: bool) -> CallRecord {
    let started = UNIX_EPOCH + Duration::from_secs(second);
    let record = json!({
        "id": format!("{second:08}"), "started_at": rfc3339_nanos(started).to_string(),
        "route": "r", "upstream": "u", "dialect": "openai_chat", "operation": "chat", "operation_class": "generation",
        "model": model, "streamed": true, "status": 200, "outcome": "complete", "finish_reasons": [],
        "warm_up": warm_up,
        "tokens": {
            "normalised": {"output": 40}, "reported": {"input": 100, "output": 50}, "source": "reported",
        },
        "seconds": {"ttft": 1.0, "last_token": 3.0, "duration": 4.0},
        "tps": {"output": tps, "reported": tps * 1.25}, "frames": 41, "stalls": 0, "cost_usd": 0.002,
        "bytes": {"request": 10, "response": 20},
    });
    serde_json::from_value(record).expect("a record")
}

fn report(with_warm_up: bool) -> Report {
    let by = [Dimension::Model, Dimension::Workload];
    let mut report = Report::new(&by, with_warm_up, UNIX_EPOCH);
    report.add(&call(0, "a|b", 1.0, true));
    for second in [60, 120, 180] {
        report.add(&call(second, "a|b", second as f64 / 6.0, false));
    }
    report.add(&call(200, "<c>", 100.0, false));
    report
}

#[test]
fn calls_of_a_warm_up_count_and_cost_but_their_speed_is_left_out() {
    let left = document(&report(false));
    assert_eq!(
        (&left["calls"], &left["warm_up_calls_left_out"]),
        (&json!(5), &json!(1))
    );
    let row = &left["groups"][0];
    assert_eq!(row["by"], json!({"model": "a|b", "workload": null}));
    assert_eq!(
        (&row["calls"], &row["tps"]["p1"]),
        (&json!(4), &json!(10.0))
    );
    assert_eq!(
        (&row["tps"]["mean"], &row["cost_usd"]),
        (&json!(20.0), &json!(0.008))
    );
    assert_eq!(
        row["tps_reported"],
        json!({"p50": 25.0, "p10": 12.5, "p5": 12.5, "p1": 12.5, "mean": 25.0, "calls": 3}),
        "50 tokens reported for 40 of ours"
    );
    let all = document(&report(true));
    assert_eq!(
        (
            &all["warm_up_calls_left_out"],
            &all["groups"][0]["tps"]["p1"]
        ),
        (&json!(0), &json!(1.0))
    );
}

#[test]
fn a_report_says_how_many_calls_have_a_cost_and_a_speed_and_why_the_others_have_none() {
    let changed = |second, more: serde_json::Value| {
        let mut record = json!(call(second, "m", 10.0, false));
        record["tps"] = json!({"unavailable": "buffered"});
        let more = more.as_object().expect("members").clone();
        record.as_object_mut().expect("members").extend(more);
        serde_json::from_value::<CallRecord>(record).expect("a record")
    };
    let no_price = json!({"cost_usd": null, "cost_unavailable": "no_price", "skipped_events": 3});
    let mut report = report(false);
    report.add(&changed(210, no_price));
    report.add(&changed(220, json!({"cost_usd": null, "tps": {}})));
    report.add(&changed(230, json!({"operation_class": "other"})));
    assert_eq!(
        document(&report)["coverage"],
        json!({
            "calls": 7, "with_cost": 5, "with_speed": 5,
            "cost_unavailable": {"no_price": 1, "unknown": 1},
            "tps_unavailable": {"buffered": 1, "unknown": 1},
            "skipped_events": 3,
        })
    );
    let says = "5 of 7 calls have a cost; the others: 1 no price, 1 unknown. \
                5 of 7 calls have a speed; the others: 1 buffered, 1 unknown. \
                3 stream events were unreadable and were skipped.";
    let judged = "Cost per million output tokens covers 5 of 8 calls; the others: \
                  1 no generation, 1 no price, 1 unknown.";
    for text in [text::table(&report, None), text::markdown(&report)] {
        assert!(text.contains(says) && text.contains(judged), "{text}");
    }
}

#[test]
fn every_reason_without_a_cost_is_that_of_the_record() {
    let mut report = Report::new(&[Dimension::Model], false, UNIX_EPOCH);
    for (second, reason) in (0..).zip(CostUnavailable::ALL) {
        let mut unpriced = call(second, "m", 10.0, false);
        (unpriced.cost_usd, unpriced.cost_unavailable) = (None, Some(reason));
        report.add(&unpriced);
    }
    let without = CostUnavailable::ALL.map(|reason| (reason.as_str(), 1));
    let [_, _, cost] = report.judged();
    assert_eq!((cost.of, cost.without), (7, BTreeMap::from(without)));
}

#[test]
fn the_table_is_aligned_and_says_what_it_is_of() {
    let text = text::table(&report(false), None);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines[..4],
        [
            "MODEL  WORKLOAD  CALLS   ERRORS   REQ/S  TPS P50      P10       P5       P1     MEAN  JUDGED  REPORTED  TTFT P50      P95      P99    SHARE  JUDGED  IN TOKENS  OUT TOKENS      COST  PER 1M OUT  PRICED       BANDS %",
            "a|b    –             4        0  0.0196     20.0     10.0     10.0     10.0     20.0  3 of 4      25.0    1.00 s   1.00 s   1.00 s     25 %  3 of 4        400         200  $0.00800      $40.00  4 of 4  0/33/33/33/0",
            "                        too few          too few  too few  too few  too few  too few           too few   too few  too few  too few  too few                                              too few",
            "<c>    –             1        0  0.0049    100.0    100.0    100.0    100.0    100.0  1 of 1     125.0    1.00 s   1.00 s   1.00 s     25 %  1 of 1        100          50  $0.00200      $40.00  1 of 1   0/0/0/0/100",
        ]
    );
    assert!(
        text.contains("5 calls from 1970-01-01T00:00:00Z to 1970-01-01T00:03:24Z."),
        "{text}"
    );
    assert!(
        text.contains("1 calls ran during the warm-up of their upstream"),
        "{text}"
    );
}

/// Returns the notes on a model with `sessions` sessions of one call, and one session of `largest` calls.
fn notes_on_sessions(sessions: u64, largest: u64) -> String {
    let mut report = Report::new(&[Dimension::Model], false, UNIX_EPOCH);
    for second in 0..sessions + largest {
        let mut call = call(60 * second, "m", 20.0 + (second % 7) as f64, false);
        call.session = Some(format!("s{}", second.min(sessions)));
        report.add(&call);
    }
    let row = &document(&report)["groups"][0];
    assert_eq!(
        row["sessions"],
        json!({"count": sessions + 1, "calls_of_largest": largest})
    );
    let known = row["estimates"]["tps_p50"]["lower"].is_f64();
    assert_eq!(known, sessions + 1 >= 15, "{row}");
    text::table(&report, None)
}

#[test]
fn too_few_sessions_and_one_that_has_most_calls_are_said() {
    let few = notes_on_sessions(7, 1);
    let says = "m has too few sessions for intervals: 8 of 15.";
    assert!(few.contains(says) && few.contains("too few"), "{few}");
    let most = notes_on_sessions(20, 20);
    let says = "One session has 50 % of the calls of m and dominates its figures.";
    assert!(
        most.contains(says) && !most.contains("too few sessions"),
        "{most}"
    );
    let neither = notes_on_sessions(40, 10);
    assert!(
        !neither.contains("One session has") && !neither.contains("too few sessions"),
        "{neither}"
    );
}

#[test]
fn markdown_keeps_its_columns_whatever_a_model_is_called() {
    let text = text::markdown(&report(false));
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[1].starts_with("| --- | --- | ---: |"), "{text}");
    assert!(lines[2].starts_with("| a\\|b | – | 4 |"), "{text}");
    let columns = |line: &str| line.replace("\\|", "").matches('|').count();
    assert_eq!(columns(lines[0]), columns(lines[2]));
}

#[test]
fn the_page_has_its_plots_in_both_colour_schemes_and_loads_nothing() {
    let page = html::page(&report(false));
    assert_eq!(page.matches("<svg").count(), 5);
    assert_eq!(page.matches("<script>").count(), 1);
    assert!(
        page.contains("&lt;c&gt;") && !page.contains("<c>"),
        "names are no markup"
    );
    assert!(page.contains("prefers-color-scheme:dark") && page.contains("default-src 'none'"));
    for outside in ["src=", "href=", "url(", "@import"] {
        assert!(!page.contains(outside), "{outside}");
    }
    let addresses = page.matches("http://").count();
    assert_eq!(
        addresses,
        page.matches("http://www.w3.org/2000/svg").count(),
        "names of SVG alone"
    );
    let svg = page.split("<svg").nth(4).expect("a plot");
    assert!(svg.contains("00:01"), "the time below: {svg}");
    let mut unknown = call(0, "m", 1.0, false);
    (unknown.tps.output, unknown.seconds.ttft, unknown.cost_usd) = (None, None, None);
    let mut without = Report::new(&[Dimension::Model], false, UNIX_EPOCH);
    without.add(&unknown);
    let page = html::page(&without);
    assert_eq!(
        page.matches("No data.").count(),
        5,
        "what is unknown is named"
    );
}

#[test]
fn a_table_keeps_to_the_width_of_the_terminal_and_has_every_column() {
    let mut report = report(false);
    report.add(&call(210, &"long-name-".repeat(20), 30.0, false));
    let whole = text::table(&report, None);
    let heads = whole.lines().next().expect("heads");
    for width in [60, 80, 120, 200] {
        let table = text::table(&report, Some(width));
        let widest = table.lines().map(|line| line.chars().count()).max();
        assert!(widest.expect("lines") <= width, "{width}: {table}");
        let shown: Vec<&str> = table
            .lines()
            .filter(|line| line.starts_with("MODEL "))
            .collect();
        for head in heads
            .split("  ")
            .map(str::trim)
            .filter(|head| !head.is_empty())
        {
            assert!(
                shown.iter().any(|line| line.contains(head)),
                "{head}: {table}"
            );
        }
        assert!(
            table.contains("long-name-…") || table.contains("…"),
            "{table}"
        );
    }
}
