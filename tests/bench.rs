//! `tokengauge bench` as a process: output, files and exit codes.

use crate::process::Process;
use serde_json::Value;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Output, Stdio};
use std::time::{Duration, SystemTime};
use tokengauge_core::call::CallRecord;
use tokengauge_store::ledger::{LedgerCall, LedgerDatabase};
use tokengauge_test_support::certificates::Authority;
use tokengauge_test_support::port::nowhere;
use tokengauge_test_support::records::Records;
use tokengauge_test_support::sim;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::Command;
use tokio::time::timeout;

/// 50 intervals of 50 ms with four streams. The rule for steadiness is tested in `crates/bench` with a simulated clock.
/// The settings here accept nearly any run as steady.
const SHORT: [&str; 16] = [
    "--isl",
    "16",
    "--trials",
    "1",
    "--warmup-duration",
    "400ms",
    "--burn-in-duration",
    "0s",
    "--benchmark-duration",
    "2500ms",
    "--sample-interval",
    "50ms",
    "--steady-within",
    "1000",
    "--max-client-lag",
    "10s",
];

async fn bench(url: &str, options: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tokengauge"));
    command.args(["bench", url]).args(SHORT).args(options);
    command.stdin(Stdio::null()).kill_on_drop(true);
    command.output().await.expect("it runs")
}

fn url(address: SocketAddr) -> String {
    format!("http://{address}")
}

/// Standard output and the last line of standard error of a failing run.
fn failed(output: &Output) -> (String, String) {
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let last = text(&output.stderr)
        .lines()
        .last()
        .unwrap_or_default()
        .to_owned();
    (text(&output.stdout), last)
}

#[tokio::test]
async fn results_are_printed_and_written_in_every_form_and_compared() {
    let sim = sim::start("ttft=40ms,gap=1ms,tokens=40").await;
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let files = ["r.json", "r.md", "r.html", "r.xml"].map(path);
    // Enough calls for a p90, even if only half of them are in the steady part.
    let mut options = vec!["--concurrency", "8", "--usd-per-hour", "3.6"];
    options.extend(["--objective", "ttft_p90<=5s,tps_mean>=1"]);
    options.extend(files.iter().flat_map(|file| ["-o", file.as_str()]));
    let output = bench(&url(sim.address), &options).await;
    assert!(output.status.success(), "{output:?}");
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(
        printed.contains("concurrency 8: ttft_p90<=5000ms is met"),
        "{printed}"
    );
    let read = |file: &str| std::fs::read_to_string(file).expect(file);
    let results: Value = serde_json::from_str(&read(&files[0])).expect("JSON");
    let validator = schema().await;
    let wrong: Vec<_> = validator
        .iter_errors(&results)
        .map(|error| error.to_string())
        .collect();
    assert_eq!(wrong, Vec::<String>::new());
    let figures = &results["levels"][0]["figures"];
    assert_eq!(figures["output_tokens"]["value"], 40.0);
    let ttft = figures["ttft_mean"]["value"].as_f64().expect("a time");
    assert!((0.04..0.5).contains(&ttft), "{ttft}");
    assert!(read(&files[1]).contains("| concurrency 8 |"));
    for form in [&printed[..], &read(&files[1]), &read(&files[2])] {
        let by = format!("measured by tokengauge {} (", env!("CARGO_PKG_VERSION"));
        assert!(
            form.contains(&by) && form.contains("40 (40 to 40) output tokens"),
            "{form}"
        );
    }
    let page = read(&files[2]);
    assert!(page.contains("<polyline") && page.contains("Distribution of the time between tokens"));
    assert!(read(&files[3]).contains("tests=\"3\" errors=\"0\" failures=\"0\""));
    compared(Path::new(&files[0])).await;
}

async fn schema() -> jsonschema::Validator {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tokengauge"));
    let output = command
        .args(["bench", "--schema"])
        .output()
        .await
        .expect("it runs");
    let schema: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    jsonschema::validator_for(&schema).expect("a schema")
}

/// Compares the results with themselves. One trial each cannot show a change, and that must not pass as "not worse".
async fn compared(file: &Path) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tokengauge"));
    command
        .args(["bench", "--fail-if-worse", "--compare"])
        .args([file, file]);
    let output = command.output().await.expect("it runs");
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("output_throughput: too few trials"), "{text}");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(
        error.contains("output_throughput has too few trials to show any change")
            && error.contains("--trials 4 or more"),
        "{error}"
    );
}

#[tokio::test]
async fn a_closed_port_is_said_at_once() {
    let (_, error) = failed(&bench(&url(nowhere()), &[]).await);
    assert!(
        error.contains("the first call failed") && error.contains("is the backend running there?"),
        "{error}"
    );
}

#[tokio::test]
async fn a_refused_key_and_a_missing_one_are_said() {
    let sim = sim::start("status=401").await;
    let (_, error) = failed(&bench(&url(sim.address), &[]).await);
    assert!(
        error.contains("status 401") && error.contains("--api-key-env"),
        "{error}"
    );
    let options = ["--api-key-env", "TOKENGAUGE_TEST_NO_SUCH_KEY"];
    let (_, error) = failed(&bench(&url(sim.address), &options).await);
    assert!(
        error.contains("TOKENGAUGE_TEST_NO_SUCH_KEY does not contain a key"),
        "{error}"
    );
}

#[tokio::test]
async fn too_few_calls_have_no_figure() {
    let sim = sim::start("ttft=300ms,gap=20ms,tokens=64").await;
    let (printed, error) = failed(&bench(&url(sim.address), &["--concurrency", "2"]).await);
    assert!(
        printed.contains("16 are needed: measure for at least"),
        "{printed}"
    );
    assert!(error.contains("no figures for concurrency 2"), "{error}");
}

#[tokio::test]
async fn a_client_that_lags_has_no_figure() {
    let sim = sim::start("ttft=30ms,gap=2ms,tokens=40").await;
    let mut command = Command::new(env!("CARGO_BIN_EXE_tokengauge"));
    command
        .args(["bench", &url(sim.address)])
        .args(&SHORT[..14]);
    command.args(["--concurrency", "4", "--max-client-lag", "1ns"]);
    let (printed, _) = failed(&command.output().await.expect("it runs"));
    assert!(
        printed.contains("this client was ") && printed.contains("for 1 % of the time"),
        "{printed}"
    );
}

/// Every trial of the new result is 5 % lower in each figure. With the defaults and five trials of each load, that
/// exits with code 1.
#[tokio::test]
async fn a_fall_in_every_trial_fails_and_the_same_result_passes() {
    let sim = sim::start("ttft=20ms,gap=1ms,tokens=40").await;
    let folder = tempfile::tempdir().expect("a folder");
    let file = |name: &str| folder.path().join(name).display().to_string();
    let (old, new) = (file("old.json"), file("new.json"));
    let options = ["--concurrency", "3,4", "-o", &old];
    let output = bench(&url(sim.address), &options).await;
    assert!(output.status.success(), "{output:?}");
    let text = std::fs::read_to_string(&old).expect("results");
    let mut results: Value = serde_json::from_str(&text).expect("JSON");
    let write = |results: &mut Value, file: &str, worse: f64| {
        for level in results["levels"].as_array_mut().expect("levels") {
            five_trials(level, worse);
        }
        std::fs::write(file, results.to_string()).expect("written");
    };
    write(&mut results, &old, 1.0);
    write(&mut results, &new, 0.95);
    for (compared, code) in [([&old, &new], 1), ([&old, &old], 0)] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tokengauge"));
        command.args(["bench", "--fail-if-worse", "--compare"]);
        let output = command.args(compared).output().await.expect("it runs");
        assert_eq!(output.status.code(), Some(code), "{output:?}");
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(error.contains("output_throughput: worse (p "), code == 1);
    }
}

fn five_trials(level: &mut Value, factor: f64) {
    let values = [100.0, 101.0, 99.2, 100.4, 99.5].map(|value| value * factor);
    let trial = level["trials"][0].clone();
    let figures = ["output_throughput", "tps_mean"];
    let trials = values.map(|value| {
        let mut trial = trial.clone();
        trial["figures"] = serde_json::json!({});
        for figure in figures {
            trial["figures"][figure] =
                serde_json::json!({"value": value, "lower": null, "upper": null});
        }
        trial
    });
    level["trials"] = trials.to_vec().into();
    level["figures"] = serde_json::json!({});
    for figure in figures {
        level["figures"][figure] = serde_json::json!({
            "value": 100.0 * factor, "lower": null, "upper": null, "method": "student_t", "trials": values,
        });
    }
}

#[tokio::test]
async fn every_dialect_of_the_simulator_is_measured() {
    let sim = sim::start("ttft=5ms,gap=1ms,tokens=40").await;
    let types = [
        "completions",
        "responses",
        "messages",
        "gemini",
        "ollama",
        "ollama_generate",
        "cohere",
        "tgi",
        "converse",
    ];
    let address = url(sim.address);
    let all = types.map(|name| {
        let address = address.clone();
        tokio::spawn(async move {
            let options = [
                "--endpoint-type",
                name,
                "-m",
                "m",
                "--format",
                "json",
                "--steady-within",
                "1000",
            ];
            let mut command = Command::new(env!("CARGO_BIN_EXE_tokengauge"));
            command
                .args(["bench", &address])
                .args(&SHORT[..12])
                .args(options);
            command.args(["--max-client-lag", "10s"]);
            (name, command.output().await.expect("it runs"))
        })
    });
    for done in all {
        let (name, output) = done.await.expect("no panic");
        assert!(output.status.success(), "{name}: {output:?}");
        let results: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let tokens = &results["levels"][0]["figures"]["output_tokens"]["value"];
        assert_eq!(*tokens, 40.0, "{name}");
    }
}

#[tokio::test]
async fn an_interrupt_leaves_what_was_whole() {
    let sim = sim::start("ttft=20ms,gap=2ms,tokens=40").await;
    let mut command = Command::new(env!("CARGO_BIN_EXE_tokengauge"));
    command.args(["bench", &url(sim.address)]).args(SHORT);
    command.args(["--concurrency", "3,4,5,6,7", "--format", "json"]);
    command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    let mut child = command.spawn().expect("it runs");
    let mut errors = BufReader::new(child.stderr.take().expect("piped"));
    let mut error = String::new();
    while !error.contains("[3/5]") {
        let read = timeout(Duration::from_mins(1), errors.read_line(&mut error));
        assert_ne!(read.await.expect("in time").expect("read"), 0, "{error}");
    }
    let id = i32::try_from(child.id().expect("it runs")).expect("an id");
    let id = rustix::process::Pid::from_raw(id).expect("an id");
    rustix::process::kill_process(id, rustix::process::Signal::INT).expect("sent");
    let rest = async {
        errors.read_to_string(&mut error).await.expect("read");
        child.wait_with_output().await.expect("it ends")
    };
    let output = timeout(Duration::from_mins(1), rest)
        .await
        .expect("in time");
    assert_eq!(output.status.code(), Some(130), "{output:?}");
    let printed = String::from_utf8_lossy(&output.stdout);
    let results: Value = serde_json::from_str(&printed).expect("JSON");
    assert_eq!(results["interrupted"], true);
    let levels = results["levels"].as_array().expect("levels");
    assert!((1..5).contains(&levels.len()), "{}", levels.len());
    assert!(
        levels
            .iter()
            .any(|level| level["figures"]["ttft_mean"].is_object()),
        "{printed}"
    );
    assert!(error.contains("the benchmark was interrupted"), "{error}");
}

#[tokio::test]
async fn calls_are_shown_as_a_proxy_measured_them_and_its_ledger_is_replayed() {
    let sim = sim::start("ttft=60ms,gap=3ms,tokens=40").await;
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("proxy-config.toml");
    let text = format!(
        "listen = \"127.0.0.1:0\"\nstate_dir = {:?}\n[admin]\nlisten = \"127.0.0.1:0\"\n[[upstream]]\nname = \"u\"\n\
         url = \"http://{}\"\n[[route]]\npath = \"/\"\nupstream = \"u\"\n",
        folder.path().join("state"),
        sim.address
    );
    std::fs::write(&config, text).expect("a file");
    let process = crate::process::Process::start(&config).await;
    let admin = process.admin.to_string();
    let options = [
        "--concurrency",
        "4",
        "--format",
        "json",
        "--through",
        &admin,
    ];
    let output = bench(&url(process.addresses()[0]), &options).await;
    assert!(output.status.success(), "{output:?}");
    let results: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let gauge = &results["levels"][0]["gauge"];
    assert_eq!(gauge["error"], Value::Null);
    assert!(
        gauge["calls"].as_u64() > Some(16) && gauge["matched"] == gauge["calls"],
        "{gauge}"
    );
    assert_eq!(gauge["tokens_differ"], 0);
    // The proxy starts its clock later, by the transfer time from the client.
    let difference = gauge["ttft"]["difference"].as_f64().expect("a difference");
    assert!((-0.0005..0.2).contains(&difference), "{gauge}");
    assert!(gauge["ttft"]["gauge"].as_f64() > Some(0.059), "{gauge}");
    let (agent, there) = (
        gauge["tps"]["agent"].as_f64(),
        gauge["tps"]["gauge"].as_f64(),
    );
    assert!(
        (agent.expect("one") / there.expect("one") - 1.0).abs() < 0.15,
        "{gauge}"
    );
    process.signal(rustix::process::Signal::TERM);
    assert!(process.ended().await.success());
    replayed(&config, &url(sim.address)).await;
}

async fn replayed(config: &Path, url: &str) {
    let trace = config.with_file_name("trace.jsonl");
    let mut command = Command::new(env!("CARGO_BIN_EXE_tokengauge"));
    command.args([
        "export", "--format", "mooncake", "--since", "1h", "--config",
    ]);
    let exported = command.arg(config).arg("-o").arg(&trace).output().await;
    let exported = exported.expect("it runs");
    assert!(exported.status.success(), "{exported:?}");
    let lines = std::fs::read_to_string(&trace).expect("a trace");
    let lines: Vec<Value> = lines
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    assert_eq!(
        (&lines[0]["timestamp"], &lines[0]["output_length"]),
        (&0.into(), &40.into())
    );
    let session = lines[0]["session_id"].as_str().unwrap_or_default();
    assert!(session.starts_with("bench-"), "{session}");
    let mut command = Command::new(env!("CARGO_BIN_EXE_tokengauge"));
    command
        .args(["bench", url])
        .args(&SHORT[2..])
        .arg("--input-file")
        .arg(&trace);
    let output = command
        .args(["--fixed-schedule", "--format", "json"])
        .output()
        .await;
    let output = output.expect("it runs");
    assert!(output.status.success(), "{output:?}");
    let results: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let level = &results["levels"][0];
    assert_eq!(level["load"]["arrival_pattern"], "fixed_schedule");
    let measured = level["figures"]["request_throughput"]["value"]
        .as_f64()
        .expect("a rate");
    // Four streams of 180 ms a call. A busy machine is slower.
    assert!((5.0..25.0).contains(&measured), "{measured}");
}

/// A proxy with TLS and an objective in front of a simulator. Also returns the certificate of the authority.
async fn tls_proxy(folder: &Path, simulator: SocketAddr) -> (Process, Authority) {
    let authority = Authority::new();
    let (certificate, key) = authority.issue("server", "localhost");
    let text = format!(
        "listen = \"127.0.0.1:0\"\n[tls]\ncertificate = \"{}\"\nkey = \"{}\"\n[admin]\nlisten = \"127.0.0.1:0\"\n\
         [[upstream]]\nname = \"engine\"\nurl = \"http://{simulator}\"\n\
         facts = {{ engine = \"vllm\", engine_version = \"0.11\" }}\n[[route]]\npath = \"/\"\nupstream = \"engine\"\n{OBJECTIVE}",
        certificate.display(),
        key.display(),
    );
    let file = folder.join("proxy.toml");
    std::fs::write(&file, text).expect("written");
    (Process::start(&file).await, authority)
}

const OBJECTIVE: &str =
    "[[slo]]\nname = \"first-token\"\nttft.at_most = \"5s\"\nobjective = 0.9\nwindow = \"1d\"\n";

#[tokio::test]
async fn https_is_measured_over_both_versions_of_http() {
    let sim = sim::start("ttft=20ms,gap=1ms,tokens=40,usage=on").await;
    let folder = tempfile::tempdir().expect("a folder");
    let (proxy, authority) = tls_proxy(folder.path(), sim.address).await;
    let url = format!("https://localhost:{}", proxy.addresses()[0].port());
    let ca = authority.file.display().to_string();
    let through = proxy.admin.to_string();
    for http2 in [false, true] {
        let mut options = vec![
            "--ca",
            &ca,
            "--concurrency",
            "4",
            "--format",
            "json",
            "--through",
            &through,
        ];
        options.extend(http2.then_some("--http2"));
        let output = bench(&url, &options).await;
        assert!(output.status.success(), "{http2}: {output:?}");
        let results: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let level = &results["levels"][0];
        assert_eq!(level["figures"]["output_tokens"]["value"], 40.0);
        assert!(
            level["gauge"]["matched"].as_u64() > Some(16),
            "{}",
            level["gauge"]
        );
        let judged = &level["judged_tps"];
        // On a busy machine, all events of a call may be read at once, and then it has no TPS.
        let of = |name: &str| judged[name].as_u64().expect("a number");
        assert!(2 * of("calls") >= of("of"), "{judged}");
        let work = &results["fingerprint"];
        assert_eq!(work["output_tokens"]["p50"], 40);
        assert_eq!(work["engines"].as_array().map(Vec::len), Some(1), "{work}");
        assert_eq!(results["measured_by"]["version"], env!("CARGO_PKG_VERSION"));
    }
    let output = bench(&url, &["--concurrency", "4"]).await;
    let (_, error) = failed(&output);
    assert!(
        error.contains("no trusted authority signed its certificate"),
        "{error}"
    );
}

#[tokio::test]
async fn http2_without_tls_shares_connections() {
    let sim = sim::start("ttft=20ms,gap=1ms,tokens=40").await;
    let output = bench(
        &url(sim.address),
        &["--concurrency", "4", "--http2", "--format", "json"],
    )
    .await;
    assert!(output.status.success(), "{output:?}");
    let results: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(
        results["levels"][0]["figures"]["output_tokens"]["value"],
        40.0
    );
}

#[tokio::test]
async fn a_search_ends_by_the_objectives_of_a_proxy_or_of_its_configuration() {
    let sim = sim::start("ttft=20ms,gap=1ms,tokens=40").await;
    let folder = tempfile::tempdir().expect("a folder");
    let (proxy, _authority) = tls_proxy(folder.path(), sim.address).await;
    let file = folder.path().join("proxy.toml").display().to_string();
    let admin = proxy.admin.to_string();
    // The calls go directly to the simulator, so the proxy knows nothing of them.
    let of_both = [["--config", &file], ["--through", &admin]];
    for origin in of_both {
        let until = [
            "--until",
            "slo=first-token",
            "--concurrency",
            "4..5",
            "--format",
            "json",
        ];
        let output = bench(&url(sim.address), &[&origin[..], &until].concat()).await;
        assert!(output.status.success(), "{output:?}");
        let results: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert_eq!(results["settings"]["objectives"][0], "ttft_p90<=5000ms");
        assert_eq!(results["highest"]["load"]["concurrency"], 5, "{results:#}");
        let unknown = [&origin[..], &["--until", "slo=nothing"]].concat();
        let (_, error) = failed(&bench(&url(sim.address), &unknown).await);
        assert!(
            error.contains("has no objective with this name; it has first-token"),
            "{error}"
        );
    }
}

#[tokio::test]
async fn a_known_load_gets_no_further_trial() {
    let sim = sim::start("ttft=20ms,gap=1ms,tokens=40").await;
    let options = SHORT.map(|option| if option == "1" { "9" } else { option });
    let mut command = Command::new(env!("CARGO_BIN_EXE_tokengauge"));
    command.args(["bench", &url(sim.address)]).args(options);
    command.args([
        "--concurrency",
        "3",
        "--stop-within",
        "300",
        "--format",
        "json",
    ]);
    let output = command.output().await.expect("it runs");
    assert!(output.status.success(), "{output:?}");
    let results: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let trials = results["levels"][0]["trials"].as_array().expect("trials");
    assert!((2..9).contains(&trials.len()), "{}", trials.len());
    let method = &results["levels"][0]["figures"]["tps_mean"]["method"];
    assert_eq!(method, "sequential_student_t");
}

#[tokio::test]
async fn a_turn_waits_for_the_previous_one() {
    let sim = sim::start("ttft=20ms,gap=1ms,tokens=40").await;
    let folder = tempfile::tempdir().expect("a folder");
    let trace = folder.path().join("trace.jsonl");
    // By their timestamps, all 800 calls would begin at once.
    let line = |number: usize| {
        let session = number % 4;
        let delay = if number < 4 { "" } else { ", \"delay\": 10" };
        format!(
            "{{\"timestamp\": 0, \"input_length\": 20, \"output_length\": 40, \"session_id\": \"s{session}\"{delay}}}\n"
        )
    };
    std::fs::write(&trace, (0..800).map(line).collect::<String>()).expect("written");
    let file = trace.display().to_string();
    // `--prompts` and a prompt length exclude each other.
    let options = [
        "--input-file",
        &file,
        "--fixed-schedule",
        "--multi-turn",
        "--format",
        "json",
    ];
    let mut command = Command::new(env!("CARGO_BIN_EXE_tokengauge"));
    command
        .args(["bench", &url(sim.address)])
        .args(&SHORT[2..])
        .args(options);
    let output = command.output().await.expect("it runs");
    assert!(output.status.success(), "{output:?}");
    let results: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let level = &results["levels"][0];
    assert_eq!(level["load"]["arrival_pattern"], "multi_turn");
    let trial = &level["trials"][0];
    assert!(trial["calls"].as_u64() > Some(16), "{trial}");
    let in_flight = trial["in_flight"].as_f64().expect("a number");
    assert!((1.0..=4.01).contains(&in_flight), "{in_flight}");
}

fn ledger_of_turns(path: &Path, turns: usize) {
    let begin = SystemTime::now() - Duration::from_secs(600);
    let records = Records::new(begin, 10.0).take(turns).enumerate();
    let calls: Vec<CallRecord> = records
        .map(|(place, call)| {
            serde_json::from_value(serde_json::json!({
                "id": call.id, "started_at": call.started_at, "route": "r", "upstream": "u",
                "dialect": "openai_chat", "operation": "chat", "operation_class": "generation",
                "outcome": "complete", "status": 200, "session": format!("s{}", place % 4),
                "streamed": true, "warm_up": false, "finish_reasons": ["stop"],
                "tokens": {"normalised": {"output": 40}, "reported": {"input": 437, "output": 40}},
                "seconds": {"ttft": 0.02, "duration": 0.06, "last_token": 0.06}, "tps": {"output": 1000.0},
                "frames": 40, "stalls": 0, "segments": [], "bytes": {"request": 2_000, "response": 4_000},
            }))
            .expect("a record")
        })
        .collect();
    let calls = calls
        .iter()
        .filter_map(|call| LedgerCall::of_record(call, Some(3)));
    let mut ledger = LedgerDatabase::open(path).expect("opens");
    ledger.write(&calls.collect::<Vec<_>>()).expect("written");
}

#[tokio::test]
async fn the_calls_of_a_ledger_are_asked_again() {
    let sim = sim::start("ttft=20ms,gap=1ms,tokens=40").await;
    let folder = tempfile::tempdir().expect("a folder");
    let ledger = folder.path().join("ledger.sqlite");
    ledger_of_turns(&ledger, 2_000);
    let ledger = ledger.display().to_string();
    let run = |options: Vec<&str>| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tokengauge"));
        command.args(["bench", &url(sim.address), "--from", &ledger]);
        command.args(&SHORT[2..]).args(options);
        command
    };
    let options = vec!["--fixed-schedule", "--multi-turn", "--format", "json"];
    let output = run(options).output().await.expect("it runs");
    assert!(output.status.success(), "{output:?}");
    let results: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(
        results["settings"]["workload"],
        "2000 prompts of a file or trace"
    );
    assert_eq!(
        results["levels"][0]["load"]["arrival_pattern"],
        "multi_turn"
    );
    // The backend's token count for prompts of 437 tokens.
    let mut command = Command::new(env!("CARGO_BIN_EXE_tokengauge"));
    command.args(["bench", &url(sim.address), "--isl", "437"]);
    command
        .args(&SHORT[2..])
        .args(["--concurrency", "2", "--format", "json"]);
    let output = command.output().await.expect("it runs");
    let expected: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let median = |results: &Value| {
        let input = &results["fingerprint"]["input_tokens"]["p50"];
        input.as_f64().expect("a number")
    };
    let ratio = median(&results) / median(&expected);
    assert!((0.95..1.05).contains(&ratio), "{ratio}");

    let none = run(vec!["--since", "1s"]).output().await.expect("it runs");
    let (_, error) = failed(&none);
    assert!(
        error.contains("has no generations with known lengths that began since"),
        "{error}"
    );
    for contradiction in [
        vec!["--isl", "5"],
        vec!["--input-file", "prompts.txt"],
        vec!["--store", "clickhouse://127.0.0.1:8123/default?table=t"],
    ] {
        let output = run(contradiction).output().await.expect("it runs");
        assert_eq!(output.status.code(), Some(2), "{output:?}");
    }
    let since = bench(&url(sim.address), &["--since", "1h"]).await;
    assert_eq!(since.status.code(), Some(2), "{since:?}");
}
