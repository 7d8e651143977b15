//! The dialects of a benchmark: paths, bodies and headers of streamed requests.

use http::{HeaderName, HeaderValue, Uri};
use serde_json::{Value, json};

#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    strum::EnumString,
    strum::IntoStaticStr,
    strum::VariantNames,
)]
#[strum(serialize_all = "snake_case")]
pub enum EndpointType {
    /// OpenAI's chat completions, which vLLM, SGLang, llama.cpp and most other engines serve.
    #[default]
    Chat,
    Completions,
    Responses,
    Messages,
    Gemini,
    Ollama,
    OllamaGenerate,
    Cohere,
    Tgi,
    LlamaCpp,
    /// Bedrock's `converse-stream`, with an API key.
    Converse,
}

/// The text of a request and the length of its response.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Prompt {
    pub text: String,
    /// The maximum number of output tokens. With `None` the backend decides.
    pub output_tokens: Option<u32>,
    pub session: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct RequestSettings {
    pub model: String,
    /// Whether to ask the engine to continue to the maximum length (vLLM, SGLang).
    pub ignore_eos: bool,
    /// Members that are merged into the request body and override existing members.
    pub extra: serde_json::Map<String, Value>,
}

impl EndpointType {
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    pub fn path(self, model: &str) -> String {
        match self {
            EndpointType::Chat => "/v1/chat/completions".to_owned(),
            EndpointType::Completions => "/v1/completions".to_owned(),
            EndpointType::Responses => "/v1/responses".to_owned(),
            EndpointType::Messages => "/v1/messages".to_owned(),
            EndpointType::Gemini => {
                format!("/v1beta/models/{model}:streamGenerateContent?alt=sse")
            }
            EndpointType::Ollama => "/api/chat".to_owned(),
            EndpointType::OllamaGenerate => "/api/generate".to_owned(),
            EndpointType::Cohere => "/v2/chat".to_owned(),
            EndpointType::Tgi => "/generate_stream".to_owned(),
            EndpointType::LlamaCpp => "/completion".to_owned(),
            EndpointType::Converse => {
                format!("/model/{}/converse-stream", model.replace(':', "%3A"))
            }
        }
    }

    /// Returns the header for an API key and the prefix of its value.
    pub fn key_header(self) -> (HeaderName, &'static str) {
        match self {
            EndpointType::Messages => (HeaderName::from_static("x-api-key"), ""),
            EndpointType::Gemini => (HeaderName::from_static("x-goog-api-key"), ""),
            _ => (http::header::AUTHORIZATION, "Bearer "),
        }
    }

    pub fn headers(self) -> Vec<(HeaderName, HeaderValue)> {
        match self {
            EndpointType::Messages => vec![(
                HeaderName::from_static("anthropic-version"),
                HeaderValue::from_static("2023-06-01"),
            )],
            _ => Vec::new(),
        }
    }

    pub fn body(self, prompt: &Prompt, settings: &RequestSettings) -> Value {
        let (model, text) = (&settings.model, &prompt.text);
        let messages = json!([{"role": "user", "content": text}]);
        let mut body = match self {
            EndpointType::Chat => json!({
                "model": model, "stream": true, "stream_options": {"include_usage": true}, "messages": messages,
            }),
            EndpointType::Completions => json!({
                "model": model, "stream": true, "stream_options": {"include_usage": true}, "prompt": text,
            }),
            EndpointType::Responses => json!({"model": model, "stream": true, "input": text}),
            EndpointType::Messages | EndpointType::Cohere => {
                json!({"model": model, "stream": true, "messages": messages})
            }
            EndpointType::Gemini => {
                json!({"contents": [{"role": "user", "parts": [{"text": text}]}]})
            }
            EndpointType::Ollama => json!({"model": model, "stream": true, "messages": messages}),
            EndpointType::OllamaGenerate => json!({"model": model, "stream": true, "prompt": text}),
            EndpointType::Tgi => json!({"inputs": text, "parameters": {}}),
            EndpointType::LlamaCpp => json!({"stream": true, "prompt": text}),
            EndpointType::Converse => {
                json!({"messages": [{"role": "user", "content": [{"text": text}]}]})
            }
        };
        self.limit(&mut body, prompt.output_tokens);
        if settings.ignore_eos {
            body["ignore_eos"] = true.into();
        }
        for (name, value) in &settings.extra {
            body[name] = value.clone();
        }
        body
    }

    /// Limits the output length. Anthropic's Messages API requires a limit.
    fn limit(self, body: &mut Value, tokens: Option<u32>) {
        const ANTHROPIC_DEFAULT: u32 = 1024;
        let Some(tokens) = tokens.or((self == EndpointType::Messages).then_some(ANTHROPIC_DEFAULT))
        else {
            return;
        };
        match self {
            EndpointType::Responses => body["max_output_tokens"] = tokens.into(),
            EndpointType::Gemini => body["generationConfig"]["maxOutputTokens"] = tokens.into(),
            EndpointType::Ollama | EndpointType::OllamaGenerate => {
                body["options"]["num_predict"] = tokens.into();
            }
            EndpointType::Tgi => body["parameters"]["max_new_tokens"] = tokens.into(),
            EndpointType::LlamaCpp => body["n_predict"] = tokens.into(),
            EndpointType::Converse => body["inferenceConfig"]["maxTokens"] = tokens.into(),
            _ => body["max_tokens"] = tokens.into(),
        }
    }
}

/// Joins a base URL and a path. The base may already end with the beginning of `path` (`…/v1`) or with all of it.
///
/// # Errors
/// Returns an error if the result is not a valid URL.
pub fn join(base: &Uri, path: &str) -> Result<Uri, http::Error> {
    let own = base.path().trim_end_matches('/');
    let bare = path.split('?').next().unwrap_or(path);
    let target = if own.ends_with(bare) {
        base.path_and_query()
            .map_or(path.to_owned(), |target| target.as_str().to_owned())
    } else {
        let shared = own.rsplit('/').next().filter(|last| !last.is_empty());
        let rest = shared
            .and_then(|last| path.strip_prefix(&format!("/{last}")))
            .filter(|rest| rest.starts_with('/'));
        format!("{own}{}", rest.unwrap_or(path))
    };
    let mut parts = base.clone().into_parts();
    parts.path_and_query = Some(target.parse()?);
    Ok(Uri::from_parts(parts)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use strum::VariantNames;

    #[test]
    fn a_base_may_hold_a_part_of_the_path_or_all_of_it() {
        let joined = |base: &str, path: &str| {
            let base = base.parse().expect("a URL");
            join(&base, path).expect("a URL").to_string()
        };
        for base in [
            "http://h:1",
            "http://h:1/",
            "http://h:1/v1",
            "http://h:1/v1/chat/completions",
        ] {
            assert_eq!(
                joined(base, "/v1/chat/completions"),
                "http://h:1/v1/chat/completions"
            );
        }
        assert_eq!(
            joined("https://h/openai", "/v1/responses"),
            "https://h/openai/v1/responses"
        );
        assert_eq!(
            joined("https://h/v1", "/v1beta/x?alt=sse"),
            "https://h/v1/v1beta/x?alt=sse"
        );
    }

    #[test]
    fn every_type_says_the_prompt_and_limits_the_answer() {
        let prompt = Prompt {
            text: "tell of rivers".to_owned(),
            output_tokens: Some(77),
            session: None,
        };
        for name in EndpointType::VARIANTS {
            let endpoint: EndpointType = name.parse().expect(name);
            let body = endpoint
                .body(&prompt, &RequestSettings::default())
                .to_string();
            assert!(
                body.contains("tell of rivers") && body.contains("77"),
                "{body}"
            );
        }
    }
}
