//! Maps suffixes of paths to shapes. The rest of the path is ignored.

use http::{Method, Uri};
use tokengauge_core::call::Dialect;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    pub shape: Shape,
    /// The model; `None` if the path does not name it.
    pub model: Option<String>,
    /// Whether to stream, if the path or the dialect's default decides it.
    pub stream: Option<bool>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    Chat,
    Completions,
    Responses,
    Realtime,
    Anthropic,
    /// Server-sent events, or one growing array.
    Gemini {
        sse: bool,
    },
    Converse,
    Invoke,
    OllamaChat,
    OllamaGenerate,
    CohereV1,
    CohereV2,
    Tgi,
    OpenaiEmbeddings,
    CohereEmbed,
    GeminiEmbed {
        batch: bool,
    },
    OllamaEmbed {
        legacy: bool,
    },
    Rerank,
    Models,
    OllamaTags,
    OllamaVersion,
    Truth,
    Health,
    Home,
}

impl Shape {
    pub fn dialect(self) -> Dialect {
        match self {
            Shape::Chat => Dialect::OpenaiChat,
            Shape::Completions => Dialect::OpenaiCompletions,
            Shape::Responses => Dialect::OpenaiResponses,
            Shape::Realtime => Dialect::OpenaiRealtime,
            Shape::Anthropic => Dialect::Anthropic,
            Shape::Gemini { .. } => Dialect::Gemini,
            Shape::Converse => Dialect::BedrockConverse,
            Shape::Invoke => Dialect::BedrockInvoke,
            Shape::OllamaChat | Shape::OllamaGenerate => Dialect::Ollama,
            Shape::CohereV1 => Dialect::CohereV1,
            Shape::CohereV2 => Dialect::CohereV2,
            Shape::Tgi => Dialect::Tgi,
            Shape::OpenaiEmbeddings
            | Shape::CohereEmbed
            | Shape::GeminiEmbed { .. }
            | Shape::OllamaEmbed { .. } => Dialect::Embeddings,
            Shape::Rerank => Dialect::Rerank,
            Shape::Models
            | Shape::OllamaTags
            | Shape::OllamaVersion
            | Shape::Truth
            | Shape::Health
            | Shape::Home => Dialect::Unknown,
        }
    }
}

/// The target of a request; `None` if the simulator does not serve it.
pub fn route(method: &Method, uri: &Uri) -> Option<Target> {
    let path = uri.path().trim_end_matches('/');
    match *method {
        Method::POST => post(path, uri.query().unwrap_or_default()),
        Method::GET => get(path),
        _ => None,
    }
}

fn get(path: &str) -> Option<Target> {
    let shape = match path {
        "" => Shape::Home,
        _ if path.ends_with("/health") => Shape::Health,
        _ if path.ends_with("/sim/truth") => Shape::Truth,
        _ if path.ends_with("/realtime") => Shape::Realtime,
        _ if path.ends_with("/models") => Shape::Models,
        _ if path.ends_with("/api/tags") => Shape::OllamaTags,
        _ if path.ends_with("/api/version") => Shape::OllamaVersion,
        _ => return None,
    };
    Some(Target {
        shape,
        model: None,
        stream: None,
    })
}

/// Suffixes in the order in which they are tried, and whether the response streams by default.
const SUFFIXES: &[(&str, Shape, Option<bool>)] = &[
    ("/chat/completions", Shape::Chat, None),
    ("/completions", Shape::Completions, None),
    ("/responses", Shape::Responses, None),
    ("/v1/messages", Shape::Anthropic, None),
    ("/api/chat", Shape::OllamaChat, Some(true)),
    ("/api/generate", Shape::OllamaGenerate, Some(true)),
    ("/v2/chat", Shape::CohereV2, None),
    ("/v1/chat", Shape::CohereV1, None),
    ("/generate_stream", Shape::Tgi, Some(true)),
    ("/generate", Shape::Tgi, Some(false)),
    ("/invocations", Shape::Tgi, None),
    ("/api/embed", Shape::OllamaEmbed { legacy: false }, None),
    ("/api/embeddings", Shape::OllamaEmbed { legacy: true }, None),
    ("/v2/embed", Shape::CohereEmbed, None),
    ("/v1/embed", Shape::CohereEmbed, None),
    ("/embeddings", Shape::OpenaiEmbeddings, None),
    ("/rerank", Shape::Rerank, None),
];

fn post(path: &str, query: &str) -> Option<Target> {
    if path.is_empty() {
        return Some(Target {
            shape: Shape::Tgi,
            model: None,
            stream: None,
        });
    }
    if let Some(target) = bedrock(path).or_else(|| google(path, query)) {
        return Some(target);
    }
    let (_, shape, stream) = SUFFIXES
        .iter()
        .find(|(suffix, ..)| path.ends_with(suffix))?;
    let deployment = path.split_once("/deployments/").map(|(_, rest)| rest);
    let model = deployment
        .and_then(|rest| rest.split('/').next())
        .map(decoded);
    Some(Target {
        shape: *shape,
        model,
        stream: *stream,
    })
}

/// Matches paths such as `/model/{id}/converse-stream`.
fn bedrock(path: &str) -> Option<Target> {
    let (model, verb) = path.rsplit_once("/model/")?.1.rsplit_once('/')?;
    let (shape, stream) = match verb {
        "converse" => (Shape::Converse, false),
        "converse-stream" => (Shape::Converse, true),
        "invoke" => (Shape::Invoke, false),
        "invoke-with-response-stream" => (Shape::Invoke, true),
        _ => return None,
    };
    Some(Target {
        shape,
        model: Some(decoded(model)),
        stream: Some(stream),
    })
}

/// Matches paths such as `/models/{id}:streamGenerateContent`, including Claude on Vertex.
fn google(path: &str, query: &str) -> Option<Target> {
    let (model, verb) = path.rsplit_once("/models/")?.1.rsplit_once(':')?;
    let sse = query.split('&').any(|pair| pair == "alt=sse");
    let (shape, stream) = match verb {
        "generateContent" => (Shape::Gemini { sse }, false),
        "streamGenerateContent" => (Shape::Gemini { sse }, true),
        "rawPredict" => (Shape::Anthropic, false),
        "streamRawPredict" => (Shape::Anthropic, true),
        "embedContent" => (Shape::GeminiEmbed { batch: false }, false),
        "batchEmbedContents" => (Shape::GeminiEmbed { batch: true }, false),
        _ => return None,
    };
    Some(Target {
        shape,
        model: Some(decoded(model)),
        stream: Some(stream),
    })
}

/// Decodes escapes such as `%3A`. Other text stays unchanged.
pub fn decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let escape = (bytes[at] == b'%')
            .then(|| text.get(at + 1..at + 3))
            .flatten();
        match escape.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) => {
                out.push(byte);
                at += 3;
            }
            None => {
                out.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn posted(uri: &str) -> (Shape, Option<String>, Option<bool>) {
        let target = route(&Method::POST, &uri.parse().expect(uri)).expect(uri);
        (target.shape, target.model, target.stream)
    }

    #[test]
    fn paths_of_every_provider_find_their_shape() {
        let model = |name: &str| Some(name.to_owned());
        for (uri, shape, named, stream) in [
            ("/openai/v1/chat/completions", Shape::Chat, None, None),
            (
                "/openai/deployments/d%201/chat/completions?api-version=1",
                Shape::Chat,
                model("d 1"),
                None,
            ),
            ("/v1/completions", Shape::Completions, None, None),
            ("//v1/responses", Shape::Responses, None, None),
            ("/v1/messages?beta=true", Shape::Anthropic, None, None),
            (
                "/v1/projects/p/locations/l/publishers/anthropic/models/claude@1:streamRawPredict",
                Shape::Anthropic,
                model("claude@1"),
                Some(true),
            ),
            (
                "/v1beta/models/g:streamGenerateContent?key=k&alt=sse",
                Shape::Gemini { sse: true },
                model("g"),
                Some(true),
            ),
            (
                "/v1beta/models/g:generateContent",
                Shape::Gemini { sse: false },
                model("g"),
                Some(false),
            ),
            (
                "/model/us.x-v1%3A0/converse-stream",
                Shape::Converse,
                model("us.x-v1:0"),
                Some(true),
            ),
            ("/model/m/invoke", Shape::Invoke, model("m"), Some(false)),
            ("/api/chat", Shape::OllamaChat, None, Some(true)),
            (
                "/ollama/api/generate",
                Shape::OllamaGenerate,
                None,
                Some(true),
            ),
            ("/v2/chat", Shape::CohereV2, None, None),
            ("/v1/chat", Shape::CohereV1, None, None),
            ("/generate_stream", Shape::Tgi, None, Some(true)),
            (
                "/api/embeddings",
                Shape::OllamaEmbed { legacy: true },
                None,
                None,
            ),
            ("/v1/embeddings", Shape::OpenaiEmbeddings, None, None),
            ("/", Shape::Tgi, None, None),
        ] {
            assert_eq!(posted(uri), (shape, named, stream), "{uri}");
        }
    }

    #[test]
    fn unknown_paths_and_methods_find_nothing() {
        assert_eq!(
            route(&Method::POST, &"/v1/nothing".parse().expect("a path")),
            None
        );
        assert_eq!(
            route(&Method::DELETE, &"/v1/responses".parse().expect("a path")),
            None
        );
    }
}
