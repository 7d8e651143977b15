//! Why an objective is missed, over the real binary: of two simulated upstreams one becomes bad, an alert fires, and the
//! sentence names that upstream and what moved.

use crate::process::Process;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};
use tokengauge_test_support::TIMEOUT;
use tokengauge_test_support::connection::RawConnection;
use tokengauge_test_support::http_client::fetch;
use tokengauge_test_support::otlp::{Receiver, ReceiverBehaviour};
use tokengauge_test_support::sim::{self, Sim};
use tokio::process::Command;
use tokio::task::JoinSet;

const UPSTREAMS: [&str; 2] = ["vllm-a", "vllm-b"];
/// Calls to each upstream before the incident, and during it.
const BEFORE: usize = 30;
const DURING: usize = 25;
/// Events that an alert needs: all but a few of both.
const MIN_EVENTS: usize = 105;
/// How many agents call at once.
const AGENTS: usize = 5;

/// What happens to the upstream vllm-a, and what is to be said of it.
struct Incident {
    /// The key of the objective.
    promise: &'static str,
    /// The simulator's settings.
    fault: &'static str,
    mechanism: &'static str,
    /// What the sentence says of the phases.
    words: &'static [&'static str],
}

async fn start(
    folder: &Path,
    incident: &Incident,
    simulators: &[Sim; 2],
    receiver: &Receiver,
) -> Process {
    let upstreams = UPSTREAMS.iter().zip(simulators).map(|(name, simulator)| {
        format!(
            "[[upstream]]\nname = \"{name}\"\nurl = \"http://{}\"\n\
             [[route]]\npath = \"/{name}\"\nstrip = true\nupstream = \"{name}\"\n",
            simulator.address
        )
    });
    let upstreams: String = upstreams.collect();
    let text = format!(
        "listen = \"127.0.0.1:0\"\n[admin]\nlisten = \"127.0.0.1:0\"\nurl = \"https://gauge.example/a/\"\n\
         [measure]\nmin_output_tokens = 8\nwarm_up_calls = 0\nwarm_up_for = \"0s\"\n{upstreams}\
         [[slo]]\nname = \"chat\"\nobjective = 0.99\nwindow = \"1d\"\nmin_events = {MIN_EVENTS}\n{}\n\
         [[notify]]\nkind = \"webhook\"\nurl = \"http://{}/alerts\"\nseverity = \"page\"\n",
        incident.promise, receiver.address
    );
    let file = folder.join("proxy.toml");
    std::fs::write(&file, text).expect("written");
    Process::start(&file).await
}

/// A streamed chat with a prompt of about so many tokens.
async fn call(proxy: SocketAddr, upstream: &str, words: usize, settings: &str) {
    let body = json!({
        "model": "m",
        "stream": true,
        "messages": [{"role": "user", "content": "word ".repeat(words)}],
    });
    let body = body.to_string();
    let mut agent = RawConnection::connect(proxy).await;
    agent
        .write(format!(
            "POST /{upstream}/v1/chat/completions HTTP/1.1\r\nhost: proxy\r\nconnection: close\r\n\
             content-type: application/json\r\ncontent-length: {}\r\nx-sim: {settings}\r\n\r\n{body}",
            body.len()
        ))
        .await;
    let answer = agent.text_to_end().await;
    assert!(answer.starts_with("HTTP/1.1 "), "{answer}");
}

/// So many calls to each upstream, in turn, by some agents at once.
async fn calls(proxy: SocketAddr, count: usize, fault: &'static str) {
    let mut agents = JoinSet::new();
    for agent in 0..AGENTS {
        agents.spawn(async move {
            for number in (agent..UPSTREAMS.len() * count).step_by(AGENTS) {
                let upstream = UPSTREAMS[number % UPSTREAMS.len()];
                let settings = if upstream == "vllm-a" { fault } else { "" };
                // From short to long, alike for both.
                call(proxy, upstream, 200 + 150 * (number / 2 % 10), settings).await;
            }
        });
    }
    while let Some(agent) = agents.join_next().await {
        agent.expect("no panic");
    }
}

/// The cause of the objective, once it is known.
async fn known_cause(admin: SocketAddr) -> Value {
    let end = Instant::now() + TIMEOUT;
    loop {
        let answer = fetch(admin, "/api/v1/slos").await.body;
        let answer: Value = serde_json::from_str(&answer).expect("JSON");
        let slo = &answer["slos"][0];
        if slo["cause"]["known"] == true {
            return slo["cause"].clone();
        }
        assert!(Instant::now() < end, "no cause: {slo:#}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// The annotations of the first alert that the receiver got.
async fn notified(receiver: &Receiver) -> Value {
    let end = Instant::now() + TIMEOUT;
    loop {
        if let Some(first) = receiver.received().first() {
            assert_eq!(first.path, "/alerts");
            let body: Value = serde_json::from_slice(&first.message).expect("JSON");
            let alert = &body["alerts"][0];
            assert_eq!(
                (&alert["labels"]["slo"], &alert["status"]),
                (&json!("chat"), &json!("firing")),
                "{body:#}"
            );
            return alert["annotations"].clone();
        }
        assert!(Instant::now() < end, "no alert came");
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
    let settings = "ttft=20ms,gap=4ms,tokens=24,usage=on";
    let simulators = [sim::start(settings).await, sim::start(settings).await];
    let process = start(folder.path(), &incident, &simulators, &receiver).await;
    let proxy = process.addresses()[0];
    calls(proxy, BEFORE, "").await;
    let quiet = status(process.admin).await;
    assert!(!quiet.contains("bad calls"), "{quiet}");
    calls(proxy, DURING, incident.fault).await;

    let annotations = notified(&receiver).await;
    let cause = known_cause(process.admin).await;
    println!("{}", cause["sentence"]);
    assert_eq!(
        (&cause["dimension"], &cause["value"], &cause["mechanism"]),
        (
            &json!("upstream"),
            &json!("vllm-a"),
            &json!(incident.mechanism)
        ),
        "{cause:#}"
    );
    assert_eq!(cause["compared_with"], "before", "{cause:#}");
    let sentence = cause["sentence"].as_str().expect("a sentence");
    let begin = "100 % of bad calls are upstream vllm-a (";
    assert!(sentence.starts_with(begin), "{sentence}");
    for words in incident.words {
        assert!(sentence.contains(words), "{words:?} in {sentence:?}");
    }
    assert_eq!(
        annotations["cause"], cause["sentence"],
        "the alert says the same"
    );
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
        of_the_slow > 0 && of_the_slow * 10 >= spent.len() * 9,
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
        promise: "output_tps.at_least = 50",
        fault: "gap=40ms",
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
        promise: "ttft.at_most = \"300ms\"",
        fault: "ttft=800ms",
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
        promise: "ttft.at_most = \"300ms\"",
        fault: "prefill=1s",
        mechanism: "prefill",
        words: &["first token ", ": prefill, not queueing or decoding."],
    })
    .await;
}
