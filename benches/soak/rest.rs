//! What must hold when the traffic is over: everything is back, every sum is right.

use crate::around::{ANSWERS, TOO_LATE};
use crate::proxy::{self, Proxy, scrape, sum};
use crate::records::{Brief, Records};
use crate::report::{LAGGED, Report};
use crate::sink::Sink;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime};
use tokengauge::call::CallRecord;

/// Idle connections are kept for 2 s, and blocking threads for 10 s; a turn of an
/// exporter that was refused is over then, too.
const PATIENCE: Duration = Duration::from_secs(40);

/// Gauges that are 0 when nothing is under way.
const GAUGES: &[&str] = &[
    "tokengauge_streams_in_flight",
    "tokengauge_streams_stalled",
    "tokengauge_meter_queue_bytes",
    "tokengauge_event_listeners",
];

/// Waits until the proxy is at rest: back to `before`, or without one until its figures
/// have stayed the same for longer than anything idle is kept.
pub async fn reached(
    proxy: &Proxy,
    before: Option<&BTreeMap<String, f64>>,
) -> anyhow::Result<BTreeMap<String, f64>> {
    let end = Instant::now() + PATIENCE;
    let (mut figures, mut since) = (look(proxy).await?, Instant::now());
    while Instant::now() < end {
        let rested = match before {
            Some(before) => crate::judge::not_back(before, &figures).is_empty(),
            None => since.elapsed() > Duration::from_secs(12),
        };
        if rested {
            break;
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
        let now = look(proxy).await?;
        if now != figures {
            (figures, since) = (now, Instant::now());
        }
    }
    if before.is_some_and(|before| !crate::judge::not_back(before, &figures).is_empty()) {
        let open = proxy::descriptors(proxy.id());
        println!("open in the proxy: {open:#?}");
    }
    Ok(figures)
}

async fn look(proxy: &Proxy) -> anyhow::Result<BTreeMap<String, f64>> {
    let series = scrape(proxy.admin).await?;
    let mut figures = BTreeMap::new();
    for gauge in GAUGES {
        figures.insert((*gauge).to_owned(), sum(&series, gauge, &[]));
    }
    for runtime in ["traffic", "admin"] {
        let label = format!("runtime=\"{runtime}\"");
        let tasks = sum(&series, "tokengauge_runtime_alive_tasks", &[&label]);
        figures.insert(format!("tasks of the {runtime} runtime"), tasks);
    }
    figures.insert("threads".to_owned(), sum(&series, "process_threads", &[]));
    let open = proxy::descriptors(proxy.id()).len();
    figures.insert("open files".to_owned(), open as f64);
    Ok(figures)
}

/// The proxy's own sums are those of the records.
pub async fn counters(proxy: &Proxy, records: &Records, report: &Report) -> anyhow::Result<()> {
    let series = scrape(proxy.admin).await?;
    let many = records.briefs.len() as f64;
    for metric in [
        "tokengauge_requests_total",
        "tokengauge_ledger_records_total",
    ] {
        let told = sum(&series, metric, &[]);
        if told != many {
            report.violation(format!(
                "{metric} is {told}, and the call log has {many} records"
            ));
        }
    }
    let labels = ["direction=\"output\"", "source=\"counted\""];
    let told = sum(&series, "tokengauge_tokens_total", &labels);
    let lagged = report.counted(LAGGED);
    if lagged * 100 > report.calls() {
        report.violation(format!(
            "{lagged} calls were not measured in time, more than 1 in 100"
        ));
    }
    // What lagged or broke was counted until then, and its record says nothing. A token has
    // a byte at least.
    let most = match lagged {
        0 => (records.output + records.unreadable) as f64,
        _ => f64::INFINITY,
    };
    if !(records.output as f64..=most).contains(&told) {
        let output = records.output;
        report.violation(format!(
            "tokengauge_tokens_total has {told} counted output tokens, the records have {output}"
        ));
    }
    for record in records.unclaimed() {
        report.violation(format!("a record of no call: {record:?}"));
    }
    let (late, answered) = (report.counted(TOO_LATE), report.counted(ANSWERS));
    if late * 20 > answered {
        report.violation(format!(
            "{late} questions to the API ran out of time, {answered} did not"
        ));
    }
    for (result, kind) in [
        ("applied", "configurations"),
        ("refused", "wrong configurations"),
    ] {
        let label = format!("result=\"{result}\"");
        let told = sum(&series, "tokengauge_config_reloads_total", &[&label]);
        let written = report.counted(kind);
        // The last may have come too late to be found.
        if told + 1.0 < written as f64 {
            report.violation(format!(
                "{told} configurations were {result} of {written} {kind}"
            ));
        }
    }
    Ok(())
}

/// The receiver got what it was well for, and was asked in every mood.
pub fn sink(sink: &Sink, report: &Report) {
    let asked = sink
        .asked
        .each_ref()
        .map(|asked| asked.load(Ordering::Relaxed));
    let got = [&sink.spans, &sink.logs, &sink.metrics].map(|got| got.load(Ordering::Relaxed));
    println!(
        "OTLP: asked when well, slow, refusing, away: {asked:?}; spans, logs, metrics got: {got:?}"
    );
    if asked.contains(&0) || got.contains(&0) {
        report.violation(format!(
            "the OTLP receiver missed something: {asked:?}, {got:?}"
        ));
    }
    let unreadable = sink.unreadable.load(Ordering::Relaxed);
    if unreadable > 0 {
        report.violation(format!("{unreadable} OTLP messages could not be read"));
    }
}

/// The ledger has every record of the call log once, with the same figures.
pub fn ledger(
    folder: &Path,
    begin: SystemTime,
    records: &Records,
    report: &Report,
) -> anyhow::Result<()> {
    let since = humantime::format_rfc3339_millis(begin).to_string();
    let exported = folder.join("exported.jsonl");
    let export = Command::new(env!("CARGO_BIN_EXE_tokengauge"))
        .args(["export", "--format", "jsonl", "--since", &since, "--ledger"])
        .arg(folder.join("state/ledger.sqlite"))
        .arg("-o")
        .arg(&exported)
        .output()?;
    anyhow::ensure!(export.status.success(), "the ledger's export: {export:?}");
    let mut kept = std::collections::HashMap::new();
    for line in std::fs::read_to_string(&exported)?.lines() {
        let record: CallRecord = serde_json::from_str(line)?;
        if kept.insert(record.id.clone(), Brief::of(&record)).is_some() {
            report.violation(format!("record {} is in the ledger twice", record.id));
        }
    }
    for (id, brief) in &records.briefs {
        match kept.remove(id) {
            Some(kept) if kept == *brief => {}
            Some(kept) => report.violation(format!(
                "record {id} is {kept:?} in the ledger and {brief:?} in the call log"
            )),
            None => report.violation(format!("record {id} is not in the ledger: {brief:?}")),
        }
    }
    for id in kept.keys() {
        report.violation(format!("record {id} is in the ledger alone"));
    }
    println!(
        "ledger: {} records, each as in the call log",
        records.briefs.len()
    );
    Ok(())
}
