//! Each fault of the simulator has its stated effect, and the truth log reports it.

use serde_json::{Value, json};
use std::error::Error;
use std::io::ErrorKind;
use std::time::{Duration, Instant};
use tokengauge_sim::{Ending, Setup, Simulator};
use tokengauge_test_support::sim::{post, serve, start};

const CHAT: &str = "/v1/chat/completions";

fn chat() -> Value {
    json!({"model": "m", "stream": true, "messages": [{"role": "user", "content": "Hello"}]})
}

fn events(body: &str) -> usize {
    body.matches("\"content\":\"").count() - 1 // the first says only the role
}

fn io_kind(error: &hyper::Error) -> Option<ErrorKind> {
    let mut source: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(error) = source {
        if let Some(io) = error.downcast_ref::<std::io::Error>() {
            return Some(io.kind());
        }
        source = error.source();
    }
    None
}

#[tokio::test]
async fn a_reset_comes_after_exactly_the_tokens_named() {
    let sim = start("ttft=1ms,gap=2ms,tokens=40,reset=@25").await;
    let response = sim.post(CHAT, "", chat()).await;
    assert_eq!(events(&response.text()), 25);
    let error = response.error.expect("torn");
    assert_eq!(
        io_kind(&error),
        Some(ErrorKind::ConnectionReset),
        "{error:?}"
    );
    let truth = sim.truth().await;
    assert_eq!(
        (truth.outcome, truth.tokens.expect("known").output),
        (Ending::Reset, 25)
    );
    assert!(
        truth.finish_reasons.is_empty() && truth.usage.is_none(),
        "the end was never said"
    );
}

#[tokio::test]
async fn a_close_ends_the_connection_without_a_terminator_and_without_a_reset() {
    let sim = start("ttft=1ms,gap=2ms,tokens=40,close=@7").await;
    let response = sim.post(CHAT, "", chat()).await;
    assert_eq!(events(&response.text()), 7);
    let error = response.error.expect("torn");
    assert_ne!(
        io_kind(&error),
        Some(ErrorKind::ConnectionReset),
        "{error:?}"
    );
    assert_eq!(sim.truth().await.outcome, Ending::Closed);
}

#[tokio::test]
async fn over_http2_a_reset_takes_the_stream_and_not_the_connection() {
    let sim = start("ttft=1ms,gap=2ms,tokens=40").await;
    let response = sim.send_h2(post(CHAT, "reset=@9", &chat())).await;
    assert!(response.error.is_some());
    assert_eq!(sim.truth().await.outcome, Ending::Reset);
}

#[tokio::test]
async fn a_fault_before_the_first_token_leaves_none() {
    let sim = start("ttft=1ms,gap=1ms,tokens=40,reset=@0").await;
    let response = sim.post(CHAT, "", chat()).await;
    assert!(response.error.is_some());
    let truth = sim.truth().await;
    assert_eq!((truth.frames, truth.seconds.ttft), (0, None));
}

#[tokio::test]
async fn an_http_error_has_its_status_and_the_dialects_shape() {
    let sim = start("status=429").await;
    let anthropic = sim.post("/v1/messages", "", chat()).await;
    assert_eq!(anthropic.status, 429);
    assert_eq!(anthropic.json()["error"]["type"], "rate_limit_error");
    let gemini = sim
        .post("/v1beta/models/g:generateContent", "status=503", json!({}))
        .await;
    assert_eq!(gemini.json()["error"]["code"], 503);
    let truth = sim.truth_of(&gemini).await;
    assert_eq!((truth.outcome, truth.status), (Ending::HttpError, 503));
}

#[tokio::test]
async fn an_agent_that_disconnects_is_recorded_as_cancelled_with_what_it_got() {
    let sim = start("ttft=1ms,gap=20ms,tokens=500").await;
    let reading = sim.post(CHAT, "", chat());
    tokio::time::timeout(Duration::from_secs(1), reading)
        .await
        .expect_err("still streaming");
    let truth = sim.truth().await;
    assert_eq!(truth.outcome, Ending::Cancelled);
    let written = truth.tokens.expect("known").output;
    assert!((1..100).contains(&written), "{written}");
    assert_eq!(sim.simulator.in_flight(), 0);
}

#[tokio::test]
async fn stalls_pings_and_empty_deltas_come_as_asked() {
    let sim = start("ttft=120ms,gap=1ms,tokens=10,stall=200ms@5,ping=50ms,empty=3").await;
    let response = sim.post(CHAT, "", chat()).await;
    let text = response.text();
    assert_eq!(events(&text), 13, "three of them empty");
    let pings = text.matches(": ping\n\n").count();
    assert!(
        (3..=6).contains(&pings),
        "{pings} in 120 ms and 200 ms of silence"
    );
    let truth = sim.truth().await;
    assert_eq!(truth.tokens.expect("known").output, 10);
    assert!(truth.seconds.longest_gap.expect("gaps") >= 0.190);
}

#[tokio::test]
async fn a_head_can_come_later_than_the_request_and_earlier_than_the_first_token() {
    let sim = start("head=80ms,ttft=160ms,gap=1ms,tokens=5").await;
    let started = Instant::now();
    let response = sim.post(CHAT, "", chat()).await;
    let opened = response
        .chunks
        .first()
        .expect("a role")
        .0
        .duration_since(started);
    assert!(opened >= Duration::from_millis(79), "{opened:?}");
    assert!(sim.truth().await.seconds.ttft.expect("streamed") >= 0.159);
}

#[tokio::test]
async fn gzip_chunks_can_be_read_as_they_come() {
    use compression_codecs::{Decode, GzipDecoder};
    use compression_core::util::PartialBuffer;
    let sim = start("ttft=1ms,gap=15ms,tokens=12,gzip").await;
    let response = sim.post(CHAT, "", chat()).await;
    assert_eq!(response.headers["content-encoding"], "gzip");
    let mut decoder = GzipDecoder::new();
    let mut seen = Vec::new();
    for (_, chunk) in &response.chunks {
        let mut input = PartialBuffer::new(chunk.as_ref());
        let mut output = PartialBuffer::new([0u8; 16 * 1024]);
        while !input.unwritten().is_empty() {
            decoder.decode(&mut input, &mut output).expect("gzip");
        }
        let text = String::from_utf8_lossy(output.written()).into_owned();
        assert!(text.ends_with("\n\n"), "an event is cut: {text:?}");
        seen.push(text);
    }
    assert_eq!(events(&seen.concat()), 12);
    assert!(seen.len() >= 6, "{} chunks", seen.len());
}

#[tokio::test]
async fn streams_at_once_slow_each_other_down_beyond_the_knee() {
    let sim = start("ttft=1ms,gap=4ms,tokens=40,knee=2").await;
    // One token every 4 ms is the maximum speed of a stream.
    let alone = 250.0;
    let calls: Vec<_> = (0..8).map(|_| sim.post(CHAT, "", chat())).collect();
    futures_util::future::join_all(calls).await;
    for _ in 0..1_000 {
        if sim.simulator.truths().len() == 8 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let truths = sim.simulator.truths();
    assert_eq!(truths.len(), 8);
    let mean = truths
        .iter()
        .filter_map(|truth| truth.output_tps)
        .sum::<f64>()
        / 8.0;
    // Eight streams share the throughput of two. Each gets a quarter, and a little less because of the load.
    assert!(mean < alone / 2.5, "{mean} beside {alone} alone");
    assert!(truths.iter().any(|truth| truth.concurrency >= 6));
}

#[tokio::test]
async fn the_first_calls_of_a_process_are_slower_where_asked() {
    let sim = start("ttft=1ms,gap=0ms,tokens=1,cold_start=1500ms@1").await;
    for _ in 0..2 {
        let response = sim.post(CHAT, "", chat()).await;
        sim.truth_of(&response).await;
    }
    let seconds: Vec<f64> = sim
        .simulator
        .truths()
        .iter()
        .filter_map(|truth| truth.seconds.ttft)
        .collect();
    assert!(seconds[1] >= 1.5, "the first: {seconds:?}");
    assert!(seconds[0] < 1.5, "the second: {seconds:?}");
}

#[tokio::test]
async fn a_recorded_body_is_served_byte_for_byte_cut_and_paced() {
    let folder = tempfile::tempdir().expect("a folder");
    let place = folder.path().join("made/up");
    std::fs::create_dir_all(&place).expect("a folder");
    let body: String = (0..40)
        .map(|n| format!("data: {{\"n\":{n}}}\n\n"))
        .collect();
    std::fs::write(place.join("response.body"), &body).expect("written");
    let meta =
        r#"{"status":201,"content_type":"text/event-stream; x=y","framing":"sse","stream":true}"#;
    std::fs::write(place.join("meta.json"), meta).expect("written");
    let profile = "ttft=20ms,gap=2ms".parse().expect("settings");
    let bodies = Some(folder.path().to_owned());
    let sim = serve(Simulator::with(Setup {
        profile,
        bodies,
        print: false,
        witness: None,
    }))
    .await;
    for (settings, chunks) in [
        ("", 40),
        ("cut=100", body.len().div_ceil(100) as u64),
        ("stall=100ms@3", 40),
    ] {
        let mut request = post("/anything/at/all", settings, &json!({}));
        request
            .headers_mut()
            .insert("x-sim-body", "made/up".parse().expect("a value"));
        let response = sim.send(request).await;
        assert_eq!(response.text(), body, "{settings}");
        assert_eq!(
            (response.status.as_u16(), &response.headers["content-type"]),
            (201, &"text/event-stream; x=y".parse().expect("a value"))
        );
        let truth = sim.truth_of(&response).await;
        assert_eq!(truth.tokens, None, "{settings}");
        assert!(
            (2..=chunks).contains(&truth.frames),
            "{settings}: {}",
            truth.frames
        );
        assert!(truth.seconds.ttft.expect("streamed") >= 0.019);
    }
    let mut request = post("/v1/messages", "", &json!({}));
    request
        .headers_mut()
        .insert("x-sim-body", "not/there".parse().expect("a value"));
    assert_eq!(sim.send(request).await.status, 400);
}
