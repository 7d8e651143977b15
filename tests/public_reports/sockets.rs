//! Responses of public reports over WebSocket.

use super::play::{Socket, play_sockets};
use super::*;

const REALTIME: &str = "/v1/realtime?model=m";
const LIVE: &str =
    "/ws/google.ai.generativelanguage.v1beta.GenerativeService.BidiGenerateContent?key=k";

#[tokio::test(flavor = "multi_thread")]
async fn websockets_are_read_like_streams() {
    let create = json!({"type": "response.create", "model": "m"});
    let created = json!({"type": "response.created", "response": {"id": "r", "model": "m", "status": "in_progress", "output": []}});
    let session = json!({"type": "session.created", "session": {"model": "m"}});
    let word = json!({"type": "response.output_text.delta", "item_id": "i", "output_index": 0, "content_index": 0, "delta": " word"});
    let done = |status: &str, usage: Value| json!({"type": "response.done", "response": {"id": "r", "status": status, "output": [], "usage": usage}});
    let usage = json!({"input_tokens": 9, "output_tokens": 60});
    let realtime = |middle: Vec<String>, last: Value| {
        let mut messages = vec![session.to_string(), created.to_string()];
        messages.extend(middle);
        messages.push(last.to_string());
        messages
    };
    let counted = |output: u64, skipped: u64| json!({"outcome": "complete", "skipped_events": skipped, "tokens": {"normalised": {"output": output}}});
    let words = |count: usize| vec![word.to_string(); count];
    let with = |odd: String| {
        let mut words = words(60);
        words.insert(30, odd);
        words
    };
    let member = |text: &str| {
        let word = word.to_string();
        format!("{},{text}}}", &word[..word.len() - 1])
    };
    let failed = |kind: &str| json!({"outcome": "error_event", "error_type": kind});
    let only_done = json!({"type": "response.output_text.done", "item_id": "i", "output_index": 0, "content_index": 0, "text": " word word word"});
    let transcript = json!({"type": "response.output_audio_transcript.done", "item_id": "i", "output_index": 0, "content_index": 0, "transcript": " word word word"});
    let part = json!({"type": "response.content_part.done", "item_id": "i", "output_index": 0, "content_index": 0, "part": {"type": "text", "text": " word word word"}});
    let second = json!({"type": "response.output_text.done", "item_id": "i", "output_index": 0, "content_index": 1, "text": " another part of it"});
    let mut two_parts = words(5);
    two_parts.extend([json!({"type": "response.output_text.done", "item_id": "i", "output_index": 0, "content_index": 0, "text": " word word word word word"}).to_string(), second.to_string()]);
    let mut failure = done("failed", json!(null));
    failure["response"]["status_details"] =
        json!({"type": "failed", "error": {"type": "server_error", "code": "overloaded"}});
    let both = json!({"input_tokens": 9, "output_tokens": 60, "input_token_details": {"cached_tokens": 4}, "input_tokens_details": {"cached_tokens": 4}});
    let live = |messages: Vec<Value>| -> Vec<String> {
        let setup = json!({"setupComplete": {}});
        [setup]
            .iter()
            .chain(&messages)
            .map(Value::to_string)
            .collect()
    };
    let live_word = json!({"serverContent": {"modelTurn": {"parts": [{"text": " word"}]}}});
    let live_done =
        |usage: Value| json!({"serverContent": {"turnComplete": true}, "usageMetadata": usage});
    let mut live_odd = live(vec![live_word.clone(); 60]);
    let text = live_word.to_string();
    live_odd.insert(30, format!("{},\"score\":NaN}}", &text[..text.len() - 1]));
    live_odd.push(
        live_done(json!({"promptTokenCount": 9, "responseTokenCount": 61, "totalTokenCount": 70}))
            .to_string(),
    );
    let mut live_zeros = live(vec![live_word.clone(); 60]);
    live_zeros.push(json!({"usageMetadata": {"promptTokenCount": 9, "responseTokenCount": 60, "totalTokenCount": 69}}).to_string());
    live_zeros.push(
        live_done(json!({"promptTokenCount": 0, "responseTokenCount": 0, "totalTokenCount": 0}))
            .to_string(),
    );
    let live_ask = json!({"setup": {"model": "models/m"}});
    play_sockets(vec![
        Socket::new("plain", REALTIME, create.clone(), realtime(words(60), done("completed", usage.clone())), counted(60, 0)),
        Socket::new("done text", REALTIME, create.clone(), realtime(vec![only_done.to_string()], done("completed", usage.clone())), counted(3, 0)),
        Socket::new("done transcript", REALTIME, create.clone(), realtime(vec![transcript.to_string()], done("completed", usage.clone())), counted(3, 0)),
        Socket::new("done part", REALTIME, create.clone(), realtime(vec![part.to_string()], done("completed", usage.clone())), counted(3, 0)),
        Socket::new("a second part", REALTIME, create.clone(), realtime(two_parts, done("completed", usage.clone())), counted(9, 0)),
        Socket::new("null", REALTIME, create.clone(), realtime(with("null".to_owned()), done("completed", usage.clone())), counted(60, 1)),
        Socket::new("torn", REALTIME, create.clone(), realtime(with(text_torn(&word)), done("completed", usage.clone())), counted(60, 1)),
        Socket::new("NaN", REALTIME, create.clone(), realtime(with(member("\"logprob\":NaN")), done("completed", usage.clone())), counted(61, 0)),
        Socket::new("twice", REALTIME, create.clone(), realtime(with(member("\"item_id\":\"i\"")), done("completed", usage.clone())), counted(61, 0)),
        Socket::new("failed", REALTIME, create.clone(), realtime(words(5), failure), failed("server_error")),
        Socket::new("zeros", REALTIME, create.clone(), realtime(words(60), done("completed", json!({"input_tokens": 0, "output_tokens": 0}))), json!({"outcome": "complete", "tokens": {"reported": {"output": 0}}, "cost_usd": null})),
        Socket::new("both names", REALTIME, create.clone(), realtime(words(60), done("completed", both)), json!({"outcome": "complete", "tokens": {"reported": {"input": 9, "cached_input": 4, "output": 60}}})),
        Socket::new("error", "/v1/responses", create.clone(), vec![created.to_string(), word.to_string(), json!({"type": "error", "error": {"type": "overloaded", "message": "busy"}}).to_string()], failed("overloaded")),
        Socket::new("object", "/v1/responses", create, vec![created.to_string(), word.to_string(), json!({"object": "error", "type": "overloaded", "message": "busy"}).to_string()], failed("overloaded")),
        Socket::new("live NaN", LIVE, live_ask.clone(), live_odd, counted(61, 0)),
        Socket::new("live zeros", LIVE, live_ask, live_zeros, json!({"outcome": "complete", "tokens": {"reported": {"input": 9, "output": 60}}})),
    ])
    .await;
}

fn text_torn(event: &Value) -> String {
    let mut text = event.to_string();
    text.truncate(text.len() - 1);
    text
}
