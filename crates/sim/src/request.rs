//! The facts of a request body that influence the answer.

use super::route::{Shape, Target};
use serde_json::Value;

#[derive(Clone, Debug, Default)]
pub struct SimRequest {
    pub model: Option<String>,
    pub stream: bool,
    pub choices: u32,
    pub include_usage: bool,
    pub tool_name: Option<String>,
    pub input_tokens: u64,
    pub body: Value,
}

const MOST_CHOICES: u64 = 16;

impl SimRequest {
    /// Reads a body. A body that is not JSON has no facts.
    pub fn read(target: &Target, body: &[u8]) -> Option<SimRequest> {
        let body: Value = match body {
            [] => Value::Null,
            _ => serde_json::from_slice(body).ok()?,
        };
        let named = body["model"]
            .as_str()
            .or(body["model_id"].as_str())
            .map(str::to_owned);
        let many = matches!(target.shape, Shape::Chat | Shape::Completions);
        let choices = body["n"]
            .as_u64()
            .filter(|_| many)
            .unwrap_or(1)
            .clamp(1, MOST_CHOICES);
        Some(SimRequest {
            model: target.model.clone().or(named),
            stream: body["stream"].as_bool().or(target.stream).unwrap_or(false),
            choices: choices as u32,
            include_usage: body["stream_options"]["include_usage"]
                .as_bool()
                .unwrap_or(false),
            tool_name: first_tool(&body),
            input_tokens: prompt_tokens(&body),
            body,
        })
    }

    /// Whether the response to this request reports usage.
    pub fn reports_usage(&self, shape: Shape) -> bool {
        let on_request = matches!(shape, Shape::Chat | Shape::Completions);
        let always = self
            .model
            .as_deref()
            .is_some_and(super::dialects::is_mistral);
        !(on_request && self.stream) || self.include_usage || always
    }
}

fn first_tool(body: &Value) -> Option<String> {
    [
        "/tools/0/function/name",
        "/tools/0/name",
        "/tools/0/functionDeclarations/0/name",
        "/tools/0/function_declarations/0/name",
        "/toolConfig/tools/0/toolSpec/name",
    ]
    .iter()
    .find_map(|pointer| body.pointer(pointer)?.as_str())
    .map(str::to_owned)
}

const PROMPTS: &[&str] = &[
    "messages",
    "prompt",
    "input",
    "inputs",
    "contents",
    "content",
    "system",
    "systemInstruction",
    "instructions",
    "message",
    "inputText",
    "texts",
    "requests",
    "query",
    "documents",
    "chat_history",
];

/// The number of prompt tokens that the simulated provider reports, by its own rule.
pub fn prompt_tokens(body: &Value) -> u64 {
    PROMPTS
        .iter()
        .map(|key| texts(&body[*key]))
        .sum::<u64>()
        .max(1)
}

fn texts(value: &Value) -> u64 {
    match value {
        Value::String(text) => (text.len() as u64).div_ceil(4),
        Value::Array(items) => items.iter().map(texts).sum(),
        Value::Object(fields) => {
            let not_words = ["role", "type", "id", "tool_call_id", "data", "media_type"];
            let words = fields
                .iter()
                .filter(|(key, _)| !not_words.contains(&key.as_str()));
            words.map(|(_, value)| texts(value)).sum()
        }
        _ => 0,
    }
}
