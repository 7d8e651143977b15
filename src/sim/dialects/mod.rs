//! One file per dialect: how an answer looks in its words.

pub(crate) mod anthropic;
pub(crate) mod chat;
pub(crate) mod json;

use super::plan::{Answer, Text};
use super::request::Asked;
use super::route::Shape;
use super::script::Script;
use serde_json::{Value, json};
use std::sync::Arc;

/// The script for a shape that generates text.
pub(crate) fn script(
    shape: Shape,
    answer: &Arc<Answer>,
    _asked: &Asked,
) -> Option<Box<dyn Script>> {
    let answer = Arc::clone(answer);
    Some(match shape {
        Shape::Chat => Box::new(chat::Chat::new(answer)),
        Shape::Anthropic => Box::new(anthropic::Messages::new(answer)),
        _ => return None,
    })
}

/// The arguments of a tool call as an object.
pub(crate) fn arguments(text: &Text) -> Value {
    serde_json::from_str(&text.whole()).unwrap_or_else(|_| json!({}))
}
