//! Checks after the traffic: gauges are back at their idle values, counters equal the sums of the records, the ledger
//! equals the call log.

use crate::background::{API_RESPONSES, API_TIMEOUTS};
use crate::otlp_receiver::OtlpReceiver;
use crate::proxy::{self, Proxy, scrape, sum};
use crate::records::{RecordSummary, Records};
use crate::report::{LAGGED, Report};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime};
use tokengauge_core::call::CallRecord;
use tokengauge_core::time::rfc3339_millis;

/// Longer than the lifetime of idle connections (2 s) and blocking threads (10 s), and than the retries of an exporter.
const TIMEOUT: Duration = Duration::from_secs(40);

const GAUGES: &[&str] = &[
    "tokengauge_streams_in_flight",
    "tokengauge_streams_stalled",
    "tokengauge_meter_queue_bytes",
    "tokengauge_event_listeners",
];

/// Waits until the proxy is idle and returns its gauges. Idle means that the gauges equal `before`. Without `before`,
/// they must not change for longer than idle resources are kept.
pub async fn wait_until_idle(
    proxy: &Proxy,
    before: Option<&BTreeMap<String, f64>>,
) -> anyhow::Result<BTreeMap<String, f64>> {
    let end = Instant::now() + TIMEOUT;
    let (mut figures, mut since) = (idle_gauges(proxy).await?, Instant::now());
    while Instant::now() < end {
        let idle = match before {
            Some(before) => crate::verify::not_restored(before, &figures).is_empty(),
            None => since.elapsed() > Duration::from_secs(12),
        };
        if idle {
            break;
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
        let now = idle_gauges(proxy).await?;
        if now != figures {
            (figures, since) = (now, Instant::now());
        }
    }
    if before.is_some_and(|before| !crate::verify::not_restored(before, &figures).is_empty()) {
        let open = proxy::descriptors(proxy.id());
        println!("open in the proxy: {open:#?}");
    }
    Ok(figures)
}

async fn idle_gauges(proxy: &Proxy) -> anyhow::Result<BTreeMap<String, f64>> {
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

pub async fn counters(proxy: &Proxy, records: &Records, report: &Report) -> anyhow::Result<()> {
    let series = scrape(proxy.admin).await?;
    let many = records.summaries.len() as f64;
    for metric in [
        "tokengauge_requests_total",
        "tokengauge_ledger_records_total",
    ] {
        let value = sum(&series, metric, &[]);
        if value != many {
            report.violation(format!(
                "{metric} is {value}, and the call log has {many} records"
            ));
        }
    }
    let labels = ["direction=\"output\"", "source=\"counted\""];
    let counted = sum(&series, "tokengauge_tokens_total", &labels);
    let lagged = report.counted(LAGGED);
    if lagged * 100 > report.calls() {
        report.violation(format!(
            "{lagged} calls were not measured in time, more than 1 in 100"
        ));
    }
    // Tokens of calls that lagged or could not be parsed were counted up to that point, but are not in their records. A
    // token has at least one byte.
    let most = match lagged {
        0 => (records.output + records.unreadable) as f64,
        _ => f64::INFINITY,
    };
    if !(records.output as f64..=most).contains(&counted) {
        let output = records.output;
        report.violation(format!(
            "tokengauge_tokens_total has {counted} counted output tokens, the records have {output}"
        ));
    }
    for record in records.unclaimed() {
        report.violation(format!("a record without a call: {record:?}"));
    }
    let (late, answered) = (report.counted(API_TIMEOUTS), report.counted(API_RESPONSES));
    if late * 20 > answered {
        report.violation(format!(
            "{late} requests to the API timed out, {answered} did not"
        ));
    }
    for (result, kind) in [
        ("applied", "configurations"),
        ("refused", "wrong configurations"),
    ] {
        let label = format!("result=\"{result}\"");
        let reloads = sum(&series, "tokengauge_config_reloads_total", &[&label]);
        let written = report.counted(kind);
        // The proxy may not have noticed the last change.
        if reloads + 1.0 < written as f64 {
            report.violation(format!(
                "{reloads} configurations were {result} of {written} {kind}"
            ));
        }
    }
    Ok(())
}

/// The OTLP receiver got requests in every mode, and items of every signal.
pub fn otlp(receiver: &OtlpReceiver, report: &Report) {
    let requests = receiver
        .requests
        .each_ref()
        .map(|requests| requests.load(Ordering::Relaxed));
    let items = [&receiver.spans, &receiver.logs, &receiver.metrics]
        .map(|items| items.load(Ordering::Relaxed));
    println!(
        "OTLP requests when healthy, slow, unavailable, closed: {requests:?}; spans, logs, metrics received: {items:?}"
    );
    if requests.contains(&0) || items.contains(&0) {
        report.violation(format!(
            "the OTLP receiver missed something: {requests:?}, {items:?}"
        ));
    }
    let unreadable = receiver.unreadable.load(Ordering::Relaxed);
    if unreadable > 0 {
        report.violation(format!("{unreadable} OTLP messages could not be read"));
    }
}

/// The ledger must have every record of the call log exactly once, with the same figures.
pub fn ledger(
    folder: &Path,
    begin: SystemTime,
    records: &Records,
    report: &Report,
) -> anyhow::Result<()> {
    let since = rfc3339_millis(begin).to_string();
    let exported = folder.join("exported.jsonl");
    let export = Command::new(env!("CARGO_BIN_EXE_tokengauge"))
        .args(["export", "--format", "jsonl", "--since", &since, "--ledger"])
        .arg(folder.join("state/ledger.sqlite"))
        .arg("-o")
        .arg(&exported)
        .output()?;
    anyhow::ensure!(export.status.success(), "the ledger's export: {export:?}");
    let mut stored = std::collections::HashMap::new();
    for line in std::fs::read_to_string(&exported)?.lines() {
        let record: CallRecord = serde_json::from_str(line)?;
        if stored
            .insert(record.id.clone(), RecordSummary::of(&record))
            .is_some()
        {
            report.violation(format!("record {} is in the ledger twice", record.id));
        }
    }
    for (id, summary) in &records.summaries {
        match stored.remove(id) {
            Some(stored) if stored == *summary => {}
            Some(stored) => report.violation(format!(
                "record {id} is {stored:?} in the ledger and {summary:?} in the call log"
            )),
            None => report.violation(format!("record {id} is not in the ledger: {summary:?}")),
        }
    }
    for id in stored.keys() {
        report.violation(format!(
            "record {id} is in the ledger but not in the call log"
        ));
    }
    println!(
        "ledger: {} records, each as in the call log",
        records.summaries.len()
    );
    Ok(())
}
