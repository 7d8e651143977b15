//! The kinds of calls: every dialect, and everything that becomes of a call.

use serde_json::{Value, json};

/// A way to ask, and where.
pub struct Shape {
    pub name: &'static str,
    pub streamed: Option<&'static str>,
    pub whole: Option<&'static str>,
    pub body: fn(&str) -> Value,
    /// Where vectors or an order are asked for: texts that the provider counts.
    pub vectors: bool,
}

const fn shape(name: &'static str, path: &'static str, body: fn(&str) -> Value) -> Shape {
    two(name, path, path, body)
}

const fn two(
    name: &'static str,
    streamed: &'static str,
    whole: &'static str,
    body: fn(&str) -> Value,
) -> Shape {
    Shape {
        name,
        streamed: Some(streamed),
        whole: Some(whole),
        body,
        vectors: false,
    }
}

const fn vectors(name: &'static str, path: &'static str, body: fn(&str) -> Value) -> Shape {
    Shape {
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

fn asking(mut body: Value) -> Value {
    body["stream_options"] = json!({"include_usage": true});
    body
}

fn prompt(text: &str) -> Value {
    json!({"prompt": text, "max_tokens": 500})
}

/// The first is what the kinds of trouble speak that are of one dialect.
pub const SHAPES: &[Shape] = &[
    shape("openai_chat", "/v1/chat/completions", |text| {
        asking(messages("gpt-soak", text))
    }),
    shape("mistral", "/v1/chat/completions", |text| {
        messages("magistral-1", text)
    }),
    shape("openai_completions", "/v1/completions", |text| {
        asking(json!({"model": "babbage-soak", "prompt": text}))
    }),
    shape(
        "openai_responses",
        "/v1/responses",
        |text| json!({"model": "gpt-soak", "input": text}),
    ),
    shape(
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
    shape(
        "ollama_chat",
        "/api/chat",
        |text| json!({"model": "llama-soak", "messages": [{"role": "user", "content": text}]}),
    ),
    shape(
        "ollama_generate",
        "/api/generate",
        |text| json!({"model": "llama-soak", "prompt": text}),
    ),
    shape(
        "cohere_v1",
        "/v1/chat",
        |text| json!({"model": "command-soak", "message": text}),
    ),
    shape("cohere_v2", "/v2/chat", |text| {
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

/// What becomes of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Fate {
    /// It is answered.
    Whole,
    /// The agent reads slowly.
    SlowReader,
    /// The prompt has up to 2 MB.
    BigPrompt,
    /// Thousands of tokens at once.
    Flood,
    /// The proxy asks for usage, and takes it out again.
    Injected,
    /// A Realtime session of several turns.
    Realtime,
    /// A Realtime session that the agent leaves in a turn.
    RealtimeLeft,
    /// An error inside a 200.
    ErrorEvent,
    /// The upstream resets in mid-stream.
    Reset,
    /// The upstream closes in mid-stream.
    Close,
    /// A status of 400 and above.
    Status,
    /// The agent leaves, at any time.
    Leaves,
    /// The agent resets its connection, at any time.
    AgentResets,
    /// The agent leaves in the middle of its request.
    Abandoned,
    /// Bytes that are no UTF-8.
    InvalidText,
    /// A compressed body whose bytes are wrong.
    BrokenGzip,
    /// A byte a frame.
    Trickle,
    /// One event of a megabyte.
    GiantEvent,
    /// What is not HTTP comes back.
    Garbage,
    /// The upstream hangs up before it answers.
    HangUp,
    /// Fewer bytes than the length says.
    Short,
    /// Interim responses before the answer.
    Interim,
    /// A body without length that ends with the connection.
    Bare,
    /// The upstream never answers.
    Silent,
    /// Nobody listens there.
    Refused,
}

/// How often each comes, in a hundred and something.
pub const FATES: &[(Fate, u64)] = &[
    (Fate::Whole, 100),
    (Fate::SlowReader, 6),
    (Fate::BigPrompt, 4),
    (Fate::Flood, 3),
    (Fate::Injected, 8),
    (Fate::Realtime, 6),
    (Fate::RealtimeLeft, 3),
    (Fate::ErrorEvent, 10),
    (Fate::Reset, 10),
    (Fate::Close, 8),
    (Fate::Status, 10),
    (Fate::Leaves, 12),
    (Fate::AgentResets, 8),
    (Fate::Abandoned, 4),
    (Fate::InvalidText, 3),
    (Fate::BrokenGzip, 3),
    (Fate::Trickle, 3),
    (Fate::GiantEvent, 3),
    (Fate::Garbage, 3),
    (Fate::HangUp, 3),
    (Fate::Short, 3),
    (Fate::Interim, 3),
    (Fate::Bare, 3),
    (Fate::Silent, 3),
    (Fate::Refused, 3),
];

impl Fate {
    /// The words for it in tables.
    pub fn name(self) -> &'static str {
        match self {
            Fate::Whole => "answered",
            Fate::SlowReader => "agent reads slowly",
            Fate::BigPrompt => "prompt of up to 2 MB",
            Fate::Flood => "thousands of tokens at once",
            Fate::Injected => "usage asked for by the proxy",
            Fate::Realtime => "realtime session",
            Fate::RealtimeLeft => "realtime, agent leaves",
            Fate::ErrorEvent => "error event",
            Fate::Reset => "upstream resets",
            Fate::Close => "upstream closes in mid-stream",
            Fate::Status => "status of 400 and above",
            Fate::Leaves => "agent leaves",
            Fate::AgentResets => "agent resets",
            Fate::Abandoned => "agent leaves while it asks",
            Fate::InvalidText => "bytes that are no UTF-8",
            Fate::BrokenGzip => "broken gzip",
            Fate::Trickle => "a byte a frame",
            Fate::GiantEvent => "an event of a megabyte",
            Fate::Garbage => "what is not HTTP",
            Fate::HangUp => "upstream hangs up",
            Fate::Short => "fewer bytes than announced",
            Fate::Interim => "interim responses",
            Fate::Bare => "body without length",
            Fate::Silent => "upstream never answers",
            Fate::Refused => "nobody listens",
        }
    }

    /// The first part of the path at the rogue, for those that go there.
    pub fn at_rogue(self) -> Option<&'static str> {
        Some(match self {
            Fate::Garbage => "garbage",
            Fate::HangUp => "hang-up",
            Fate::Short => "short",
            Fate::Interim => "interim",
            Fate::Bare => "bare",
            Fate::Silent => "silent",
            _ => return None,
        })
    }

    /// The recording that is served, for those that are one.
    pub fn recording(self) -> Option<&'static str> {
        Some(match self {
            Fate::InvalidText => "invalid-text",
            Fate::BrokenGzip => "broken-gzip",
            Fate::Trickle => "trickle",
            Fate::GiantEvent => "giant-event",
            _ => return None,
        })
    }
}
