//! Anthropic's Messages and Text Completions APIs.
//!
//! A stream is `message_start`, then per content block `content_block_start`,
//! `content_block_delta`…, `content_block_stop`, then `message_delta`, `message_stop`. A body that
//! is not streamed is the message itself.

use super::cost::Amount;
use super::detect::{Detected, GoogleMethod, Target};
use super::emit::{self, RepeatedName};
use super::event_template::Template;
use super::json::{Count, List, Object, Text, compact, error_kind, parse};
use super::own_error::OwnError;
use super::usage_names;
use super::{Malformed, Reader, Registration, Sink};
use serde::de::value::StrDeserializer;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokengauge_core::call::{Channel, Dialect, Event, Operation, ServerTool, Usage, UsageDetails};

pub(super) static MESSAGES: Registration = Registration {
    detect,
    types: &[
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
        "message",
    ],
    template: Some(&Template::PLAIN),
    default_stream: Some(false),
    error_body,
    summarises_reasoning: true,
    usage: &[usage_names::ANTHROPIC],
    ..Registration::new::<Messages>(Dialect::Anthropic)
};

pub(super) static COMPLETE: Registration = Registration {
    detect: |target| match target.post()? {
        [.., "v1", "complete"] => Some(Detected::new(
            Dialect::AnthropicComplete,
            Operation::TextCompletion,
        )),
        _ => None,
    },
    types: &["completion"],
    default_stream: Some(false),
    error_body,
    ..Registration::new::<Complete>(Dialect::AnthropicComplete)
};

fn detect(target: &Target<'_>) -> Option<Detected> {
    let found = Detected::new(Dialect::Anthropic, Operation::Chat);
    let path = target.post()?;
    if let [.., "messages"] = path {
        return Some(found);
    }
    let vertex = GoogleMethod::of(path).filter(|it| it.publisher == Some("anthropic"))?;
    // On Vertex, a model of this name counts tokens.
    if vertex.model.starts_with("count-tokens") {
        return None;
    }
    Some(found.model(vertex.model).stream(vertex.raw_stream()?))
}

fn error_body(error: &OwnError<'_>) -> Value {
    let kind = match error.status.as_u16() {
        401 => "authentication_error",
        403 => "permission_error",
        404 => "not_found_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        503 => "overloaded_error",
        504 => "timeout_error",
        400..500 => "invalid_request_error",
        _ => "api_error",
    };
    json!({"type": "error", "error": {"type": kind, "message": error.message}})
}

/// Reads `/v1/messages`, including on Vertex and Bedrock.
#[derive(Default)]
pub struct Messages {
    usage: ReportedUsage,
    tier: RepeatedName,
    /// The block whose arguments were complete when it started.
    complete_block: Option<u32>,
    /// The block that is the call of a hosted tool.
    server_tool: Option<u32>,
}

impl Reader for Messages {
    fn event(&mut self, name: &str, payload: &[u8], sink: Sink<'_>) -> Result<(), Malformed> {
        let event: StreamEvent<'_> = parse(payload)?;
        // Some gateways omit `type`, which repeats the name of the event.
        let kind = match event.kind {
            Some(kind) => kind,
            None if name.is_empty() => return Err(Malformed),
            None => {
                let name = StrDeserializer::<serde::de::value::Error>::new(name);
                EventKind::deserialize(name).unwrap_or_default()
            }
        };
        match kind {
            EventKind::ContentBlockDelta => {
                self.delta(event.index.index().unwrap_or(0), &event.delta, sink)
            }
            EventKind::ContentBlockStart => {
                if let Some(block) = &event.content_block {
                    self.block(event.index.index().unwrap_or(0), block, sink);
                }
            }
            EventKind::ContentBlockStop => {
                // The arguments are complete. The tool runs until a block with its result starts.
                if self.server_tool.take() == Some(event.index.index().unwrap_or(0)) {
                    sink(Event::ServerTool(ServerTool::Began));
                }
            }
            EventKind::MessageStart => {
                if let Some(message) = &event.message {
                    self.start(message, sink);
                }
            }
            EventKind::MessageDelta => {
                emit::finish(sink, 0, &event.delta.stop_reason);
                self.report(event.usage.unwrap_or_default(), sink);
            }
            EventKind::MessageStop => sink(Event::End),
            EventKind::Error => sink(Event::Error(
                &event.error.map_or("error".into(), error_kind),
            )),
            EventKind::Message | EventKind::Other => {}
        }
        Ok(())
    }

    fn body(&mut self, payload: &[u8], sink: Sink<'_>) -> Result<(), Malformed> {
        let body: Message<'_> = parse(payload)?;
        if let Some(error) = body.error {
            sink(Event::Error(&error_kind(error)));
            return Ok(());
        }
        body.give(sink);
        self.report(body.usage.unwrap_or_default(), sink);
        Ok(())
    }
}

impl Messages {
    fn delta(&mut self, index: u32, delta: &Delta<'_>, sink: Sink<'_>) {
        let (channel, text) = match delta.kind {
            DeltaKind::TextDelta => (Channel::Answer, &delta.text),
            DeltaKind::ThinkingDelta => (Channel::Reasoning, &delta.thinking),
            DeltaKind::InputJsonDelta if self.complete_block != Some(index) => {
                (Channel::ToolCall, &delta.partial_json)
            }
            DeltaKind::InputJsonDelta | DeltaKind::Other => return,
        };
        emit::delta(sink, emit::segment(0, index, channel), text);
    }

    fn block(&mut self, index: u32, block: &Block<'_>, sink: Sink<'_>) {
        match block.kind {
            BlockKind::ServerToolUse | BlockKind::McpToolUse => self.server_tool = Some(index),
            BlockKind::Other if block.is_result => sink(Event::ServerTool(ServerTool::Ended)),
            _ => {}
        }
        if block.give(index, false, sink) {
            self.complete_block = Some(index);
        }
    }

    /// Reads the start of a message. `output_tokens` is a placeholder, unless the message is
    /// already complete.
    fn start(&mut self, message: &Message<'_>, sink: Sink<'_>) {
        message.give(sink);
        let mut usage = message.usage.unwrap_or_default();
        if message.stop_reason.is_empty() {
            usage.output_tokens = Count(None);
        }
        self.report(usage, sink);
    }

    fn report(&mut self, newer: ReportedUsage, sink: Sink<'_>) {
        self.usage = self.usage.overlaid(newer);
        if let Some(word) = self.usage.tier() {
            self.tier.service_tier(sink, word);
        }
        emit::usage(sink, self.usage.into());
        if let Some(usd) = newer.cost.0 {
            sink(Event::Cost(usd));
        }
    }
}

#[derive(Deserialize)]
struct StreamEvent<'a> {
    #[serde(rename = "type")]
    kind: Option<EventKind>,
    #[serde(default)]
    index: Count,
    #[serde(borrow, default)]
    delta: Delta<'a>,
    #[serde(borrow, default, deserialize_with = "super::json::object")]
    content_block: Option<Block<'a>>,
    #[serde(borrow, default, deserialize_with = "super::json::object")]
    message: Option<Message<'a>>,
    #[serde(default, deserialize_with = "super::json::object")]
    usage: Option<ReportedUsage>,
    #[serde(borrow, default, deserialize_with = "super::json::error")]
    error: Option<&'a RawValue>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum EventKind {
    MessageStart,
    ContentBlockStart,
    ContentBlockDelta,
    MessageDelta,
    MessageStop,
    Message,
    ContentBlockStop,
    Error,
    #[default]
    #[serde(other)]
    Other,
}

#[derive(Default, Deserialize)]
struct Delta<'a> {
    #[serde(default, rename = "type")]
    kind: DeltaKind,
    #[serde(borrow, default)]
    text: Text<'a>,
    #[serde(borrow, default)]
    thinking: Text<'a>,
    #[serde(borrow, default)]
    partial_json: Text<'a>,
    #[serde(borrow, default)]
    stop_reason: Text<'a>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum DeltaKind {
    TextDelta,
    ThinkingDelta,
    InputJsonDelta,
    /// Signatures, citations and compactions, which are not generated text.
    #[default]
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow, default)]
    id: Text<'a>,
    #[serde(borrow, default)]
    model: Text<'a>,
    #[serde(borrow, default)]
    provider: Text<'a>,
    #[serde(borrow, default)]
    content: List<Block<'a>>,
    #[serde(borrow, default)]
    stop_reason: Text<'a>,
    #[serde(default, deserialize_with = "super::json::object")]
    usage: Option<ReportedUsage>,
    #[serde(borrow, default, deserialize_with = "super::json::error")]
    error: Option<&'a RawValue>,
}

impl Message<'_> {
    fn give(&self, sink: Sink<'_>) {
        RepeatedName::default().response_id(sink, &self.id);
        RepeatedName::default().model(sink, &self.model);
        RepeatedName::default().served_by(sink, &self.provider);
        for (index, block) in (0..).zip(self.content.iter()) {
            block.give(index, true, sink);
        }
        emit::finish(sink, 0, &self.stop_reason);
    }
}

#[derive(Deserialize)]
struct Block<'a> {
    #[serde(default, rename = "type")]
    kind: BlockKind,
    /// Whether the block is the result of a hosted tool.
    #[serde(default, rename = "tool_use_id", deserialize_with = "is_text")]
    is_result: bool,
    #[serde(borrow, default)]
    text: Text<'a>,
    #[serde(borrow, default)]
    thinking: Text<'a>,
    #[serde(borrow, default)]
    name: Text<'a>,
    #[serde(borrow)]
    input: Option<&'a RawValue>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum BlockKind {
    Text,
    Thinking,
    ToolUse,
    ServerToolUse,
    McpToolUse,
    /// Results of hosted tools, redacted thinking and compactions.
    #[default]
    #[serde(other)]
    Other,
}

/// The only tool that is billed per call. The usage has the number of calls, but some gateways drop
/// it.
const WEB_SEARCH: &str = "web_search";

fn is_text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    Ok(!Text::deserialize(deserializer)?.is_empty())
}

impl Block<'_> {
    /// Emits the text of the block and returns whether it was the arguments of a call. `whole`
    /// means that an empty `input` is the arguments, not a placeholder for arguments that follow.
    fn give(&self, index: u32, whole: bool, sink: Sink<'_>) -> bool {
        match self.kind {
            BlockKind::Text => {
                emit::delta(sink, emit::segment(0, index, Channel::Answer), &self.text);
            }
            BlockKind::Thinking => {
                let segment = emit::segment(0, index, Channel::Reasoning);
                emit::delta(sink, segment, &self.thinking);
            }
            BlockKind::ToolUse | BlockKind::ServerToolUse | BlockKind::McpToolUse => {
                let segment = emit::segment(0, index, Channel::ToolCall);
                emit::tool_name(sink, segment, &self.name);
                if self.kind == BlockKind::ServerToolUse && &*self.name == WEB_SEARCH {
                    emit::searched(sink);
                }
                let input = self.input.map(compact).unwrap_or_default();
                if !input.is_empty() && (whole || input != "{}") {
                    emit::delta(sink, segment, &input);
                    return true;
                }
            }
            BlockKind::Other => {}
        }
        false
    }
}

/// Usage as sent: `input_tokens` excludes tokens read from or written to a cache.
#[derive(Clone, Copy, Default, Deserialize)]
#[serde(default)]
struct ReportedUsage {
    input_tokens: Count,
    cache_creation_input_tokens: Count,
    #[serde(default, deserialize_with = "super::json::object")]
    cache_creation: Option<CacheCreation>,
    cache_read_input_tokens: Count,
    output_tokens: Count,
    #[serde(default, deserialize_with = "super::json::object")]
    output_tokens_details: Option<OutputDetails>,
    service_tier: KnownWord,
    /// The value `fast` has a different price.
    speed: KnownWord,
    cost: Amount,
    #[serde(default, deserialize_with = "super::json::object")]
    server_tool_use: Option<ServerToolUse>,
    inference_geo: KnownWord,
    iterations: Iterations,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(default)]
struct ServerToolUse {
    web_search_requests: Count,
}

/// The tokens of compactions among the iterations of a call, which are billed in addition to the
/// message.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Iterations {
    input: u64,
    cached_input: u64,
    cache_write: u64,
    output: u64,
}

impl<'de> Deserialize<'de> for Iterations {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Iteration<'a> {
            #[serde(borrow, default, rename = "type")]
            kind: Text<'a>,
            #[serde(default)]
            input_tokens: Count,
            #[serde(default)]
            cache_creation_input_tokens: Count,
            #[serde(default)]
            cache_read_input_tokens: Count,
            #[serde(default)]
            output_tokens: Count,
        }
        let all = List::<Object<Iteration<'de>>>::deserialize(deserializer)?;
        let compactions = all.iter().filter_map(|one| one.0.as_ref());
        let compactions = compactions.filter(|one| &*one.kind == "compaction");
        Ok(compactions.fold(Iterations::default(), |sum, one| {
            let of = |count: Count| count.0.unwrap_or(0);
            Iterations {
                input: sum.input.saturating_add(of(one.input_tokens)),
                cached_input: sum
                    .cached_input
                    .saturating_add(of(one.cache_read_input_tokens)),
                cache_write: (sum.cache_write).saturating_add(of(one.cache_creation_input_tokens)),
                output: sum.output.saturating_add(of(one.output_tokens)),
            }
        }))
    }
}

/// Known words in a usage, in lower case, with the word that prices use.
const KNOWN_WORDS: [(&str, &str); 6] = [
    ("standard", "standard"),
    ("priority", "priority"),
    ("batch", "batch"),
    ("fast", "fast"),
    ("global", "global"),
    ("not_available", "global"),
];

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct KnownWord(Option<&'static str>);

impl<'de> Deserialize<'de> for KnownWord {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Text::deserialize(deserializer)?;
        Ok(KnownWord(match &*text {
            "" => None,
            text => {
                let mut known = KNOWN_WORDS.iter();
                let found = known.find(|(word, _)| word.eq_ignore_ascii_case(text));
                Some(found.map_or("other", |(_, meaning)| *meaning))
            }
        }))
    }
}

/// The tokens written to a cache, by lifetime.
#[derive(Clone, Copy, Default, Deserialize)]
#[serde(default)]
struct CacheCreation {
    ephemeral_1h_input_tokens: Count,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(default)]
struct OutputDetails {
    thinking_tokens: Count,
}

impl ReportedUsage {
    fn tier(&self) -> Option<&'static str> {
        let fast = self.speed.0.filter(|speed| *speed == "fast");
        fast.or(self.service_tier.0)
    }

    /// All input tokens.
    fn prompt(self) -> u64 {
        let parts = [
            self.input_tokens,
            self.cache_creation_input_tokens,
            self.cache_read_input_tokens,
        ];
        let known = parts.iter().filter_map(|part| part.0);
        known.fold(0, u64::saturating_add)
    }

    fn overlaid(self, newer: ReportedUsage) -> ReportedUsage {
        let mut newer = newer;
        // A prompt never has zero tokens, but gateways repeat its members as zeros.
        if newer.input_tokens.0 == Some(0) && newer.prompt() == 0 && self.prompt() > 0 {
            newer.input_tokens = Count(None);
            newer.cache_creation_input_tokens = Count(None);
            newer.cache_creation = None;
            newer.cache_read_input_tokens = Count(None);
        }
        ReportedUsage {
            input_tokens: newer.input_tokens.or(self.input_tokens),
            cache_creation_input_tokens: newer
                .cache_creation_input_tokens
                .or(self.cache_creation_input_tokens),
            cache_creation: newer.cache_creation.or(self.cache_creation),
            cache_read_input_tokens: newer
                .cache_read_input_tokens
                .or(self.cache_read_input_tokens),
            output_tokens: newer.output_tokens.or(self.output_tokens),
            output_tokens_details: newer.output_tokens_details.or(self.output_tokens_details),
            service_tier: KnownWord(newer.service_tier.0.or(self.service_tier.0)),
            speed: KnownWord(newer.speed.0.or(self.speed.0)),
            cost: newer.cost,
            server_tool_use: newer.server_tool_use.or(self.server_tool_use),
            inference_geo: KnownWord(newer.inference_geo.0.or(self.inference_geo.0)),
            iterations: if newer.iterations == Iterations::default() {
                self.iterations
            } else {
                newer.iterations
            },
        }
    }
}

impl From<ReportedUsage> for Usage {
    fn from(sent: ReportedUsage) -> Self {
        let more = sent.iterations;
        let plus = |count: Count, more: u64| count.0.map(|count| count.saturating_add(more));
        let cached_input = plus(sent.cache_read_input_tokens, more.cached_input);
        let cache_write = plus(sent.cache_creation_input_tokens, more.cache_write);
        Usage {
            input: plus(sent.input_tokens, more.input).map(|uncached| {
                uncached
                    .saturating_add(cached_input.unwrap_or(0))
                    .saturating_add(cache_write.unwrap_or(0))
            }),
            cached_input,
            cache_write,
            cache_write_1h: sent
                .cache_creation
                .and_then(|w| w.ephemeral_1h_input_tokens.0),
            output: plus(sent.output_tokens, more.output),
            reasoning: sent.output_tokens_details.and_then(|d| d.thinking_tokens.0),
            details: UsageDetails {
                unsent_output: (more.output > 0).then_some(more.output),
                searches: sent
                    .server_tool_use
                    .and_then(|used| used.web_search_requests.0),
                regional: sent
                    .inference_geo
                    .0
                    .map(|geo| geo != "global")
                    .filter(|is| *is),
                ..UsageDetails::default()
            },
        }
    }
}

/// Reads `/v1/complete`.
#[derive(Default)]
pub struct Complete {
    model: RepeatedName,
    id: RepeatedName,
}

impl Reader for Complete {
    fn event(&mut self, _: &str, payload: &[u8], sink: Sink<'_>) -> Result<(), Malformed> {
        let event: Completion<'_> = parse(payload)?;
        self.give(&event, sink);
        if !event.stop_reason.is_empty() {
            sink(Event::End);
        }
        Ok(())
    }

    fn body(&mut self, payload: &[u8], sink: Sink<'_>) -> Result<(), Malformed> {
        let body: Completion<'_> = parse(payload)?;
        self.give(&body, sink);
        Ok(())
    }
}

impl Complete {
    fn give(&mut self, completion: &Completion<'_>, sink: Sink<'_>) {
        if let Some(error) = completion.error {
            sink(Event::Error(&error_kind(error)));
        }
        self.id.response_id(sink, &completion.id);
        self.model.model(sink, &completion.model);
        let segment = emit::segment(0, 0, Channel::Answer);
        emit::delta(sink, segment, &completion.completion);
        emit::finish(sink, 0, &completion.stop_reason);
    }
}

#[derive(Deserialize)]
struct Completion<'a> {
    #[serde(borrow, default)]
    id: Text<'a>,
    #[serde(borrow, default)]
    model: Text<'a>,
    #[serde(borrow, default)]
    completion: Text<'a>,
    #[serde(borrow, default)]
    stop_reason: Text<'a>,
    #[serde(borrow, default, deserialize_with = "super::json::error")]
    error: Option<&'a RawValue>,
}
