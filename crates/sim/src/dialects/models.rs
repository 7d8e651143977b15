//! Lists of models, in a form in which the client of every provider finds its fields.

use serde_json::{Value, json};

/// Names that do not stand for a real model.
const MODELS: &[&str] = &["simulated-large", "simulated-small", "simulated-reasoning"];

/// `GET …/models` with the fields of OpenAI, Anthropic and Gemini.
pub fn list(created: u64) -> Value {
    let data: Vec<Value> = MODELS
        .iter()
        .map(|id| {
            json!({
                "id": id, "object": "model", "created": created, "owned_by": "tokengauge",
                "type": "model", "display_name": id, "created_at": "2026-01-01T00:00:00Z",
            })
        })
        .collect();
    let models: Vec<Value> = MODELS
        .iter()
        .map(|id| {
            json!({
                "name": format!("models/{id}"), "displayName": id, "version": "1",
                "supportedGenerationMethods": ["generateContent", "embedContent"],
            })
        })
        .collect();
    json!({
        "object": "list", "data": data, "models": models, "has_more": false,
        "first_id": MODELS[0], "last_id": MODELS[MODELS.len() - 1],
    })
}

/// Ollama's `GET /api/tags`.
pub fn tags() -> Value {
    let models: Vec<Value> = MODELS
        .iter()
        .map(|name| {
            json!({
                "name": name, "model": name, "modified_at": "2026-01-01T00:00:00Z", "size": 1_000_000,
                "digest": "0".repeat(64),
                "details": {"format": "gguf", "family": "simulated", "parameter_size": "1B", "quantization_level": "F16"},
            })
        })
        .collect();
    json!({"models": models})
}
