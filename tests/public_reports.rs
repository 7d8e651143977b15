//! Responses that users of gateways reported as measured wrongly, played over real sockets: errors inside a 200,
//! damaged events, usage in unusual places, models that are named late.

mod code_assist;
mod costs;
mod events;
mod failures;
mod foreign;
mod hidden;
mod names;
mod play;
mod sockets;
mod surfaces;
mod unknown_paths;
mod usage;

use play::{AWS, NDJSON, SSE, aws, aws_chunk, line, named, sse};
use serde_json::{Value, json};

const CHAT: &str = "/v1/chat/completions";
const COMPLETIONS: &str = "/v1/completions";
const MESSAGES: &str = "/v1/messages";
const RESPONSES: &str = "/v1/responses";
const GEMINI: &str = "/v1beta/models/m:generateContent";
const GEMINI_STREAM: &str = "/v1beta/models/m:streamGenerateContent?alt=sse";
const GEMINI_ARRAY: &str = "/v1beta/models/m:streamGenerateContent";
const INTERACTIONS: &str = "/v1beta/interactions";
const OLLAMA: &str = "/api/chat";
const COHERE: &str = "/v2/chat";
const COHERE_1: &str = "/v1/chat";
const CONVERSE: &str = "/model/m/converse";
const CONVERSE_STREAM: &str = "/model/m/converse-stream";
const INVOKE: &str = "/model/m/invoke";
const INVOKE_STREAM: &str = "/model/m/invoke-with-response-stream";

/// The stream format of a dialect: the framing of JSON, and the JSON of one word and of the end.
#[derive(Clone, Copy)]
struct Stream {
    name: &'static str,
    path: &'static str,
    content_type: &'static str,
    frame: fn(&Value) -> Vec<u8>,
    word: fn() -> Value,
    end: fn() -> Vec<Vec<u8>>,
}

impl Stream {
    fn words(&self, count: usize) -> Vec<Vec<u8>> {
        vec![(self.frame)(&(self.word)()); count]
    }
}

/// An event whose name is its `type`.
fn typed(data: &Value) -> Vec<u8> {
    named(data["type"].as_str().unwrap_or_default(), data)
}

fn chat_delta(delta: &Value) -> Value {
    json!({"id": "c", "object": "chat.completion.chunk", "model": "m", "choices": [{"index": 0, "delta": delta}]})
}

fn chat_finish(reason: &str) -> Value {
    json!({"id": "c", "model": "m", "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
}

fn anthropic_word() -> Value {
    json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": " word"}})
}

fn gemini_text(text: &str) -> Value {
    json!({"candidates": [{"index": 0, "content": {"role": "model", "parts": [{"text": text}]}}], "modelVersion": "m"})
}

fn done() -> Vec<u8> {
    sse("[DONE]")
}

const CHAT_STREAM: Stream = Stream {
    name: "chat",
    path: CHAT,
    content_type: SSE,
    frame: |data| sse(data),
    word: || chat_delta(&json!({"content": " word"})),
    end: || vec![sse(chat_finish("stop")), done()],
};

const ANTHROPIC_STREAM: Stream = Stream {
    name: "anthropic",
    path: MESSAGES,
    content_type: SSE,
    frame: typed,
    word: anthropic_word,
    end: || {
        vec![
            typed(
                &json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 60}}),
            ),
            typed(&json!({"type": "message_stop"})),
        ]
    },
};

const INVOKE_STREAMED: Stream = Stream {
    name: "bedrock invoke",
    path: INVOKE_STREAM,
    content_type: AWS,
    frame: |data| aws_chunk(data),
    word: anthropic_word,
    end: || {
        vec![
            aws_chunk(json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}})),
            aws_chunk(json!({"type": "message_stop"})),
        ]
    },
};

const STREAMS: [Stream; 13] = [
    CHAT_STREAM,
    Stream {
        name: "completions",
        path: COMPLETIONS,
        word: || json!({"id": "c", "object": "text_completion", "model": "m", "choices": [{"index": 0, "text": " word"}]}),
        end: || {
            vec![
                sse(
                    json!({"id": "c", "object": "text_completion", "model": "m", "choices": [{"index": 0, "text": "", "finish_reason": "stop"}]}),
                ),
                done(),
            ]
        },
        ..CHAT_STREAM
    },
    ANTHROPIC_STREAM,
    Stream {
        name: "responses",
        path: RESPONSES,
        content_type: SSE,
        frame: typed,
        word: || json!({"type": "response.output_text.delta", "item_id": "i", "output_index": 0, "content_index": 0, "delta": " word"}),
        end: || {
            vec![typed(
                &json!({"type": "response.completed", "response": {"id": "r", "model": "m", "status": "completed", "output": [], "usage": {"input_tokens": 5, "output_tokens": 60}}}),
            )]
        },
    },
    Stream {
        name: "gemini",
        path: GEMINI_STREAM,
        word: || gemini_text(" word"),
        end: || {
            vec![sse(
                json!({"candidates": [{"index": 0, "finishReason": "STOP"}], "modelVersion": "m"}),
            )]
        },
        ..CHAT_STREAM
    },
    Stream {
        name: "ollama",
        path: OLLAMA,
        content_type: NDJSON,
        frame: |data| line(data),
        word: || json!({"model": "m", "message": {"role": "assistant", "content": " word"}, "done": false}),
        end: || {
            vec![line(
                json!({"model": "m", "message": {"role": "assistant", "content": ""}, "done": true, "done_reason": "stop", "eval_count": 60}),
            )]
        },
    },
    Stream {
        name: "cohere",
        path: COHERE,
        content_type: SSE,
        frame: typed,
        word: || json!({"type": "content-delta", "index": 0, "delta": {"message": {"content": {"text": " word"}}}}),
        end: || {
            vec![typed(
                &json!({"type": "message-end", "delta": {"finish_reason": "COMPLETE", "usage": {"tokens": {"input_tokens": 5, "output_tokens": 60}}}}),
            )]
        },
    },
    Stream {
        name: "cohere v1",
        path: COHERE_1,
        content_type: NDJSON,
        frame: |data| line(data),
        word: || json!({"event_type": "text-generation", "is_finished": false, "text": " word"}),
        end: || {
            vec![line(
                json!({"event_type": "stream-end", "is_finished": true, "finish_reason": "COMPLETE"}),
            )]
        },
    },
    Stream {
        name: "converse",
        path: CONVERSE_STREAM,
        content_type: AWS,
        frame: |data| aws("contentBlockDelta", data),
        word: || json!({"contentBlockIndex": 0, "delta": {"text": " word"}}),
        end: || {
            vec![
                aws("messageStop", json!({"stopReason": "end_turn"})),
                aws(
                    "metadata",
                    json!({"usage": {"inputTokens": 5, "outputTokens": 60}}),
                ),
            ]
        },
    },
    INVOKE_STREAMED,
    Stream {
        name: "bedrock invoke of chat",
        word: || json!({"choices": [{"index": 0, "message": {"role": "assistant", "content": " word"}, "stop_reason": null}]}),
        end: || {
            vec![aws_chunk(
                json!({"choices": [{"index": 0, "message": {"role": "assistant", "content": ""}, "stop_reason": "stop"}]}),
            )]
        },
        ..INVOKE_STREAMED
    },
    Stream {
        name: "generate_stream",
        path: "/generate_stream",
        word: || json!({"index": 1, "token": {"id": 1, "text": " word", "logprob": -1.0, "special": false}, "generated_text": null}),
        end: || {
            vec![sse(
                json!({"index": 2, "token": {"id": 2, "text": "", "special": true}, "generated_text": " word", "details": {"finish_reason": "eos_token", "generated_tokens": 60}}),
            )]
        },
        ..CHAT_STREAM
    },
    Stream {
        name: "llama.cpp",
        path: "/completion",
        word: || json!({"index": 0, "content": " word", "stop": false}),
        end: || {
            vec![sse(
                json!({"index": 0, "content": "", "stop": true, "stop_type": "eos", "model": "m", "tokens_predicted": 60}),
            )]
        },
        ..CHAT_STREAM
    },
];

/// Errors in every shape that a gateway or an engine puts inside a 200.
fn errors() -> Vec<(&'static str, Value)> {
    vec![
        (
            "object",
            json!({"object": "error", "message": "it failed", "type": "overloaded", "code": 503}),
        ),
        (
            "member",
            json!({"error": {"type": "overloaded", "message": "it failed"}}),
        ),
        ("text", json!({"error": "it failed for some reason"})),
        (
            "type",
            json!({"type": "error", "error": {"type": "overloaded", "message": "it failed"}}),
        ),
        (
            "bare type",
            json!({"type": "error", "message": "it failed"}),
        ),
        ("code", json!({"code": 500, "message": "it failed"})),
        (
            "word",
            json!({"code": "InternalError", "message": "it failed"}),
        ),
        ("code and msg", json!({"code": "500", "msg": "it failed"})),
        ("status", json!({"status": 500, "message": "it failed"})),
        ("detail", json!({"detail": "it failed"})),
    ]
}
