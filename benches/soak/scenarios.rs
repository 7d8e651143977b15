//! Scenarios of calls, most of which are faults, and the endpoint of each dialect.

use serde_json::{Value, json};

pub struct Endpoint {
    pub name: &'static str,
    /// The path for a streamed response; `None` if the endpoint does not stream.
    pub streamed: Option<&'static str>,
    /// The path for a response that is not streamed.
    pub whole: Option<&'static str>,
    pub body: fn(&str) -> Value,
    /// Whether the endpoint is for embeddings or reranking, for which only the provider's input count is checked.
    pub vectors: bool,
}

const fn endpoint(name: &'static str, path: &'static str, body: fn(&str) -> Value) -> Endpoint {
    two(name, path, path, body)
}

const fn two(
    name: &'static str,
    streamed: &'static str,
    whole: &'static str,
    body: fn(&str) -> Value,
) -> Endpoint {
    Endpoint {
        name,
        streamed: Some(streamed),
        whole: Some(whole),
        body,
        vectors: false,
    }
}

const fn vectors(name: &'static str, path: &'static str, body: fn(&str) -> Value) -> Endpoint {
    Endpoint {
        name,
        streamed: None,
        whole: Some(path),
        body,
        vectors: true,
    }
}

fn messages(model: &str, text: &str) -> Value {
    let tools = json!([{"type": "function", "function": {"name": "look_up", "parameters": {}}}]);
    json!({"model": model, "messages": [{"role": "user", "content": text}], "tools": tools})
}

fn with_usage(mut body: Value) -> Value {
    body["stream_options"] = json!({"include_usage": true});
    body
}

fn prompt(text: &str) -> Value {
    json!({"prompt": text, "max_tokens": 500})
}

/// Scenarios of one dialect use the first endpoint.
pub const ENDPOINTS: &[Endpoint] = &[
    endpoint("openai_chat", "/v1/chat/completions", |text| {
        with_usage(messages("gpt-soak", text))
    }),
    endpoint("mistral", "/v1/chat/completions", |text| {
        messages("magistral-1", text)
    }),
    endpoint("openai_completions", "/v1/completions", |text| {
        with_usage(json!({"model": "babbage-soak", "prompt": text}))
    }),
    endpoint(
        "openai_responses",
        "/v1/responses",
        |text| json!({"model": "gpt-soak", "input": text}),
    ),
    endpoint(
        "anthropic",
        "/v1/messages",
        |text| json!({"model": "claude-soak", "max_tokens": 900, "messages": [{"role": "user", "content": text}]}),
    ),
    two(
        "gemini",
        "/v1beta/models/gemini-soak:streamGenerateContent?alt=sse",
        "/v1beta/models/gemini-soak:generateContent",
        contents,
    ),
    two(
        "gemini_array",
        "/v1beta/models/gemini-soak:streamGenerateContent",
        "/v1beta/models/gemini-soak:generateContent",
        contents,
    ),
    two(
        "bedrock_converse",
        "/model/soak-1/converse-stream",
        "/model/soak-1/converse",
        |text| json!({"messages": [{"role": "user", "content": [{"text": text}]}]}),
    ),
    two(
        "bedrock_claude",
        "/model/anthropic.claude-v1%3A0/invoke-with-response-stream",
        "/model/anthropic.claude-v1%3A0/invoke",
        prompt,
    ),
    two(
        "bedrock_nova",
        "/model/amazon.nova-1/invoke-with-response-stream",
        "/model/amazon.nova-1/invoke",
        prompt,
    ),
    two(
        "bedrock_titan",
        "/model/amazon.titan-1/invoke-with-response-stream",
        "/model/amazon.titan-1/invoke",
        prompt,
    ),
    two(
        "bedrock_llama",
        "/model/meta.llama-1/invoke-with-response-stream",
        "/model/meta.llama-1/invoke",
        prompt,
    ),
    endpoint(
        "ollama_chat",
        "/api/chat",
        |text| json!({"model": "llama-soak", "messages": [{"role": "user", "content": text}]}),
    ),
    endpoint(
        "ollama_generate",
        "/api/generate",
        |text| json!({"model": "llama-soak", "prompt": text}),
    ),
    endpoint(
        "cohere_v1",
        "/v1/chat",
        |text| json!({"model": "command-soak", "message": text}),
    ),
    endpoint("cohere_v2", "/v2/chat", |text| {
        messages("command-soak", text)
    }),
    two(
        "tgi",
        "/generate_stream",
        "/generate",
        |text| json!({"inputs": text}),
    ),
    vectors(
        "embeddings",
        "/v1/embeddings",
        |text| json!({"model": "embed-soak", "input": text}),
    ),
    vectors(
        "cohere_embed",
        "/v2/embed",
        |text| json!({"model": "embed-soak", "texts": [text], "input_type": "search_query"}),
    ),
    vectors(
        "ollama_embed",
        "/api/embed",
        |text| json!({"model": "embed-soak", "input": text}),
    ),
    vectors(
        "rerank",
        "/v2/rerank",
        |text| json!({"model": "rerank-soak", "query": text, "documents": ["one", "two", "three"]}),
    ),
];

fn contents(text: &str) -> Value {
    json!({"contents": [{"role": "user", "parts": [{"text": text}]}]})
}

/// The course of a call: mostly which side fails, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scenario {
    /// Nothing fails.
    Complete,
    SlowReader,
    /// The prompt has up to 2 MB.
    BigPrompt,
    /// Thousands of tokens without pauses.
    Flood,
    /// The proxy requests usage for the agent, and removes it from the response.
    Injected,
    Realtime,
    /// A Realtime session that the agent closes within a turn.
    RealtimeLeft,
    ErrorEvent,
    Reset,
    Close,
    Status,
    Leaves,
    AgentResets,
    /// The agent closes its connection in the middle of its request.
    Abandoned,
    /// Bytes that are not UTF-8.
    InvalidText,
    /// A corrupted compressed body.
    BrokenGzip,
    /// One byte per chunk.
    Trickle,
    GiantEvent,
    /// The upstream sends bytes that are not HTTP.
    Garbage,
    HangUp,
    /// Fewer bytes than `content-length` announces.
    Short,
    Interim,
    /// A body without length that ends with the connection.
    Bare,
    Silent,
    /// The upstream's port is closed.
    Refused,
}

pub const SCENARIOS: &[(Scenario, u64)] = &[
    (Scenario::Complete, 100),
    (Scenario::SlowReader, 6),
    (Scenario::BigPrompt, 4),
    (Scenario::Flood, 3),
    (Scenario::Injected, 8),
    (Scenario::Realtime, 6),
    (Scenario::RealtimeLeft, 3),
    (Scenario::ErrorEvent, 10),
    (Scenario::Reset, 10),
    (Scenario::Close, 8),
    (Scenario::Status, 10),
    (Scenario::Leaves, 12),
    (Scenario::AgentResets, 8),
    (Scenario::Abandoned, 4),
    (Scenario::InvalidText, 3),
    (Scenario::BrokenGzip, 3),
    (Scenario::Trickle, 3),
    (Scenario::GiantEvent, 3),
    (Scenario::Garbage, 3),
    (Scenario::HangUp, 3),
    (Scenario::Short, 3),
    (Scenario::Interim, 3),
    (Scenario::Bare, 3),
    (Scenario::Silent, 3),
    (Scenario::Refused, 3),
];

impl Scenario {
    pub fn name(self) -> &'static str {
        match self {
            Scenario::Complete => "answered",
            Scenario::SlowReader => "agent reads slowly",
            Scenario::BigPrompt => "prompt of up to 2 MB",
            Scenario::Flood => "thousands of tokens at once",
            Scenario::Injected => "usage requested by the proxy",
            Scenario::Realtime => "realtime session",
            Scenario::RealtimeLeft => "realtime, agent disconnects",
            Scenario::ErrorEvent => "error event",
            Scenario::Reset => "upstream resets",
            Scenario::Close => "upstream closes during stream",
            Scenario::Status => "status of 400 and above",
            Scenario::Leaves => "agent disconnects",
            Scenario::AgentResets => "agent resets",
            Scenario::Abandoned => "agent closes during request",
            Scenario::InvalidText => "bytes that are not UTF-8",
            Scenario::BrokenGzip => "broken gzip",
            Scenario::Trickle => "one byte per chunk",
            Scenario::GiantEvent => "an event of a megabyte",
            Scenario::Garbage => "bytes that are not HTTP",
            Scenario::HangUp => "upstream hangs up",
            Scenario::Short => "fewer bytes than announced",
            Scenario::Interim => "interim responses",
            Scenario::Bare => "body without length",
            Scenario::Silent => "upstream never answers",
            Scenario::Refused => "connection refused",
        }
    }

    /// The first segment of the path at the rogue backend, for scenarios that use it.
    pub fn rogue_behaviour(self) -> Option<&'static str> {
        Some(match self {
            Scenario::Garbage => "garbage",
            Scenario::HangUp => "hang-up",
            Scenario::Short => "short",
            Scenario::Interim => "interim",
            Scenario::Bare => "bare",
            Scenario::Silent => "silent",
            _ => return None,
        })
    }

    /// The recorded body that the simulator serves, for scenarios that need one.
    pub fn recording(self) -> Option<&'static str> {
        Some(match self {
            Scenario::InvalidText => "invalid-text",
            Scenario::BrokenGzip => "broken-gzip",
            Scenario::Trickle => "trickle",
            Scenario::GiantEvent => "giant-event",
            _ => return None,
        })
    }
}
