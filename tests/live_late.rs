//! Live figures of streams must not be ahead of what is measured, over the real binary, which batches chunks before it
//! measures them.

use crate::process::Process;
use http_body_util::BodyExt;
use std::net::SocketAddr;
use std::time::Duration;
use tokengauge_test_support::TIMEOUT;
use tokengauge_test_support::agent::{http2, whole};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, sleep, sleep_until};

const STREAMS: usize = 6;
const BODY: &str = r#"{"model":"m","stream":true,"messages":[{"role":"user","content":"q"}]}"#;
const HEAD: &str =
    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";

/// Milliseconds since the request, and the part of the stream to send then.
type Script = Vec<(u64, String)>;

fn delta(field: &str) -> String {
    format!(
        "data: {{\"model\":\"m\",\"choices\":[{{\"index\":0,\"delta\":{{\"{field}\":\" word\"}}}}]}}\n\n"
    )
}

async fn backend(script: Script) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((tcp, _)) = listener.accept().await {
            let script = script.clone();
            tokio::spawn(async move { play(tcp, &script).await });
        }
    });
    address
}

/// Plays the script once, and ignores an agent that has left.
async fn play(mut tcp: TcpStream, script: &Script) -> Option<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(tcp.read_u8().await.ok()?);
    }
    let begun = Instant::now();
    let mut body = vec![0; BODY.len()];
    tcp.read_exact(&mut body).await.ok()?;
    tcp.write_all(HEAD.as_bytes()).await.ok()?;
    for (at, event) in script {
        sleep_until(begun + Duration::from_millis(*at)).await;
        let chunk = format!("{:x}\r\n{event}\r\n", event.len());
        tcp.write_all(chunk.as_bytes()).await.ok()?;
    }
    tcp.write_all(b"0\r\n\r\n").await.ok()
}

async fn proxy(
    backend: SocketAddr,
    stall_threshold: &str,
    slo: &str,
) -> (tempfile::TempDir, Process) {
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("proxy.toml");
    let text = format!(
        "listen = \"127.0.0.1:0\"\nadmin.listen = \"127.0.0.1:0\"\n\
         [measure]\nstall_threshold = \"{stall_threshold}\"\nwarm_up_calls = 0\n\
         [[upstream]]\nname = \"u\"\nurl = \"http://{backend}\"\n\
         [[route]]\nname = \"r\"\nupstream = \"u\"\n{slo}"
    );
    std::fs::write(&config, text).expect("written");
    let process = Process::start(&config).await;
    (folder, process)
}

async fn read(address: SocketAddr, version: u8) {
    if version == 2 {
        let mut agent = http2(address).await;
        let request = http::Request::post(format!("http://{address}/v1/chat/completions"))
            .header("content-type", "application/json")
            .body(whole(BODY))
            .expect("a request");
        let response = agent.send_request(request).await.expect("answered");
        response.into_body().collect().await.expect("whole");
        return;
    }
    let mut tcp = TcpStream::connect(address).await.expect("connected");
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\n\
         Connection: close\r\nContent-Length: {}\r\n\r\n{BODY}",
        BODY.len()
    );
    tcp.write_all(head.as_bytes()).await.expect("sent");
    let mut answer = Vec::new();
    tcp.read_to_end(&mut answer).await.expect("whole");
    assert!(answer.ends_with(b"0\r\n\r\n"), "the stream is whole");
}

fn sum(metrics: &std::collections::HashMap<String, f64>, name: &str, label: &str) -> f64 {
    let matching = metrics
        .iter()
        .filter(|(series, _)| series.starts_with(name) && series.contains(label));
    matching.map(|(_, value)| value).sum()
}

/// The first answer token arrives in time as the last of a batch of chunks. Then nothing arrives for as long as a chunk
/// may wait to be measured.
async fn an_answer_in_time_is_good(version: u8) {
    let mut script: Script = (0..10)
        .map(|n| (700 + 100 * n, delta("reasoning_content")))
        .collect();
    script.push((1_700, delta("content")));
    script.push((6_000, delta("content")));
    script.push((
        6_010,
        "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n".into(),
    ));
    script.push((6_020, "data: [DONE]\n\n".into()));
    let slo = "[[slo]]\nname = \"s\"\ntime_to_first_answer.at_most = \"4s\"\n";
    let (_folder, process) = proxy(backend(script).await, "1s", slo).await;
    let address = process.addresses()[0];
    let calls: Vec<_> = (0..STREAMS)
        .map(|_| tokio::spawn(read(address, version)))
        .collect();
    for call in calls {
        call.await.expect("read");
    }
    let counted = |metrics: &_| sum(metrics, "tokengauge_slo_events_total", "slo=\"s\"");
    let end = Instant::now() + TIMEOUT;
    let mut metrics = process.metrics().await;
    while counted(&metrics) < STREAMS as f64 && Instant::now() < end {
        sleep(Duration::from_millis(50)).await;
        metrics = process.metrics().await;
    }
    let verdict = |verdict| sum(&metrics, "tokengauge_slo_events_total", verdict);
    assert_eq!(
        (verdict("\"good\""), verdict("\"bad\"")),
        (STREAMS as f64, 0.0),
        "HTTP/{version}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_in_time_is_not_judged_late_over_http1() {
    an_answer_in_time_is_good(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_in_time_is_not_judged_late_over_http2() {
    an_answer_in_time_is_good(2).await;
}

/// Gaps below the stall threshold are not stalls, even if the chunks are measured together.
#[tokio::test(flavor = "multi_thread")]
async fn gaps_below_the_threshold_are_not_stalls() {
    // The sum of two gaps is above the threshold. One gap is far enough below it for a busy machine.
    const GAP: u64 = 850;
    let script: Script = (0..14).map(|n| (GAP * n, delta("content"))).collect();
    let (_folder, process) = proxy(backend(script).await, "1600ms", "").await;
    let calls: Vec<_> = (0..STREAMS)
        .map(|_| tokio::spawn(read(process.addresses()[0], 1)))
        .collect();
    let end = Instant::now() + Duration::from_millis(GAP * 12);
    let mut most = 0.0_f64;
    while Instant::now() < end {
        most = most.max(sum(
            &process.metrics().await,
            "tokengauge_streams_stalled",
            "",
        ));
        sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(most, 0.0, "stalled streams");
    for call in calls {
        call.await.expect("read");
    }
}
