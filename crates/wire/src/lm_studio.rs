//! LM Studio's native chat, `/api/v1/chat`, streamed or not.

use super::detect::Detected;
use super::emit::{self, RepeatedName};
use super::json::{Count, List, Object, Text, arguments, error_kind, parse, parse_text};
use super::{Malformed, Reader, Registration, Sink};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokengauge_core::call::{Channel, Dialect, EngineReport, Event, Operation, ServerTool, Usage};

#[derive(Deserialize)]
struct StreamEvent<'a> {
    #[serde(borrow, default)]
    r#type: Text<'a>,
    #[serde(borrow, default)]
    model_instance_id: Text<'a>,
    #[serde(borrow, default)]
    content: Text<'a>,
    #[serde(borrow, default)]
    tool: Text<'a>,
    #[serde(borrow)]
    arguments: Option<&'a RawValue>,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "super::json::error")]
    error: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Chat<'a> {
    #[serde(borrow, default)]
    model_instance_id: Text<'a>,
    #[serde(borrow, default)]
    response_id: Text<'a>,
    #[serde(borrow, default)]
    output: List<Item<'a>>,
    #[serde(borrow, default)]
    stats: Object<Stats<'a>>,
    #[serde(borrow, default, deserialize_with = "super::json::error")]
    error: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Item<'a> {
    #[serde(borrow, default)]
    r#type: Text<'a>,
    #[serde(borrow, default)]
    content: Text<'a>,
    #[serde(borrow, default)]
    tool: Text<'a>,
    #[serde(borrow)]
    arguments: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Stats<'a> {
    #[serde(default)]
    input_tokens: Count,
    #[serde(default)]
    total_output_tokens: Count,
    #[serde(default)]
    reasoning_output_tokens: Count,
    #[serde(borrow)]
    model_load_time_seconds: Option<&'a RawValue>,
}

pub(super) static REGISTRATION: Registration = Registration {
    detect: |target| match target.post()? {
        [.., "api", "v1", "chat"] => Some(Detected::new(Dialect::LmStudio, Operation::Chat)),
        _ => None,
    },
    types: &["chat.start"],
    has_members: |members| members.model_instance_id.is_some() && members.stats.is_some(),
    default_stream: Some(false),
    ..Registration::new::<LmStudio>(Dialect::LmStudio)
};

/// Reads LM Studio's native chat.
#[derive(Default)]
pub struct LmStudio {
    model: RepeatedName,
    id: RepeatedName,
    /// The number of texts so far. Each message, reasoning and call is a text.
    texts: u32,
    streamed: bool,
}

impl Reader for LmStudio {
    fn event(&mut self, _: &str, payload: &[u8], sink: Sink<'_>) -> Result<(), Malformed> {
        let event: StreamEvent<'_> = parse(payload)?;
        self.model.model(sink, &event.model_instance_id);
        match &*event.r#type {
            "reasoning.start" | "message.start" => self.texts += 1,
            "tool_call.start" => {
                self.texts += 1;
                let call = emit::segment(0, self.texts, Channel::ToolCall);
                emit::tool_name(sink, call, &event.tool);
            }
            "reasoning.delta" => self.give(Channel::Reasoning, &event.content, sink),
            "message.delta" => self.give(Channel::Answer, &event.content, sink),
            "tool_call.arguments" => {
                let text = event.arguments.map(arguments).unwrap_or_default();
                self.give(Channel::ToolCall, &text, sink);
                sink(Event::ServerTool(ServerTool::Began));
            }
            "tool_call.success" | "tool_call.failure" => {
                sink(Event::ServerTool(ServerTool::Ended));
            }
            "error" => sink(Event::Error(
                &event.error.map(error_kind).unwrap_or("error".into()),
            )),
            "chat.end" => {
                let chat: Chat<'_> = parse_text(event.result.ok_or(Malformed)?.get())?;
                self.whole(&chat, sink);
                sink(Event::End);
            }
            "" => return Err(Malformed),
            _ => {}
        }
        Ok(())
    }

    fn body(&mut self, payload: &[u8], sink: Sink<'_>) -> Result<(), Malformed> {
        self.whole(&parse(payload)?, sink);
        Ok(())
    }
}

impl LmStudio {
    fn give(&mut self, channel: Channel, text: &str, sink: Sink<'_>) {
        self.streamed |= !text.is_empty();
        emit::delta(sink, emit::segment(0, self.texts, channel), text);
    }

    fn whole(&mut self, chat: &Chat<'_>, sink: Sink<'_>) {
        self.model.model(sink, &chat.model_instance_id);
        self.id.response_id(sink, &chat.response_id);
        // The end of a stream repeats all items.
        let items = chat.output.iter().filter(|_| !self.streamed);
        for (index, item) in items.enumerate() {
            let (channel, text) = match &*item.r#type {
                "message" => (Channel::Answer, (&*item.content).into()),
                "reasoning" => (Channel::Reasoning, (&*item.content).into()),
                "tool_call" => (
                    Channel::ToolCall,
                    item.arguments.map(arguments).unwrap_or_default(),
                ),
                _ => continue,
            };
            let segment = emit::segment(0, index as u32, channel);
            emit::tool_name(sink, segment, &item.tool);
            emit::delta(sink, segment, &text);
        }
        if let Some(stats) = &chat.stats.0 {
            stats.give(sink);
        }
        if let Some(error) = chat.error {
            sink(Event::Error(&error_kind(error)));
        }
    }
}

impl Stats<'_> {
    fn give(&self, sink: Sink<'_>) {
        let usage = Usage {
            input: self.input_tokens.0,
            output: self.total_output_tokens.0,
            reasoning: self.reasoning_output_tokens.0,
            ..Usage::default()
        };
        emit::usage(sink, usage);
        let load = self.model_load_time_seconds;
        if let Some(seconds) = load.and_then(|seconds| seconds.get().parse().ok()) {
            sink(Event::Engine(EngineReport {
                load_seconds: Some(seconds),
                ..EngineReport::default()
            }));
        }
    }
}
