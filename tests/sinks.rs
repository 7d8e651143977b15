//! Sinks over the real binary, with warehouses that fail or are unreachable, and with a process that is killed. Each
//! call of the ledger must reach the warehouse exactly once.

use crate::process::{Process, SteppedBackend};
use crate::warehouse::load::{self, Load};
use crate::warehouse::{FakeWarehouse, Fault, columns_of};
use rusqlite::Connection;
use rustix::process::Signal;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokengauge_test_support::TIMEOUT;
use tokengauge_test_support::http_client::{fetch, request_with};

pub struct Fixture {
    pub folder: TempDir,
    upstream: SteppedBackend,
    pub warehouse: FakeWarehouse,
}

impl Fixture {
    pub async fn new() -> Fixture {
        Fixture {
            folder: tempfile::tempdir().expect("a folder"),
            upstream: SteppedBackend::start().await,
            warehouse: FakeWarehouse::start().await,
        }
    }

    pub fn ledger(&self) -> PathBuf {
        self.folder.path().join("state/ledger.sqlite")
    }

    /// A configuration with these keys of the sink; `ledger` enables a ledger.
    pub fn config(&self, ledger: bool, sink: &str) -> PathBuf {
        let state = if ledger {
            format!("state_dir = {:?}\n", self.folder.path().join("state"))
        } else {
            String::new()
        };
        let path = self.folder.path().join("proxy.toml");
        let text = format!(
            "listen = \"127.0.0.1:0\"\n{state}[admin]\nlisten = \"127.0.0.1:0\"\n\
             [[upstream]]\nname = \"engine\"\nurl = \"http://{}\"\n[[route]]\nupstream = \"engine\"\n\
             [[sink]]\nurl = \"http://{}\"\n{sink}\n",
            self.upstream.address, self.warehouse.address,
        );
        std::fs::write(&path, text).expect("written");
        path
    }

    fn s3(&self) -> String {
        let file = |name: &str| {
            let path = self.folder.path().join(name);
            std::fs::write(&path, "secret\n").expect("written");
            path
        };
        format!(
            "kind = \"s3\"\nbucket = \"calls\"\nprefix = \"gauge\"\nregion = \"here\"\n\
             access_key_id_file = {:?}\nsecret_access_key_file = {:?}",
            file("key"),
            file("secret"),
        )
    }

    pub fn ids(&self) -> BTreeSet<String> {
        let connection = Connection::open(self.ledger()).expect("opens");
        let mut statement = connection
            .prepare("SELECT id FROM calls_readable")
            .expect("a view");
        let ids = statement.query_map([], |row| row.get(0)).expect("rows");
        ids.collect::<Result<_, _>>().expect("ids")
    }

    pub async fn stored(&self, calls: usize) {
        self.until(|| self.warehouse.ids().len() >= calls, "calls in the store")
            .await;
    }

    pub async fn until(&self, holds: impl Fn() -> bool, what: &str) {
        let end = Instant::now() + TIMEOUT;
        while !holds() {
            let stored = self.warehouse.ids().len();
            assert!(Instant::now() < end, "no {what}: {stored} are stored");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

/// A sink with long timeouts, so that it does not send again because a busy machine answers late.
pub const CLICKHOUSE: &str =
    "kind = \"clickhouse\"\ntimeout = \"1m\"\nbatch_rows = 10\nbatch_wait = \"100ms\"";

pub async fn calls(process: &Process, count: usize, session: &str) {
    for _ in 0..count {
        let headers = [("x-tokengauge-session", session)];
        let response = request_with(process.addresses()[0], "GET", "/hello", &headers).await;
        assert_eq!(response.status, 200);
    }
}

pub async fn metric(process: &Process, series: &str, least: f64) -> f64 {
    let end = Instant::now() + TIMEOUT;
    loop {
        let found = process.metrics().await.get(series).copied().unwrap_or(-1.0);
        if found >= least {
            return found;
        }
        assert!(Instant::now() < end, "{series} is {found}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

pub async fn recorded(process: &Process, calls: f64) {
    metric(process, "tokengauge_ledger_records_total", calls).await;
}

pub fn lost(metrics: &std::collections::HashMap<String, f64>) -> f64 {
    let lost = metrics.iter();
    lost.filter(|(series, _)| series.starts_with("tokengauge_sink_lost_records_total"))
        .map(|(_, count)| count)
        .sum()
}

pub fn command(arguments: &[&str], config: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tokengauge"));
    let output = command.args(arguments).arg("--config").arg(config).output();
    output.expect("runs")
}

pub fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_fails_in_every_way_has_every_call_once() {
    let fixture = Fixture::new().await;
    let impatient = CLICKHOUSE.replace("1m", "500ms");
    let process = Process::start(&fixture.config(true, &impatient)).await;
    for (at, fault) in [
        Fault::Status(500, "Code: 241. DB::Exception: Memory limit exceeded"),
        Fault::Status(200, "Code: 241. DB::Exception: Memory limit exceeded"),
        Fault::Status(429, "slow down"),
        Fault::Status(404, "Code: 60. DB::Exception: Unknown table"),
        Fault::Reset,
        Fault::StoredThenReset,
        Fault::Silent,
    ]
    .into_iter()
    .enumerate()
    {
        // A kept connection that was closed is replaced at once.
        fixture.warehouse.fault(fault, 2);
        calls(&process, 12, "s").await;
        fixture.stored((at + 1) * 12).await;
    }
    recorded(&process, 84.0).await;
    assert_eq!(fixture.warehouse.ids(), fixture.ids());
    assert_eq!(
        fixture.warehouse.rows(),
        84,
        "a start and an id are one call"
    );
    let metrics = process.metrics().await;
    let failures = |reason: &str| {
        let labels = format!("{{sink=\"clickhouse\",reason=\"{reason}\"}}");
        metrics[&format!("tokengauge_sink_failures_total{labels}")]
    };
    for reason in [
        "unavailable",
        "throttled",
        "denied",
        "unreachable",
        "timeout",
    ] {
        assert!(failures(reason) >= 1.0, "{reason}: {metrics:?}");
    }
    assert_eq!(failures("refused") + lost(&metrics), 0.0);
    let end = Instant::now() + TIMEOUT;
    let sink = loop {
        let body = fetch(process.admin, "/api/v1/sinks").await.body;
        let status: Value = serde_json::from_str(&body).expect("JSON");
        let sink = status["sinks"][0].clone();
        if sink["rows"] == 84 && sink["waiting"] == 0 {
            break sink;
        }
        assert!(Instant::now() < end, "{sink:#}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert_eq!((&sink["lost"], &sink["error"]), (&0.into(), &Value::Null));
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_that_wait_for_an_unreachable_store_follow_in_batches_without_a_pause() {
    let fixture = Fixture::new().await;
    let process = Process::start(&fixture.config(true, CLICKHOUSE)).await;
    fixture.warehouse.fault(Fault::Reset, usize::MAX);
    calls(&process, 205, "s").await;
    recorded(&process, 205.0).await;
    metric(
        &process,
        "tokengauge_sink_waiting_records{sink=\"clickhouse\"}",
        205.0,
    )
    .await;
    process.line("calls wait for the store").await;
    assert_eq!(fixture.warehouse.rows(), 0);
    fixture.warehouse.fault(Fault::Reset, 0);
    fixture.stored(205).await;
    assert_eq!(fixture.warehouse.ids(), fixture.ids());
    // Time between the first two requests of a batch comes from the ledger, not from a timer.
    let taken = fixture.warehouse.taken();
    assert!(taken.len() >= 21, "batches of ten: {taken:?}");
    let full = taken.iter().filter(|batch| batch.rows == 10).count();
    assert!(full >= 19, "{taken:?}");
    process.line("the store accepts calls again").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_the_store_refuses_is_named_and_left_out() {
    let fixture = Fixture::new().await;
    fixture.warehouse.refuse("poisoned");
    fixture.warehouse.fault(Fault::Reset, usize::MAX);
    let process = Process::start(&fixture.config(true, CLICKHOUSE)).await;
    calls(&process, 4, "sound").await;
    calls(&process, 1, "poisoned").await;
    calls(&process, 4, "sound").await;
    recorded(&process, 9.0).await;
    fixture.warehouse.fault(Fault::Reset, 0);
    fixture.stored(8).await;
    let refused = "tokengauge_sink_lost_records_total{sink=\"clickhouse\",reason=\"refused\"}";
    assert_eq!(metric(&process, refused, 1.0).await, 1.0);
    let line = process.line("the store refuses this call").await;
    let missing: Vec<_> = fixture
        .ids()
        .difference(&fixture.warehouse.ids())
        .cloned()
        .collect();
    assert_eq!(missing.len(), 1);
    assert!(line.contains(&missing[0]), "{line}");
    // Later calls are not delayed.
    calls(&process, 2, "sound").await;
    fixture.stored(10).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_process_sends_the_same_batch_again_and_s3_has_no_call_twice() {
    let fixture = Fixture::new().await;
    let sink = format!(
        "{}\nbatch_rows = 7\nbatch_wait = \"50ms\"\ntimeout = \"2s\"",
        fixture.s3()
    );
    let config = fixture.config(true, &sink);
    let mut sent = 0.0;
    for round in 0..3 {
        let process = Process::start(&config).await;
        // Calls that the previous process had sent are sent again, and the warehouse recognises them.
        fixture.stored(20 * round).await;
        // The warehouse stores the file, but does not confirm it.
        fixture.warehouse.fault(Fault::StoredThenSilent, usize::MAX);
        calls(&process, 20, "s").await;
        sent += 20.0;
        recorded(&process, 20.0).await;
        let file = || fixture.warehouse.rows() > 20 * round;
        fixture.until(file, "file").await;
        process.signal(Signal::KILL);
        assert!(!process.ended().await.success());
        fixture.warehouse.fault(Fault::Reset, 0);
    }
    let process = Process::start(&config).await;
    fixture.stored(sent as usize).await;
    metric(&process, "tokengauge_sink_lag_seconds{sink=\"s3\"}", 0.0).await;
    assert_eq!(fixture.warehouse.ids(), fixture.ids());
    assert_eq!(fixture.warehouse.rows(), 60, "no call is in two files");
    for name in fixture.warehouse.names() {
        let parts: Vec<_> = name.trim_start_matches('/').split('/').collect();
        assert_eq!(parts[..2], ["calls", "gauge"], "{name}");
        assert!(
            parts[2].starts_with("day=20") && parts[3].starts_with("hour="),
            "{name}"
        );
        assert!(
            parts[4].ends_with(".parquet") && parts[4].len() == 36 * 2 + 1 + 8,
            "{name}"
        );
    }
    let columns = columns_of(&fixture.warehouse);
    assert_eq!(
        columns[..6],
        [
            "schema_version",
            "cluster",
            "namespace",
            "pod",
            "instance",
            "id"
        ]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_ledger_calls_wait_in_memory_and_go_out_before_the_end() {
    let fixture = Fixture::new().await;
    let sink = "kind = \"clickhouse\"\nbatch_rows = 1000\nbatch_wait = \"1h\"\nqueue = 30";
    let process = Process::start(&fixture.config(false, sink)).await;
    calls(&process, 40, "s").await;
    let queue = "tokengauge_sink_lost_records_total{sink=\"clickhouse\",reason=\"queue\"}";
    assert_eq!(metric(&process, queue, 10.0).await, 10.0);
    assert_eq!(fixture.warehouse.rows(), 0, "nothing is due");
    process.signal(Signal::TERM);
    assert!(process.ended().await.success());
    assert_eq!(fixture.warehouse.rows(), 30);
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_that_wait_in_the_ledger_are_sent_at_the_end_or_after_the_next_start() {
    let fixture = Fixture::new().await;
    let sink = "kind = \"clickhouse\"\nbatch_wait = \"1h\"\ntimeout = \"1s\"";
    let config = fixture.config(true, sink);
    let process = Process::start(&config).await;
    calls(&process, 5, "s").await;
    process.signal(Signal::TERM);
    assert!(process.ended().await.success());
    assert_eq!(fixture.warehouse.rows(), 5, "it is flushed, then sent");
    let process = Process::start(&config).await;
    calls(&process, 5, "s").await;
    fixture.warehouse.fault(Fault::Reset, usize::MAX);
    process.signal(Signal::TERM);
    assert!(process.ended().await.success());
    assert_eq!(fixture.warehouse.rows(), 5);
    fixture.warehouse.fault(Fault::Reset, 0);
    // A batch that was in flight is sent at once.
    let process = Process::start(&config).await;
    fixture.stored(10).await;
    assert_eq!(fixture.warehouse.ids(), fixture.ids());
    drop(process);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_report_of_a_store_equals_one_of_a_ledger_with_the_same_calls() {
    let fixture = Fixture::new().await;
    let config = fixture.config(true, CLICKHOUSE);
    let process = Process::start(&config).await;
    calls(&process, 6, "one").await;
    calls(&process, 5, "two").await;
    fixture.stored(11).await;
    process.signal(Signal::TERM);
    assert!(process.ended().await.success());
    let (ledger, url) = (
        fixture.ledger(),
        format!("http://{}/default", fixture.warehouse.address),
    );
    for arguments in [
        &["export", "--format", "jsonl", "--since", "1h"][..],
        &["export", "--format", "csv", "--since", "1h"],
    ] {
        let of = |source: [&str; 2]| command(&[arguments, &source].concat(), &config);
        let (expected, found) = (
            of(["--ledger", ledger.to_str().expect("UTF-8")]),
            of(["--store", &url]),
        );
        assert!(found.status.success(), "{}", text(&found));
        assert!(!expected.stdout.is_empty());
        let lines = |output: &Output| {
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            // Only a warehouse knows which pod measured a call.
            let lines = text.lines().map(|line| match line.split_once(",\"pod\":") {
                Some((line, _)) => format!("{line}}}"),
                None => line.to_owned(),
            });
            lines.collect::<BTreeSet<_>>()
        };
        assert_eq!(lines(&found), lines(&expected));
    }
    fixture.warehouse.fault(
        Fault::Status(403, "Code: 516. DB::Exception: Authentication failed"),
        1,
    );
    let refused = command(
        &[
            "export", "--format", "csv", "--since", "1h", "--store", &url,
        ],
        &config,
    );
    assert!(!refused.status.success());
    assert!(
        text(&refused).contains("check user, password"),
        "{}",
        text(&refused)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_of_before_there_was_a_sink_are_replayed() {
    let fixture = Fixture::new().await;
    let config = fixture.config(true, CLICKHOUSE);
    let without = std::fs::read_to_string(&config).expect("read");
    let without = without.split("[[sink]]").next().expect("a part").to_owned();
    std::fs::write(&config, without).expect("written");
    let process = Process::start(&config).await;
    calls(&process, 25, "s").await;
    process.signal(Signal::TERM);
    assert!(process.ended().await.success());
    let config = fixture.config(true, CLICKHOUSE);
    let done = command(&["export", "sink", "replay", "--since", "1h"], &config);
    assert!(
        text(&done).contains("25 calls sent, 0 refused"),
        "{}",
        text(&done)
    );
    assert_eq!(fixture.warehouse.ids(), fixture.ids());
    let ddl = command(&["export", "sink", "ddl"], &config);
    let statement = text(&ddl);
    assert!(
        statement.starts_with("CREATE TABLE IF NOT EXISTS `default`.`tokengauge_calls` ("),
        "{statement}"
    );
    assert!(
        statement.contains("PARTITION BY toDate(started_at)"),
        "{statement}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_does_not_answer_delays_no_call() {
    let fixture = Fixture::new().await;
    fixture.warehouse.fault(Fault::Silent, usize::MAX);
    let sink = "kind = \"clickhouse\"\ntimeout = \"5m\"\nbatch_rows = 1\nbatch_wait = \"10ms\"";
    let process = Process::start(&fixture.config(true, sink)).await;
    calls(&process, 100, "s").await;
    recorded(&process, 100.0).await;
    process.signal(Signal::TERM);
    assert!(process.ended().await.success(), "it ends within its grace");
}

/// Calls per second of some hundred pods together.
const RATE: usize = 5_000;

/// The warehouse is unreachable for half of the time. tests/real/test_sink_load.py uses real warehouses for longer.
#[tokio::test(flavor = "multi_thread")]
async fn five_thousand_calls_a_second_through_an_outage_are_all_stored_once() {
    let seconds = 4;
    let warehouse = FakeWarehouse::start().await;
    let folder = tempfile::tempdir().expect("a folder");
    let load = Load::start(
        folder.path(),
        vec![load::clickhouse(&format!("http://{}", warehouse.address))],
    );
    let (began, cpu) = (Instant::now(), load::cpu());
    let mut longest = Duration::ZERO;
    for second in 0..seconds {
        let away = (seconds / 4..seconds * 3 / 4).contains(&second);
        warehouse.fault(Fault::Reset, if away { usize::MAX } else { 0 });
        longest = longest.max(load.second(RATE, began + Duration::from_secs(second as u64)));
    }
    let generated = began.elapsed();
    let behind = load.sinks.statuses()[0].waiting;
    // The sink gets only the CPU time that calls leave.
    let end = Instant::now() + 2 * TIMEOUT;
    while warehouse.rows() < seconds * RATE {
        assert!(Instant::now() < end, "{} are stored", warehouse.rows());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let drained = began.elapsed() - generated;
    println!(
        "{} calls in {generated:?}, {:.0} ms of CPU a thousand; {behind} waited at the end, gone after {drained:?}; \
         a finished call took {longest:?} at most to hand over",
        load.written(),
        (load::cpu() - cpu).as_secs_f64() * 1e6 / load.written() as f64,
    );
    // Calls that exceeded the ledger's capacity were sent from memory.
    assert_eq!(warehouse.rows(), seconds * RATE, "no call twice, none lost");
    assert_eq!(load.written() + load.lost() as usize, seconds * RATE);
    assert_eq!(load.sinks.statuses()[0].lost, 0);
    assert!(load.sinks.finish(TIMEOUT));
}
