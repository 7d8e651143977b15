//! API answers about finished calls in memory, over a real socket.

use crate::admin_api::Server;
use bytes::Bytes;
use parquet::file::reader::{FileReader, SerializedFileReader};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;
use tokengauge_core::observer::{End, ObservedCall};
use tokengauge_test_support::TIMEOUT;
use tokengauge_test_support::http_client::exchange_bytes;
use tokengauge_test_support::meter::{DONE, finish, words};
use tokio::net::TcpStream;

/// A chat of `session` with 40 words over 1 s, which begins after `second` seconds.
pub fn chat(server: &Server, second: u64, session: &str, agent: &str) {
    let call = begin(server, second, session, agent);
    let bench = &server.bench;
    for chunk in 0..=5 {
        bench.chunk(&*call, 250 + chunk * 200, words(8));
    }
    bench.chunk(&*call, 1300, finish(Some(50)) + DONE);
    call.ended(bench.at(2000), End::Complete);
    assert!(bench.meter.flush(TIMEOUT));
}

fn begin(
    server: &Server,
    second: u64,
    session: &str,
    agent: &str,
) -> std::sync::Arc<dyn ObservedCall> {
    let headers = [("x-tokengauge-session", session), ("user-agent", agent)];
    let call = server
        .bench
        .begin_with("/v1/chat/completions", &headers, |mut start| {
            start.started_at += Duration::from_secs(second);
            start
        });
    server
        .bench
        .send(&*call, br#"{"model":"asked","stream":true,"messages":[]}"#);
    server.bench.answer(&*call, 200, "text/event-stream");
    call
}

async fn problem(server: &Server, path: &str) -> (u16, String) {
    let response = server.fetch(path).await;
    let error: Value = serde_json::from_str(&response.body).expect("JSON");
    let message = error["error"]["message"].as_str().expect("a message");
    (response.status, message.to_owned())
}

#[tokio::test]
async fn sessions_in_memory_are_paged_and_include_calls_in_flight() {
    let server = Server::start().await;
    for (second, session) in [(0, "a"), (10, "a"), (20, "b"), (30, "c")] {
        chat(&server, second, session, "coder/1");
    }
    let _call = begin(&server, 40, "b", "coder/1");
    let mut path = "/api/v1/sessions?limit=2".to_owned();
    let mut seen = Vec::new();
    loop {
        let page = server.json(&path).await;
        assert_eq!(page["store"], "memory");
        seen.extend(page["sessions"].as_array().expect("rows").clone());
        let Some(cursor) = page["next_cursor"].as_str() else {
            break;
        };
        path = format!("/api/v1/sessions?limit=2&cursor={cursor}");
    }
    let is: Vec<_> = seen
        .iter()
        .map(|row| {
            (
                row["id"].as_str(),
                row["calls"].as_u64(),
                row["in_flight"].as_u64(),
            )
        })
        .collect();
    let id = Some;
    assert_eq!(
        is,
        [
            (id("c"), Some(1), Some(0)),
            (id("b"), Some(1), Some(1)),
            (id("a"), Some(2), Some(0))
        ]
    );
    let a = &seen[2];
    assert_eq!(a["seconds"]["wall"], 12.0);
    assert_eq!(a["seconds"]["tools"], 8.0);
    assert_eq!(a["tps"]["output"], 40.0);
    assert_eq!(
        a["tokens"],
        json!({"input": 14, "cached_input": null, "output": 100, "reasoning": 0})
    );
    assert_eq!(a["cost_usd"], Value::Null, "no price is known");
    assert_eq!(a["unpriced_calls"], 2);
    let found = server
        .json("/api/v1/sessions?q=A&agent=coder%2F1&sort=calls&order=asc")
        .await;
    assert_eq!(found["sessions"].as_array().expect("rows").len(), 1);
}

#[tokio::test]
async fn one_session_is_a_waterfall_whose_calls_are_paged() {
    let server = Server::start().await;
    chat(&server, 0, "a/b c", "coder/1");
    chat(&server, 10, "a/b c", "coder/1");
    let path = "/api/v1/sessions/a%2Fb%20c";
    let session = server.json(path).await;
    assert_eq!(
        (&session["id"], &session["total_calls"]),
        (&json!("a/b c"), &json!(2))
    );
    let calls = session["calls"].as_array().expect("calls");
    assert_eq!(calls[0]["wait_before"], Value::Null);
    assert_eq!(
        (&calls[1]["offset"], &calls[1]["wait_before"]),
        (&json!(10.0), &json!(8.0))
    );
    let phases = calls[1]["phases"].as_array().expect("phases");
    let names: Vec<_> = phases
        .iter()
        .filter_map(|phase| phase["name"].as_str())
        .collect();
    assert_eq!(names, ["connect", "upload", "prefill", "answer", "other"]);
    let last = phases.last().expect("phases");
    assert_eq!(last["end"], 12.0);
    let first = server.json(&format!("{path}?limit=1")).await;
    assert_eq!(first["calls"].as_array().expect("calls").len(), 1);
    let cursor = first["next_cursor"].as_str().expect("another page");
    let second = server
        .json(&format!("{path}?limit=1&cursor={cursor}"))
        .await;
    assert_eq!(second["calls"][0], calls[1]);
    assert_eq!(second["next_cursor"], Value::Null);
    let (status, message) = problem(&server, "/api/v1/sessions/unheard-of").await;
    assert!(
        status == 404 && message.contains("/api/v1/sessions"),
        "{message}"
    );
}

#[tokio::test]
async fn calls_are_grouped_and_laid_out_over_time() {
    let server = Server::start().await;
    chat(&server, 0, "a", "coder/1");
    chat(&server, 90, "b", "chat/1");
    let models = server.json("/api/v1/models").await;
    let model = &models["models"][0];
    assert_eq!(
        (&model["name"], &model["calls"]),
        (&json!("m-1"), &json!(2))
    );
    assert_eq!(
        model["tps"],
        json!({"p50": 40.0, "p10": 40.0, "p5": 40.0, "p1": 40.0, "mean": 40.0, "calls": 2})
    );
    assert_eq!(model["ttft"]["p95"], 0.25);
    assert_eq!(
        model["bands"][3],
        json!({"from": 30.0, "to": 60.0, "calls": 2})
    );
    let workloads = server.json("/api/v1/workloads?agent=chat%2F1").await;
    assert_eq!(workloads["workloads"][0]["name"], Value::Null);
    assert_eq!(workloads["workloads"][0]["calls"], 1);
    // A time before the oldest call in memory has no span.
    let before = server
        .json("/api/v1/groups?since=100000d&until=99999d")
        .await;
    assert_eq!(
        (&before["since"], &before["until"]),
        (&Value::Null, &Value::Null)
    );
    let whole = server.json("/api/v1/groups").await;
    assert_eq!(whole["groups"][0]["tps"]["calls"], 2);
    let models = server.json("/api/v1/models").await;
    let calls = |row: &Value| row["calls"].as_u64().expect("a number");
    let all = models["models"].as_array().expect("rows").iter().map(calls);
    let [row] = whole["groups"].as_array().expect("rows").as_slice() else {
        panic!("everything is one group: {whole}");
    };
    assert_eq!(
        (calls(row), &row["by"]),
        (all.sum(), &serde_json::json!({}))
    );
    let groups = server.json("/api/v1/groups?by=agent,model").await;
    let rows = groups["groups"].as_array().expect("rows");
    assert_eq!(rows.len(), 2);
    assert_eq!(rows[0]["by"], json!({"agent": "chat/1", "model": "m-1"}));
    let series = server.json("/api/v1/timeseries?step=1m&metric=ttft").await;
    assert_eq!(
        (&series["step"], &series["metric"]),
        (&json!(60), &json!("ttft"))
    );
    let points = series["points"].as_array().expect("points");
    assert_eq!(points.len(), 2, "22:13, 22:14");
    assert_eq!(
        (&points[0]["calls"], &points[0]["p50"]),
        (&json!(1), &json!(0.25))
    );
    assert_eq!(
        (&points[1]["calls"], &points[1]["p50"]),
        (&json!(1), &json!(0.25))
    );
}

#[tokio::test]
async fn coverage_says_which_calls_lack_a_figure_and_the_filter_of_calls_finds_them() {
    let server = Server::start().await;
    for second in [0, 10] {
        chat(&server, second, "a", "coder/1");
    }
    let short = begin(&server, 20, "b", "chat/1");
    server.bench.chunk(&*short, 250, words(2));
    server.bench.chunk(&*short, 300, finish(Some(2)) + DONE);
    short.ended(server.bench.at(400), End::Complete);
    let stored = server.bench.begin("/v1/files", &[]);
    server.bench.send(&*stored, b"{}");
    server.bench.answer(&*stored, 200, "application/json");
    stored.ended(server.bench.at(100), End::Complete);
    assert!(server.bench.meter.flush(TIMEOUT));
    let coverage = server.json("/api/v1/coverage").await;
    assert_eq!(coverage["store"], "memory");
    assert_eq!(
        (&coverage["calls"], &coverage["with_cost"]),
        (&json!(3), &json!(0)),
        "{coverage}"
    );
    assert_eq!(coverage["cost_unavailable"], json!({"no_price": 3}));
    assert_eq!(coverage["with_speed"], 2);
    assert_eq!(coverage["tps_unavailable"], json!({"too_few_tokens": 1}));
    assert_eq!(coverage["skipped_events"], 0);
    for (query, calls) in [
        ("cost_unavailable=no_price", 3),
        ("cost_unavailable=no_tokens", 0),
        ("tps_unavailable=too_few_tokens", 1),
        ("tps_unavailable=buffered", 0),
    ] {
        let found = server.json(&format!("/api/v1/calls?{query}")).await;
        let found = found["calls"].as_array().expect("calls");
        assert_eq!(found.len(), calls, "{query}");
    }
    let one = server.json("/api/v1/coverage?agent=chat%2F1").await;
    assert_eq!((&one["calls"], &one["with_speed"]), (&json!(1), &json!(0)));
    let none = server.json("/api/v1/coverage?operation_class=other").await;
    assert_eq!(none["calls"], 0, "a class that does not count");
    for wrong in [
        "coverage?by=model",
        "calls?tps_unavailable=nobody",
        "groups?cost_unavailable=no_price",
    ] {
        let (status, _) = problem(&server, &format!("/api/v1/{wrong}")).await;
        assert_eq!(status, 400, "{wrong}");
    }
}

#[tokio::test]
async fn tokens_and_costs_are_laid_out_over_time_by_what_calls_have_in_common() {
    let server = Server::start().await;
    for (second, agent) in [
        (0, "coder/1"),
        (1, "coder/1"),
        (90, "coder/1"),
        (90, "chat/1"),
        (95, "docs/1"),
    ] {
        chat(&server, second, "a", agent);
    }
    let until = "until=2023-11-14T22:20:00Z";
    let costs = server
        .json(&format!(
            "/api/v1/costs?dimension=agent&step=1m&series=2&{until}"
        ))
        .await;
    assert_eq!(
        (&costs["store"], &costs["step"]),
        (&json!("memory"), &json!(60))
    );
    let series = costs["series"].as_array().expect("series");
    assert_eq!(series.len(), 2);
    assert_eq!(
        (&series[0]["name"], &series[0]["calls"]),
        (&json!("coder/1"), &json!(3))
    );
    assert_eq!(series[0]["tokens"]["output"], 150);
    assert_eq!(
        (&series[0]["cost_usd"], &series[0]["unpriced_calls"]),
        (&Value::Null, &json!(3)),
        "no price is known"
    );
    let points = series[0]["points"].as_array().expect("points");
    let is: Vec<_> = points
        .iter()
        .map(|point| (point["at"].as_str(), point["calls"].as_u64()))
        .collect();
    assert_eq!(
        is,
        [
            (Some("2023-11-14T22:13:00.000Z"), Some(2)),
            (Some("2023-11-14T22:14:00.000Z"), Some(1))
        ]
    );
    let others = &costs["others"];
    assert_eq!(
        (&others["name"], &others["names"], &others["calls"]),
        (&Value::Null, &json!(1), &json!(1))
    );
    let one = server
        .json(&format!("/api/v1/costs?agent=chat%2F1&{until}"))
        .await;
    assert_eq!(
        (&one["series"][0]["name"], &one["others"]),
        (&json!("m-1"), &Value::Null)
    );
    let none = server.json("/api/v1/costs?since=1h").await;
    assert_eq!(none["series"], json!([]), "they began in 2023");
    assert_eq!(one["step"], 60, "of less than half a day");
    chat(&server, 20 * 86_400, "a", "coder/1");
    let days = server
        .json("/api/v1/costs?until=2023-12-05T00:00:00Z")
        .await;
    let points = days["series"][0]["points"].as_array().map(Vec::len);
    assert_eq!((&days["step"], points), (&json!(86_400), Some(2)));
}

#[tokio::test]
async fn a_time_series_counts_calls_by_class_on_request() {
    let server = Server::start().await;
    chat(&server, 0, "a", "coder/1");
    chat(&server, 1, "a", "coder/1");
    chat(&server, 90, "a", "coder/1");
    let series = server
        .json("/api/v1/timeseries?metric=ttft&counts=true")
        .await;
    let bounds: Vec<f64> = serde_json::from_value(series["bounds"].clone()).expect("numbers");
    assert!(
        bounds.len() == 2 && bounds[0] < 0.25 && 0.25 <= bounds[1],
        "{bounds:?}"
    );
    let points = series["points"].as_array().expect("points");
    assert_eq!(
        (&points[0]["counts"], &points[1]["counts"]),
        (&json!([2]), &json!([1]))
    );
    let plain = server.json("/api/v1/timeseries?metric=ttft").await;
    assert_eq!(
        (&plain["bounds"], &plain["points"][0]["counts"]),
        (&Value::Null, &Value::Null)
    );
}

#[tokio::test]
async fn calls_are_a_parquet_file_of_the_same_filters() {
    let server = Server::start().await;
    for (second, agent) in [(0, "slow/1"), (1, "coder/1"), (2, "slow/1")] {
        chat(&server, second, "a", agent);
    }
    let rows = async |query: &str| {
        let stream = TcpStream::connect(server.address).await.expect("connect");
        let path = format!("/api/v1/calls.parquet{query}");
        let (status, head, body) = exchange_bytes(stream, "GET", &path, &[]).await;
        assert_eq!(status, 200, "{head}");
        assert!(
            head.contains("content-type: application/vnd.apache.parquet"),
            "{head}"
        );
        let file = SerializedFileReader::new(Bytes::from(body)).expect("a Parquet file");
        let rows = file.get_row_iter(None).expect("rows");
        let columns = rows.map(|row| {
            let row = row.expect("a row");
            let columns = row.get_column_iter();
            columns
                .map(|(name, value)| (name.clone(), value.to_string()))
                .collect::<BTreeMap<_, _>>()
        });
        columns.collect::<Vec<_>>()
    };
    let all = rows("").await;
    assert_eq!(all.len(), 3);
    assert_eq!(all[1]["agent"], "\"coder/1\"");
    assert_eq!(
        (
            all[0]["ttft_seconds"].as_str(),
            all[0]["concurrency"].as_str()
        ),
        ("0.25", "1")
    );
    assert_eq!(rows("?agent=coder%2F1").await.len(), 1);
    assert_eq!(
        rows("?slo=decoder").await.len(),
        2,
        "those that spent the budget"
    );
    let (status, message) = problem(&server, "/api/v1/calls.parquet?slo=none").await;
    assert!(
        status == 404 && message.starts_with("no [[slo]]"),
        "{message}"
    );
}

#[tokio::test]
async fn calls_are_filtered_and_paged() {
    let server = Server::start().await;
    for second in 0..5 {
        chat(
            &server,
            second,
            "a",
            if second == 3 { "other/1" } else { "coder/1" },
        );
    }
    let mut path = "/api/v1/calls?agent=coder%2F1&limit=3".to_owned();
    let first = server.json(&path).await;
    let cursor = first["next_cursor"].as_str().expect("another page");
    path = format!("{path}&cursor={cursor}");
    let second = server.json(&path).await;
    let started = |page: &Value| {
        let calls = page["calls"].as_array().expect("calls").iter();
        calls
            .map(|call| call["started_at"].to_string())
            .collect::<Vec<_>>()
    };
    let all = [started(&first), started(&second)].concat();
    assert_eq!(all.len(), 4);
    assert!(
        all.is_sorted_by(|one, other| one > other),
        "newest first: {all:?}"
    );
    assert_eq!(second["next_cursor"], Value::Null);
    let none = server.json("/api/v1/calls?since=1h").await;
    assert_eq!(none["calls"], json!([]), "they began in 2023");
    let some = server
        .json("/api/v1/calls?since=2023-11-14T22:13:23Z")
        .await;
    assert_eq!(some["calls"].as_array().expect("calls").len(), 2);
}

fn ids(page: &Value) -> Vec<String> {
    let calls = page["calls"].as_array().expect("calls").iter();
    calls
        .map(|call| call["id"].as_str().expect("an id").to_owned())
        .collect()
}

#[tokio::test]
async fn a_call_has_an_address() {
    let server = Server::start().await;
    chat(&server, 0, "a", "coder/1");
    let listed = server.json("/api/v1/calls").await;
    let id = &ids(&listed)[0];
    let alone = server.json(&format!("/api/v1/calls/{id}")).await;
    assert_eq!(alone["call"], listed["calls"][0]);
    assert_eq!(alone["store"], "memory");
    let phases = alone["phases"].as_array().expect("phases");
    let end = phases.last().expect("a phase")["end"]
        .as_f64()
        .expect("seconds");
    let duration = alone["call"]["seconds"]["duration"]
        .as_f64()
        .expect("seconds");
    assert!(
        phases[0]["start"] == 0.0 && (end - duration).abs() < 1e-9,
        "{alone:#}"
    );
    let unknown = "/api/v1/calls/018bcfe5-6800-7000-8000-000000000000";
    let (status, message) = problem(&server, unknown).await;
    assert!(
        status == 404 && message.contains("no stored call has this id"),
        "{message}"
    );
    let (status, message) = problem(&server, "/api/v1/calls/7").await;
    assert!(
        status == 400 && message.starts_with("id must be"),
        "{message}"
    );
}

#[tokio::test]
async fn calls_are_filtered_by_several_outcomes_and_by_all_that_are_failures() {
    let server = Server::start().await;
    chat(&server, 0, "a", "coder/1");
    for (second, end) in [(1, End::UpstreamReset), (2, End::ClientCancelled)] {
        let call = begin(&server, second, "a", "coder/1");
        server.bench.chunk(&*call, 300, words(8));
        call.ended(server.bench.at(400), end);
    }
    assert!(server.bench.meter.flush(TIMEOUT));
    for (outcome, count) in [
        ("complete", 1),
        ("complete,client_cancelled", 2),
        ("failed", 1),
        ("client_cancelled,failed", 2),
        ("timeout,unreachable", 0),
    ] {
        let page = server
            .json(&format!("/api/v1/calls?outcome={outcome}"))
            .await;
        assert_eq!(ids(&page).len(), count, "{outcome}: {page:#}");
        let sessions = server
            .json(&format!("/api/v1/sessions?outcome={outcome}"))
            .await;
        assert_eq!(sessions["sessions"] != json!([]), count > 0, "{outcome}");
    }
}

#[tokio::test]
async fn calls_that_spent_the_budget_of_an_objective_are_listed_page_by_page() {
    let server = Server::start().await;
    for second in 0..12 {
        // The objective matches agents like SLOW*, ignoring case. Every first token takes 250 ms.
        let agent = if second % 3 == 0 { "slow/1" } else { "other/1" };
        chat(&server, second, "a", agent);
    }
    let mut path = "/api/v1/calls?slo=decoder&limit=3".to_owned();
    let mut found = Vec::new();
    loop {
        let page = server.json(&path).await;
        let calls = page["calls"].as_array().expect("calls");
        assert!(calls.len() <= 3, "{page:#}");
        assert!(
            calls.iter().all(|call| call["agent"] == "slow/1"),
            "{page:#}"
        );
        found.extend(ids(&page));
        let Some(cursor) = page["next_cursor"].as_str() else {
            break;
        };
        path = format!("/api/v1/calls?slo=decoder&limit=3&cursor={cursor}");
    }
    assert!(
        found.len() == 4 && found.is_sorted_by(|one, other| one > other),
        "{found:?}"
    );
    let (status, message) = problem(&server, "/api/v1/calls?slo=none").await;
    assert!(
        status == 404 && message.starts_with("no [[slo]]"),
        "{message}"
    );
    let budget = server.json("/api/v1/slos/decoder/budget").await;
    assert_eq!(
        (&budget["name"], &budget["points"]),
        (&json!("decoder"), &json!([]))
    );
    let (status, message) = problem(&server, "/api/v1/slos/none/budget").await;
    assert!(
        status == 404 && message.contains("no [[slo]] has this name"),
        "{message}"
    );
}

#[tokio::test]
async fn an_invalid_query_is_refused_with_the_parameter_and_the_rule() {
    let server = Server::start().await;
    for (path, said) in [
        ("calls?since=yesterday", "since must be an instant"),
        ("calls?cursor=7", "cursor must be the next_cursor"),
        ("sessions?cursor=x", "cursor must be the next_cursor"),
        (
            "sessions?sort=price",
            "sort must be one of last_at, started_at, cost",
        ),
        ("sessions?order=up", "order must be one of asc, desc"),
        (
            "sessions/a?q=b",
            "unknown parameter; the parameters of the endpoint are limit, cursor",
        ),
        (
            "models?outcome=fine",
            "outcome must be one or more of complete",
        ),
        ("groups?by=", "by must be one or more of model,workload"),
        ("groups?by=model,model", "by must be one or more of"),
        ("timeseries?step=0s", "step must be a duration"),
        ("timeseries?counts=yes", "counts must be one of true, false"),
        (
            "costs?dimension=model,agent",
            "dimension must be one of model",
        ),
        (
            "costs?series=51",
            "series must be a whole number from 1 to 50",
        ),
        (
            "timeseries?limit=3",
            "unknown parameter; the parameters of the endpoint are since",
        ),
        (
            "streams?limit=1001",
            "limit must be a whole number from 1 to 1000",
        ),
        (
            "slos?limit=3",
            "unknown parameter; the endpoint has no parameters",
        ),
    ] {
        let (status, message) = problem(&server, &format!("/api/v1/{path}")).await;
        assert!(status == 400 && message.contains(said), "{path}: {message}");
    }
    let (status, message) = problem(&server, "/api/v1/sessions/%FF").await;
    assert!(
        status == 400 && message.starts_with("id must be"),
        "{message}"
    );
}

#[tokio::test]
async fn capacity_is_observed_by_upstream_with_the_reason_for_a_missing_knee() {
    let server = Server::start().await;
    assert_eq!(
        server.json("/api/v1/capacity").await["upstreams"],
        json!([])
    );
    let call = begin(&server, 0, "a", "coder/1");
    for second in 1..=6 {
        server.bench.chunk(&*call, second * 1000, words(50));
    }
    server.throughput.take(server.bench.tick(20_000));
    let capacity = server.json("/api/v1/capacity?upstream=upstream").await;
    let [upstream] = capacity["upstreams"].as_array().expect("rows").as_slice() else {
        panic!("one upstream: {capacity}");
    };
    assert_eq!(upstream["name"], "upstream");
    let point = &upstream["points"][0];
    assert_eq!(point["concurrency"], 1);
    let seconds = point["seconds"].as_u64().expect("seconds");
    let tps = point["system_tps"].as_f64().expect("tokens");
    // The second before the first token counts. A second that the stream only partly covers does not.
    let near = (39.0..=41.0).contains(&tps);
    assert!(near && (4..=6).contains(&seconds), "{point}");
    let reason = upstream["reason"].as_str().expect("a reason");
    assert!(
        upstream["knee"].is_null() && reason.starts_with("too few"),
        "{reason}"
    );
    let none = server.json("/api/v1/capacity?upstream=other").await;
    assert_eq!(none["upstreams"], json!([]));
}
