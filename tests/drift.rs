//! Drift over the real binary: ledgers of calls whose prompts doubled at a known hour, or did not.

use crate::process::Process;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::{Duration, Instant, SystemTime};
use tempfile::TempDir;
use tokengauge_config::Config;
use tokengauge_core::call::CallRecord;
use tokengauge_drift::{MAX_SERIES, Settings, evaluate};
use tokengauge_store::ledger::{LedgerCall, LedgerDatabase, Reader};
use tokengauge_store::stored_calls::StoredCalls;
use tokengauge_test_support::TIMEOUT;
use tokengauge_test_support::http_client::fetch;
use tokengauge_test_support::records::Records;
use tokio::process::Command;

const HOUR: Duration = Duration::from_secs(3_600);
/// Prompts doubled this many hours before the last hour.
const DOUBLED: u32 = 14;
const ROUTES: &str = "[[upstream]]\nname = \"engine\"\nurl = \"http://127.0.0.1:9\"\n\
                      [[route]]\nupstream = \"engine\"\n[[workload]]\nname = \"chat\"\nroute = \"engine\"\n";

struct Folder(TempDir);

impl Folder {
    fn new() -> Folder {
        Folder(tempfile::tempdir().expect("a folder"))
    }

    fn ledger(&self) -> PathBuf {
        self.0.path().join("ledger.sqlite")
    }

    fn config(&self, drift: &str) -> PathBuf {
        let path = self.0.path().join("proxy.toml");
        let text = format!(
            "listen = \"127.0.0.1:0\"\n[admin]\nlisten = \"127.0.0.1:0\"\n[ledger]\npath = {:?}\n{ROUTES}{drift}",
            self.ledger()
        );
        std::fs::write(&path, text).expect("written");
        path
    }

    /// Writes calls of the last `hours` hours, 40 an hour. Prompts since `doubled` are twice as long.
    fn write(&self, hours: u32, doubled: SystemTime) {
        self.write_calls(hours, 90_000.0, |place, call| {
            let started = call.started_at.time();
            let tokens = 800 + 100 * (place as u64 % 7);
            let tokens = if started < doubled {
                tokens
            } else {
                2 * tokens
            };
            call.tokens.reported.input = Some(tokens);
            call.model = Some("m|1".to_owned());
            call.tokens.reported.cached_input = Some(100 * (place as u64 % 3));
            call.tokens.reported.output = Some(300 + 10 * (place as u64 % 11));
            call.tokens.normalised.answer = Some(300 + 10 * (place as u64 % 11));
            call.tps.output = call.tps.output.map(|_| 50.0 + (place % 5) as f64);
            call.seconds.ttft = Some(0.25 + 0.01 * (place % 5) as f64);
        });
    }

    /// Writes calls of the last `hours` hours, one every `every_ms`, each changed by `change`.
    fn write_calls(&self, hours: u32, every_ms: f64, change: impl Fn(usize, &mut CallRecord)) {
        let now = SystemTime::now();
        let before = |call: &CallRecord| call.started_at.time() < now;
        let calls: Vec<CallRecord> = Records::new(now - HOUR * hours, every_ms)
            .take_while(before)
            .enumerate()
            .map(|(place, mut call)| {
                call.route = "engine".to_owned();
                call.workload = Some("chat".to_owned());
                change(place, &mut call);
                call
            })
            .collect();
        let mut ledger = LedgerDatabase::open(&self.ledger()).expect("opens");
        for batch in calls.chunks(2_000) {
            let batch: Vec<_> = batch
                .iter()
                .filter_map(|call| LedgerCall::of_record(call, Some(3)))
                .collect();
            ledger.write(&batch).expect("written");
        }
    }

    async fn drift(&self, more: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tokengauge"));
        command.arg("drift").args(more).current_dir(self.0.path());
        let output = tokio::time::timeout(TIMEOUT, command.output()).await;
        output.expect("in time").expect("it runs")
    }

    async fn of_ledger(&self, more: &[&str]) -> Output {
        let ledger = self.ledger();
        let ledger = ledger.to_str().expect("text");
        self.drift(&[&["--ledger", ledger], more].concat()).await
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("text")
}

#[tokio::test(flavor = "multi_thread")]
async fn prompts_that_doubled_are_found_by_command_and_proxy() {
    let folder = Folder::new();
    let doubled = SystemTime::now() - HOUR * DOUBLED;
    folder.write(28 * 24 + 20, doubled);
    let said = folder.of_ledger(&[]).await;
    let page = text(&said.stdout);
    assert_eq!(said.status.code(), Some(3), "{page}{}", text(&said.stderr));
    assert!(page.starts_with("all: drifted\n"), "{page}");
    assert!(page.contains("\nm|1 · engine · chat\n"), "{page}");
    assert!(page.contains("SIGNAL") && !page.contains("|---"), "{page}");
    assert!(page.contains("Prompts about doubled (mean 1"), "{page}");
    assert!(page.contains("TTFT is unchanged"), "{page}");
    let markdown = folder.of_ledger(&["--format", "markdown"]).await;
    let markdown = text(&markdown.stdout);
    assert!(markdown.starts_with("# all: drifted\n"), "{markdown}");
    assert!(markdown.contains("## m\\|1 · engine · chat"), "{markdown}");
    assert!(markdown.contains("| signal | class |"), "{markdown}");
    let before = folder.of_ledger(&["--at", "15h", "--format", "json"]).await;
    assert_eq!(before.status.code(), Some(0), "{}", text(&before.stdout));
    let before: Value = serde_json::from_slice(&before.stdout).expect("JSON");
    assert_eq!(before["drifts"][0]["state"], "stable", "{before}");

    let config = folder.config("[[drift]]\nname = \"prompts\"\nselect.route = \"engine\"\n");
    let process = Process::start(&config).await;
    let (response, metrics) = evaluated(&process).await;
    let entry = &response["drifts"][0];
    assert_eq!(
        (&entry["name"], &entry["state"]),
        (&"prompts".into(), &"drifted".into())
    );
    let distance = "tokengauge_drift_distance_ratio{drift=\"prompts\",signal=\"input_tokens\"}";
    assert!(metrics[distance] > 1.0, "{metrics:?}");
    let state = |state| {
        format!(
            "tokengauge_drift_series{{drift=\"prompts\",signal=\"input_tokens\",state=\"{state}\"}}"
        )
    };
    assert_eq!(
        (metrics[&state("drifted")], metrics[&state("stable")]),
        (1.0, 0.0)
    );
    assert!(metrics["tokengauge_drift_evaluation_seconds"] < 20.0);
    let admin = process.admin.to_string();
    let asked = folder.drift(&["--admin", &admin, "prompts"]).await;
    assert_eq!(asked.status.code(), Some(3), "{}", text(&asked.stderr));
    let unknown = folder.drift(&["--admin", &admin, "others"]).await;
    assert_eq!(unknown.status.code(), Some(1));

    one_mark(&process, doubled).await;
    // A second `[[drift]]` finds the existing change, which has its mark already.
    folder.config("[[drift]]\nname = \"again\"\n");
    process.has_reloaded("applied", 1.0).await;
    let again = async {
        while evaluated(&process).await.0["drifts"][0]["name"] != "again" {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, again)
        .await
        .expect("evaluated");
    one_mark(&process, doubled).await;

    // A reload without the `[[drift]]` removes its series.
    folder.config("");
    process.has_reloaded("applied", 2.0).await;
    let gone = async {
        while process.metrics().await.contains_key(distance) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, gone)
        .await
        .expect("forgotten");
}

/// A route whose model was replaced five hours ago by one without a reference.
#[tokio::test(flavor = "multi_thread")]
async fn a_model_that_replaced_another_one_is_said_to_have() {
    let folder = Folder::new();
    let came = SystemTime::now() - HOUR * 5;
    folder.write_calls(28 * 24, 90_000.0, |place, call| {
        let started = call.started_at.time();
        let model = if started < came { "m-1" } else { "m-2" };
        call.model = Some(model.to_owned());
        call.session = Some(format!("session {}", place / 10));
    });
    let said = folder.of_ledger(&[]).await;
    let page = text(&said.stdout);
    assert_eq!(said.status.code(), Some(3), "{page}{}", text(&said.stderr));
    let sentence = "Model replaced: m-2 answers instead of m-1 since ";
    assert!(page.contains(sentence), "{page}");
    let before = folder.of_ledger(&["--at", "6h"]).await;
    assert!(!text(&before.stdout).contains("Model replaced"));

    let config = folder.config("[[drift]]\nname = \"all\"\n");
    let process = Process::start(&config).await;
    let (response, metrics) = evaluated(&process).await;
    let replaced = &response["drifts"][0]["series"][0]["replaced"];
    assert_eq!(replaced["model"], "m-1", "{response:#}");
    let series = "tokengauge_drift_series{drift=\"all\",signal=\"model\",state=\"drifted\"}";
    assert_eq!(metrics[series], 1.0);
}

/// A backend that became slower three hours ago, which hourly data cannot date yet.
#[tokio::test(flavor = "multi_thread")]
async fn a_slow_backend_is_dated_to_five_minutes_within_hours() {
    let folder = Folder::new();
    let slower = SystemTime::now() - HOUR * 3;
    let speed = |place: usize, call: &mut CallRecord| {
        let started = call.started_at.time();
        let level = if started < slower { 50.0 } else { 35.0 };
        call.model = Some("m".to_owned());
        call.tps.output = Some(level * (1.0 + (place * 7_919 % 101) as f64 / 1_010.0));
        call.seconds.ttft = Some(0.25 + 0.01 * (place % 5) as f64);
        call.warm_up = false;
    };
    folder.write_calls(28 * 24, 90_000.0, speed);
    // Dating needs ten calls in five minutes, so the last day has more calls.
    folder.write_calls(24, 20_000.0, speed);
    let config = folder.config("[[drift]]\nname = \"all\"\n");
    let process = Process::start(&config).await;
    let (body, _) = evaluated(&process).await;
    let points = body["drifts"][0]["series"][0]["change_points"].as_array();
    let points = points.expect("change points").iter();
    let points: Vec<_> = points.filter(|point| point["signal"] == "tps").collect();
    assert_eq!(points.len(), 1, "{body:#}");
    assert_eq!(points[0]["step_seconds"], 300);
    let instant = |value: &Value| {
        humantime::parse_rfc3339(value.as_str().expect("an instant")).expect("an instant")
    };
    let off = |at: SystemTime| {
        at.duration_since(slower)
            .unwrap_or_else(|before| before.duration())
    };
    assert!(
        off(instant(&points[0]["at"])) <= Duration::from_secs(600),
        "{points:?}"
    );
    let change = points[0]["change"].as_f64().expect("a share");
    assert!((-0.35..-0.25).contains(&change), "{change}");
    let response = fetch(process.admin, "/api/v1/marks?kind=drift").await;
    let marks: Value = serde_json::from_str(&response.body).expect("JSON");
    let marks = marks["marks"].as_array().expect("marks").iter();
    let marks: Vec<_> = marks.filter(|mark| mark["tags"][0] == "tps").collect();
    assert_eq!(marks.len(), 1, "{marks:?}");
    assert_eq!(instant(&marks[0]["time"]), instant(&points[0]["at"]));
}

async fn one_mark(process: &Process, doubled: SystemTime) {
    let response = fetch(process.admin, "/api/v1/marks?kind=drift").await;
    let body: Value = serde_json::from_str(&response.body).expect("JSON");
    let marks = body["marks"].as_array().expect("marks").iter();
    let marks: Vec<_> = marks
        .filter(|mark| mark["tags"][0] == "input_tokens")
        .collect();
    assert_eq!(marks.len(), 1, "{body:#}");
    let mark = marks[0];
    assert_eq!(
        (&mark["model"], &mark["route"], &mark["workload"]),
        (&"m|1".into(), &"engine".into(), &"chat".into())
    );
    let text = mark["text"].as_str().expect("a text");
    assert!(
        text.starts_with("prompts rose by ") && text.ends_with(" tokens)"),
        "{text}"
    );
    let at =
        humantime::parse_rfc3339(mark["time"].as_str().expect("an instant")).expect("an instant");
    let off = at
        .duration_since(doubled)
        .unwrap_or_else(|before| before.duration());
    assert!(off <= 2 * HOUR, "{off:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn more_series_than_are_evaluated_are_counted() {
    let folder = Folder::new();
    folder.write_calls(672, 150_000.0, |place, call| {
        call.model = Some(format!("m{}", place % 24));
    });
    let began = Instant::now();
    let said = folder.of_ledger(&["--format", "json"]).await;
    let took = began.elapsed();
    println!("24 series over 28 days: {took:?}");
    assert!(took < Duration::from_secs(20), "{took:?}");
    let response: Value = serde_json::from_slice(&said.stdout).expect("JSON");
    let entry = &response["drifts"][0];
    let evaluated = entry["series"].as_array().map_or(0, Vec::len);
    assert_eq!(
        (evaluated, &entry["series_left_out"]),
        (MAX_SERIES, &4.into())
    );

    let calls = StoredCalls::from(Reader::new(&folder.ledger(), Instant::now));
    let none =
        evaluate(&calls, &Settings::new("all"), SystemTime::now(), &|| false).expect("an answer");
    assert_eq!((none.series.len(), none.series_left_out), (0, 24));
}

/// Waits for an evaluation, and returns the API's answer and the metrics after it.
async fn evaluated(process: &Process) -> (Value, std::collections::HashMap<String, f64>) {
    let asked = async {
        loop {
            let response = fetch(process.admin, "/api/v1/drift").await;
            assert_eq!(response.status, 200, "{}", response.body);
            let body: Value = serde_json::from_str(&response.body).expect("JSON");
            if body["evaluated_at"].is_string() {
                return body;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let body = tokio::time::timeout(TIMEOUT, asked).await.expect("in time");
    (body, process.metrics().await)
}

#[tokio::test]
async fn little_and_nothing_are_learning_and_no_ledger_is_an_error() {
    let folder = Folder::new();
    let none = folder.of_ledger(&[]).await;
    assert_eq!(none.status.code(), Some(1));
    assert!(
        text(&none.stderr).contains("cannot be read"),
        "{}",
        text(&none.stderr)
    );
    drop(LedgerDatabase::open(&folder.ledger()).expect("opens"));
    let empty = folder.of_ledger(&[]).await;
    assert_eq!(empty.status.code(), Some(0), "{}", text(&empty.stderr));
    assert!(text(&empty.stdout).contains("all: learning"));
    folder.write(48, SystemTime::UNIX_EPOCH);
    let little = folder.of_ledger(&[]).await;
    assert_eq!(little.status.code(), Some(0));
    let page = text(&little.stdout);
    assert!(
        page.contains(
            "Whether a signal has drifted is not known yet: two weeks of the reference must have calls in the same hours of \
             the week"
        ),
        "{page}"
    );
}

#[tokio::test]
async fn a_ledger_of_an_older_version_is_refused_with_what_to_do() {
    let folder = Folder::new();
    let fixture =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/ledger/version-4.sqlite");
    std::fs::copy(fixture, folder.ledger()).expect("a copy");
    let said = folder.of_ledger(&[]).await;
    assert_eq!(said.status.code(), Some(1));
    assert!(
        text(&said.stderr).contains("to upgrade it"),
        "{}",
        text(&said.stderr)
    );
}

fn refused(drift: &str) -> String {
    let text = format!("[ledger]\npath = \"/ledger\"\n{ROUTES}[[drift]]\n{drift}");
    match Config::parse(&text, "c") {
        Ok(_) => String::new(),
        Err(invalid) => invalid.to_string(),
    }
}

#[test]
fn bad_input_is_refused_with_the_reason() {
    for (drift, reason) in [
        ("name = \"a\"", ""),
        (
            "name = \"a\"\nselect = { model = \"m*\", route = \"engine\", workload = \"chat\" }",
            "",
        ),
        ("name = \"a\"\nreference = \"2d\"\nseason = \"day\"", ""),
        ("select.model = \"m\"", "missing field `name`"),
        (
            "name = \"a\"\nselect.route = \"x\"",
            "there is no route named `x`",
        ),
        (
            "name = \"a\"\nselect.workload = \"x\"",
            "there is no [[workload]] named `x`",
        ),
        (
            "name = \"a\"\nreference = \"2h\"\nseason = \"none\"",
            "must not be shorter than the current window (6h)",
        ),
        (
            "name = \"a\"\nreference = \"8d\"",
            "the season `week` needs a reference of at least 14days",
        ),
        (
            "name = \"a\"\nreference = \"1d\"\nseason = \"day\"",
            "needs a reference of at least 2days",
        ),
        (
            "name = \"a\"\nreference = \"60d\"",
            "raise `retention_age` in [ledger]",
        ),
        ("name = \"a\"\ncurrent = \"90m\"", "must be whole hours"),
        ("name = \"a\"\ncurrent = \"0s\"", "current: must be"),
        (
            "name = \"a\"\ndistance = 0",
            "distance: must be a number above 0: at 0 everything is drift",
        ),
        (
            "name = \"a\"\nmin_change = -1",
            "min_change: must be a number above 0",
        ),
        (
            "name = \"a\"\noutcome_share = 2",
            "a share above 0 and at most 1",
        ),
        ("name = \"a\"\nseason = \"month\"", "season"),
        (
            "name = \"a\"\n[[drift]]\nname = \"a\"",
            "there are two [[drift]] named `a`",
        ),
    ] {
        let said = refused(drift);
        match reason {
            "" => assert_eq!(said, "", "{drift}"),
            reason => assert!(said.contains(reason), "{drift}: {said}"),
        }
    }
    let without = format!("{ROUTES}[[drift]]\nname = \"a\"\n");
    let said = Config::parse(&without, "c")
        .expect_err("refused")
        .to_string();
    assert!(said.contains("needs a ledger: set `state_dir`"), "{said}");
}
