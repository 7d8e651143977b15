//! The cause of a missed objective, over the real binary: one of two simulated upstreams becomes bad, an alert fires,
//! and its sentence names that upstream and what changed.

use crate::process::Process;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};
use tokengauge_test_support::TIMEOUT;
use tokengauge_test_support::connection::RawConnection;
use tokengauge_test_support::http_client::fetch;
use tokengauge_test_support::otlp::{Receiver, ReceiverBehaviour};
use tokengauge_test_support::port::HeldPort;
use tokengauge_test_support::sim::{self, Sim};
use tokio::process::Command;
use tokio::task::JoinSet;

const UPSTREAMS: [&str; 2] = ["vllm-a", "vllm-b"];
const BEFORE: usize = 30;
const DURING: usize = 25;
/// Events that an alert needs: nearly all calls of both phases.
const MIN_EVENTS: usize = 105;
/// Number of concurrent agents. It is odd, so that each agent calls both upstreams in turn.
const AGENTS: usize = 9;
/// Simulated upstreams without a fault. Each fault and each bound is far from these values, because a busy machine adds
/// tens of milliseconds, and a phase counts as unchanged within 15 %.
const HEALTHY: &str = "ttft=300ms,gap=30ms,tokens=24,usage=on";
/// Output tokens per second: healthy upstreams reach 33, slow ones 10.
const FAST: &str = "output_tps.at_least = 18";
/// Time to first token: healthy upstreams need 0.3 s, slow ones at least 2 s.
const PROMPT: &str = "ttft.at_most = \"1s\"";

/// A fault of the upstream vllm-a and the expected cause.
struct Incident {
    /// The key of the objective.
    promise: &'static str,
    fault: &'static str,
    mechanism: &'static str,
    /// Words about the phases that the sentence must contain.
    words: &'static [&'static str],
}

fn upstream(name: &str, simulators: &[&Sim]) -> String {
    let urls = simulators.iter().map(|simulator| simulator.address);
    let urls: Vec<String> = urls
        .map(|address| format!("\"http://{address}\""))
        .collect();
    format!(
        "[[upstream]]\nname = \"{name}\"\nurls = [{}]\n\
         [[route]]\npath = \"/{name}\"\nstrip = true\nupstream = \"{name}\"\n",
        urls.join(", ")
    )
}

fn two_upstreams(simulators: &[Sim; 2]) -> String {
    let upstreams = UPSTREAMS.iter().zip(simulators);
    let upstreams = upstreams.map(|(name, simulator)| upstream(name, &[simulator]));
    upstreams.collect()
}

struct Setup<'a> {
    upstreams: String,
    /// The key of the objective.
    promise: &'a str,
    min_events: usize,
    /// Number of calls after a start of an upstream that count as warm-up.
    warm_up_calls: usize,
}

async fn start(folder: &Path, setup: &Setup<'_>, receiver: &Receiver) -> Process {
    let Setup {
        upstreams,
        promise,
        min_events,
        warm_up_calls,
    } = setup;
    let text = format!(
        "listen = \"127.0.0.1:0\"\n[admin]\nlisten = \"127.0.0.1:0\"\nurl = \"https://gauge.example/a/\"\n\
         [measure]\nmin_output_tokens = 8\nwarm_up_calls = {warm_up_calls}\nwarm_up_for = \"0s\"\n\
         stall_threshold = \"1s\"\n{upstreams}\
         [[slo]]\nname = \"chat\"\nobjective = 0.99\nwindow = \"1d\"\nmin_events = {min_events}\n{promise}\n\
         [[notify]]\nkind = \"webhook\"\nurl = \"http://{}/alerts\"\nseverity = \"page\"\n",
        receiver.address
    );
    let file = folder.join("proxy.toml");
    std::fs::write(&file, text).expect("written");
    Process::start(&file).await
}

/// Sends a streamed chat with a prompt of about this many tokens, and returns the status.
async fn call(proxy: SocketAddr, upstream: &str, agent: &str, words: usize, settings: &str) -> u16 {
    let body = json!({
        "model": "m",
        "stream": true,
        "messages": [{"role": "user", "content": "word ".repeat(words)}],
    });
    let body = body.to_string();
    let mut connection = RawConnection::connect(proxy).await;
    connection
        .write(format!(
            "POST /{upstream}/v1/chat/completions HTTP/1.1\r\nhost: proxy\r\nconnection: close\r\n\
             content-type: application/json\r\ncontent-length: {}\r\nx-sim: {settings}\r\n\
             x-tokengauge-agent: {agent}\r\n\r\n{body}",
            body.len()
        ))
        .await;
    let answer = connection.text_to_end().await;
    let status = answer
        .strip_prefix("HTTP/1.1 ")
        .and_then(|rest| rest.get(..3))
        .and_then(|status| status.parse().ok());
    status.unwrap_or_else(|| panic!("{answer}"))
}

/// Makes calls to each of `upstreams` in turn by `AGENTS` concurrent agents of one name. Calls to vllm-a have `fault`.
async fn calls_of(
    (proxy, upstreams): (SocketAddr, &'static [&'static str]),
    (agent, at_once): (&'static str, usize),
    count: usize,
    fault: &'static str,
) {
    let mut agents = JoinSet::new();
    for first in 0..at_once {
        agents.spawn(async move {
            for number in (first..upstreams.len() * count).step_by(at_once) {
                let upstream = upstreams[number % upstreams.len()];
                let settings = if upstream == "vllm-a" { fault } else { "" };
                // Prompts of ten lengths, equally distributed over the upstreams.
                let words = 200 + 150 * (number / upstreams.len() % 10);
                call(proxy, upstream, agent, words, settings).await;
            }
        });
    }
    while let Some(agent) = agents.join_next().await {
        agent.expect("no panic");
    }
}

async fn calls(proxy: SocketAddr, count: usize, fault: &'static str) {
    calls_of((proxy, &UPSTREAMS), ("coder", AGENTS), count, fault).await;
}

/// Waits until the cause names this dimension, value and mechanism. A cause that was computed before all calls were
/// known is computed again after some seconds.
async fn cause_of(admin: SocketAddr, (dimension, value): (&str, &str), mechanism: &str) -> Value {
    let expected = (json!(dimension), json!(value), json!(mechanism));
    let end = Instant::now() + TIMEOUT;
    loop {
        let answer = fetch(admin, "/api/v1/slos").await.body;
        let answer: Value = serde_json::from_str(&answer).expect("JSON");
        let cause = &answer["slos"][0]["cause"];
        let found = ["dimension", "value", "mechanism"].map(|name| cause[name].clone());
        if expected == found.into() {
            println!("{}", cause["sentence"]);
            return cause.clone();
        }
        assert!(Instant::now() < end, "not {expected:?}: {answer:#}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// Whether a call could not reach its upstream.
async fn was_unreachable(admin: SocketAddr) -> bool {
    let answer = fetch(admin, "/api/v1/calls?outcome=unreachable&limit=1").await;
    let answer: Value = serde_json::from_str(&answer.body).expect("JSON");
    !answer["calls"].as_array().expect("calls").is_empty()
}

/// Returns the first alert whose cause is this upstream. An alert sent without a cause is sent once more with it. Later
/// changes of the cause's figures do not send it again.
async fn alert_about(receiver: &Receiver, upstream: &str) -> Value {
    let words = format!("% of bad calls are upstream {upstream} (");
    let says = |alert: &&Value| {
        let said = alert["annotations"]["cause"].as_str();
        said.is_some_and(|said| said.contains(&words))
    };
    let end = Instant::now() + TIMEOUT;
    loop {
        let all = alerts(receiver);
        if let Some(alert) = all.iter().find(says) {
            return alert.clone();
        }
        assert!(Instant::now() < end, "{words}: {all:#?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn alerts(receiver: &Receiver) -> Vec<Value> {
    let received = receiver.received();
    let bodies = received.iter().map(|request| {
        assert_eq!(request.path, "/alerts");
        let body: Value = serde_json::from_slice(&request.message).expect("JSON");
        let alert = body["alerts"][0].clone();
        let is = (&alert["labels"]["slo"], &alert["status"]);
        assert_eq!(is, (&json!("chat"), &json!("firing")), "{body:#}");
        alert
    });
    bodies.collect()
}

async fn notified(receiver: &Receiver, count: usize) -> Vec<Value> {
    let end = Instant::now() + TIMEOUT;
    loop {
        let alerts = alerts(receiver);
        if alerts.len() >= count {
            return alerts;
        }
        assert!(
            Instant::now() < end,
            "{} of {count} alerts came",
            alerts.len()
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn status(admin: SocketAddr) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tokengauge"));
    command.args(["slo", "status", "--admin", &admin.to_string()]);
    let output = tokio::time::timeout(TIMEOUT, command.output()).await;
    let output = output.expect("in time").expect("it runs");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("text")
}

async fn names_the_upstream(incident: Incident) {
    let folder = tempfile::tempdir().expect("a folder");
    let receiver = Receiver::start(ReceiverBehaviour::default()).await;
    let simulators = [sim::start(HEALTHY).await, sim::start(HEALTHY).await];
    let setup = Setup {
        upstreams: two_upstreams(&simulators),
        promise: incident.promise,
        min_events: MIN_EVENTS,
        warm_up_calls: 0,
    };
    let process = start(folder.path(), &setup, &receiver).await;
    let proxy = process.addresses()[0];
    calls(proxy, BEFORE, "").await;
    let quiet = status(process.admin).await;
    assert!(!quiet.contains("bad calls"), "{quiet}");
    calls(proxy, DURING, incident.fault).await;

    let annotations = &alert_about(&receiver, "vllm-a").await["annotations"];
    let cause = cause_of(process.admin, ("upstream", "vllm-a"), incident.mechanism).await;
    assert_eq!(cause["compared_with"], "before", "{cause:#}");
    let sentence = cause["sentence"].as_str().expect("a sentence");
    // If the machine pauses for a moment, a call to the other upstream is also bad.
    let share = cause["share_of_bad"].as_f64().expect("a share");
    let begin = format!("{:.0} % of bad calls are upstream vllm-a (", share * 100.0);
    assert!(share >= 0.8 && sentence.starts_with(&begin), "{sentence}");
    for words in incident.words {
        assert!(sentence.contains(words), "{words:?} in {sentence:?}");
    }
    let page = annotations["page"].as_str().expect("a link");
    let view = page.strip_prefix("https://gauge.example/a/calls?slo=");
    let from = view.and_then(|view| view.split_once("&from="));
    let (slo, from) = from.expect("an objective and a beginning");
    let spent = fetch(
        process.admin,
        &format!("/api/v1/calls?slo={slo}&since={from}"),
    )
    .await;
    let spent: Value = serde_json::from_str(&spent.body).expect("JSON");
    let spent = spent["calls"].as_array().expect("calls");
    let of_the_slow = spent
        .iter()
        .filter(|call| call["upstream"] == "vllm-a")
        .count();
    assert!(
        of_the_slow > 0 && of_the_slow * 10 >= spent.len() * 8,
        "{of_the_slow} of {}",
        spent.len()
    );
    let runbook = "https://gauge.example/a/runbooks#tokengaugeerrorbudgetburn";
    assert_eq!(annotations["runbook_url"], runbook);
    let page = fetch(process.admin, "/runbooks").await;
    assert!(
        page.status == 200 && page.body.contains("id=\"sloerrorbudgetburn\""),
        "{}",
        page.body
    );
    let status = status(process.admin).await;
    assert!(status.contains(sentence), "{status}");
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_decoding_of_an_upstream_names_the_upstream() {
    names_the_upstream(Incident {
        promise: FAST,
        fault: "gap=100ms",
        mechanism: "decode",
        words: &[
            "inter-token gap ",
            "first token unchanged: decoding, not queueing.",
        ],
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_of_an_upstream_are_named() {
    names_the_upstream(Incident {
        promise: "availability = true",
        fault: "status=503",
        mechanism: "errors",
        words: &[
            "calls with errors 100 %, before 0 %",
            "errors, mostly http_error 503.",
        ],
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queue_at_an_upstream_names_the_upstream() {
    names_the_upstream(Incident {
        promise: PROMPT,
        fault: "ttft=2s",
        mechanism: "queue",
        words: &[
            "first token ",
            "inter-token gap unchanged: queueing, not decoding.",
        ],
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_prefill_at_an_upstream_names_the_upstream() {
    names_the_upstream(Incident {
        promise: PROMPT,
        fault: "prefill=3s",
        mechanism: "prefill",
        words: &["first token ", ": prefill, not queueing or decoding."],
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stalls_are_distinguished_from_slow_decoding() {
    names_the_upstream(Incident {
        promise: "longest_gap.at_most = \"1s\"",
        fault: "stall=2s@6",
        mechanism: "stalls",
        words: &["streams with stalls 100 %, before ", ": stalls."],
    })
    .await;
}

/// One of two replicas behind a name decodes slowly. The cause names its address, not the upstream. The slow replica
/// gets fewer calls, because its calls take longer.
#[tokio::test(flavor = "multi_thread")]
async fn one_bad_replica_is_named_by_its_address() {
    let folder = tempfile::tempdir().expect("a folder");
    let receiver = Receiver::start(ReceiverBehaviour::default()).await;
    let replicas = [sim::start(HEALTHY).await, sim::start(HEALTHY).await];
    let setup = Setup {
        upstreams: upstream("vllm", &replicas.each_ref()),
        promise: FAST,
        min_events: 160,
        warm_up_calls: 0,
    };
    let process = start(folder.path(), &setup, &receiver).await;
    let proxy = process.addresses()[0];
    let of = (proxy, &["vllm"][..]);
    calls_of(of, ("coder", AGENTS), 50, "").await;
    replicas[1]
        .simulator
        .set_fault("gap=100ms")
        .expect("a fault");
    calls_of(of, ("coder", AGENTS), 120, "").await;

    let alert = &notified(&receiver, 1).await[0];
    let address = replicas[1].address.to_string();
    cause_of(process.admin, ("node", &address), "decode").await;
    assert!(alert["annotations"]["cause"].is_string(), "{alert:#}");
}

/// The first calls of an upstream that was unreachable take longer.
#[tokio::test(flavor = "multi_thread")]
async fn a_cold_start_is_told_from_a_queue() {
    // The total stays below the number of calls that are kept for each minute. A sample of more calls may contain too
    // many cold ones.
    const WARM: usize = 40;
    const COLD: usize = 18;
    let folder = tempfile::tempdir().expect("a folder");
    let receiver = Receiver::start(ReceiverBehaviour::default()).await;
    let held = HeldPort::take();
    let before = sim::start_on(held.listen(), HEALTHY);
    let simulators = [before, sim::start(HEALTHY).await];
    let setup = Setup {
        upstreams: two_upstreams(&simulators),
        promise: &format!("{PROMPT}\nselect.agent = \"coder\""),
        min_events: 2 * (WARM + COLD) - 2,
        warm_up_calls: COLD,
    };
    let process = start(folder.path(), &setup, &receiver).await;
    let proxy = process.addresses()[0];
    // The very first calls are also cold. Their agent is not part of the objective.
    calls_of((proxy, &UPSTREAMS), ("nobody", AGENTS), COLD, "").await;
    calls(proxy, WARM, "").await;
    let [before, _other] = simulators;
    drop(before);
    let away = Instant::now() + TIMEOUT;
    while tokio::net::TcpStream::connect(held.address).await.is_ok() {
        assert!(Instant::now() < away, "it does not end");
    }
    // Kept connections may still answer calls or break off before new connections are refused.
    while !was_unreachable(process.admin).await {
        assert!(Instant::now() < away, "it does not end");
        call(proxy, "vllm-a", "nobody", 200, "").await;
    }
    let cold = format!("{HEALTHY},cold_start=3s@{COLD}");
    let _again = sim::start_on(held.listen(), &cold);
    calls(proxy, COLD, "").await;

    notified(&receiver, 1).await;
    let cause = cause_of(process.admin, ("upstream", "vllm-a"), "cold_start").await;
    let sentence = cause["sentence"].as_str().expect("a sentence");
    assert!(sentence.ends_with(": a cold start."), "{sentence}");
}

/// One agent calls more than all others together, and all agents wait.
#[tokio::test(flavor = "multi_thread")]
async fn a_chatty_agent_is_named_where_everybody_waits() {
    let folder = tempfile::tempdir().expect("a folder");
    let receiver = Receiver::start(ReceiverBehaviour::default()).await;
    let settings = &format!("{HEALTHY},knee=3");
    let simulators = [sim::start(settings).await, sim::start(settings).await];
    let setup = Setup {
        upstreams: two_upstreams(&simulators),
        promise: "output_tps.at_least = 12",
        min_events: 180,
        warm_up_calls: 0,
    };
    let process = start(folder.path(), &setup, &receiver).await;
    let to = (process.addresses()[0], &UPSTREAMS[..]);
    calls_of(to, ("coder", 2), BEFORE, "").await;
    tokio::join!(
        calls_of(to, ("coder", 2), 6, ""),
        calls_of(to, ("crawler", 44), 66, ""),
    );

    notified(&receiver, 1).await;
    let cause = cause_of(process.admin, ("agent", "crawler"), "decode").await;
    let load = &cause["load"];
    assert_eq!(
        (&load["dimension"], &load["value"]),
        (&json!("agent"), &json!("crawler"))
    );
}

/// An alert that fires before there are enough bad calls for a cause is sent again with its cause, under the same key.
#[tokio::test(flavor = "multi_thread")]
async fn an_alert_is_sent_again_once_its_cause_is_known() {
    let folder = tempfile::tempdir().expect("a folder");
    let receiver = Receiver::start(ReceiverBehaviour::default()).await;
    let simulators = [sim::start(HEALTHY).await, sim::start(HEALTHY).await];
    let setup = Setup {
        upstreams: two_upstreams(&simulators),
        promise: "availability = true\nselect.model = \"m\"",
        min_events: 44,
        warm_up_calls: 0,
    };
    let process = start(folder.path(), &setup, &receiver).await;
    let proxy = process.addresses()[0];
    calls(proxy, 18, "").await;
    calls_of((proxy, &UPSTREAMS[..1]), ("coder", AGENTS), 9, "status=503").await;
    let first = &notified(&receiver, 1).await[0];
    // The alert can fire a moment before its cause has been computed.
    let said = first["annotations"]["cause"].as_str();
    assert!(
        said.is_none_or(|said| said.starts_with("The cause is not known: there are too few calls")),
        "{said:?}"
    );
    calls(proxy, DURING, "status=503").await;
    let again = alert_about(&receiver, "vllm-a").await;
    for same in ["key", "labels", "startsAt"] {
        assert_eq!(first[same], again[same], "{same}");
    }
    cause_of(process.admin, ("upstream", "vllm-a"), "errors").await;
    let mark = alert_mark(process.admin).await;
    let about = (&mark["model"], &mark["upstream"], &mark["tags"][0]);
    let should = (&json!("m"), &Value::Null, &json!("chat/page"));
    assert_eq!(about, should, "what the objective selects: {mark:#}");
}

async fn alert_mark(admin: SocketAddr) -> Value {
    let end = Instant::now() + TIMEOUT;
    loop {
        let answer = fetch(admin, "/api/v1/marks?kind=alert").await.body;
        let answer: Value = serde_json::from_str(&answer).expect("JSON");
        let mut marks = answer["marks"].as_array().expect("marks").iter();
        if let Some(mark) = marks.find(|mark| mark["tags"][0] == "chat/page") {
            return mark.clone();
        }
        assert!(Instant::now() < end, "no mark: {answer:#}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
