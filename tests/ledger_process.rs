//! The ledger of the real binary: killed under load, and read as files for analysis.

use crate::ledger_retention::tidy;
use crate::process::{Process, SteppedBackend};
use parking_lot::Mutex;
use rusqlite::Connection;
use rustix::process::Signal;
use serde_json::Value;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};
use tempfile::TempDir;
use tokengauge_core::call::CallRecord;
use tokengauge_store::ledger::{COMMIT_WITHIN, LedgerCall, LedgerDatabase, Limits};
use tokengauge_test_support::TIMEOUT;
use tokengauge_test_support::http_client::{fetch, request_with};
use tokengauge_test_support::records::Records;

struct LedgerFixture {
    folder: TempDir,
    upstream: SteppedBackend,
}

impl LedgerFixture {
    async fn new() -> LedgerFixture {
        LedgerFixture {
            folder: tempfile::tempdir().expect("a folder"),
            upstream: SteppedBackend::start().await,
        }
    }

    fn ledger(&self) -> PathBuf {
        self.folder.path().join("state/ledger.sqlite")
    }

    fn config(&self) -> PathBuf {
        let path = self.folder.path().join("proxy.toml");
        let text = format!(
            "listen = \"127.0.0.1:0\"\nstate_dir = {:?}\n[admin]\nlisten = \"127.0.0.1:0\"\n\
             [[upstream]]\nname = \"engine\"\nurl = \"http://{}\"\n\
             [[route]]\nupstream = \"engine\"\nworkload = \"chat\"\n",
            self.folder.path().join("state"),
            self.upstream.address,
        );
        std::fs::write(&path, text).expect("written");
        path
    }

    fn sessions(&self) -> BTreeSet<String> {
        let connection = Connection::open(self.ledger()).expect("opens");
        let sql = "SELECT DISTINCT session FROM calls_readable WHERE session IS NOT NULL";
        let mut statement = connection.prepare(sql).expect("a query");
        let sessions = statement.query_map([], |row| row.get(0)).expect("rows");
        sessions.collect::<Result<_, _>>().expect("names")
    }

    fn number(&self, sql: &str) -> u64 {
        let connection = Connection::open(self.ledger()).expect("opens");
        let number: i64 = connection
            .query_row(sql, [], |row| row.get(0))
            .expect("a number");
        number as u64
    }
}

async fn call(address: SocketAddr, session: &str) -> u16 {
    let headers = [("x-tokengauge-session", session)];
    request_with(address, "GET", "/hello", &headers)
        .await
        .status
}

async fn kept(process: &Process) -> u64 {
    process.metrics().await["tokengauge_ledger_records_total"] as u64
}

async fn has_kept(process: &Process, records: u64) -> u64 {
    let end = Instant::now() + TIMEOUT;
    loop {
        let now = kept(process).await;
        if now >= records {
            return now;
        }
        assert!(Instant::now() < end, "only {now} of {records}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_under_load_keeps_every_record_of_the_last_batch() {
    let fixture = LedgerFixture::new().await;
    let mut before = 0;
    for round in 1..=3 {
        let process = Process::start(&fixture.config()).await;
        let address = process.addresses()[0];
        let sent = Arc::new(AtomicU64::new(0));
        let answered: Arc<Mutex<Vec<(String, Instant)>>> = Arc::default();
        let load: Vec<_> = (0..8)
            .map(|_| {
                let (sent, answered) = (Arc::clone(&sent), Arc::clone(&answered));
                tokio::spawn(async move {
                    loop {
                        let number = sent.fetch_add(1, Ordering::Relaxed);
                        let session = format!("{round}-{number}");
                        call(address, &session).await;
                        answered.lock().push((session, Instant::now()));
                    }
                })
            })
            .collect();
        let acknowledged = has_kept(&process, 150 * round).await;
        process.signal(Signal::KILL);
        let killed = Instant::now();
        assert!(!process.ended().await.success());
        load.iter().for_each(tokio::task::JoinHandle::abort);
        let sessions = fixture.sessions();
        let answered = answered.lock();
        let missing = answered
            .iter()
            .filter(|(session, _)| !sessions.contains(session));
        let oldest = missing
            .map(|(_, at)| killed.saturating_duration_since(*at))
            .max();
        // A busy machine may schedule a thread late.
        let bound = 2 * COMMIT_WITHIN;
        assert!(
            oldest < Some(bound),
            "a call that ended {oldest:?} before the kill is lost"
        );
        let calls = fixture.number("SELECT count(*) FROM calls");
        assert!(
            calls >= before + acknowledged,
            "{calls} of {before} + {acknowledged}"
        );
        assert_eq!(fixture.number("SELECT sum(calls) FROM sessions"), calls);
        for level in [300, 3_600, 86_400] {
            let sql = format!("SELECT sum(calls) FROM rollups WHERE level = {level}");
            assert_eq!(fixture.number(&sql), calls);
        }
        let spending = "SELECT sum(calls) FROM daily_spending";
        assert_eq!(fixture.number(spending), calls);
        assert_eq!(
            fixture
                .number("SELECT count(*) FROM pragma_integrity_check WHERE integrity_check = 'ok'"),
            1
        );
        before = calls;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn stored_calls_are_answered_after_a_restart() {
    let fixture = LedgerFixture::new().await;
    let config = fixture.config();
    let process = Process::start(&config).await;
    for (before, session) in ["s-1", "s-1", "s-2"].into_iter().enumerate() {
        assert_eq!(call(process.addresses()[0], session).await, 200);
        // The ledger stores calls in the order in which their records are made.
        has_kept(&process, before as u64 + 1).await;
    }
    process.signal(Signal::TERM);
    assert!(process.ended().await.success());
    let process = Process::start(&config).await;
    let response = fetch(process.admin, "/api/v1/sessions?sort=calls")
        .await
        .body;
    let response: Value = serde_json::from_str(&response).expect("JSON");
    assert_eq!(response["store"], "ledger");
    let sessions = response["sessions"].as_array().expect("sessions");
    let calls: Vec<_> = sessions
        .iter()
        .map(|row| (&row["id"], &row["calls"]))
        .collect();
    assert_eq!(
        calls,
        [(&"s-1".into(), &2.into()), (&"s-2".into(), &1.into())]
    );
    let detail = fetch(process.admin, "/api/v1/sessions/s-1").await.body;
    let detail: Value = serde_json::from_str(&detail).expect("JSON");
    assert_eq!(detail["calls"].as_array().map(Vec::len), Some(2));
    exported(&fixture, &config);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_month_cost_by_user_is_answered_by_day_though_its_calls_are_gone() {
    const CALLS: usize = 1_000;
    let fixture = LedgerFixture::new().await;
    let now = SystemTime::now();
    let month = Duration::from_secs(20 * 86_400);
    let every = month.as_millis() as f64 / CALLS as f64;
    let records: Vec<CallRecord> = Records::new(now - month, every).take(CALLS).collect();
    let calls: Vec<_> = records
        .iter()
        .filter_map(|record| LedgerCall::of_record(record, None))
        .collect();
    let mut ledger = LedgerDatabase::open(&fixture.ledger()).expect("opens");
    ledger.write(&calls).expect("written");
    let limits = Limits {
        age: 2 * month,
        bytes: 1,
    };
    let ms = now.duration_since(SystemTime::UNIX_EPOCH).expect("later");
    tidy(&mut ledger, ms.as_millis() as i64, &limits);
    drop(ledger);
    assert_eq!(fixture.number("SELECT count(*) FROM calls"), 0);
    let process = Process::start(&fixture.config()).await;
    let ask = async |question: &str| -> Value {
        let response = fetch(process.admin, &format!("/api/v1/costs?{question}")).await;
        assert_eq!(response.status, 200, "{}", response.body);
        serde_json::from_str(&response.body).expect("JSON")
    };
    // Retention deletes up to the end of a whole day, so calls of the last day are gone.
    let whole = ask("dimension=user&since=30d&series=50").await;
    assert_eq!(whole["step"], 86_400);
    let all = whole["series"].as_array().expect("series").iter();
    let others = [&whole["others"]].into_iter();
    let all = all.chain(others.filter(|others| !others.is_null()));
    let (mut calls, mut days) = (0, BTreeSet::new());
    for series in all {
        calls += series["calls"].as_u64().expect("a number");
        let points = series["points"].as_array().expect("points").iter();
        days.extend(points.map(|point| point["at"].to_string()));
    }
    let today = now
        .duration_since(SystemTime::UNIX_EPOCH)
        .expect("later")
        .as_secs()
        / 86_400
        * 86_400;
    let before = records.iter().filter(|record| {
        let began = record.started_at.time();
        began < SystemTime::UNIX_EPOCH + Duration::from_secs(today)
    });
    assert_eq!(calls, before.count() as u64);
    assert!((19..=21).contains(&days.len()), "{days:?}");
    let one = ask("dimension=model&since=30d&tool=search").await;
    assert_eq!(
        (&one["step"], &one["since"]),
        (&whole["step"], &whole["since"])
    );
    assert!(
        one["series"]
            .as_array()
            .is_some_and(|series| series.len() > 3),
        "{one}"
    );
    let hours = ask("dimension=user&since=30d&step=1h").await;
    assert_eq!(hours["series"], serde_json::json!([]), "no call is left");
}

fn exported(fixture: &LedgerFixture, config: &Path) {
    let export = |arguments: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_tokengauge"))
            .arg("export")
            .args(arguments)
            .output()
            .expect("it runs");
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{stderr}");
        (output.stdout, stderr)
    };
    let config = config.to_str().expect("UTF-8");
    let (lines, stderr) = export(&["--config", config, "--format", "jsonl", "--since", "1h"]);
    assert_eq!(stderr.trim(), "3 calls");
    let lines = String::from_utf8(lines).expect("UTF-8");
    let records: Vec<tokengauge_core::call::CallRecord> = lines
        .lines()
        .map(|line| serde_json::from_str(line).expect("a record"))
        .collect();
    assert_eq!(records[2].session.as_deref(), Some("s-2"));
    assert_eq!(records[2].workload.as_deref(), Some("chat"));
    let ledger = fixture.ledger();
    let ledger = ledger.to_str().expect("UTF-8");
    let (csv, _) = export(&[
        "--ledger",
        ledger,
        "--format",
        "csv",
        "--since",
        "2026-01-01T00:00:00Z",
    ]);
    let csv = String::from_utf8(csv).expect("UTF-8");
    let rows: Vec<Vec<&str>> = csv.lines().map(|line| line.split(',').collect()).collect();
    assert_eq!(rows.len(), 4);
    assert!(rows.iter().all(|row| row.len() == rows[0].len()));
    let at = rows[0]
        .iter()
        .position(|name| *name == "session")
        .expect("a column");
    assert_eq!(rows[1][at], "s-1");
    let file = fixture.folder.path().join("calls.parquet");
    let to = file.to_str().expect("UTF-8");
    export(&[
        "--ledger", ledger, "--format", "parquet", "--since", "1h", "-o", to,
    ]);
    let bytes = std::fs::read(&file).expect("a file");
    assert!(bytes.starts_with(b"PAR1") && bytes.ends_with(b"PAR1"));
    let (nothing, stderr) = export(&[
        "--ledger", ledger, "--format", "jsonl", "--since", "1h", "--until", "30m",
    ]);
    assert_eq!((nothing.as_slice(), stderr.trim()), (&b""[..], "0 calls"));
}
