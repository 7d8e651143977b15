//! The names and values of the GenAI conventions, in one table: v1.41
//! (<https://github.com/open-telemetry/semantic-conventions/tree/v1.41.0/docs/gen-ai>) and the
//! draft of v1.36, which many receivers support. The constants of OpenTelemetry's crates are
//! deprecated.

use crate::export::otlp::Conventions;
use tokengauge_core::call::{CallRecord, Dialect, Operation, OperationClass, Outcome};

/// The name of an attribute in each version. An attribute without a name in a version is not
/// exported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Name {
    current: Option<&'static str>,
    draft: Option<&'static str>,
}

impl Name {
    const fn both(name: &'static str) -> Name {
        Name {
            current: Some(name),
            draft: Some(name),
        }
    }

    const fn since(name: &'static str) -> Name {
        Name {
            current: Some(name),
            draft: None,
        }
    }

    pub fn by(self, conventions: Conventions) -> Option<&'static str> {
        match conventions {
            Conventions::Current => self.current,
            Conventions::Draft => self.draft,
        }
    }
}

pub const OPERATION: Name = Name::both("gen_ai.operation.name");
pub const PROVIDER: Name = Name {
    current: Some("gen_ai.provider.name"),
    draft: Some("gen_ai.system"),
};
pub const REQUEST_MODEL: Name = Name::both("gen_ai.request.model");
pub const REQUEST_STREAM: Name = Name::since("gen_ai.request.stream");
pub const RESPONSE_MODEL: Name = Name::both("gen_ai.response.model");
pub const RESPONSE_ID: Name = Name::both("gen_ai.response.id");
pub const FINISH_REASONS: Name = Name::both("gen_ai.response.finish_reasons");
/// Seconds from the request to the first chunk of the response that carries text.
pub const TIME_TO_FIRST_CHUNK: Name = Name::since("gen_ai.response.time_to_first_chunk");
pub const INPUT_TOKENS: Name = Name::both("gen_ai.usage.input_tokens");
pub const OUTPUT_TOKENS: Name = Name::both("gen_ai.usage.output_tokens");
pub const CACHE_READ_TOKENS: Name = Name::since("gen_ai.usage.cache_read.input_tokens");
pub const CACHE_CREATION_TOKENS: Name = Name::since("gen_ai.usage.cache_creation.input_tokens");
pub const REASONING_TOKENS: Name = Name::since("gen_ai.usage.reasoning.output_tokens");
/// The session, if the agent named one.
pub const CONVERSATION: Name = Name::both("gen_ai.conversation.id");
pub const TOKEN_TYPE: Name = Name::both("gen_ai.token.type");
pub const SERVER_ADDRESS: Name = Name::both("server.address");
pub const SERVER_PORT: Name = Name::both("server.port");
pub const ERROR_TYPE: Name = Name::both("error.type");
pub const STATUS_CODE: Name = Name::both("http.response.status_code");

/// The number of requested choices, if it is not one.
pub const REQUEST_CHOICES: Name = Name::both("gen_ai.request.choice.count");
pub const REQUEST_SEED: Name = Name::both("gen_ai.request.seed");
pub const REQUEST_TEMPERATURE: Name = Name::both("gen_ai.request.temperature");
pub const REQUEST_TOP_P: Name = Name::both("gen_ai.request.top_p");
pub const REQUEST_TOP_K: Name = Name::both("gen_ai.request.top_k");
pub const REQUEST_MAX_TOKENS: Name = Name::both("gen_ai.request.max_tokens");
pub const REQUEST_FREQUENCY_PENALTY: Name = Name::both("gen_ai.request.frequency_penalty");
pub const REQUEST_PRESENCE_PENALTY: Name = Name::both("gen_ai.request.presence_penalty");
pub const REQUEST_STOP_SEQUENCES: Name = Name::both("gen_ai.request.stop_sequences");
pub const REQUEST_ENCODING_FORMATS: Name = Name::both("gen_ai.request.encoding_formats");
pub const DIMENSIONS: Name = Name::since("gen_ai.embeddings.dimension.count");
pub const OUTPUT_TYPE: Name = Name::both("gen_ai.output.type");
pub const OPENAI_API_TYPE: Name = Name::since("openai.api.type");
/// The requested service tier, unless OpenAI chooses it.
pub const OPENAI_REQUEST_TIER: Name = Name::both("openai.request.service_tier");
pub const USER: Name = Name::both("user.id");
pub const METHOD: Name = Name::both("http.request.method");
/// The path of the request with names and identifiers replaced.
pub const URL_PATH: Name = Name::both("url.path");
/// The path as a template.
pub const ROUTE: Name = Name::both("http.route");

/// The schema URL, with which receivers translate between versions.
pub fn schema_url(conventions: Conventions) -> &'static str {
    match conventions {
        Conventions::Current => "https://opentelemetry.io/schemas/1.41.0",
        Conventions::Draft => "https://opentelemetry.io/schemas/1.36.0",
    }
}

/// The HTTP method if the conventions know it, otherwise `_OTHER`.
pub fn method(sent: &str) -> &str {
    const KNOWN: [&str; 10] = [
        "GET", "POST", "HEAD", "PUT", "DELETE", "OPTIONS", "PATCH", "CONNECT", "TRACE", "QUERY",
    ];
    if KNOWN.contains(&sent) {
        sent
    } else {
        "_OTHER"
    }
}

pub fn openai_api(dialect: Dialect) -> Option<&'static str> {
    match dialect {
        Dialect::OpenaiChat => Some("chat_completions"),
        Dialect::OpenaiResponses => Some("responses"),
        _ => None,
    }
}

/// The error type from a bounded list, equal in spans and metrics. It is the status if nothing else
/// is known. Error names from response bodies are unbounded and therefore not used.
pub fn error_type(record: &CallRecord) -> Option<String> {
    let word = || record.outcome.as_str().to_owned();
    match record.outcome {
        Outcome::Complete | Outcome::ClientCancelled => None,
        Outcome::HttpError => Some(record.status.map_or_else(word, |status| status.to_string())),
        Outcome::ErrorEvent => Some(word()),
        // Values that tokengauge defines.
        _ => Some(record.error_type.clone().unwrap_or_else(word)),
    }
}

/// The operation under the conventions' name, otherwise under ours; `None` if it is not an
/// operation.
pub fn operation(record: &CallRecord) -> Option<&'static str> {
    match record.operation {
        Operation::Chat => Some("chat"),
        Operation::TextCompletion => Some("text_completion"),
        Operation::GenerateContent => Some("generate_content"),
        Operation::Embeddings => Some("embeddings"),
        Operation::Realtime => Some("realtime"),
        Operation::Rerank => Some("rerank"),
        // The path is unknown, but generated tokens were on the wire.
        Operation::Unknown if record.operation_class == OperationClass::Generation => {
            by_shapes(record.dialect)
        }
        Operation::Retrieve | Operation::Unknown => None,
    }
}

/// The most common operation of servers of a dialect; `None` for an unknown dialect.
fn by_shapes(dialect: Dialect) -> Option<&'static str> {
    match dialect {
        Dialect::Unknown => None,
        Dialect::OpenaiCompletions
        | Dialect::AnthropicComplete
        | Dialect::Tgi
        | Dialect::LlamaCpp
        | Dialect::EngineGenerate => Some("text_completion"),
        Dialect::Gemini | Dialect::GeminiInteractions | Dialect::OpenaiMedia => {
            Some("generate_content")
        }
        Dialect::OpenaiRealtime | Dialect::GeminiLive => Some("realtime"),
        Dialect::Embeddings => Some("embeddings"),
        Dialect::Rerank => Some("rerank"),
        _ => Some("chat"),
    }
}

/// Providers by the suffix of their host name.
const HOSTS: &[(&str, &str)] = &[
    ("api.openai.com", "openai"),
    (".openai.azure.com", "azure.ai.openai"),
    (".services.ai.azure.com", "azure.ai.inference"),
    ("api.anthropic.com", "anthropic"),
    ("generativelanguage.googleapis.com", "gcp.gemini"),
    ("aiplatform.googleapis.com", "gcp.vertex_ai"),
    ("api.mistral.ai", "mistral_ai"),
    ("api.cohere.com", "cohere"),
    ("api.groq.com", "groq"),
    ("api.deepseek.com", "deepseek"),
    ("api.perplexity.ai", "perplexity"),
    ("api.x.ai", "x_ai"),
    ("api.moonshot.ai", "moonshot_ai"),
];

/// The provider of the model that answers. It follows from the upstream's host if that is known,
/// otherwise from the dialect, as the conventions require for compatible APIs.
pub fn provider(record: &CallRecord) -> &'static str {
    let host = record
        .endpoint
        .as_deref()
        .map(|endpoint| address(endpoint).0)
        .unwrap_or_default();
    let known = HOSTS.iter().find(|(end, _)| host.ends_with(end));
    known.map_or_else(|| by_dialect(record.dialect), |(_, name)| name)
}

fn by_dialect(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::OpenaiChat
        | Dialect::OpenaiCompletions
        | Dialect::OpenaiResponses
        | Dialect::OpenaiRealtime
        | Dialect::OpenaiMedia
        | Dialect::Embeddings => "openai",
        Dialect::Anthropic | Dialect::AnthropicComplete => "anthropic",
        Dialect::Gemini | Dialect::GeminiInteractions | Dialect::GeminiLive => "gcp.gemini",
        Dialect::MistralConversations => "mistral_ai",
        Dialect::BedrockConverse | Dialect::BedrockInvoke => "aws.bedrock",
        Dialect::Ollama => "ollama",
        Dialect::CohereV1 | Dialect::CohereV2 | Dialect::Rerank => "cohere",
        Dialect::Tgi => "huggingface",
        _ => "_OTHER",
    }
}

pub fn address(endpoint: &str) -> (&str, Option<u16>) {
    match endpoint.rsplit_once(':') {
        Some((host, port)) if !host.is_empty() && !port.ends_with(']') => {
            (host.trim_matches(['[', ']']), port.parse().ok())
        }
        _ => (endpoint.trim_matches(['[', ']']), None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_switch_chooses_between_the_versions_names() {
        let names = |name: Name| (name.by(Conventions::Current), name.by(Conventions::Draft));
        let provider = (Some("gen_ai.provider.name"), Some("gen_ai.system"));
        assert_eq!(names(PROVIDER), provider);
        assert_eq!(names(CACHE_READ_TOKENS).1, None);
        assert_eq!(names(INPUT_TOKENS).0, names(INPUT_TOKENS).1);
    }

    #[test]
    fn an_endpoint_is_an_address_and_a_port() {
        assert_eq!(address("10.0.0.1:8000"), ("10.0.0.1", Some(8000)));
        assert_eq!(address("[::1]:80"), ("::1", Some(80)));
        assert_eq!(address("[::1]"), ("::1", None));
        assert_eq!(address("api.openai.com"), ("api.openai.com", None));
    }
}
