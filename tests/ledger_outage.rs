//! A ledger that cannot be written, disappears, is damaged or has a newer version, in front of the real binary. Traffic
//! continues, sinks send every call, and losses are counted.

use crate::clock::SteppedClock;
use crate::process::Process;
use crate::sinks::{CLICKHOUSE, Fixture, calls, command, lost, metric, recorded, text};
use crate::warehouse::Fault;
use rusqlite::Connection;
use rustix::process::Signal;
use serde_json::Value;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant, SystemTime};
use tokengauge_core::call::CallRecord;
use tokengauge_store::ledger::{LedgerCall, LedgerDatabase};
use tokengauge_test_support::TIMEOUT;
use tokengauge_test_support::http_client::fetch;
use tokengauge_test_support::records::Records;
use tokengauge_test_support::skip::skipped;

const WRITABLE: &str = "tokengauge_ledger_writable";

fn ledger_lost(reason: &str) -> String {
    format!("tokengauge_ledger_lost_records_total{{reason=\"{reason}\"}}")
}

fn sink_lost(reason: &str) -> String {
    format!("tokengauge_sink_lost_records_total{{sink=\"clickhouse\",reason=\"{reason}\"}}")
}

async fn sink(process: &Process, holds: impl Fn(&Value) -> bool) -> Value {
    let end = Instant::now() + TIMEOUT;
    loop {
        let body = fetch(process.admin, "/api/v1/sinks").await.body;
        let status: Value = serde_json::from_str(&body).expect("JSON");
        let sink = &status["sinks"][0];
        if holds(sink) {
            return sink.clone();
        }
        assert!(Instant::now() < end, "{sink:#}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn number(path: &Path, sql: &str) -> i64 {
    let connection = Connection::open(path).expect("opens");
    connection
        .query_row(sql, [], |row| row.get(0))
        .expect("a number")
}

/// Number of rows of all inserts; a call that was sent twice has two.
fn sent(fixture: &Fixture) -> usize {
    fixture
        .warehouse
        .taken()
        .iter()
        .map(|batch| batch.rows)
        .sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sink_sends_from_memory_while_another_process_has_the_ledger_and_returns_to_it() {
    let fixture = Fixture::new().await;
    let config = fixture.config(true, CLICKHOUSE);
    let old = Process::start(&config).await;
    calls(&old, 5, "old").await;
    fixture.stored(5).await;
    // The ledger knows that the calls are stored. Otherwise it would send them again after the fault.
    sink(&old, |sink| sink["rows"] == 5).await;
    let new = Process::start(&config).await;
    fixture.warehouse.fault(Fault::Reset, usize::MAX);
    calls(&new, 30, "new").await;
    let waits = sink(&new, |sink| sink["waiting"] == 30).await;
    assert_eq!(waits["in_memory"], 30, "{waits:#}");
    assert_eq!(
        (&waits["durable"], &waits["lost"]),
        (&false.into(), &0.into())
    );
    assert_eq!(waits["ledger_error"], "locked", "{waits:#}");
    let in_memory = "tokengauge_sink_in_memory_records{sink=\"clickhouse\"}";
    assert_eq!(metric(&new, in_memory, 30.0).await, 30.0);
    let admin = new.admin.to_string();
    let status = Command::new(env!("CARGO_BIN_EXE_tokengauge"))
        .args(["export", "sink", "status", "--admin", &admin])
        .output()
        .expect("runs");
    let status = text(&status);
    assert!(status.contains("30 calls in memory"), "{status}");
    assert!(status.contains("cannot be written (locked)"), "{status}");
    let ready = fetch(new.admin, "/readyz?verbose").await;
    assert_eq!(ready.status, 200, "traffic is served");
    assert!(
        ready.body.contains("cannot be written (locked)"),
        "{}",
        ready.body
    );
    fixture.warehouse.fault(Fault::Reset, 0);
    fixture.stored(35).await;
    old.signal(Signal::TERM);
    assert!(old.ended().await.success());
    metric(&new, WRITABLE, 1.0).await;
    calls(&new, 10, "new").await;
    recorded(&new, 10.0).await;
    fixture.stored(45).await;
    sink(&new, |sink| {
        sink["durable"] == true && sink["ledger_error"].is_null()
    })
    .await;
    let metrics = new.metrics().await;
    assert_eq!(
        metrics[&ledger_lost("locked")],
        30.0,
        "they are not in the ledger"
    );
    assert_eq!(lost(&metrics), 0.0);
    new.signal(Signal::TERM);
    assert!(new.ended().await.success());
    assert_eq!(
        (fixture.warehouse.rows(), sent(&fixture)),
        (45, 45),
        "no call twice"
    );
    assert_eq!(fixture.ids().len(), 15);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_neither_the_ledger_nor_the_queue_keeps_is_counted_and_the_rest_is_sent_at_the_end() {
    let fixture = Fixture::new().await;
    let config = fixture.config(true, &format!("{CLICKHOUSE}\nqueue = 8"));
    let holder = LedgerDatabase::open(&fixture.ledger()).expect("opens");
    let process = Process::start(&config).await;
    fixture.warehouse.fault(Fault::Reset, usize::MAX);
    calls(&process, 20, "s").await;
    assert_eq!(metric(&process, &sink_lost("queue"), 12.0).await, 12.0);
    sink(&process, |sink| sink["lost"] == 12 && sink["waiting"] == 8).await;
    fixture.warehouse.fault(Fault::Reset, 0);
    process.signal(Signal::TERM);
    assert!(process.ended().await.success());
    assert_eq!(fixture.warehouse.rows(), 8);
    drop(holder);
}

/// A small disk that is unmounted on drop.
struct Disk {
    folder: PathBuf,
}

impl Disk {
    /// Returns `None` if this process may not mount a disk.
    fn new(folder: PathBuf, size: &str) -> Option<Disk> {
        std::fs::create_dir(&folder).expect("a folder");
        let options = format!("size={size}");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &options, "tmpfs"])
            .arg(&folder)
            .output()
            .is_ok_and(|output| output.status.success());
        mounted.then_some(Disk { folder })
    }

    fn fill(&self) -> PathBuf {
        let path = self.folder.join("fill");
        let mut file = File::create(&path).expect("created");
        while file.write_all(&[0x78; 1024]).is_ok() {}
        path
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount")
            .arg("--lazy")
            .arg(&self.folder)
            .status();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sink_loses_no_call_to_a_full_disk() {
    let fixture = Fixture::new().await;
    let Some(disk) = Disk::new(fixture.folder.path().join("state"), "2m") else {
        return skipped("mounting a small disk needs root");
    };
    let process = Process::start(&fixture.config(true, CLICKHOUSE)).await;
    calls(&process, 20, "before").await;
    recorded(&process, 20.0).await;
    fixture.stored(20).await;
    let fill = disk.fill();
    let full = ledger_lost("disk_full");
    let mut made = 20;
    let end = Instant::now() + TIMEOUT;
    while process.metrics().await[&full] < 200.0 {
        calls(&process, 50, "full").await;
        made += 50;
        assert!(Instant::now() < end, "{made} calls");
    }
    // The warehouse has the calls that the ledger could not store. The ledger has the others.
    let metrics = process.metrics().await;
    fixture.stored(20 + metrics[&full] as usize).await;
    assert_eq!(lost(&metrics), 0.0, "{metrics:?}");
    std::fs::remove_file(fill).expect("room");
    metric(&process, WRITABLE, 1.0).await;
    fixture.stored(made).await;
    let before = process.metrics().await["tokengauge_ledger_records_total"];
    calls(&process, 10, "after").await;
    recorded(&process, before + 10.0).await;
    fixture.stored(made + 10).await;
    process.signal(Signal::TERM);
    assert!(process.ended().await.success());
    assert_eq!(fixture.warehouse.rows(), made + 10);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_older_program_leaves_a_newer_ledger_untouched_and_says_how_to_go_back() {
    let fixture = Fixture::new().await;
    let config = fixture.config(true, CLICKHOUSE);
    let process = Process::start(&config).await;
    calls(&process, 5, "before").await;
    recorded(&process, 5.0).await;
    fixture.stored(5).await;
    process.signal(Signal::TERM);
    assert!(process.ended().await.success());
    let known = number(&fixture.ledger(), "PRAGMA user_version");
    let version = |version: i64| {
        let connection = Connection::open(fixture.ledger()).expect("opens");
        connection
            .pragma_update(None, "user_version", version)
            .expect("set");
    };
    version(known + 1);
    let newer = std::fs::read(fixture.ledger()).expect("read");
    let process = Process::start(&config).await;
    let line = process.line("the ledger loses records").await;
    for part in [
        format!("version {}", known + 1),
        format!("supports only {known}"),
        "`path` in [ledger]".to_owned(),
        "unchanged".to_owned(),
    ] {
        assert!(line.contains(&part), "{part}: {line}");
    }
    calls(&process, 40, "rolled back").await;
    fixture.stored(45).await;
    let metrics = process.metrics().await;
    assert_eq!(metrics[&ledger_lost("newer_version")], 40.0);
    assert_eq!(lost(&metrics), 0.0);
    assert_eq!(metrics[WRITABLE], 0.0, "for the alert");
    process.signal(Signal::TERM);
    assert!(process.ended().await.success());
    assert!(
        std::fs::read(fixture.ledger()).expect("read") == newer,
        "not a byte was changed"
    );
    version(known);
    let process = Process::start(&config).await;
    calls(&process, 5, "forward").await;
    recorded(&process, 5.0).await;
    fixture.stored(50).await;
    assert_eq!(fixture.ids().len(), 10);
    assert_eq!(sent(&fixture), 50, "no call twice");
}

async fn sessions(process: &Process) -> Vec<String> {
    let response = fetch(process.admin, "/api/v1/sessions").await;
    let body: Value = serde_json::from_str(&response.body).expect("JSON");
    let rows = body["sessions"].as_array().into_iter().flatten();
    let ids = rows.map(|row| row["id"].as_str().expect("an id").to_owned());
    ids.collect()
}

async fn knows_only(process: &Process, session: &str) {
    let end = Instant::now() + TIMEOUT;
    loop {
        let found = sessions(process).await;
        if found == [session] {
            return;
        }
        assert!(Instant::now() < end, "{found:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ledger_that_is_removed_during_writes_is_recreated_and_its_calls_count_as_lost() {
    let fixture = Fixture::new().await;
    let config = fixture.config(true, CLICKHOUSE);
    let process = Process::start(&config).await;
    calls(&process, 20, "before").await;
    recorded(&process, 20.0).await;
    knows_only(&process, "before").await;
    fixture.stored(20).await;
    // The warehouse has not stored these calls when the file is removed.
    fixture.warehouse.fault(Fault::Reset, usize::MAX);
    calls(&process, 7, "gone").await;
    recorded(&process, 27.0).await;
    metric(
        &process,
        "tokengauge_sink_waiting_records{sink=\"clickhouse\"}",
        7.0,
    )
    .await;
    for ending in ["", "-wal", "-shm"] {
        let mut path = fixture.ledger().into_os_string();
        path.push(ending);
        std::fs::remove_file(path).expect("removed");
    }
    calls(&process, 10, "after").await;
    let removed = ledger_lost("removed");
    assert_eq!(metric(&process, &removed, 27.0).await, 27.0);
    process.line("was removed, replaced or emptied").await;
    fixture
        .until(|| fixture.ledger().exists(), "new file")
        .await;
    recorded(&process, 37.0).await;
    knows_only(&process, "after").await;
    assert_eq!(fixture.ids().len(), 10, "none of them is lost");
    assert_eq!(metric(&process, &sink_lost("ledger"), 7.0).await, 7.0);
    fixture.warehouse.fault(Fault::Reset, 0);
    fixture.stored(30).await;
    process.signal(Signal::TERM);
    assert!(process.ended().await.success());
    assert_eq!(
        number(&fixture.ledger(), "SELECT count(*) FROM undelivered"),
        0
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ledger_that_is_replaced_by_another_is_written_to_and_answers() {
    let fixture = Fixture::new().await;
    let process = Process::start(&fixture.config(true, CLICKHOUSE)).await;
    calls(&process, 10, "before").await;
    recorded(&process, 10.0).await;
    let backup = fixture.folder.path().join("backup.sqlite");
    let mut ledger = LedgerDatabase::open(&backup).expect("opens");
    let began = SystemTime::now() - Duration::from_secs(60);
    let record = CallRecord {
        session: Some("of the backup".to_owned()),
        ..Records::new(began, 1.0).next().expect("a record")
    };
    ledger
        .write(&[LedgerCall::of_record(&record, None).expect("valid")])
        .expect("written");
    drop(ledger);
    std::fs::rename(backup, fixture.ledger()).expect("replaced");
    assert_eq!(metric(&process, &ledger_lost("removed"), 10.0).await, 10.0);
    knows_only(&process, "of the backup").await;
    calls(&process, 5, "after").await;
    recorded(&process, 15.0).await;
    assert_eq!(fixture.ids().len(), 6);
    assert_eq!(
        number(
            &fixture.ledger(),
            "SELECT count(*) FROM pragma_integrity_check WHERE integrity_check = 'ok'"
        ),
        1
    );
}

/// Damages the file of a running process with `damage`, which gets the file and its length.
async fn damaged_while_it_runs(damage: impl Fn(&File, u64)) {
    let fixture = Fixture::new().await;
    let config = fixture.config(true, CLICKHOUSE);
    let process = Process::start(&config).await;
    calls(&process, 200, "before").await;
    recorded(&process, 200.0).await;
    process.signal(Signal::TERM);
    assert!(process.ended().await.success());
    // Checkpoint the write-ahead log into the file.
    assert_eq!(number(&fixture.ledger(), "SELECT count(*) FROM calls"), 200);
    let process = Process::start(&config).await;
    metric(&process, WRITABLE, 1.0).await;
    let file = File::options()
        .write(true)
        .open(fixture.ledger())
        .expect("opens");
    damage(&file, file.metadata().expect("there").len());
    let losses = ["damaged", "removed"].map(ledger_lost);
    let counted = async || -> f64 {
        let metrics = process.metrics().await;
        losses.iter().map(|series| metrics[series]).sum()
    };
    let end = Instant::now() + 2 * TIMEOUT;
    let mut made = 200;
    while counted().await < 200.0 {
        assert!(Instant::now() < end, "the damage is not seen");
        calls(&process, 5, "after").await;
        made += 5;
        // Query as the page does.
        sessions(&process).await;
        fetch(process.admin, "/api/v1/calls?limit=1000").await;
    }
    process.line("the ledger lost the calls of its file").await;
    let mut aside = fixture.ledger().into_os_string();
    aside.push(".damaged");
    assert_eq!(
        Path::new(&aside).exists(),
        process.find("it was renamed").is_some()
    );
    metric(&process, WRITABLE, 1.0).await;
    let before = process.metrics().await["tokengauge_ledger_records_total"];
    calls(&process, 10, "afterwards").await;
    recorded(&process, before + 10.0).await;
    let found = sessions(&process).await;
    assert!(found.contains(&"afterwards".to_owned()), "{found:?}");
    assert!(!found.contains(&"before".to_owned()), "{found:?}");
    // Calls that were only in the damaged file are counted as lost. The others are in the warehouse.
    let end = Instant::now() + TIMEOUT;
    loop {
        let lost = lost(&process.metrics().await) as usize;
        let stored = fixture.warehouse.rows();
        if stored + lost >= made + 10 {
            break;
        }
        assert!(Instant::now() < end, "{stored} + {lost} of {}", made + 10);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(
        number(
            &fixture.ledger(),
            "SELECT count(*) FROM pragma_integrity_check WHERE integrity_check = 'ok'"
        ),
        1
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ledger_that_is_overwritten_while_it_runs_is_put_aside() {
    damaged_while_it_runs(|file, length| {
        for page in 1..length / 4096 {
            file.write_all_at(&[0xa5; 4096], page * 4096)
                .expect("overwritten");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ledger_that_is_truncated_at_run_time_is_recreated() {
    damaged_while_it_runs(|file, _| file.set_len(0).expect("cut off")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_is_forty_days_ahead_for_a_moment_erases_nothing() {
    const CALLS: usize = 5_000;
    let fixture = Fixture::new().await;
    let folder = fixture.folder.path();
    let Some(clock) = SteppedClock::new(folder) else {
        return skipped("no C compiler for a clock that can be set");
    };
    let month = Duration::from_secs(30 * 86_400);
    let every = month.as_millis() as f64 / CALLS as f64;
    // The oldest call does not expire during the test.
    let began = SystemTime::now() - month + Duration::from_secs(600);
    let records: Vec<CallRecord> = Records::new(began, every).take(CALLS).collect();
    let mut ledger = LedgerDatabase::open(&fixture.ledger()).expect("opens");
    for batch in records.chunks(1_000) {
        let batch = batch
            .iter()
            .filter_map(|record| LedgerCall::of_record(record, None));
        ledger.write(&batch.collect::<Vec<_>>()).expect("written");
    }
    drop(ledger);
    let week = "CAST(strftime('%s', 'now', '-7 days') AS INTEGER)";
    let tables = [
        "calls".to_owned(),
        "sessions".to_owned(),
        "daily_spending".to_owned(),
        "distributions".to_owned(),
        "rollups WHERE level > 300".to_owned(),
        format!("rollups WHERE level = 300 AND start > {week}"),
    ];
    let rows = || {
        let counts = tables
            .iter()
            .map(|table| number(&fixture.ledger(), &format!("SELECT count(*) FROM {table}")));
        counts.collect::<Vec<_>>()
    };
    let before = rows();
    let ahead = |days: i64| clock.set_ahead(days * 86_400);
    let start = || {
        let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_tokengauge"));
        command
            .args(["run", "--config"])
            .arg(fixture.config(true, CLICKHOUSE));
        clock.apply(&mut command);
        Process::start_by(command)
    };
    let process = start().await;
    calls(&process, 5, "right").await;
    recorded(&process, 5.0).await;
    ahead(40);
    calls(&process, 5, "wrong").await;
    recorded(&process, 10.0).await;
    // Retention has run by the wrong clock.
    process.line("the clock is ahead").await;
    process.signal(Signal::TERM);
    assert!(process.ended().await.success());
    // A start with the wrong clock also deletes nothing, even if the newest call has a time of that clock.
    let process = start().await;
    calls(&process, 5, "wrong").await;
    recorded(&process, 5.0).await;
    process.line("the clock is ahead").await;
    ahead(0);
    calls(&process, 5, "right").await;
    recorded(&process, 10.0).await;
    process.signal(Signal::TERM);
    assert!(process.ended().await.success());
    let after = rows();
    for (at, table) in tables.iter().enumerate() {
        assert!(after[at] >= before[at], "{table}: {after:?} of {before:?}");
    }
    assert_eq!(after[0], before[0] + 20);
    let exported = command(
        &["export", "--format", "jsonl", "--since", "31d"],
        &fixture.config(true, CLICKHOUSE),
    );
    assert!(exported.status.success(), "{}", text(&exported));
}
