//! Sessions of agents that send no session name, guessed from the beginning of their prompts.

use serde_json::{Value, json};
use tokengauge_accounting::attribution::Rules;
use tokengauge_config::{Config, Measure};
use tokengauge_core::call::{CallRecord, SessionGuess};
use tokengauge_core::observer::End;
use tokengauge_test_support::meter::{Bench, DONE, finish, words};

fn bench(guess_sessions: bool) -> Bench {
    let rules = Rules {
        guess_sessions,
        ..Rules::default()
    };
    let measure = Measure {
        attribution: rules.into(),
        ..Measure::default()
    };
    Bench::new(measure, Vec::new())
}

fn call(bench: &Bench, path: &str, headers: &[(&str, &str)], body: &Value) -> CallRecord {
    let call = bench.begin(path, headers);
    bench.send(&*call, body.to_string().as_bytes());
    bench.answer(&*call, 200, "text/event-stream");
    bench.chunk(&*call, 100, words(4) + &finish(None) + DONE);
    bench.end(&*call, 110, End::Complete)
}

fn chat(messages: &[Value]) -> Value {
    json!({"model": "m", "stream": true, "messages": messages})
}

fn says(role: &str, text: &str) -> Value {
    json!({"role": role, "content": text})
}

const CHAT: &str = "/v1/chat/completions";

#[test]
fn the_turns_of_a_conversation_are_one_session_if_guessing_is_enabled() {
    let system = says("system", "be kind");
    let turns = |question: &str| {
        let first = vec![system.clone(), says("user", question)];
        let mut second = first.clone();
        // An answer with only a tool call, and the result of the tool.
        second.push(json!({"role": "assistant", "content": null, "tool_calls": [
            {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]}));
        second.push(json!({"role": "tool", "tool_call_id": "c", "content": "42"}));
        let mut third = second.clone();
        third.extend([says("assistant", "so"), says("user", "why?")]);
        [chat(&first), chat(&second), chat(&third)]
    };
    let identified = bench(true);
    let of = |question: &str| {
        turns(question).map(|body| {
            let record = call(&identified, CHAT, &[], &body);
            assert_eq!(record.session_guess, Some(SessionGuess::Prefix));
            record.session.expect("a guess")
        })
    };
    let (one, other) = (of("hi"), of("bye"));
    assert!(one.iter().all(|session| *session == one[0]), "{one:?}");
    assert!(other.iter().all(|session| *session == other[0]));
    assert_ne!(one[0], other[0]);
    assert!(one[0].starts_with("prefix-"), "no text: {one:?}");
    let silent = bench(false);
    for body in turns("hi") {
        let record = call(&silent, CHAT, &[], &body);
        assert_eq!((record.session, record.session_guess), (None, None));
    }
}

#[test]
fn a_named_session_takes_precedence_and_is_not_a_guess() {
    let bench = bench(true);
    let body = chat(&[says("user", "hi")]);
    let headers = [("x-tokengauge-session", "s-1")];
    let record = call(&bench, CHAT, &headers, &body);
    assert_eq!(
        (record.session.as_deref(), record.session_guess),
        (Some("s-1"), None)
    );
    let mut cached = body.clone();
    cached["prompt_cache_key"] = json!("k-1");
    let record = call(&bench, CHAT, &[], &cached);
    assert_eq!(record.session.as_deref(), Some("k-1"));
    assert_eq!(record.session_guess, Some(SessionGuess::PromptCacheKey));
    let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let record = call(&bench, CHAT, &[("traceparent", trace)], &body);
    assert_eq!(record.session_guess, Some(SessionGuess::Trace));
    let embedding = json!({"model": "e", "input": "hi"});
    let record = call(&bench, "/v1/embeddings", &[], &embedding);
    assert_eq!(record.session, None);
}

#[test]
fn every_dialect_that_sends_its_conversation_has_turns() {
    let text =
        |role: &str, text: &str| json!({"role": role, "content": [{"type": "text", "text": text}]});
    let part = |role: &str, text: &str| json!({"role": role, "parts": [{"text": text}]});
    let anthropic = |messages: &[Value]| json!({"model": "m", "max_tokens": 9, "stream": true, "system": "be kind", "messages": messages});
    let cases: [(&str, Value, Value); 3] = [
        (
            "/v1/messages",
            anthropic(&[text("user", "hi")]),
            // Cache marks move from turn to turn.
            json!({"model": "m", "max_tokens": 9, "stream": true, "system": "be kind", "messages": [
                {"role": "user", "content": [{"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}}]},
                text("assistant", "hello"), text("user", "who?")]}),
        ),
        (
            "/v1/responses",
            json!({"model": "m", "stream": true, "input": [says("user", "hi")]}),
            json!({"model": "m", "stream": true, "input": [says("user", "hi"),
                {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "hello"}]},
                says("user", "who?")]}),
        ),
        (
            "/v1beta/models/m:streamGenerateContent",
            json!({"contents": [part("user", "hi")]}),
            json!({"contents": [part("user", "hi"), part("model", "hello"), part("user", "who?")]}),
        ),
    ];
    for (path, first, second) in cases {
        let bench = bench(true);
        let sessions = [first, second].map(|body| call(&bench, path, &[], &body).session);
        assert!(
            sessions[0].is_some() && sessions[0] == sessions[1],
            "{path}: {sessions:?}"
        );
    }
}

#[test]
fn agents_that_begin_alike_are_distinguished_and_a_long_body_is_read_too() {
    let bench = bench(true);
    let long = "word ".repeat(40_000);
    let first = chat(&[says("user", &long)]);
    let second = chat(&[
        says("user", &long),
        says("assistant", "hello"),
        says("user", "who?"),
    ]);
    let by = |agent: &str, body: &Value| {
        call(&bench, CHAT, &[("user-agent", agent)], body)
            .session
            .expect("a guess")
    };
    let one = by("one/1", &first);
    assert_ne!(by("other/1", &second), one);
    assert_eq!(by("one/1", &second), one);
}

#[test]
fn it_is_off_by_default() {
    let guesses = |text: &str| {
        let config = Config::parse(text, "test").unwrap_or_else(|invalid| panic!("{invalid}"));
        config.measure.attribution.guess_sessions
    };
    let upstream = "[[upstream]]\nname = \"u\"\nurl = \"http://h\"\n[[route]]\nupstream = \"u\"\n";
    assert!(!guesses(upstream));
    assert!(guesses(&format!(
        "{upstream}[attribution]\nguess_sessions = true\n"
    )));
}
