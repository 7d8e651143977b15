//! Tokens of the parts of prompts and of tools, on the surfaces that show their sums.

use serde_json::Value;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;
use std::time::{Duration, Instant, UNIX_EPOCH};
use tokengauge_core::call::CallRecord;
use tokengauge_core::observer::End;
use tokengauge_core::prompt::{PromptPart, PromptParts, PromptTool, WaitKind};
use tokengauge_meter::settings::Measure;
use tokengauge_meter::{FinishedCall, MeterStats, Subscriber};
use tokengauge_store::ledger::{LedgerCall, LedgerDatabase};
use tokengauge_telemetry::export::prometheus::Prometheus;
use tokengauge_telemetry::export::text::Format;
use tokengauge_test_support::meter::{Bench, DONE, words};
use tokengauge_test_support::records::Records;

const CALLS: usize = 2_000;

fn records() -> Vec<CallRecord> {
    let from = UNIX_EPOCH + Duration::from_secs(1_780_000_000);
    Records::new(from, 500.0).take(CALLS).collect()
}

fn call_log(records: &[CallRecord]) -> tempfile::NamedTempFile {
    let mut log = tempfile::NamedTempFile::new().expect("a file");
    for call in records {
        let line = serde_json::to_string(call).expect("JSON");
        writeln!(log, "{line}").expect("written");
    }
    log
}

fn ledger(path: &Path, records: &[CallRecord]) {
    let mut ledger = LedgerDatabase::open(path).expect("opens");
    for batch in records.chunks(500) {
        let calls = batch.iter().map(|call| LedgerCall::of_record(call, None));
        let calls: Vec<_> = calls.map(|call| call.expect("valid")).collect();
        ledger.write(&calls).expect("written");
    }
}

fn report(from: &str, path: &Path, options: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tokengauge"));
    let command = command.arg("report").arg(from).arg(path).args(options);
    command.output().expect("it runs")
}

fn json(from: &str, path: &Path, options: &[&str]) -> Value {
    let output = report(from, path, &[options, &["--format", "json"]].concat());
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

#[test]
fn a_report_has_the_average_and_the_share_of_each_part_by_group() {
    let records = records();
    let log = call_log(&records);
    let document = json("--call-log", log.path(), &["--by", "upstream"]);
    let mut expected: BTreeMap<&str, (u64, [u64; 8])> = BTreeMap::new();
    for call in &records {
        let Some(prompt) = &call.prompt else { continue };
        let (calls, tokens) = expected.entry(&call.upstream).or_default();
        *calls += 1;
        for (sum, part) in tokens.iter_mut().zip(PromptPart::ALL) {
            *sum += prompt.get(*part);
        }
    }
    let groups = document["groups"].as_array().expect("groups");
    assert_eq!(groups.len(), expected.len());
    for group in groups {
        let upstream = group["by"]["upstream"].as_str().expect("a name");
        let (calls, tokens) = expected[upstream];
        let all: u64 = tokens.iter().sum();
        let prompt = &group["prompt"];
        assert_eq!(prompt["calls"], calls, "{upstream}");
        for (tokens, part) in tokens.iter().zip(PromptPart::ALL) {
            let name = part.as_str();
            assert_eq!(prompt["tokens"][name], *tokens, "{upstream} {name}");
            let average = *tokens as f64 / calls as f64;
            assert_eq!(prompt["average"][name], average, "{upstream} {name}");
            assert_eq!(prompt["share"][name], *tokens as f64 / all as f64);
        }
    }
    let text = report("--call-log", log.path(), &["--by", "upstream"]);
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    for part in PromptPart::ALL {
        let head = part.as_str().replace('_', " ").to_uppercase();
        assert!(text.contains(&head), "{head} in {text}");
    }
}

/// Sums of a tool: prompts, tokens of definitions, of new and of repeated results, calls, failures,
/// microseconds.
type Sums = [u64; 7];

fn tools_of(records: &[CallRecord]) -> BTreeMap<(String, Option<String>), Sums> {
    let mut expected: BTreeMap<_, Sums> = BTreeMap::new();
    for call in records {
        let prompt = call.prompt.as_deref();
        let wait = call.wait.as_deref();
        let wait = wait.filter(|wait| wait.kind == WaitKind::Tools);
        for tool in prompt.iter().flat_map(|prompt| &prompt.tools) {
            let waited = wait.filter(|wait| wait.tools.contains(&tool.name));
            let us = waited.map_or(0, |wait| {
                (wait.seconds * 1e6).round() as u64 / wait.tools.len() as u64
            });
            let key = (tool.name.clone(), tool.server.clone());
            let sums = expected.entry(key).or_default();
            let more = [
                u64::from(tool.schema > 0),
                tool.schema,
                tool.new_results,
                tool.resent_results,
                tool.calls,
                tool.failures,
                us,
            ];
            sums.iter_mut()
                .zip(more)
                .for_each(|(sum, more)| *sum += more);
        }
    }
    expected
}

#[test]
fn tools_have_their_tokens_calls_time_and_cost_in_a_call_log_and_in_a_ledger() {
    let records = records();
    let log = call_log(&records);
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("ledger.sqlite");
    ledger(&file, &records);
    let of_log = json("--call-log", log.path(), &["--tools"]);
    let rows = of_log["tools"].as_array().expect("tools");
    let expected = tools_of(&records);
    assert!(expected.len() >= 4 && rows.len() == expected.len());
    for row in rows {
        let text = |name: &str| row[name].as_str().map(str::to_owned);
        let sums = expected[&(text("tool").expect("a name"), text("server"))];
        let names = [
            "prompts",
            "schema_tokens",
            "new_result_tokens",
            "resent_result_tokens",
            "calls",
            "failures",
        ];
        for (name, sum) in names.iter().zip(sums) {
            assert_eq!(row[name], sum, "{name} of {row}");
        }
        assert_eq!(row["seconds"], sums[6] as f64 / 1e6, "{row}");
        let cost = |of: &str| row["schema_usd"][of].as_f64().expect("a cost");
        assert!(cost("cached") > 0.0 && cost("cached") < cost("uncached"));
    }
    let of_ledger = json("--ledger", &file, &["--tools"]);
    assert_eq!(of_ledger["tools"], of_log["tools"]);
    let text = report("--call-log", log.path(), &["--tools"]);
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    assert!(
        text.contains("DEFINITION") && text.contains("search"),
        "{text}"
    );
    let csv = report("--call-log", log.path(), &["--tools", "--format", "csv"]);
    let error = String::from_utf8_lossy(&csv.stderr).into_owned();
    assert!(
        error.contains("--tools works only with --format text, markdown or json"),
        "{error}"
    );
}

fn analyzed(prompt: &PromptParts) -> FinishedCall {
    let bench = Bench::default();
    let call = bench.chat();
    bench.chunk(&*call, 100, words(3));
    bench.chunk(&*call, 200, DONE);
    bench.end(&*call, 300, End::Complete);
    let mut finished = FinishedCall::clone(&bench.finished_calls()[0]);
    finished.record.prompt = Some(Box::new(prompt.clone()));
    finished
}

#[test]
fn a_counter_has_the_tokens_of_each_part() {
    let mut prompt = PromptParts {
        tools: vec![PromptTool::default()],
        ..PromptParts::default()
    };
    for (at, part) in (1..).zip(PromptPart::ALL) {
        *prompt.part_mut(*part) = at;
    }
    let finished = Arc::new(analyzed(&prompt));
    let prometheus = Prometheus::new(&[], &Measure::default());
    prometheus.finished(&finished);
    prometheus.finished(&finished);
    let text = prometheus.render(Instant::now(), &MeterStats::default(), Format::Classic);
    for part in PromptPart::ALL {
        let label = format!("part=\"{}\"", part.as_str());
        let line = text.lines().find(|line| {
            line.starts_with("tokengauge_prompt_tokens_total{") && line.contains(&label)
        });
        let line = line.expect(&label);
        let should = format!(" {}", 2 * prompt.get(*part));
        assert!(line.ends_with(&should), "{line}");
    }
}

#[test]
fn calls_without_an_analysis_take_no_more_space() {
    let analyzed = records();
    let mut plain = analyzed.clone();
    for call in &mut plain {
        (call.prompt, call.wait, call.cache_break) = (None, None, None);
        (call.retry_of, call.repetition, call.prompt_blocks) = (None, None, None);
    }
    let folder = tempfile::tempdir().expect("a folder");
    let size = |records: &[CallRecord], name: &str| {
        let path = folder.path().join(name);
        ledger(&path, records);
        let file = rusqlite::Connection::open(&path).expect("opens");
        let pages =
            "SELECT (SELECT page_count FROM pragma_page_count) * page_size FROM pragma_page_size";
        let bytes: i64 = file.query_row(pages, [], |row| row.get(0)).expect("a size");
        let rows = "SELECT count(*) FROM analyses";
        let rows: i64 = file.query_row(rows, [], |row| row.get(0)).expect("a count");
        (bytes, rows)
    };
    let (plain, none) = size(&plain, "plain.sqlite");
    let (with, some) = size(&analyzed, "analyzed.sqlite");
    let each = (with - plain) as f64 / some as f64;
    println!("{plain} bytes for {CALLS} calls; {each:.0} bytes more for each of {some} analyses");
    assert_eq!(none, 0);
    assert!(some > CALLS as i64 / 2 && each < 300.0, "{each} bytes each");
}
