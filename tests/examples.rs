//! The example of the crate `tokengauge-wire` over recorded responses.

#[allow(dead_code, reason = "its `main` runs in the program alone")]
#[path = "../crates/wire/examples/count_tokens.rs"]
mod count_tokens;

fn printed(dialect: &str, fixture: &str) -> Vec<String> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures");
    let body = std::fs::File::open(format!("{folder}/{dialect}/{fixture}")).expect("a fixture");
    let mut out = Vec::new();
    count_tokens::report(dialect, body, &mut out).expect("readable");
    let out = String::from_utf8(out).expect("text");
    out.lines().map(str::to_owned).collect()
}

fn tokens(text: &str) -> usize {
    let bpe = tiktoken_rs::o200k_base().expect("the vocabulary");
    bpe.encode_ordinary(text).len()
}

#[test]
fn the_example_counts_the_tokens_of_each_event_and_gives_the_usage() {
    // The texts and the usage of `every_block.sse.events`, with their event numbers.
    let texts = [
        (4, "Hm\n"),
        (7, "Look: "),
        (11, "{\"q\":"),
        (12, "1}"),
        (15, "{}"),
    ];
    let mut total = 0;
    let mut expected = Vec::new();
    for (event, text) in texts {
        total += tokens(text);
        let added = tokens(text);
        expected.push(format!("event {event}: +{added} tokens, {total} so far"));
    }
    expected.push(format!("17 events, {total} tokens counted"));
    expected.push("the provider reports 33 input and 41 output tokens".to_owned());
    assert_eq!(printed("anthropic", "every_block.sse"), expected);
}

#[test]
fn the_example_reads_bodies_that_were_not_streamed_and_lines_of_json() {
    let last = |lines: Vec<String>| lines[lines.len() - 2..].join("; ");
    assert_eq!(
        last(printed("anthropic", "whole.json")),
        "1 events, 16 tokens counted; the provider reports 1754 input and 568 output tokens"
    );
    assert_eq!(
        last(printed("ollama", "chat_with_calls.ndjson")),
        "5 events, 12 tokens counted; the provider reports 17 input and 63 output tokens"
    );
}

#[test]
fn the_example_says_which_dialects_there_are() {
    let unknown = count_tokens::report("nonsense", &b""[..], &mut Vec::new());
    let unknown = unknown.expect_err("no dialect").to_string();
    assert!(unknown.contains("`nonsense` is not a dialect"), "{unknown}");
    assert!(unknown.contains("`openai_chat`"), "{unknown}");
}
