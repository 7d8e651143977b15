//! Cohere's `chat` endpoints v1 and v2, and the `generate` endpoint v1.

use super::detect::Detected;
use super::emit::{self, RepeatedName};
use super::event_template::Template;
use super::json::{Count, List, Object, Text, arguments, error_kind, parse};
use super::usage_names;
use super::{Malformed, Reader, Registration, Sink};
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;
use tokengauge_core::call::{Channel, Dialect, Event, Operation, Segment, Usage, UsageDetails};

const ANSWER: Segment = Segment {
    choice: 0,
    index: 0,
    channel: Channel::Answer,
};
const PLAN: Segment = Segment {
    choice: 0,
    index: 0,
    channel: Channel::Reasoning,
};

pub(super) static COHERE_V2: Registration = Registration {
    detect: |target| match target.post()? {
        [.., "v2", "chat"] => Some(Detected::new(Dialect::CohereV2, Operation::Chat)),
        _ => None,
    },
    types: &["message-start", "content-start", "content-delta"],
    has_members: |members| members.message.is_some() && !members.finish_reason.is_empty(),
    template: Some(&Template::PLAIN),
    default_stream: Some(false),
    error_body: |error| json!({"message": error.message}),
    usage: &[usage_names::COHERE],
    ..Registration::new::<V2>(Dialect::CohereV2)
};

pub(super) static COHERE_V1: Registration = Registration {
    detect: |target| match target.post()? {
        // Writer's chat has the same path. The first event shows which API it is.
        [.., "v1", "chat"] => Some(Detected::new(Dialect::CohereV1, Operation::Chat)),
        [.., "v1", "generate"] => Some(Detected::new(Dialect::CohereV1, Operation::TextCompletion)),
        _ => None,
    },
    has_members: |members| {
        V1_EVENTS.contains(&&*members.event_type)
            || (members.generation_id.is_some() && members.text.is_some())
    },
    template: Some(&Template {
        tool_calls: false,
        ..Template::PLAIN
    }),
    default_stream: Some(false),
    error_body: |error| json!({"message": error.message}),
    usage: &[usage_names::COHERE],
    ..Registration::new::<V1>(Dialect::CohereV1)
};

/// The event types of v1 streams. Other dialects also have an `event_type`.
const V1_EVENTS: [&str; 9] = [
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

/// Reads `/v2/chat`.
#[derive(Default)]
pub struct V2 {
    ended: bool,
}

impl Reader for V2 {
    fn event(&mut self, _: &str, payload: &[u8], sink: Sink<'_>) -> Result<(), Malformed> {
        let event: V2Event<'_> = parse(payload)?;
        let index = event.index.index().unwrap_or(0);
        if !event.id.is_empty() {
            sink(Event::ResponseId(&event.id));
        }
        if let Some(delta) = &event.delta {
            delta.give(index, sink);
        }
        if &*event.kind == "message-end" && !self.ended {
            self.ended = true;
            sink(Event::End);
        }
        Ok(())
    }

    fn body(&mut self, payload: &[u8], sink: Sink<'_>) -> Result<(), Malformed> {
        let body: V2Body<'_> = parse(payload)?;
        let Some(message) = &body.message.0 else {
            sink(Event::Error(&body.error.map_or("error".into(), error_kind)));
            return Ok(());
        };
        RepeatedName::default().response_id(sink, &body.id);
        message.give(sink);
        finish(sink, 0, &body.finish_reason);
        emit::usage(sink, body.usage.unwrap_or_default().into());
        Ok(())
    }
}

#[derive(Deserialize)]
struct V2Event<'a> {
    #[serde(borrow, default, rename = "type")]
    kind: Text<'a>,
    #[serde(default)]
    index: Count,
    #[serde(borrow, default)]
    id: Text<'a>,
    #[serde(borrow, default, deserialize_with = "super::json::object")]
    delta: Option<V2Delta<'a>>,
}

#[derive(Deserialize)]
struct V2Delta<'a> {
    #[serde(borrow, default, deserialize_with = "super::json::object")]
    message: Option<V2DeltaMessage<'a>>,
    #[serde(borrow, default)]
    finish_reason: Text<'a>,
    #[serde(default, deserialize_with = "super::json::object")]
    usage: Option<ReportedUsage>,
    #[serde(borrow, default, deserialize_with = "super::json::error")]
    error: Option<&'a RawValue>,
}

impl V2Delta<'_> {
    fn give(&self, index: u32, sink: Sink<'_>) {
        if let Some(error) = self.error {
            sink(Event::Error(&error_kind(error)));
        }
        if let Some(message) = &self.message {
            message.give(index, sink);
        }
        finish(sink, 0, &self.finish_reason);
        emit::usage(sink, self.usage.unwrap_or_default().into());
    }
}

/// In `message-start`, the fields hold empty lists.
#[derive(Deserialize)]
struct V2DeltaMessage<'a> {
    #[serde(borrow, default)]
    content: Object<V2Content<'a>>,
    #[serde(borrow, default)]
    tool_plan: Text<'a>,
    #[serde(borrow, default)]
    tool_calls: Object<V2ToolCall<'a>>,
}

impl V2DeltaMessage<'_> {
    fn give(&self, index: u32, sink: Sink<'_>) {
        emit::delta(sink, PLAN, &self.tool_plan);
        if let Some(content) = &self.content.0 {
            content.give(index, sink);
        }
        if let Some(call) = &self.tool_calls.0 {
            call.give(index, sink);
        }
    }
}

#[derive(Deserialize)]
struct V2Content<'a> {
    #[serde(borrow, default)]
    text: Text<'a>,
    #[serde(borrow, default)]
    thinking: Text<'a>,
}

impl V2Content<'_> {
    fn give(&self, index: u32, sink: Sink<'_>) {
        // The plan is the reasoning before the first block, so other reasoning is numbered from 1.
        let reasoning = emit::segment(0, index.saturating_add(1), Channel::Reasoning);
        emit::delta(sink, reasoning, &self.thinking);
        emit::delta(sink, emit::segment(0, index, Channel::Answer), &self.text);
    }
}

#[derive(Deserialize)]
struct V2ToolCall<'a> {
    #[serde(borrow, default, deserialize_with = "super::json::object")]
    function: Option<V2Function<'a>>,
}

#[derive(Deserialize)]
struct V2Function<'a> {
    #[serde(borrow, default)]
    name: Text<'a>,
    #[serde(borrow)]
    arguments: Option<&'a RawValue>,
}

impl V2ToolCall<'_> {
    fn give(&self, index: u32, sink: Sink<'_>) {
        let Some(function) = &self.function else {
            return;
        };
        emit::tool_name(sink, call(index), &function.name);
        if let Some(sent) = function.arguments {
            emit::delta(sink, call(index), &arguments(sent));
        }
    }
}

fn call(index: u32) -> Segment {
    emit::segment(0, index, Channel::ToolCall)
}

/// Emits the finish reason of a choice. In v1, `ERROR`, `ERROR_TOXIC` and `ERROR_LIMIT` are the
/// only signs of an error. v2 mostly has an `error` in addition.
fn finish(sink: Sink<'_>, choice: u32, reason: &str) {
    if reason.starts_with("ERROR") {
        sink(Event::Error(reason));
    }
    emit::finish(sink, choice, reason);
}

/// A response that is not streamed. In an error, `message` is a string.
#[derive(Deserialize)]
struct V2Body<'a> {
    #[serde(borrow, default, deserialize_with = "super::json::error")]
    error: Option<&'a RawValue>,
    #[serde(borrow, default)]
    id: Text<'a>,
    #[serde(borrow, default)]
    message: Object<V2Message<'a>>,
    #[serde(borrow, default)]
    finish_reason: Text<'a>,
    #[serde(default, deserialize_with = "super::json::object")]
    usage: Option<ReportedUsage>,
}

#[derive(Deserialize)]
struct V2Message<'a> {
    #[serde(borrow, default)]
    tool_plan: Text<'a>,
    #[serde(borrow, default)]
    content: List<V2Content<'a>>,
    #[serde(borrow, default)]
    tool_calls: List<V2ToolCall<'a>>,
}

impl V2Message<'_> {
    fn give(&self, sink: Sink<'_>) {
        emit::delta(sink, PLAN, &self.tool_plan);
        for (index, content) in (0..).zip(self.content.iter()) {
            content.give(index, sink);
        }
        for (index, call) in (0..).zip(self.tool_calls.iter()) {
            call.give(index, sink);
        }
    }
}

/// Usage as sent in v2's `usage` and v1's `meta`: processed and billed tokens.
#[derive(Clone, Copy, Default, Deserialize)]
#[serde(default)]
struct ReportedUsage {
    #[serde(default, deserialize_with = "super::json::object")]
    tokens: Option<Tokens>,
    #[serde(default, deserialize_with = "super::json::object")]
    billed_units: Option<Tokens>,
    cached_tokens: Count,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(default)]
struct Tokens {
    input_tokens: Count,
    output_tokens: Count,
    reasoning_tokens: Count,
    search_units: Count,
}

impl From<ReportedUsage> for Usage {
    fn from(sent: ReportedUsage) -> Self {
        let tokens = sent.tokens.or(sent.billed_units).unwrap_or_default();
        Usage {
            input: tokens.input_tokens.0,
            cached_input: sent.cached_tokens.0,
            cache_write: None,
            output: tokens.output_tokens.0,
            reasoning: tokens.reasoning_tokens.0,
            details: UsageDetails {
                billed_input: sent.billed_units.and_then(|units| units.input_tokens.0),
                billed_output: sent.billed_units.and_then(|units| units.output_tokens.0),
                searches: sent
                    .billed_units
                    .and_then(|units| units.search_units.positive()),
                ..UsageDetails::default()
            },
            ..Usage::default()
        }
    }
}

/// Reads `/v1/chat` and `/v1/generate`.
#[derive(Default)]
pub struct V1 {
    answered: bool,
    called: bool,
    ended: bool,
}

impl Reader for V1 {
    fn event(&mut self, _: &str, payload: &[u8], sink: Sink<'_>) -> Result<(), Malformed> {
        let event: V1Event<'_> = parse(payload)?;
        match &*event.event_type {
            // Events of the `generate` endpoint have no type.
            "" | "text-generation" | "stream-end" | "stream-start" => {}
            "tool-calls-chunk" => return self.call_delta(&event, sink),
            "tool-calls-generation" => return self.calls(&event, sink),
            _ => return Ok(()),
        }
        if !event.text.is_empty() {
            self.answered = true;
            let segment = emit::segment(event.index.index().unwrap_or(0), 0, Channel::Answer);
            emit::delta(sink, segment, &event.text);
        }
        if event.is_finished == Some(true) && !self.ended {
            self.ended = true;
            self.end(&event, sink);
        }
        Ok(())
    }

    fn body(&mut self, payload: &[u8], sink: Sink<'_>) -> Result<(), Malformed> {
        let body: V1Body<'_> = parse(payload)?;
        if !body.message.is_empty() {
            sink(Event::Error("error"));
        }
        body.give(true, true, sink);
        Ok(())
    }
}

impl V1 {
    fn call_delta(&mut self, event: &V1Event<'_>, sink: Sink<'_>) -> Result<(), Malformed> {
        emit::delta(sink, PLAN, &event.text);
        if let Some(delta) = &event.tool_call_delta {
            self.called = true;
            let index = delta.index.index().unwrap_or(0);
            emit::tool_name(sink, call(index), &delta.name);
            emit::delta(sink, call(index), &delta.parameters);
        }
        Ok(())
    }

    fn calls(&mut self, event: &V1Event<'_>, sink: Sink<'_>) -> Result<(), Malformed> {
        if !self.called {
            self.called = true;
            give_calls(&event.tool_calls, sink);
        }
        Ok(())
    }

    /// Reads the last event, which repeats everything that was streamed.
    fn end(&mut self, event: &V1Event<'_>, sink: Sink<'_>) {
        if let Some(response) = &event.response {
            response.give(!self.answered, !self.called, sink);
        }
        let repeated = event.response.as_ref().is_some_and(V1Body::finished);
        if !repeated {
            finish(sink, 0, &event.finish_reason);
        }
        sink(Event::End);
    }
}

#[derive(Deserialize)]
struct V1Event<'a> {
    #[serde(borrow, default)]
    event_type: Text<'a>,
    #[serde(default)]
    index: Count,
    #[serde(borrow, default)]
    text: Text<'a>,
    #[serde(borrow, default, deserialize_with = "super::json::object")]
    tool_call_delta: Option<V1CallDelta<'a>>,
    #[serde(borrow, default)]
    tool_calls: List<V1Call<'a>>,
    is_finished: Option<bool>,
    #[serde(borrow, default)]
    finish_reason: Text<'a>,
    #[serde(borrow, default, deserialize_with = "super::json::object")]
    response: Option<V1Body<'a>>,
}

#[derive(Deserialize)]
struct V1CallDelta<'a> {
    #[serde(default)]
    index: Count,
    #[serde(borrow, default)]
    name: Text<'a>,
    #[serde(borrow, default)]
    parameters: Text<'a>,
}

#[derive(Deserialize)]
struct V1Call<'a> {
    #[serde(borrow, default)]
    name: Text<'a>,
    #[serde(borrow)]
    parameters: Option<&'a RawValue>,
}

/// A response of `chat` or `generate` that is not streamed. An error has a `message`.
#[derive(Deserialize)]
struct V1Body<'a> {
    #[serde(borrow, default)]
    id: Text<'a>,
    #[serde(borrow, default)]
    response_id: Text<'a>,
    #[serde(borrow, default)]
    text: Text<'a>,
    #[serde(borrow, default)]
    tool_calls: List<V1Call<'a>>,
    #[serde(borrow, default)]
    generations: List<Generation<'a>>,
    #[serde(borrow, default)]
    finish_reason: Text<'a>,
    #[serde(borrow, default)]
    message: Text<'a>,
    #[serde(default, deserialize_with = "super::json::object")]
    meta: Option<ReportedUsage>,
}

#[derive(Deserialize)]
struct Generation<'a> {
    #[serde(borrow, default)]
    text: Text<'a>,
    #[serde(borrow, default)]
    finish_reason: Text<'a>,
}

impl V1Body<'_> {
    fn finished(&self) -> bool {
        let generated = self.generations.iter().any(|g| !g.finish_reason.is_empty());
        generated || !self.finish_reason.is_empty()
    }

    fn give(&self, with_text: bool, with_calls: bool, sink: Sink<'_>) {
        RepeatedName::default().response_id(sink, &self.id);
        RepeatedName::default().response_id(sink, &self.response_id);
        if with_text {
            emit::delta(sink, ANSWER, &self.text);
        }
        if with_calls {
            give_calls(&self.tool_calls, sink);
        }
        finish(sink, 0, &self.finish_reason);
        for (choice, generation) in (0..).zip(self.generations.iter()) {
            if with_text {
                let segment = emit::segment(choice, 0, Channel::Answer);
                emit::delta(sink, segment, &generation.text);
            }
            finish(sink, choice, &generation.finish_reason);
        }
        emit::usage(sink, self.meta.unwrap_or_default().into());
    }
}

fn give_calls(calls: &[V1Call<'_>], sink: Sink<'_>) {
    for (index, sent) in (0..).zip(calls) {
        let parameters = sent.parameters.map(arguments).unwrap_or_default();
        emit::tool_name(sink, call(index), &sent.name);
        emit::delta(sink, call(index), &parameters);
    }
}
