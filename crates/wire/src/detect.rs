//! Which dialect a path speaks.

use super::request::word;
use http::{Method, Uri};
use tokengauge_core::call::{Dialect, Operation};

/// What a request's method and path say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Detected {
    /// The shapes on the wire.
    pub dialect: Dialect,
    /// What is asked for.
    pub operation: Operation,
    /// The model, where the path names it.
    pub model: Option<String>,
    /// Whether a stream is asked for, where the path says.
    pub stream: Option<bool>,
}

impl Detected {
    fn new(dialect: Dialect, operation: Operation) -> Self {
        Detected {
            dialect,
            operation,
            ..Detected::default()
        }
    }

    fn model(mut self, name: &str) -> Self {
        self.model = word(name);
        self
    }

    fn stream(mut self, stream: bool) -> Self {
        self.stream = Some(stream);
        self
    }
}

/// Reads the dialect off a path. Its end decides: prefixes vary from provider to
/// provider. What the first event of the response says wins over it.
pub fn detect(method: &Method, uri: &Uri) -> Detected {
    let decoded = percent_decoded(uri.path());
    let path = segments(&decoded);
    if path.last() == Some(&"realtime") {
        return realtime(uri.query().unwrap_or(""));
    }
    if path.last().is_some_and(|last| is_gemini_live(last)) {
        return Detected::new(Dialect::GeminiLive, Operation::Realtime).stream(true);
    }
    if method == Method::GET {
        return stored(&path).unwrap_or_default();
    }
    if method != Method::POST {
        return Detected::default();
    }
    bedrock(&path)
        .or_else(|| google(&path))
        .or_else(|| openai(&path))
        .or_else(|| triton(&path))
        .or_else(|| others(&path))
        .unwrap_or_default()
}

/// The same for a request that becomes a WebSocket.
pub fn detect_socket(method: &Method, uri: &Uri) -> Detected {
    let decoded = percent_decoded(uri.path());
    match &segments(&decoded)[..] {
        [.., "responses"] => Detected::new(Dialect::OpenaiResponses, Operation::Chat).stream(true),
        _ => detect(method, uri),
    }
}

/// Whether this is Gemini Live's method, which is the end of a path of Vertex or behind a dot.
/// With `Constrained` it takes tokens of short life.
pub fn is_gemini_live(last: &str) -> bool {
    let method = last.rsplit('.').next().unwrap_or(last);
    matches!(
        method,
        "BidiGenerateContent" | "BidiGenerateContentConstrained"
    )
}

/// An answer that is read or streamed again.
fn stored(path: &[&str]) -> Option<Detected> {
    let dialect = match path {
        [.., "responses", _] => Dialect::OpenaiResponses,
        [.., "interactions", _] => Dialect::GeminiInteractions,
        [.., "chat", "completions", _] => Dialect::OpenaiChat,
        _ => return None,
    };
    Some(Detected::new(dialect, Operation::Retrieve))
}

/// Whether the server of this path reads a body as JSON even where its media type is that of a
/// form, which `curl -d` sends: Ollama's own API.
pub fn reads_forms_as_json(uri: &Uri) -> bool {
    let decoded = percent_decoded(uri.path());
    let verbs = ["chat", "generate", "embed", "embeddings"];
    matches!(&segments(&decoded)[..], [.., "api", verb] if verbs.contains(verb))
}

/// Words of paths that decide; servers differ on whether their case matters.
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

/// The parts of a path as a server takes them that tidies it up: without empty ones and dots.
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

/// `…/realtime?model=`; Azure says `deployment=`. Of several models none is known.
fn realtime(query: &str) -> Detected {
    let found = Detected::new(Dialect::OpenaiRealtime, Operation::Realtime).stream(true);
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    let named = pairs.filter(|(key, _)| matches!(&*percent_decoded(key), "model" | "deployment"));
    let mut models: Vec<_> = named.map(|(_, value)| percent_decoded(value)).collect();
    models.dedup();
    match &models[..] {
        [model] => found.model(model),
        _ => found,
    }
}

/// `/model/{id}/{verb}`, the id percent-encoded, or a resource name with slashes.
fn bedrock(path: &[&str]) -> Option<Detected> {
    let (verb, rest) = path.split_last()?;
    let at = rest.iter().position(|segment| *segment == "model")?;
    let id = rest.get(at + 1..).filter(|id| !id.is_empty())?.join("/");
    let (dialect, stream) = match *verb {
        "converse" => (Dialect::BedrockConverse, false),
        "converse-stream" => (Dialect::BedrockConverse, true),
        "invoke" => (Dialect::BedrockInvoke, false),
        "invoke-with-response-stream" => (Dialect::BedrockInvoke, true),
        _ => return None,
    };
    let operation = if id.contains("embed") {
        Operation::Embeddings
    } else {
        Operation::Chat
    };
    let found = Detected::new(dialect, operation);
    Some(found.model(&id).stream(stream))
}

/// `…/models/{model}:{verb}`: Gemini, and what else Vertex serves.
fn google(path: &[&str]) -> Option<Detected> {
    let (model, verb) = path.last()?.rsplit_once(':')?;
    let publisher = path
        .iter()
        .position(|segment| *segment == "publishers")
        .and_then(|at| path.get(at + 1));
    let raw = match publisher {
        Some(&"anthropic") => Dialect::Anthropic,
        _ => Dialect::OpenaiChat,
    };
    let found = match verb {
        "generateContent" => gemini().stream(false),
        "streamGenerateContent" => gemini().stream(true),
        "rawPredict" => Detected::new(raw, Operation::Chat).stream(false),
        "streamRawPredict" => Detected::new(raw, Operation::Chat).stream(true),
        "embedContent" | "batchEmbedContents" => embeddings(),
        "predict" if model.contains("embedding") => embeddings(),
        _ => return None,
    };
    Some(found.model(model))
}

fn gemini() -> Detected {
    Detected::new(Dialect::Gemini, Operation::GenerateContent)
}

fn embeddings() -> Detected {
    Detected::new(Dialect::Embeddings, Operation::Embeddings)
}

/// OpenAI's paths, under any prefix; Azure's name a deployment.
fn openai(path: &[&str]) -> Option<Detected> {
    let (found, prefix) = match path {
        [prefix @ .., "chat", "completions"] => {
            (Detected::new(Dialect::OpenaiChat, Operation::Chat), prefix)
        }
        [prefix @ .., "completions"] => (
            Detected::new(Dialect::OpenaiCompletions, Operation::TextCompletion),
            prefix,
        ),
        [prefix @ .., "responses"] | [prefix @ .., "responses", "compact"] => (
            Detected::new(Dialect::OpenaiResponses, Operation::Chat),
            prefix,
        ),
        [prefix @ .., "embeddings"] => (embeddings(), prefix),
        _ => return None,
    };
    Some(match prefix {
        // Docker Model Runner's `/engines/v1/...`: the model is in the body.
        [.., "engines", version] if is_version(version) => found,
        [.., "deployments" | "engines", deployment] => found.model(deployment),
        _ => found,
    })
}

/// Whether a segment of a path is an API's version, such as `v1`.
fn is_version(segment: &str) -> bool {
    let digits = segment.strip_prefix('v').unwrap_or_default();
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}

fn others(path: &[&str]) -> Option<Detected> {
    let (dialect, operation) = match path {
        // A thread's messages are OpenAI's assistants, which generate nothing here.
        [.., "threads", _, "messages"] => return None,
        [.., "messages"] => (Dialect::Anthropic, Operation::Chat),
        [.., "v1", "complete"] => (Dialect::AnthropicComplete, Operation::TextCompletion),
        [.., "api", "chat"] => (Dialect::Ollama, Operation::Chat),
        [.., "api", "generate"] => (Dialect::Ollama, Operation::TextCompletion),
        [.., "api", "v1", "chat"] => (Dialect::LmStudio, Operation::Chat),
        [.., "v2", "chat"] => (Dialect::CohereV2, Operation::Chat),
        // Writer's chat has the same path: its first event tells.
        [.., "v1", "chat"] => (Dialect::CohereV1, Operation::Chat),
        [.., "inference", "v1", "generate"] => (Dialect::EngineGenerate, Operation::TextCompletion),
        [.., "v1", "generate"] => (Dialect::CohereV1, Operation::TextCompletion),
        [.., "completion" | "infill"] => (Dialect::LlamaCpp, Operation::TextCompletion),
        [.., "interactions"] => (Dialect::GeminiInteractions, Operation::GenerateContent),
        [.., "conversations", _, "restart"] => (Dialect::MistralConversations, Operation::Chat),
        // OpenAI's conversations have the same paths and generate nothing: the answer tells.
        [.., "conversations"] | [.., "conversations", _] => {
            (Dialect::MistralConversations, Operation::Unknown)
        }
        [.., "audio", "transcriptions" | "translations" | "speech"]
        | [.., "images", "generations" | "edits" | "variations"] => {
            (Dialect::OpenaiMedia, Operation::GenerateContent)
        }
        [.., "embed"] => (Dialect::Embeddings, Operation::Embeddings),
        [.., "rerank"] => (Dialect::Rerank, Operation::Rerank),
        _ => return tgi(path),
    };
    Some(Detected::new(dialect, operation))
}

/// Triton's generate extension: `…/models/{model}[/versions/{version}]/generate[_stream]`.
fn triton(path: &[&str]) -> Option<Detected> {
    let (verb, rest) = path.split_last()?;
    let stream = match *verb {
        "generate" => false,
        "generate_stream" => true,
        _ => return None,
    };
    let model = match rest {
        [.., "models", model] | [.., "models", model, "versions", _] => model,
        _ => return None,
    };
    let found = Detected::new(Dialect::EngineGenerate, Operation::TextCompletion);
    Some(found.model(model).stream(stream))
}

fn tgi(path: &[&str]) -> Option<Detected> {
    let found = Detected::new(Dialect::Tgi, Operation::TextCompletion);
    match path {
        [.., "generate_stream"] | [.., "invocations-response-stream"] => Some(found.stream(true)),
        [.., "generate"] => Some(found.stream(false)),
        [] | [.., "invocations"] => Some(found),
        _ => None,
    }
}

/// Undoes percent-encoding; what is not one stays as it is.
pub fn percent_decoded(text: &str) -> String {
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
