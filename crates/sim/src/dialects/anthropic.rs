//! Anthropic messages, served directly and inside Bedrock's InvokeModel.

use super::json::{Quoted, sse_named};
use crate::plan::{Counts, PlannedResponse, Stop, Text};
use crate::script::{Script, TokenRun};
use crate::truth::ResponseSummary;
use bytes::BytesMut;
use serde_json::{Value, json};
use std::sync::Arc;
use tokengauge_core::call::Channel;

pub struct Messages {
    planned: Arc<PlannedResponse>,
}

/// The type and the JSON of an event.
pub type Event = (&'static str, String);

impl Messages {
    pub fn new(planned: Arc<PlannedResponse>) -> Messages {
        Messages { planned }
    }

    /// `message_start`. Its output count is a placeholder, as in the provider's events.
    pub fn start(&self) -> Event {
        let mut message = json!({
            "id": self.id(), "type": "message", "role": "assistant", "model": self.planned.model,
            "content": [], "stop_reason": null, "stop_sequence": null,
        });
        if let Some(counts) = self.planned.usage {
            message["usage"] = usage(counts, 1);
            message["usage"]["service_tier"] = "standard".into();
        }
        (
            "message_start",
            json!({"type": "message_start", "message": message}).to_string(),
        )
    }

    pub fn said(&self, said: &TokenRun<'_>) -> Vec<Event> {
        let mut events = Vec::with_capacity(1);
        let index = said.text.block;
        if said.first {
            let block = self.empty_block(said.text);
            let start =
                json!({"type": "content_block_start", "index": index, "content_block": block});
            events.push(("content_block_start", start.to_string()));
        }
        let (kind, field) = match said.text.channel {
            Channel::Answer => ("text_delta", "text"),
            Channel::Reasoning => ("thinking_delta", "thinking"),
            Channel::ToolCall => ("input_json_delta", "partial_json"),
        };
        let fragment = Quoted(said.fragment);
        events.push(("content_block_delta", format!(
            r#"{{"type":"content_block_delta","index":{index},"delta":{{"type":"{kind}","{field}":{fragment}}}}}"#
        )));
        if said.last {
            if said.text.channel == Channel::Reasoning {
                let delta = json!({"type": "signature_delta", "signature": SIGNATURE});
                let signature =
                    json!({"type": "content_block_delta", "index": index, "delta": delta});
                events.push(("content_block_delta", signature.to_string()));
            }
            let stop = format!(r#"{{"type":"content_block_stop","index":{index}}}"#);
            events.push(("content_block_stop", stop));
        }
        events
    }

    pub fn end(&self) -> [Event; 2] {
        let mut delta = json!({
            "type": "message_delta",
            "delta": {"stop_reason": stop_reason(&self.planned), "stop_sequence": null},
        });
        if let Some(counts) = self.planned.usage {
            delta["usage"] = json!({"output_tokens": counts.output});
        }
        [
            ("message_delta", delta.to_string()),
            ("message_stop", r#"{"type":"message_stop"}"#.into()),
        ]
    }

    pub fn message(&self) -> Value {
        let mut message = json!({
            "id": self.id(), "type": "message", "role": "assistant", "model": self.planned.model,
            "content": self.planned.texts.iter().map(|text| self.block(text)).collect::<Vec<_>>(),
            "stop_reason": stop_reason(&self.planned), "stop_sequence": null,
        });
        if let Some(counts) = self.planned.usage {
            message["usage"] = usage(counts, counts.output);
        }
        message
    }

    fn id(&self) -> String {
        format!("msg_{}", &self.planned.id[..24])
    }

    fn empty_block(&self, text: &Text) -> Value {
        match text.channel {
            Channel::Answer => json!({"type": "text", "text": ""}),
            Channel::Reasoning => json!({"type": "thinking", "thinking": "", "signature": ""}),
            Channel::ToolCall => self.tool_use(text, json!({})),
        }
    }

    fn block(&self, text: &Text) -> Value {
        match text.channel {
            Channel::Answer => json!({"type": "text", "text": text.whole()}),
            Channel::Reasoning => {
                json!({"type": "thinking", "thinking": text.whole(), "signature": SIGNATURE})
            }
            Channel::ToolCall => self.tool_use(text, super::arguments(text)),
        }
    }

    fn tool_use(&self, text: &Text, input: Value) -> Value {
        let id = self.planned.call_id("toolu_", text);
        json!({"type": "tool_use", "id": id, "name": self.planned.tool_name, "input": input})
    }
}

const SIGNATURE: &str = "c2ltdWxhdGVk";

pub fn stop_reason(planned: &PlannedResponse) -> &'static str {
    match planned.stop() {
        Stop::Natural | Stop::InvalidToolCall => "end_turn",
        Stop::Refused => "refusal",
        Stop::Length => "max_tokens",
        Stop::ToolCalls => "tool_use",
    }
}

fn write(out: &mut BytesMut, events: impl IntoIterator<Item = Event>) {
    for (name, data) in events {
        sse_named(out, name, format_args!("{data}"));
    }
}

impl Script for Messages {
    fn content_type(&self) -> &'static str {
        "text/event-stream; charset=utf-8"
    }

    fn open(&mut self, out: &mut BytesMut) {
        write(out, [self.start()]);
        self.ping(out);
    }

    fn say(&mut self, said: TokenRun<'_>, out: &mut BytesMut) {
        write(out, self.said(&said));
    }

    fn ping(&mut self, out: &mut BytesMut) {
        sse_named(out, "ping", format_args!(r#"{{"type": "ping"}}"#));
    }

    fn close(&mut self, out: &mut BytesMut) {
        write(out, self.end());
    }

    fn error_type(&self) -> &'static str {
        "overloaded_error"
    }

    fn error(&mut self, kind: &str, out: &mut BytesMut) {
        sse_named(
            out,
            "error",
            format_args!(
                r#"{{"type":"error","error":{{"type":"{kind}","message":"simulated error"}}}}"#
            ),
        );
    }

    fn whole(&mut self) -> Vec<u8> {
        self.message().to_string().into_bytes()
    }

    fn summary(&self, _streamed: bool) -> ResponseSummary {
        ResponseSummary {
            finish_reasons: vec![stop_reason(&self.planned).into()],
            usage: self.planned.usage.map(Counts::without_reasoning),
        }
    }
}

/// With a cache, all but the last few input tokens are read from it or written to it.
fn usage(counts: Counts, output: u64) -> Value {
    let read = counts.cached_tokens();
    let left = counts.input - read;
    let written = counts.cached.map_or(0, |_| left.saturating_sub(4));
    json!({
        "input_tokens": left - written, "cache_creation_input_tokens": written,
        "cache_read_input_tokens": read, "output_tokens": output,
    })
}
