//! Unknown variables whose names suggest the address of a model. Calls to such an address bypass the sidecar, so the pod's
//! author is warned.

use super::settings::Settings;
use serde_json::Value;

const VENDORS: &[&str] = &[
    "AI21",
    "ANTHROPIC",
    "BEDROCK",
    "CEREBRAS",
    "CLAUDE",
    "COHERE",
    "DASHSCOPE",
    "DEEPSEEK",
    "FIREWORKS",
    "GEMINI",
    "GPT",
    "GROQ",
    "HUGGINGFACEHUB",
    "LITELLM",
    "LLAMA",
    "LLAMACPP",
    "LLM",
    "LLMS",
    "LMSTUDIO",
    "MISTRAL",
    "MISTRALAI",
    "NIM",
    "OLLAMA",
    "OPENAI",
    "OPENROUTER",
    "PERPLEXITY",
    "PORTKEY",
    "QWEN",
    "SGLANG",
    "TGI",
    "TOGETHER",
    "VERTEX",
    "VERTEXAI",
    "VLLM",
    "XAI",
];
const TASKS: &[&str] = &[
    "CHAT",
    "COMPLETION",
    "COMPLETIONS",
    "EMBEDDING",
    "EMBEDDINGS",
    "INFERENCE",
    "MODEL",
    "RERANK",
    "RERANKER",
];
const ADDRESSES: &[&str] = &[
    "ADDR",
    "ADDRESS",
    "BASE",
    "BASEURL",
    "ENDPOINT",
    "ENDPOINTS",
    "HOST",
    "SERVER",
    "URI",
    "URL",
    "URLS",
];
/// Parts of names of model stores and of monitoring, which receive no calls.
const OTHERS: &[&str] = &[
    "CALLBACK",
    "DASHBOARD",
    "DOCS",
    "DOWNLOAD",
    "HUB",
    "PROXY",
    "REDIRECT",
    "REGISTRY",
    "STORE",
    "TRACKING",
    "WEBHOOK",
];

/// The names of a container's variables that look like the address of a model, contain a URL or a reference, and are
/// unknown to the injector. URLs with `port`, the sidecar's port, do not bypass the sidecar.
pub(super) fn names<'a>(container: &'a Value, settings: &Settings, port: u16) -> Vec<&'a str> {
    let sidecar = ["127.0.0.1", "localhost"].map(|host| format!("http://{host}:{port}"));
    let all = container["env"].as_array().into_iter().flatten();
    all.filter_map(|variable| {
        let name = variable["name"].as_str()?;
        let known = settings.base_urls.contains_key(name);
        (!known && is_address_of_a_model(name) && holds_a_url(variable, &sidecar)).then_some(name)
    })
    .collect()
}

fn is_address_of_a_model(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    let has = |words: &[&str]| name.split('_').any(|part| words.contains(&part));
    has(ADDRESSES) && (has(VENDORS) || has(TASKS)) && !has(OTHERS)
}

/// Whether a variable may contain a URL. The value from a Secret or ConfigMap is unknown.
fn holds_a_url(variable: &Value, sidecar: &[String]) -> bool {
    match variable["value"].as_str() {
        Some(value) if leads_to(value, sidecar) => false,
        Some(value) => value.starts_with("http://") || value.starts_with("https://"),
        None => ["secretKeyRef", "configMapKeyRef"]
            .iter()
            .any(|from| variable["valueFrom"].get(from).is_some()),
    }
}

fn leads_to(value: &str, addresses: &[String]) -> bool {
    let mut rests = addresses
        .iter()
        .filter_map(|address| value.strip_prefix(address.as_str()));
    rests.any(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_models_are_recognised_by_their_variables() {
        for name in [
            "OLLAMA_API_BASE_URL",
            "OLLAMA_HOST",
            "OPENAI_BASE_URI",
            "AZURE_OPENAI_ENDPOINT",
            "LLM_BASE_URL",
            "LITELLM_BASE_URL",
            "VLLM_API_BASE",
            "EMBEDDING_URL",
            "llm_url",
            "MODEL_ENDPOINT",
            "APP__LLM__URL",
            "HUGGINGFACEHUB_ENDPOINT",
            "INFERENCE_SERVER",
        ] {
            assert!(is_address_of_a_model(name), "{name}");
        }
        for name in [
            "HF_ENDPOINT",
            "OPENAI_API_KEY",
            "LLM_MODEL",
            "DATABASE_URL",
            "MODEL_REGISTRY_URL",
            "MLFLOW_TRACKING_URI",
            "OTEL_EXPORTER_OTLP_ENDPOINT",
            "HELLMAN_URL",
            "LLM_PROXY_URL",
            "LANGFUSE_HOST",
            "",
        ] {
            assert!(!is_address_of_a_model(name), "{name}");
        }
    }
}
