//! `tokengauge report` as a process: intervals, their number of calls, differences between rows, and output formats.

use serde_json::Value;
use std::io::Write;
use std::path::Path;
use std::process::Output;
use std::time::{Duration, UNIX_EPOCH};
use tokengauge_accounting::attribution::pseudonym;
use tokengauge_test_support::records::Records;
use tokio::process::Command;

const CALLS: usize = 3_000;

fn call_log() -> tempfile::NamedTempFile {
    let mut log = tempfile::NamedTempFile::new().expect("a file");
    let from = UNIX_EPOCH + Duration::from_secs(1_780_000_000);
    for call in Records::new(from, 500.0).take(CALLS) {
        let line = serde_json::to_string(&call).expect("JSON");
        writeln!(log, "{line}").expect("written");
    }
    log
}

async fn report(log: &Path, options: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tokengauge"));
    command
        .arg("report")
        .arg("--call-log")
        .arg(log)
        .args(options);
    command.output().await.expect("it runs")
}

async fn json(log: &Path, options: &[&str]) -> Value {
    let options = [options, &["--format", "json"]].concat();
    let output = report(log, &options).await;
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

#[tokio::test]
async fn every_figure_has_its_interval_and_the_calls_it_is_of() {
    let log = call_log();
    let document = json(log.path(), &["--by", "upstream"]).await;
    let rows = document["groups"].as_array().expect("rows");
    assert!(rows.len() > 2);
    for row in rows {
        let estimates = row["estimates"].as_object().expect("estimates");
        assert!(estimates.len() >= 14, "{estimates:#?}");
        for (figure, estimate) in estimates {
            let number = |name: &str| estimate[name].as_f64();
            let value = number("value").expect("a value");
            assert!(
                number("lower").is_none_or(|lower| lower <= value),
                "{figure} {estimate}"
            );
            assert!(
                number("upper").is_none_or(|upper| upper >= value),
                "{figure} {estimate}"
            );
            assert!(number("calls") > Some(0.0) && number("sessions") > Some(0.0));
        }
        // Only the row's own figures have intervals.
        let pairs = [
            ("tps_p50", "/tps/p50"),
            ("ttft_p95", "/ttft/p95"),
            ("tps_mean", "/tps/mean"),
        ];
        for (figure, place) in pairs {
            let (own, estimated) = (row.pointer(place), estimates[figure]["value"].as_f64());
            let own = own.and_then(Value::as_f64).expect("a figure");
            assert!(
                (own / estimated.expect("one") - 1.0).abs() < 1e-9,
                "{figure}"
            );
        }
        for (of, judged) in row["judged"].as_object().expect("judged") {
            let without = judged["without"].as_object().expect("reasons").values();
            let without: u64 = without.filter_map(Value::as_u64).sum();
            let calls = judged["calls"].as_u64().expect("a number");
            assert_eq!(judged["of"], row["calls"], "{of}");
            assert_eq!(
                calls + without,
                judged["of"].as_u64().expect("a number"),
                "{judged}"
            );
        }
        assert_eq!(row["judged"]["tps"]["calls"], row["tps"]["calls"]);
    }
    let output = report(log.path(), &["--by", "upstream"]).await;
    let table = String::from_utf8_lossy(&output.stdout).into_owned();
    let judged = &document["judged"]["tps"];
    let said = format!(
        "TPS covers {} of {} calls; the others: ",
        judged["calls"], judged["of"]
    );
    assert!(table.contains(&said), "{said}: {table}");
}

#[tokio::test]
async fn rows_are_compared_with_the_one_that_is_named() {
    let log = call_log();
    let document = json(log.path(), &["--by", "upstream"]).await;
    let most = document["groups"][0]["by"]["upstream"].clone();
    assert_eq!(document["differences"]["baseline"]["upstream"], most);
    let last = document["groups"].as_array().and_then(|rows| rows.last());
    let last = last.expect("a row")["by"]["upstream"]
        .as_str()
        .expect("a name")
        .to_owned();
    let document = json(log.path(), &["--by", "upstream", "--baseline", &last]).await;
    let differences = &document["differences"];
    assert_eq!(differences["baseline"]["upstream"], last.as_str());
    let rows = differences["groups"].as_array().expect("rows");
    let figures = rows.iter().filter_map(|row| row["figures"].as_array());
    let count = figures.map(Vec::len).sum::<usize>() as f64;
    let each = differences["confidence_of_each"].as_f64().expect("a share");
    assert!(
        (each - (1.0 - 0.05 / count)).abs() < 1e-12,
        "{each} of {count}"
    );
    assert!(
        rows.iter()
            .all(|row| row["by"]["upstream"] != last.as_str())
    );
    let other_work = rows.iter().filter_map(|row| row["other_work"].as_array());
    assert!(
        other_work.flatten().count() > 0,
        "upstreams have other work: {differences:#}"
    );

    let output = report(log.path(), &["--by", "upstream", "--baseline", "nobody"]).await;
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success());
    assert!(
        error.contains("no row has this name; the rows are: ") && error.contains(&last),
        "{error}"
    );
}

#[tokio::test]
async fn a_report_states_its_method_and_its_workload() {
    let log = call_log();
    let document = json(log.path(), &[]).await;
    let by = &document["measured_by"];
    assert_eq!(by["version"], env!("CARGO_PKG_VERSION"));
    assert!(by["method_version"].as_u64() >= Some(1) && by["machine"]["cores"].as_u64() >= Some(1));
    for row in document["groups"].as_array().expect("rows") {
        let work = &row["fingerprint"];
        assert_eq!(work["calls"], row["calls"]);
        assert_eq!(work["models"][0], row["by"]["model"]);
        let at = |place: &str| work.pointer(place).and_then(Value::as_u64);
        assert!(at("/input_tokens/p10") <= at("/input_tokens/p90"), "{work}");
        assert!(at("/concurrency/p50") >= Some(1), "{work}");
    }
}

#[tokio::test]
async fn a_page_loads_nothing_and_runs_only_its_own_script() {
    let log = call_log();
    let output = report(log.path(), &["--format", "html"]).await;
    let page = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success() && page.contains("script-src 'sha256-"),
        "{page}"
    );
    assert_eq!(page.matches("<script").count(), 1);
    for outside in ["src=", "href=", "url(", "@import"] {
        assert!(!page.contains(outside), "{outside}");
    }
    assert!(
        page.matches("<small>").count() > 50,
        "intervals are below their figures"
    );
}

#[tokio::test]
async fn users_are_named_from_a_file_that_stays_here() {
    let mut log = tempfile::NamedTempFile::new().expect("a file");
    let from = UNIX_EPOCH + Duration::from_secs(1_780_000_000);
    let users = ["ann@example.com", "u-17", "nobody-knows"];
    for (number, mut call) in Records::new(from, 500.0).take(30).enumerate() {
        call.user = Some(pseudonym(users[number % 3].to_owned(), true));
        writeln!(log, "{}", serde_json::to_string(&call).expect("JSON")).expect("written");
    }
    let mut names = tempfile::NamedTempFile::new().expect("a file");
    writeln!(names, "# ours\nann@example.com\nu-17 = Bob B.").expect("written");
    let file = names.path().to_str().expect("text");
    let document = json(log.path(), &["--by", "user", "--user-names", file]).await;
    let rows = document["groups"].as_array().expect("rows");
    let mut shown: Vec<&str> = rows
        .iter()
        .filter_map(|row| row["by"]["user"].as_str())
        .collect();
    shown.sort_unstable();
    let hash = pseudonym("nobody-knows".to_owned(), true);
    let mut expected = [&*hash, "Bob B.", "ann@example.com"];
    expected.sort_unstable();
    assert_eq!(shown, expected);
    let missing = report(log.path(), &["--user-names", "/nowhere/names"]).await;
    let error = String::from_utf8_lossy(&missing.stderr);
    assert!(
        !missing.status.success() && error.contains("/nowhere/names"),
        "{error}"
    );
}
