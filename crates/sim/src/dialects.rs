mod anthropic;
mod chat;
mod cohere;
mod completions;
mod converse;
mod event_stream;
mod gemini;
mod invoke;
mod json;
mod mistral;
pub mod models;
mod ollama;
pub mod realtime;
mod responses;
mod tgi;
pub mod vectors;

use super::plan::{Counts, PlannedResponse, Text};
use super::profile::Profile;
use super::route::Shape;
use super::script::Script;
use invoke::Family;
pub use mistral::is_mistral;
use serde_json::{Value, json};
use std::sync::Arc;

/// The script for a shape; `None` if the shape generates no text.
pub fn script(shape: Shape, planned: &Arc<PlannedResponse>) -> Option<Box<dyn Script>> {
    let planned = Arc::clone(planned);
    Some(match shape {
        Shape::Chat if is_mistral(&planned.model) => Box::new(mistral::Mistral::new(planned)),
        Shape::Chat => {
            let tail = chat::tail(&planned);
            Box::new(chat::Chat::new(planned, tail))
        }
        Shape::Completions => Box::new(completions::Completions::new(planned)),
        Shape::Responses => Box::new(responses::Responses::new(planned)),
        Shape::Anthropic => Box::new(anthropic::Messages::new(planned)),
        Shape::Gemini { sse } => Box::new(gemini::Gemini::new(planned, sse)),
        Shape::Converse => Box::new(converse::Converse::new(planned)),
        Shape::Invoke => Box::new(invoke::Invoke::new(planned)),
        Shape::OllamaChat => Box::new(ollama::Ollama::new(planned, false)),
        Shape::OllamaGenerate => Box::new(ollama::Ollama::new(planned, true)),
        Shape::CohereV1 => Box::new(cohere::V1::new(planned)),
        Shape::CohereV2 => Box::new(cohere::V2::new(planned)),
        Shape::Tgi => Box::new(tgi::Tgi::new(planned)),
        _ => return None,
    })
}

/// Removes everything from a profile that the shape cannot express.
pub fn restrict(profile: &mut Profile, shape: Shape, model: &str) {
    let (reasoning, tools) = match shape {
        Shape::Completions | Shape::Tgi => (false, false),
        Shape::OllamaGenerate => (true, false),
        Shape::CohereV1 | Shape::Realtime => (false, true),
        Shape::Invoke => {
            let both = matches!(Family::of(model), Family::Anthropic | Family::Nova);
            (both, both)
        }
        _ => (true, true),
    };
    if !reasoning {
        profile.reasoning = 0;
    }
    if !tools {
        profile.tool = None;
    }
}

fn arguments(text: &Text) -> Value {
    serde_json::from_str(&text.whole()).unwrap_or_else(|_| json!({}))
}
