//! The simulator streams what it was asked for, and its truth log is correct.

use serde_json::{Value, json};
use std::time::Duration;
use tokengauge_sim::Ending;
use tokengauge_test_support::sim::{get, post, start};

fn chat(stream: bool) -> Value {
    json!({"model": "m-1", "stream": stream, "messages": [{"role": "user", "content": "Hello there"}]})
}

fn content(events: &[Value], pointer: &str) -> String {
    events
        .iter()
        .filter_map(|event| event.pointer(pointer)?.as_str())
        .collect()
}

fn count(text: &str) -> u64 {
    tiktoken_rs::o200k_base_singleton()
        .encode_ordinary(text)
        .len() as u64
}

#[tokio::test]
async fn a_chat_stream_has_exactly_the_tokens_asked_for_and_the_truth_says_so() {
    let sim = start("").await;
    let asked = "ttft=30ms,gap=1ms,tokens=50,reasoning=20,per_frame=3,tool=9x2";
    let response = sim.post("/v1/chat/completions", asked, chat(true)).await;
    assert_eq!(response.headers["x-sim-id"], "one");
    let events = response.events();
    let delta = "/choices/0/delta/";
    assert_eq!(count(&content(&events, &format!("{delta}content"))), 50);
    assert_eq!(
        count(&content(&events, &format!("{delta}reasoning_content"))),
        20
    );
    assert!(
        events.iter().all(|event| event.get("usage").is_none()),
        "usage was not asked for"
    );
    let truth = sim.truth().await;
    let tokens = truth.tokens.expect("known");
    assert_eq!(
        (tokens.answer, tokens.reasoning, tokens.tool_call),
        (50, 20, 18)
    );
    assert_eq!(tokens.output, 88);
    assert!(tokens.first_frame >= 3);
    assert!(
        (4..=17 + 7 + 3 + 3).contains(&truth.frames),
        "{}",
        truth.frames
    );
    assert_eq!(truth.bytes, response.body().len() as u64);
    assert_eq!(truth.outcome, Ending::Complete);
    assert_eq!(truth.finish_reasons, ["tool_calls"]);
    assert!(
        !serde_json::to_string(&*truth)
            .expect("JSON")
            .contains("Hello"),
        "a truth carries no text"
    );
}

#[tokio::test]
async fn usage_comes_in_a_chat_stream_only_when_asked_for() {
    let sim = start("ttft=0ms,gap=0ms,tokens=5,reasoning=3").await;
    let mut body = chat(true);
    body["stream_options"] = json!({"include_usage": true});
    let events = sim
        .post("/v1/chat/completions", "", body.clone())
        .await
        .events();
    let last = events.last().expect("events");
    assert_eq!(last["choices"], json!([]));
    assert_eq!(last["usage"]["completion_tokens"], 8);
    assert_eq!(
        last["usage"]["completion_tokens_details"]["reasoning_tokens"],
        3
    );
    assert!(events[0]["usage"].is_null() && events[0].get("usage").is_some());
    let off = sim
        .post("/v1/chat/completions", "usage=off", body)
        .await
        .events();
    assert!(off.iter().all(|event| event.get("usage").is_none()));
    let on = sim
        .post("/v1/chat/completions", "usage=on", chat(true))
        .await
        .events();
    assert_eq!(on.last().expect("events")["usage"]["completion_tokens"], 8);
}

#[tokio::test]
async fn the_times_in_the_truth_log_match_the_clients() {
    let sim = start("").await;
    let asked = "ttft=120ms,gap=15ms,tokens=20,stall=150ms@10";
    let response = sim.post("/v1/messages", asked, chat(true)).await;
    let truth = sim.truth().await;
    let first = response
        .chunks
        .iter()
        .find(|(_, bytes)| bytes.windows(10).any(|w| w == b"text_delta"));
    let (seen, _) = first.expect("a first token");
    let sent = truth.instants.first_token.expect("a first token");
    // Both sides share one thread, so nothing is read before its write has returned.
    assert!(*seen >= sent, "read before it was written");
    let apart = seen.duration_since(sent);
    assert!(
        apart < Duration::from_secs(1),
        "{apart:?} between writing and reading"
    );
    let seconds = truth.seconds;
    assert!(seconds.ttft_upstream.expect("streamed") >= 0.120);
    assert!(seconds.longest_gap.expect("gaps") >= 0.140, "{seconds:?}");
    // 19 gaps of 15 ms and the stall. Deadlines are absolute, so the stream never ends early.
    assert!(
        seconds.duration >= 0.120 + 19.0 * 0.015 + 0.150 - 0.002,
        "{seconds:?}"
    );
    let decoding = truth
        .instants
        .last_token
        .expect("tokens")
        .duration_since(sent)
        .as_secs_f64();
    assert_eq!(truth.output_tps, Some(19.0 / decoding));
    assert_eq!(truth.finish_reasons, ["end_turn"]);
}

#[tokio::test]
async fn a_stream_over_http2_equals_one_over_http1() {
    let sim = start("ttft=5ms,gap=1ms,tokens=40,seed=3").await;
    let one = sim.post("/v1/messages", "", chat(true)).await;
    let two = sim.send_h2(post("/v1/messages", "", &chat(true))).await;
    let text = |response: &tokengauge_test_support::sim::SimResponse| {
        content(&response.events(), "/delta/text")
    };
    assert_eq!(text(&one), text(&two), "the seed decides the text");
    assert_eq!(count(&text(&two)), 40);
    for truth in sim.simulator.truths() {
        assert_eq!(truth.outcome, Ending::Complete);
        assert_eq!(truth.tokens.expect("known").output, 40);
    }
}

#[tokio::test]
async fn an_answer_that_is_not_streamed_arrives_at_once_after_its_duration() {
    let sim = start("ttft=50ms,gap=5ms,tokens=11,tool=7").await;
    let response = sim.post("/v1/chat/completions", "", chat(false)).await;
    let body = response.json();
    assert_eq!(
        count(
            body["choices"][0]["message"]["content"]
                .as_str()
                .expect("text")
        ),
        11
    );
    assert_eq!(body["usage"]["completion_tokens"], 18);
    let truth = sim.truth().await;
    assert!(truth.seconds.duration >= 0.050 + 18.0 * 0.005 - 0.002);
    assert_eq!(
        (truth.streamed, truth.seconds.ttft, truth.output_tps),
        (false, None, None)
    );
    assert_eq!(truth.tokens.expect("known").output, 18);
}

#[tokio::test]
async fn the_truth_can_be_read_over_http_newest_first() {
    let sim = start("ttft=0ms,gap=0ms,tokens=1").await;
    for id in ["a", "b", "c"] {
        let mut request = post("/v1/messages", "", &chat(true));
        request
            .headers_mut()
            .insert("x-sim-id", id.parse().expect("a value"));
        sim.send(request).await;
    }
    let truths = sim.send(get("/sim/truth?limit=2")).await.json();
    let ids: Vec<&str> = truths
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|t| t["id"].as_str())
        .collect();
    assert_eq!(ids, ["c", "b"]);
}

#[tokio::test]
async fn a_bad_setting_is_refused_with_its_reason() {
    let sim = start("").await;
    let response = sim
        .post("/v1/chat/completions", "ttft=soon", chat(true))
        .await;
    assert_eq!(response.status, 400);
    let message = response.json()["error"]["message"]
        .as_str()
        .expect("a message")
        .to_owned();
    assert!(message.contains("`ttft=soon`: not a duration"), "{message}");
}
