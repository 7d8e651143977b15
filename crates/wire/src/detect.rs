//! Detects the dialect of a path. Contains what the `detect` functions of the dialects share.

use super::DIALECTS;
use super::word::word;
use http::{Method, Uri};
use tokengauge_core::call::{Dialect, Operation};

/// The facts that method and path of a request reveal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Detected {
    /// The wire format.
    pub dialect: Dialect,
    /// What the request asks for.
    pub operation: Operation,
    /// The model, if the path names it.
    pub model: Option<String>,
    /// Whether a stream is requested, if the path says so.
    pub stream: Option<bool>,
}

impl Detected {
    /// A request of `dialect` whose path contains nothing else.
    pub fn new(dialect: Dialect, operation: Operation) -> Self {
        Detected {
            dialect,
            operation,
            ..Detected::default()
        }
    }

    /// Sets the model that the path names.
    #[must_use]
    pub fn model(mut self, name: &str) -> Self {
        self.model = word(name);
        self
    }

    /// Sets whether the path requests a stream.
    #[must_use]
    pub fn stream(mut self, stream: bool) -> Self {
        self.stream = Some(stream);
        self
    }
}

/// The parts of a request that decide the dialect.
pub struct Target<'a> {
    method: &'a Method,
    path: &'a [&'a str],
    query: &'a str,
    is_socket: bool,
}

impl<'a> Target<'a> {
    pub(super) fn read(
        method: &Method,
        uri: &Uri,
        is_socket: bool,
        detect: impl FnOnce(&Target<'_>) -> Detected,
    ) -> Detected {
        let decoded = percent_decoded(uri.path());
        detect(&Target {
            method,
            path: &segments(&decoded),
            query: uri.query().unwrap_or_default(),
            is_socket,
        })
    }

    /// The segments of the path without percent-encoding, for any method.
    pub fn path(&self) -> &'a [&'a str] {
        self.path
    }

    /// The query, percent-encoded as it was sent.
    pub fn query(&self) -> &'a str {
        self.query
    }

    /// Whether the request is a WebSocket upgrade.
    pub fn is_socket(&self) -> bool {
        self.is_socket
    }

    /// The path of a request that may generate something: a `POST` request.
    pub fn post(&self) -> Option<&'a [&'a str]> {
        match self.path {
            // Messages of a thread belong to OpenAI's assistants, which do not generate in the
            // response.
            [.., "threads", _, "messages"] => None,
            path => (self.method == Method::POST).then_some(path),
        }
    }

    /// The path of a request that reads or streams a stored response again: a `GET` request.
    pub fn get(&self) -> Option<&'a [&'a str]> {
        (self.method == Method::GET).then_some(self.path)
    }
}

/// Detects the dialect of a request by the end of its path, because prefixes differ between
/// providers. The first event of the response may override it.
///
/// ```
/// use tokengauge_core::call::{Dialect, Operation};
///
/// let uri = "/openai/deployments/gpt-5/chat/completions".parse().unwrap();
/// let found = tokengauge_wire::detect(&http::Method::POST, &uri);
/// assert_eq!(found.dialect, Dialect::OpenaiChat);
/// assert_eq!(found.operation, Operation::Chat);
/// assert_eq!(found.model.as_deref(), Some("gpt-5"));
/// ```
pub fn detect(method: &Method, uri: &Uri) -> Detected {
    DIALECTS.detect(method, uri)
}

/// Detects the dialect of a WebSocket upgrade request by the end of its path.
pub fn detect_socket(method: &Method, uri: &Uri) -> Detected {
    DIALECTS.detect_socket(method, uri)
}

/// Words that decide in paths. They are matched in any case, because some servers ignore it.
const WORDS: [&str; 12] = [
    "api",
    "chat",
    "completions",
    "deployments",
    "embeddings",
    "engines",
    "generate",
    "messages",
    "model",
    "models",
    "realtime",
    "responses",
];

/// The segments of a path after normalization: without empty segments and dots.
pub(super) fn segments(path: &str) -> Vec<&str> {
    let mut segments = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(segments.pop()),
            _ => {
                let word = WORDS.iter().find(|word| part.eq_ignore_ascii_case(word));
                segments.push(word.copied().unwrap_or(part));
            }
        }
    }
    segments
}

pub(super) struct GoogleMethod<'a> {
    /// The publisher of the model, on Vertex.
    pub(super) publisher: Option<&'a str>,
    pub(super) model: &'a str,
    pub(super) verb: &'a str,
}

impl<'a> GoogleMethod<'a> {
    pub(super) fn of(path: &[&'a str]) -> Option<GoogleMethod<'a>> {
        let (model, verb) = path.last()?.rsplit_once(':')?;
        let publishers = path.iter().position(|segment| *segment == "publishers");
        Some(GoogleMethod {
            publisher: publishers.and_then(|at| path.get(at + 1)).copied(),
            model,
            verb,
        })
    }

    /// Whether Vertex passes the body on in the publisher's format, and whether it streams.
    pub(super) fn raw_stream(&self) -> Option<bool> {
        match self.verb {
            "rawPredict" => Some(false),
            "streamRawPredict" => Some(true),
            _ => None,
        }
    }
}

/// A request in OpenAI's format after `prefix`. On Azure, the prefix names a deployment.
pub(super) fn behind_deployment(found: Detected, prefix: &[&str]) -> Detected {
    match prefix {
        // Docker Model Runner has `/engines/v1/...`. The model is in the body.
        [.., "engines", version] if is_version(version) => found,
        [.., "deployments" | "engines", deployment] => found.model(deployment),
        _ => found,
    }
}

fn is_version(segment: &str) -> bool {
    let digits = segment.strip_prefix('v').unwrap_or_default();
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}

/// Decodes percent-encoding. Invalid escapes are kept as they are.
pub fn percent_decoded(text: &str) -> String {
    if !text.contains('%') {
        return text.to_owned();
    }
    let mut decoded = Vec::with_capacity(text.len());
    let mut bytes = text.as_bytes();
    while let Some((&first, rest)) = bytes.split_first() {
        let escape = rest
            .first_chunk()
            .filter(|_| first == b'%')
            .and_then(|digits: &[u8; 2]| hexadecimal(*digits));
        decoded.push(escape.unwrap_or(first));
        bytes = rest.get(escape.map_or(0, |_| 2)..).unwrap_or_default();
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

fn hexadecimal([high, low]: [u8; 2]) -> Option<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    u8::try_from(digit(high)? * 16 + digit(low)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn post(target: &str) -> Detected {
        detect(&Method::POST, &target.parse().expect("a valid target"))
    }

    #[test]
    fn a_version_behind_engines_is_no_model() {
        let model = |target| post(target).model.map(|model| model.to_string());
        assert_eq!(model("/engines/v1/chat/completions"), None);
        assert_eq!(model("/engines/llama.cpp/v1/embeddings"), None);
        let ada = Some("ada".to_owned());
        assert_eq!(model("/v1/engines/ada/completions"), ada);
    }

    #[test]
    fn a_socket_is_known_by_its_path() {
        let socket = |target: &str| {
            let found = detect_socket(&Method::GET, &target.parse().expect("a valid target"));
            (found.dialect, found.operation)
        };
        let live = (Dialect::GeminiLive, Operation::Realtime);
        for (target, should) in [
            ("/v1/responses", (Dialect::OpenaiResponses, Operation::Chat)),
            (
                "/backend-api/codex/responses",
                (Dialect::OpenaiResponses, Operation::Chat),
            ),
            (
                "/ws/google.ai.generativelanguage.v1beta.GenerativeService.BidiGenerateContent?key=k",
                live,
            ),
            (
                "/ws/google.ai.generativelanguage.v1alpha.GenerativeService.BidiGenerateContentConstrained",
                live,
            ),
            (
                "/ws/google.cloud.aiplatform.v1beta1.LlmBidiService/BidiGenerateContent",
                live,
            ),
            (
                "/v1/realtime?model=m",
                (Dialect::OpenaiRealtime, Operation::Realtime),
            ),
            ("/chat", (Dialect::Unknown, Operation::Unknown)),
        ] {
            assert_eq!(socket(target), should, "{target}");
        }
        let get = detect(&Method::GET, &"/v1/responses".parse().expect("a target"));
        assert_eq!(get.dialect, Dialect::Unknown, "without an upgrade");
    }

    #[test]
    fn the_end_of_the_path_decides_under_any_prefix() {
        for (target, dialect) in [
            ("/v1/chat/completions", Dialect::OpenaiChat),
            ("/api/coding/paas/v4/chat/completions", Dialect::OpenaiChat),
            ("//v1/chat/completions", Dialect::OpenaiChat),
            (
                "/models/chat/completions?api-version=2024-05-01-preview",
                Dialect::OpenaiChat,
            ),
            ("/v1/chat/completions/", Dialect::OpenaiChat),
            ("/v1/completions", Dialect::OpenaiCompletions),
            ("/backend-api/codex/responses", Dialect::OpenaiResponses),
            ("/v1/messages?beta=true", Dialect::Anthropic),
            ("/anthropic/v1/messages", Dialect::Anthropic),
            ("/v1/complete", Dialect::AnthropicComplete),
            ("/api/chat", Dialect::Ollama),
            ("/ollama/api/generate", Dialect::Ollama),
            ("/api/embed", Dialect::Embeddings),
            ("/api/embeddings", Dialect::Embeddings),
            ("/v1/embeddings", Dialect::Embeddings),
            ("/v2/embed", Dialect::Embeddings),
            ("/v2/chat", Dialect::CohereV2),
            ("/v1/chat", Dialect::CohereV1),
            ("/v1/generate", Dialect::CohereV1),
            ("/generate", Dialect::Tgi),
            ("/", Dialect::Tgi),
            ("/endpoints/llama/invocations", Dialect::Tgi),
            ("/api/v1/rerank", Dialect::Rerank),
            ("/v1/threads/thread_1/messages", Dialect::Unknown),
            ("/v1/messages/count_tokens", Dialect::Unknown),
            (
                "/v1beta/models/gemini-2.5-pro:countTokens",
                Dialect::Unknown,
            ),
            ("/v1/audio/transcriptions", Dialect::OpenaiMedia),
            ("/v1/images/edits", Dialect::OpenaiMedia),
            ("/v1/files", Dialect::Unknown),
            ("/v1internal:countTokens", Dialect::Unknown),
            ("/v1/messages/batches", Dialect::Unknown),
            ("/v1/responses/compact", Dialect::OpenaiResponses),
            ("/v1/responses/resp_1/cancel", Dialect::Unknown),
            ("/v1beta/interactions", Dialect::GeminiInteractions),
            ("/v1/conversations", Dialect::MistralConversations),
            ("/v1/conversations/conv_1/items", Dialect::Unknown),
            ("/api/v1/chat", Dialect::LmStudio),
            ("/completion", Dialect::LlamaCpp),
            ("/infill", Dialect::LlamaCpp),
            ("/inference/v1/generate", Dialect::EngineGenerate),
            ("/v2/models/llama/generate_stream", Dialect::EngineGenerate),
            (
                "/v2/models/llama/versions/1/generate",
                Dialect::EngineGenerate,
            ),
            ("/v2/models/llama/infer", Dialect::Unknown),
        ] {
            assert_eq!(post(target).dialect, dialect, "{target}");
        }
    }

    #[test]
    fn the_path_names_model_and_stream_where_the_dialect_says_so_there() {
        for (target, dialect, model, stream) in [
            (
                "/openai/deployments/my-gpt/chat/completions?api-version=2024-02-01",
                Dialect::OpenaiChat,
                "my-gpt",
                None,
            ),
            (
                "/v1beta/models/gemini-2.5-flash:streamGenerateContent?alt=sse",
                Dialect::Gemini,
                "gemini-2.5-flash",
                Some(true),
            ),
            (
                "/v1/projects/p/locations/us-east5/publishers/google/models/gemini-2.5-pro:generateContent",
                Dialect::Gemini,
                "gemini-2.5-pro",
                Some(false),
            ),
            (
                "/v1/projects/p/locations/us-east5/publishers/anthropic/models/claude-3-7-sonnet@20250219:streamRawPredict",
                Dialect::Anthropic,
                "claude-3-7-sonnet@20250219",
                Some(true),
            ),
            (
                "/v1/projects/p/locations/l/publishers/mistralai/models/mistral-large:rawPredict",
                Dialect::OpenaiChat,
                "mistral-large",
                Some(false),
            ),
            (
                "/model/us.anthropic.claude-haiku-4-5-20251001-v1%3A0/invoke-with-response-stream",
                Dialect::BedrockInvoke,
                "us.anthropic.claude-haiku-4-5-20251001-v1:0",
                Some(true),
            ),
            (
                "/bedrock/model/arn:aws:bedrock:us-east-1:1:inference-profile%2Fus.meta.llama/converse",
                Dialect::BedrockConverse,
                "arn:aws:bedrock:us-east-1:1:inference-profile/us.meta.llama",
                Some(false),
            ),
            (
                "/v1beta/models/gemini-embedding-001:batchEmbedContents",
                Dialect::Embeddings,
                "gemini-embedding-001",
                None,
            ),
        ] {
            let found = post(target);
            assert_eq!(found.dialect, dialect, "{target}");
            assert_eq!(found.model.as_deref(), Some(model), "{target}");
            assert_eq!(found.stream, stream, "{target}");
        }
        for (verb, stream) in [("generateContent", false), ("streamGenerateContent", true)] {
            let found = post(&format!("/v1internal:{verb}"));
            assert_eq!((found.dialect, found.model), (Dialect::Gemini, None));
            assert_eq!(found.stream, Some(stream));
        }
        assert_eq!(post("/generate_stream").stream, Some(true));
        assert_eq!(post("/v1/messages").stream, None);
    }

    #[test]
    fn a_realtime_connection_names_its_model_in_the_query() {
        for target in [
            "/v1/realtime?intent=x&model=gpt-realtime%2Dmini",
            "/openai/realtime?api-version=1&deployment=gpt-realtime-mini",
        ] {
            let found = detect(&Method::GET, &target.parse().expect("a valid target"));
            assert_eq!(found.dialect, Dialect::OpenaiRealtime);
            assert_eq!(found.model.as_deref(), Some("gpt-realtime-mini"));
            assert_eq!(found.stream, Some(true));
        }
    }

    #[test]
    fn reading_something_is_not_generating_it() {
        let read = |target: &str| detect(&Method::GET, &target.parse().expect("a valid target"));
        for target in ["/v1/chat/completions", "/v1/models", "/"] {
            assert_eq!(read(target), Detected::default(), "{target}");
        }
        let stored = [
            ("/v1/responses/resp_1", Dialect::OpenaiResponses),
            ("/v1/chat/completions/c_1", Dialect::OpenaiChat),
        ];
        for (target, dialect) in stored {
            let should = Detected::new(dialect, Operation::Retrieve);
            assert_eq!(read(target), should, "{target}");
        }
    }

    #[test]
    fn a_model_with_control_characters_is_not_one() {
        assert_eq!(post("/model/a%0Ab/invoke").model, None);
        assert_eq!(
            post("/model/100%25%zz/invoke").model.as_deref(),
            Some("100%%zz")
        );
    }
}
