//! Mistral conversations, streamed or not.

use super::detect::{Detected, Target};
use super::emit::{self, RepeatedName};
use super::json::{Count, List, Object, Text, arguments, is_word, parse};
use super::openai_json::TextOrList;
use super::openai_usage::ChatUsage;
use super::usage_names;
use super::{Malformed, Reader, Registration, Sink};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokengauge_core::call::{Channel, Dialect, Event, Operation, ServerTool};

const PARTS: u32 = 1024;

#[derive(Deserialize)]
struct StreamEvent<'a> {
    #[serde(borrow, default)]
    r#type: Text<'a>,
    #[serde(borrow, default)]
    conversation_id: Text<'a>,
    #[serde(default)]
    output_index: Count,
    #[serde(default)]
    content_index: Count,
    #[serde(borrow, default)]
    model: Text<'a>,
    #[serde(borrow)]
    content: Option<&'a RawValue>,
    #[serde(borrow, default)]
    name: Text<'a>,
    #[serde(borrow)]
    arguments: Option<&'a RawValue>,
    #[serde(default)]
    usage: Object<Box<ChatUsage>>,
    #[serde(borrow, default)]
    code: Text<'a>,
}

#[derive(Deserialize)]
struct Conversation<'a> {
    #[serde(borrow, default)]
    object: Text<'a>,
    #[serde(borrow, default)]
    conversation_id: Text<'a>,
    #[serde(borrow, default)]
    outputs: List<Output<'a>>,
    #[serde(default)]
    usage: Object<Box<ChatUsage>>,
}

#[derive(Deserialize)]
struct Output<'a> {
    #[serde(borrow, default)]
    r#type: Text<'a>,
    #[serde(borrow, default)]
    model: Text<'a>,
    #[serde(borrow)]
    content: Option<&'a RawValue>,
    #[serde(borrow, default)]
    name: Text<'a>,
    #[serde(borrow)]
    arguments: Option<&'a RawValue>,
}

/// A part of a message: text, or thinking that consists of text parts.
#[derive(Default, Deserialize)]
struct Part<'a> {
    #[serde(borrow, default)]
    text: Text<'a>,
    #[serde(borrow, default)]
    thinking: TextOrList<'a, ThinkingPart<'a>>,
}

#[derive(Deserialize)]
struct ThinkingPart<'a> {
    #[serde(borrow, default)]
    text: Text<'a>,
}

pub(super) static REGISTRATION: Registration = Registration {
    detect,
    objects: &["conversation.response"],
    types: &["conversation.response.started", "message.output.delta"],
    default_stream: Some(false),
    needs_model: false,
    usage: &[usage_names::CHAT, usage_names::MISTRAL],
    ..Registration::new::<Conversations>(Dialect::MistralConversations)
};

fn detect(target: &Target<'_>) -> Option<Detected> {
    let operation = match target.post()? {
        [.., "conversations", _, "restart"] => Operation::Chat,
        // OpenAI's conversations have the same paths and generate nothing. Only the response shows
        // the difference.
        [.., "conversations"] | [.., "conversations", _] => Operation::Unknown,
        _ => return None,
    };
    Some(Detected::new(Dialect::MistralConversations, operation))
}

/// Reads conversations.
#[derive(Default)]
pub struct Conversations {
    id: RepeatedName,
    model: RepeatedName,
}

impl Reader for Conversations {
    fn event(&mut self, _: &str, payload: &[u8], sink: Sink<'_>) -> Result<(), Malformed> {
        let event: StreamEvent<'_> = parse(payload)?;
        self.id.response_id(sink, &event.conversation_id);
        let output = event
            .output_index
            .index()
            .unwrap_or(0)
            .saturating_mul(PARTS);
        match &*event.r#type {
            "message.output.delta" => {
                self.model.model(sink, &event.model);
                let part = event.content_index.index().unwrap_or(0).min(PARTS - 1);
                content(output.saturating_add(part), event.content, sink);
            }
            "function.call.delta" => {
                self.model.model(sink, &event.model);
                call(output, &event.name, event.arguments, sink);
            }
            "tool.execution.started" => {
                sink(Event::ServerTool(ServerTool::Began));
                emit::billed_tool(sink);
            }
            "tool.execution.done" => sink(Event::ServerTool(ServerTool::Ended)),
            "conversation.response.done" => {
                if let Some(usage) = &event.usage.0 {
                    usage.give(sink);
                }
                emit::finish(sink, 0, "stop");
                sink(Event::End);
            }
            "conversation.response.error" => {
                let known = is_word(&event.code);
                sink(Event::Error(if known { &event.code } else { "error" }));
            }
            "" => return Err(Malformed),
            _ => {}
        }
        Ok(())
    }

    fn body(&mut self, payload: &[u8], sink: Sink<'_>) -> Result<(), Malformed> {
        let body: Conversation<'_> = parse(payload)?;
        // OpenAI's conversations have the same path and generate nothing.
        if &*body.object != "conversation.response" {
            return Ok(());
        }
        self.id.response_id(sink, &body.conversation_id);
        for (index, output) in body.outputs.iter().enumerate() {
            self.model.model(sink, &output.model);
            let index = (index as u32).saturating_mul(PARTS);
            match &*output.r#type {
                "message.output" => content(index, output.content, sink),
                "function.call" => call(index, &output.name, output.arguments, sink),
                "tool.execution" => emit::billed_tool(sink),
                _ => {}
            }
        }
        if let Some(usage) = &body.usage.0 {
            usage.give(sink);
        }
        emit::finish(sink, 0, "stop");
        Ok(())
    }
}

fn call(index: u32, name: &str, raw: Option<&RawValue>, sink: Sink<'_>) {
    let segment = emit::segment(0, index, Channel::ToolCall);
    let text = raw.map(arguments).unwrap_or_default();
    emit::tool_name(sink, segment, name);
    emit::delta(sink, segment, &text);
}

fn content(index: u32, raw: Option<&RawValue>, sink: Sink<'_>) {
    let Some(raw) = raw else { return };
    if raw.get().starts_with('{') {
        let one: Part<'_> = serde_json::from_str(raw.get()).unwrap_or_default();
        return one.give(index, sink);
    }
    let parts: TextOrList<'_, Part<'_>> = serde_json::from_str(raw.get()).unwrap_or_default();
    match &parts {
        TextOrList::Text(text) => {
            emit::delta(sink, emit::segment(0, index, Channel::Answer), text);
        }
        TextOrList::List(parts) => {
            for (at, part) in parts.iter().enumerate() {
                part.give(index.saturating_add(at as u32), sink);
            }
        }
    }
}

impl Part<'_> {
    fn give(&self, index: u32, sink: Sink<'_>) {
        emit::delta(sink, emit::segment(0, index, Channel::Answer), &self.text);
        let reasoning = emit::segment(0, index, Channel::Reasoning);
        match &self.thinking {
            TextOrList::Text(text) => emit::delta(sink, reasoning, text),
            TextOrList::List(thoughts) => {
                for thought in thoughts {
                    emit::delta(sink, reasoning, &thought.text);
                }
            }
        }
    }
}
