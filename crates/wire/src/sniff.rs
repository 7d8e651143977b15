//! What dialect an event or a body speaks, by its own looks. Only looks that no
//! other dialect has count; everything else says nothing.

use super::json::{List, Text};
use serde::Deserialize;
use serde::de::IgnoredAny;
use tokengauge_core::call::Dialect;

/// The members that tell dialects apart.
#[derive(Deserialize)]
struct Looks<'a> {
    #[serde(borrow, default)]
    object: Text<'a>,
    #[serde(borrow, default)]
    r#type: Text<'a>,
    #[serde(borrow, default)]
    event_type: Text<'a>,
    #[serde(borrow, default)]
    finish_reason: Text<'a>,
    #[serde(default)]
    choices: Option<List<Choice>>,
    prompt_filter_results: Option<IgnoredAny>,
    candidates: Option<IgnoredAny>,
    #[serde(rename = "usageMetadata")]
    usage_metadata: Option<IgnoredAny>,
    done: Option<IgnoredAny>,
    message: Option<IgnoredAny>,
    response: Option<IgnoredAny>,
    token: Option<IgnoredAny>,
    generated_text: Option<IgnoredAny>,
    generation_id: Option<IgnoredAny>,
    text: Option<IgnoredAny>,
    meta_info: Option<IgnoredAny>,
    text_output: Option<IgnoredAny>,
    content: Option<IgnoredAny>,
    stop: Option<IgnoredAny>,
    model_instance_id: Option<IgnoredAny>,
    stats: Option<IgnoredAny>,
    #[serde(rename = "stopReason")]
    stop_reason: Option<IgnoredAny>,
    output: Option<IgnoredAny>,
}

#[derive(Deserialize)]
struct Choice {
    delta: Option<IgnoredAny>,
    message: Option<IgnoredAny>,
    text: Option<IgnoredAny>,
    token_ids: Option<IgnoredAny>,
}

/// The events of Cohere's first streams: others have an `event_type`, too.
const COHERE_V1: [&str; 9] = [
    "stream-start",
    "search-queries-generation",
    "search-results",
    "text-generation",
    "citation-generation",
    "tool-calls-generation",
    "tool-calls-chunk",
    "stream-end",
    "debug",
];

/// The first events of Gemini's Interactions.
const INTERACTIONS: [&str; 3] = ["interaction.created", "interaction.start", "step.start"];

/// The dialect of an event or a body, where it is beyond doubt.
pub(super) fn sniff(name: &str, payload: &[u8]) -> Option<Dialect> {
    match name {
        "chunk" => return Some(Dialect::BedrockInvoke),
        "messageStart" | "contentBlockStart" | "contentBlockDelta" => {
            return Some(Dialect::BedrockConverse);
        }
        _ => {}
    }
    let looks: Looks<'_> = serde_json::from_slice(payload).ok()?;
    by_type(&looks).or_else(|| by_members(&looks))
}

fn by_type(looks: &Looks<'_>) -> Option<Dialect> {
    match &*looks.object {
        "chat.completion" | "chat.completion.chunk" => return Some(Dialect::OpenaiChat),
        "text_completion" => return Some(Dialect::OpenaiCompletions),
        "response" | "response.compaction" => return Some(Dialect::OpenaiResponses),
        "conversation.response" => return Some(Dialect::MistralConversations),
        "interaction" => return Some(Dialect::GeminiInteractions),
        _ => {}
    }
    match &*looks.r#type {
        "message_start"
        | "content_block_start"
        | "content_block_delta"
        | "content_block_stop"
        | "message_delta"
        | "message_stop"
        | "message" => Some(Dialect::Anthropic),
        "completion" => Some(Dialect::AnthropicComplete),
        "message-start" | "content-start" | "content-delta" => Some(Dialect::CohereV2),
        "conversation.response.started" | "message.output.delta" => {
            Some(Dialect::MistralConversations)
        }
        "chat.start" => Some(Dialect::LmStudio),
        "transcript.text.delta" | "transcript.text.done" | "speech.audio.delta" => {
            Some(Dialect::OpenaiMedia)
        }
        "session.created" | "session.updated" => Some(Dialect::OpenaiRealtime),
        kind if kind.starts_with("response.") && looks.response.is_some() => {
            Some(Dialect::OpenaiResponses)
        }
        _ => None,
    }
}

fn by_members(looks: &Looks<'_>) -> Option<Dialect> {
    if let Some(choices) = &looks.choices {
        let Some(choice) = choices.iter().next() else {
            return looks.prompt_filter_results.map(|_| Dialect::OpenaiChat);
        };
        return if choice.delta.is_some() || choice.message.is_some() {
            Some(Dialect::OpenaiChat)
        } else {
            let ids = choice.token_ids.as_ref().map(|_| Dialect::EngineGenerate);
            choice.text.map(|_| Dialect::OpenaiCompletions).or(ids)
        };
    }
    let has = |member: &Option<IgnoredAny>| member.is_some();
    if has(&looks.candidates) || has(&looks.usage_metadata) {
        return Some(Dialect::Gemini);
    }
    if has(&looks.done) && (has(&looks.message) || has(&looks.response)) {
        return Some(Dialect::Ollama);
    }
    if INTERACTIONS.contains(&&*looks.event_type) {
        return Some(Dialect::GeminiInteractions);
    }
    if has(&looks.text_output) || (has(&looks.meta_info) && has(&looks.text)) {
        return Some(Dialect::EngineGenerate);
    }
    if has(&looks.content) && has(&looks.stop) {
        return Some(Dialect::LlamaCpp);
    }
    if has(&looks.model_instance_id) && has(&looks.stats) {
        return Some(Dialect::LmStudio);
    }
    if COHERE_V1.contains(&&*looks.event_type) || (has(&looks.generation_id) && has(&looks.text)) {
        return Some(Dialect::CohereV1);
    }
    if has(&looks.message) && !looks.finish_reason.is_empty() {
        return Some(Dialect::CohereV2);
    }
    if has(&looks.stop_reason) && has(&looks.output) {
        return Some(Dialect::BedrockConverse);
    }
    (has(&looks.token) || has(&looks.generated_text)).then_some(Dialect::Tgi)
}

/// Whether an event that looks like `seen` is to be read as that, though the path
/// said `expected`.
pub(super) fn overrules(seen: Dialect, expected: Dialect) -> bool {
    use Dialect::{
        BedrockConverse, BedrockInvoke, Embeddings, GeminiLive, OpenaiRealtime, OpenaiResponses,
        Rerank,
    };
    match expected {
        // InvokeModel wraps other dialects; vectors and rankings look like nothing else.
        BedrockInvoke | BedrockConverse | Embeddings | Rerank => false,
        // Its usage looks like that of Gemini over HTTP.
        GeminiLive => false,
        // Its events share their names with those of Responses.
        OpenaiRealtime => seen != OpenaiResponses && seen != expected,
        _ => seen != expected,
    }
}
