//! Bedrock: `converse` and `converse-stream` here, `invoke` and `invoke-with-response-stream` in
//! [`native`].

mod native;

pub use native::Invoke;

use super::detect::{Detected, Target};
use super::emit::{self, RepeatedName};
use super::event_template::Template;
use super::json::{Count, List, Object, Text, compact, is_word, parse};
use super::own_error::OwnError;
use super::registration::OverruledBy;
use super::usage_names::{self, USAGE_NAMES};
use super::{Malformed, Reader, Registration, Sink};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokengauge_core::call::{Channel, Dialect, Event, Operation, ServerTool, Usage};

pub(super) static CONVERSE: Registration = Registration {
    detect: |target| {
        detect(
            target,
            Dialect::BedrockConverse,
            ["converse", "converse-stream"],
        )
    },
    event_names: &["messageStart", "contentBlockStart", "contentBlockDelta"],
    has_members: |members| members.stop_reason.is_some() && members.output.is_some(),
    template: Some(&Template {
        unread: &["\"p\":"],
        ..Template::PLAIN
    }),
    usage: &[usage_names::BEDROCK],
    ..registration::<Converse>(Dialect::BedrockConverse)
};

pub(super) static INVOKE: Registration = Registration {
    detect: |target| {
        let verbs = ["invoke", "invoke-with-response-stream"];
        detect(target, Dialect::BedrockInvoke, verbs)
    },
    event_names: &["chunk"],
    usage: USAGE_NAMES,
    ..registration::<Invoke>(Dialect::BedrockInvoke)
};

const fn registration<R: Reader + Default + 'static>(dialect: Dialect) -> Registration {
    Registration {
        // InvokeModel wraps other dialects.
        overruled_by: OverruledBy::None,
        model_in_path: true,
        error_body,
        summarises_reasoning: true,
        ..Registration::new::<R>(dialect)
    }
}

/// Detects `/model/{id}/{verb}`. The id is percent-encoded, or a resource name with slashes. The
/// second verb in `verbs` is the streaming one.
fn detect(target: &Target<'_>, dialect: Dialect, verbs: [&str; 2]) -> Option<Detected> {
    let (verb, rest) = target.post()?.split_last()?;
    let at = rest.iter().position(|segment| *segment == "model")?;
    let id = rest.get(at + 1..).filter(|id| !id.is_empty())?;
    let stream = verbs.iter().position(|known| known == verb)? == 1;
    let id = id.join("/");
    let operation = if id.contains("embed") {
        Operation::Embeddings
    } else {
        Operation::Chat
    };
    let found = Detected::new(dialect, operation);
    Some(found.model(&id).stream(stream))
}

fn error_body(error: &OwnError<'_>) -> Value {
    let kind = match error.status.as_u16() {
        403 => "AccessDeniedException",
        404 => "ResourceNotFoundException",
        408 | 504 => "ModelTimeoutException",
        429 => "ThrottlingException",
        502 | 503 => "ServiceUnavailableException",
        400..500 => "ValidationException",
        _ => "InternalServerException",
    };
    json!({"__type": kind, "message": error.message})
}

/// Reads Converse. Nova's native events are the same, but each is wrapped in an object with its
/// name as the key.
#[derive(Default)]
pub struct Converse;

impl Reader for Converse {
    fn event(&mut self, name: &str, payload: &[u8], sink: Sink<'_>) -> Result<(), Malformed> {
        match name {
            "contentBlockStart" => parse::<BlockStart<'_>>(payload)?.give(sink),
            "contentBlockDelta" => parse::<BlockDelta<'_>>(payload)?.give(sink),
            "messageStop" => parse::<MessageStop<'_>>(payload)?.give(sink),
            "metadata" => parse::<Metadata<'_>>(payload)?.give(sink),
            _ if is_exception(name) => sink(Event::Error(name)),
            "" => parse::<NovaEvent<'_>>(payload)?.give(sink),
            _ => {}
        }
        Ok(())
    }

    fn body(&mut self, payload: &[u8], sink: Sink<'_>) -> Result<(), Malformed> {
        let body: Body<'_> = parse(payload)?;
        if let Some(kind) = body.error() {
            sink(Event::Error(kind));
        }
        if let Some(message) = body.output.as_ref().and_then(|o| o.message.as_ref()) {
            for (index, block) in (0..).zip(message.content.iter()) {
                block.give(index, sink);
            }
        }
        emit::finish(sink, 0, &body.stop_reason);
        service_tier(&body.service_tier, sink);
        emit::usage(sink, body.usage.unwrap_or_default().into());
        Ok(())
    }
}

fn is_exception(name: &str) -> bool {
    name.ends_with("Exception") || name.ends_with("Error")
}

/// An event of Nova's native stream, which is wrapped in an object with its name as the key.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct NovaEvent<'a> {
    #[serde(borrow, default, deserialize_with = "super::json::object")]
    content_block_start: Option<BlockStart<'a>>,
    #[serde(borrow, default, deserialize_with = "super::json::object")]
    content_block_delta: Option<BlockDelta<'a>>,
    #[serde(borrow, default, deserialize_with = "super::json::object")]
    message_stop: Option<MessageStop<'a>>,
    #[serde(borrow, default, deserialize_with = "super::json::object")]
    metadata: Option<Metadata<'a>>,
}

impl NovaEvent<'_> {
    fn give(&self, sink: Sink<'_>) {
        if let Some(start) = &self.content_block_start {
            start.give(sink);
        }
        if let Some(delta) = &self.content_block_delta {
            delta.give(sink);
        }
        if let Some(stop) = &self.message_stop {
            stop.give(sink);
        }
        if let Some(metadata) = &self.metadata {
            metadata.give(sink);
        }
    }
}

/// The start of a block. The block of a tool call contains the name of the tool.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct BlockStart<'a> {
    #[serde(default)]
    content_block_index: Count,
    #[serde(borrow, default)]
    start: Object<Start<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Start<'a> {
    #[serde(borrow, default)]
    tool_use: Object<ToolName<'a>>,
    /// The result of a hosted tool.
    tool_result: Option<IgnoredAny>,
}

#[derive(Deserialize)]
struct ToolName<'a> {
    #[serde(borrow, default)]
    name: Text<'a>,
    /// Empty for a tool that the agent runs.
    #[serde(borrow, default)]
    r#type: Text<'a>,
}

/// The type of a tool call that the provider runs, such as Nova's search.
const SERVER_TOOL_USE: &str = "server_tool_use";

impl BlockStart<'_> {
    fn give(&self, sink: Sink<'_>) {
        let index = self.content_block_index.index().unwrap_or(0);
        let Some(start) = &self.start.0 else { return };
        if let Some(call) = &start.tool_use.0 {
            let segment = emit::segment(0, index, Channel::ToolCall);
            emit::tool_name(sink, segment, &call.name);
            if &*call.r#type == SERVER_TOOL_USE {
                sink(Event::ServerTool(ServerTool::Began));
                emit::billed_tool(sink);
            }
        }
        if start.tool_result.is_some() {
            sink(Event::ServerTool(ServerTool::Ended));
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct BlockDelta<'a> {
    #[serde(default)]
    content_block_index: Count,
    #[serde(borrow, default, deserialize_with = "super::json::object")]
    delta: Option<Delta<'a>>,
}

/// New content of a block. Citations, signatures and results of hosted tools are not generated
/// text.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Delta<'a> {
    #[serde(borrow, default)]
    text: Text<'a>,
    #[serde(borrow, default, deserialize_with = "super::json::object")]
    reasoning_content: Option<ReasoningDelta<'a>>,
    #[serde(borrow, default, deserialize_with = "super::json::object")]
    tool_use: Option<ToolUseDelta<'a>>,
}

#[derive(Deserialize)]
struct ReasoningDelta<'a> {
    #[serde(borrow, default)]
    text: Text<'a>,
}

#[derive(Deserialize)]
struct ToolUseDelta<'a> {
    #[serde(borrow, default)]
    input: Text<'a>,
}

impl BlockDelta<'_> {
    fn give(&self, sink: Sink<'_>) {
        let index = self.content_block_index.index().unwrap_or(0);
        let Some(delta) = &self.delta else {
            return;
        };
        emit::delta(sink, emit::segment(0, index, Channel::Answer), &delta.text);
        if let Some(reasoning) = &delta.reasoning_content {
            let segment = emit::segment(0, index, Channel::Reasoning);
            emit::delta(sink, segment, &reasoning.text);
        }
        if let Some(call) = &delta.tool_use {
            let segment = emit::segment(0, index, Channel::ToolCall);
            emit::delta(sink, segment, &call.input);
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct MessageStop<'a> {
    #[serde(borrow, default)]
    stop_reason: Text<'a>,
}

impl MessageStop<'_> {
    fn give(&self, sink: Sink<'_>) {
        emit::finish(sink, 0, &self.stop_reason);
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata<'a> {
    #[serde(default, deserialize_with = "super::json::object")]
    usage: Option<ReportedUsage>,
    #[serde(borrow, default)]
    service_tier: Object<ServiceTier<'a>>,
}

#[derive(Deserialize)]
struct ServiceTier<'a> {
    #[serde(borrow, default, rename = "type")]
    kind: Text<'a>,
}

fn service_tier(tier: &Object<ServiceTier<'_>>, sink: Sink<'_>) {
    if let Some(tier) = &tier.0 {
        RepeatedName::default().service_tier(sink, &tier.kind);
    }
}

impl Metadata<'_> {
    fn give(&self, sink: Sink<'_>) {
        service_tier(&self.service_tier, sink);
        emit::usage(sink, self.usage.unwrap_or_default().into());
        sink(Event::End);
    }
}

/// Usage as sent: `inputTokens` excludes tokens read from or written to a cache.
#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ReportedUsage {
    input_tokens: Count,
    output_tokens: Count,
    cache_read_input_tokens: Count,
    cache_read_input_token_count: Count,
    cache_write_input_tokens: Count,
    cache_write_input_token_count: Count,
}

impl From<ReportedUsage> for Usage {
    fn from(sent: ReportedUsage) -> Self {
        let cached = sent
            .cache_read_input_tokens
            .or(sent.cache_read_input_token_count);
        let written = sent
            .cache_write_input_tokens
            .or(sent.cache_write_input_token_count);
        let from_cache = cached.0.unwrap_or(0).saturating_add(written.0.unwrap_or(0));
        Usage {
            input: sent
                .input_tokens
                .0
                .map(|count| count.saturating_add(from_cache)),
            cached_input: cached.0,
            cache_write: written.0,
            output: sent.output_tokens.0,
            reasoning: None,
            ..Usage::default()
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Body<'a> {
    #[serde(borrow, default, deserialize_with = "super::json::object")]
    output: Option<Output<'a>>,
    #[serde(borrow, default)]
    stop_reason: Text<'a>,
    #[serde(default, deserialize_with = "super::json::object")]
    usage: Option<ReportedUsage>,
    #[serde(borrow, default)]
    service_tier: Object<ServiceTier<'a>>,
    #[serde(borrow, default, alias = "Message")]
    message: Text<'a>,
    #[serde(borrow, default, rename = "__type")]
    kind: Text<'a>,
}

impl Body<'_> {
    fn error(&self) -> Option<&str> {
        // A type may have a namespace: `com.amazon.coral.service#…`.
        let kind = self.kind.rsplit('#').next().unwrap_or_default();
        if is_word(kind) {
            return Some(kind);
        }
        (!self.message.is_empty()).then_some("error")
    }
}

#[derive(Deserialize)]
struct Output<'a> {
    #[serde(borrow, default, deserialize_with = "super::json::object")]
    message: Option<Message<'a>>,
}

#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow, default)]
    content: List<Block<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Block<'a> {
    #[serde(borrow, default)]
    text: Text<'a>,
    #[serde(borrow, default, deserialize_with = "super::json::object")]
    reasoning_content: Option<Reasoning<'a>>,
    #[serde(borrow, default, deserialize_with = "super::json::object")]
    tool_use: Option<ToolUse<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Reasoning<'a> {
    #[serde(borrow, default, deserialize_with = "super::json::object")]
    reasoning_text: Option<ReasoningDelta<'a>>,
}

#[derive(Deserialize)]
struct ToolUse<'a> {
    #[serde(borrow, default)]
    r#type: Text<'a>,
    #[serde(borrow, default)]
    name: Text<'a>,
    #[serde(borrow)]
    input: Option<&'a RawValue>,
}

impl Block<'_> {
    fn give(&self, index: u32, sink: Sink<'_>) {
        emit::delta(sink, emit::segment(0, index, Channel::Answer), &self.text);
        if let Some(thought) = self
            .reasoning_content
            .as_ref()
            .and_then(|r| r.reasoning_text.as_ref())
        {
            let segment = emit::segment(0, index, Channel::Reasoning);
            emit::delta(sink, segment, &thought.text);
        }
        if let Some(call) = &self.tool_use {
            let segment = emit::segment(0, index, Channel::ToolCall);
            emit::tool_name(sink, segment, &call.name);
            emit::delta(sink, segment, &call.input.map(compact).unwrap_or_default());
            if &*call.r#type == SERVER_TOOL_USE {
                emit::billed_tool(sink);
            }
        }
    }
}
