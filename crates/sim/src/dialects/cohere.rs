//! Cohere chat, version 2 (server-sent events) and version 1 (lines).

use super::json::{Quoted, put, sse, sse_named};
use crate::plan::{Counts, PlannedResponse, Stop, Text};
use crate::script::{Script, TokenRun};
use crate::truth::ResponseSummary;
use bytes::BytesMut;
use serde_json::{Value, json};
use std::sync::Arc;
use tokengauge_core::call::Channel;

pub struct V2 {
    planned: Arc<PlannedResponse>,
}

pub struct V1 {
    planned: Arc<PlannedResponse>,
}

impl V2 {
    pub fn new(planned: Arc<PlannedResponse>) -> V2 {
        V2 { planned }
    }

    fn call(&self, text: &Text, arguments: &str) -> Value {
        json!({
            "id": self.planned.call_id(&format!("{}_", self.planned.tool_name), text),
            "type": "function",
            "function": {"name": self.planned.tool_name, "arguments": arguments},
        })
    }

    fn begin(&self, text: &Text, out: &mut BytesMut) {
        let (kind, index, message) = match text.channel {
            Channel::Answer => (
                "content-start",
                text.block,
                json!({"content": {"type": "text", "text": ""}}),
            ),
            Channel::Reasoning => (
                "content-start",
                text.block,
                json!({"content": {"type": "thinking", "thinking": ""}}),
            ),
            Channel::ToolCall => (
                "tool-call-start",
                text.call,
                json!({"tool_calls": self.call(text, "")}),
            ),
        };
        let start = json!({"type": kind, "index": index, "delta": {"message": message}});
        sse_named(out, kind, format_args!("{start}"));
    }
}

fn finish_reason(planned: &PlannedResponse) -> &'static str {
    match planned.stop() {
        Stop::Natural | Stop::InvalidToolCall => "COMPLETE",
        Stop::Refused => "ERROR_TOXIC",
        Stop::Length => "MAX_TOKENS",
        Stop::ToolCalls => "TOOL_CALL",
    }
}

/// The billed tokens are fewer than the generated ones, so a meter must not use their count.
fn usage(counts: Counts) -> Value {
    json!({
        "billed_units": {"input_tokens": counts.input / 2, "output_tokens": counts.output / 2},
        "tokens": {"input_tokens": counts.input, "output_tokens": counts.output},
    })
}

impl Script for V2 {
    fn content_type(&self) -> &'static str {
        "text/event-stream"
    }

    fn open(&mut self, out: &mut BytesMut) {
        let message = json!({"role": "assistant", "content": [], "tool_plan": "", "tool_calls": [], "citations": []});
        let start =
            json!({"id": self.planned.id, "type": "message-start", "delta": {"message": message}});
        sse_named(out, "message-start", format_args!("{start}"));
    }

    fn say(&mut self, said: TokenRun<'_>, out: &mut BytesMut) {
        if said.first {
            self.begin(said.text, out);
        }
        let fragment = Quoted(said.fragment);
        let (kind, end, index, message) = match said.text.channel {
            Channel::Answer => (
                "content-delta",
                "content-end",
                said.text.block,
                format!(r#"{{"content":{{"text":{fragment}}}}}"#),
            ),
            Channel::Reasoning => (
                "content-delta",
                "content-end",
                said.text.block,
                format!(r#"{{"content":{{"thinking":{fragment}}}}}"#),
            ),
            Channel::ToolCall => (
                "tool-call-delta",
                "tool-call-end",
                said.text.call,
                format!(r#"{{"tool_calls":{{"function":{{"arguments":{fragment}}}}}}}"#),
            ),
        };
        sse_named(
            out,
            kind,
            format_args!(r#"{{"type":"{kind}","index":{index},"delta":{{"message":{message}}}}}"#),
        );
        if said.last {
            sse_named(
                out,
                end,
                format_args!(r#"{{"type":"{end}","index":{index}}}"#),
            );
        }
    }

    fn ping(&mut self, out: &mut BytesMut) {
        put(out, format_args!(": ping\n\n"));
    }

    fn close(&mut self, out: &mut BytesMut) {
        let mut delta = json!({"finish_reason": finish_reason(&self.planned)});
        if let Some(counts) = self.planned.usage {
            delta["usage"] = usage(counts);
        }
        let end = json!({"type": "message-end", "delta": delta});
        sse_named(out, "message-end", format_args!("{end}"));
        sse(out, format_args!("[DONE]"));
    }

    fn error(&mut self, kind: &str, out: &mut BytesMut) {
        let delta = json!({"finish_reason": "ERROR", "error": format!("{kind}: simulated error")});
        let end = json!({"type": "message-end", "delta": delta});
        sse_named(out, "message-end", format_args!("{end}"));
    }

    fn whole(&mut self) -> Vec<u8> {
        let blocks = self
            .planned
            .texts
            .iter()
            .filter_map(|text| match text.channel {
                Channel::Answer => Some(json!({"type": "text", "text": text.whole()})),
                Channel::Reasoning => Some(json!({"type": "thinking", "thinking": text.whole()})),
                Channel::ToolCall => None,
            });
        let mut message = json!({"role": "assistant", "content": blocks.collect::<Vec<_>>()});
        let calls: Vec<Value> = self
            .planned
            .calls(0)
            .map(|call| self.call(call, &call.whole()))
            .collect();
        if !calls.is_empty() {
            message["tool_calls"] = calls.into();
        }
        let mut body = json!({
            "id": self.planned.id, "message": message, "finish_reason": finish_reason(&self.planned),
        });
        if let Some(counts) = self.planned.usage {
            body["usage"] = usage(counts);
        }
        body.to_string().into_bytes()
    }

    fn summary(&self, _streamed: bool) -> ResponseSummary {
        ResponseSummary {
            finish_reasons: vec![finish_reason(&self.planned).into()],
            usage: self.planned.usage.map(Counts::without_reasoning),
        }
    }
}

impl V1 {
    pub fn new(planned: Arc<PlannedResponse>) -> V1 {
        V1 { planned }
    }

    fn call(&self, text: &Text) -> Value {
        json!({"name": self.planned.tool_name, "parameters": super::arguments(text)})
    }

    fn response(&self) -> Value {
        let mut meta = json!({"api_version": {"version": "1"}});
        if let Some(counts) = self.planned.usage {
            let usage = usage(counts);
            meta["billed_units"] = usage["billed_units"].clone();
            meta["tokens"] = usage["tokens"].clone();
        }
        let calls: Vec<Value> = self.planned.calls(0).map(|call| self.call(call)).collect();
        let mut response = json!({
            "response_id": self.planned.id, "generation_id": self.planned.id, "chat_history": [],
            "text": self.planned.joined(0, Channel::Answer), "finish_reason": self.reason(), "meta": meta,
        });
        if !calls.is_empty() {
            response["tool_calls"] = calls.into();
        }
        response
    }

    /// Writes a piece of a call's arguments. The call's name precedes the first piece.
    fn say_call(&self, said: &TokenRun<'_>, out: &mut BytesMut) {
        let head = r#"{"is_finished":false,"event_type":"tool-calls-chunk","tool_call_delta":"#;
        let (index, name) = (said.text.call, Quoted(&self.planned.tool_name));
        if said.first {
            put(
                out,
                format_args!("{head}{{\"index\":{index},\"name\":{name}}}}}\n"),
            );
        }
        let fragment = Quoted(said.fragment);
        put(
            out,
            format_args!("{head}{{\"index\":{index},\"parameters\":{fragment}}}}}\n"),
        );
    }

    fn reason(&self) -> &'static str {
        if self.planned.stop() == Stop::Length {
            "MAX_TOKENS"
        } else {
            "COMPLETE"
        }
    }
}

impl Script for V1 {
    fn content_type(&self) -> &'static str {
        "application/stream+json"
    }

    fn open(&mut self, out: &mut BytesMut) {
        let id = &self.planned.id;
        put(
            out,
            format_args!(
                "{{\"is_finished\":false,\"event_type\":\"stream-start\",\"generation_id\":\"{id}\"}}\n"
            ),
        );
    }

    fn say(&mut self, said: TokenRun<'_>, out: &mut BytesMut) {
        if said.text.channel == Channel::ToolCall {
            return self.say_call(&said, out);
        }
        let fragment = Quoted(said.fragment);
        put(
            out,
            format_args!(
                "{{\"is_finished\":false,\"event_type\":\"text-generation\",\"text\":{fragment}}}\n"
            ),
        );
    }

    /// Repeats the whole answer, as the provider does.
    fn close(&mut self, out: &mut BytesMut) {
        let calls: Vec<Value> = self.planned.calls(0).map(|call| self.call(call)).collect();
        if !calls.is_empty() {
            let kind = "tool-calls-generation";
            let all = json!({"is_finished": false, "event_type": kind, "tool_calls": calls});
            put(out, format_args!("{all}\n"));
        }
        let end = json!({
            "is_finished": true, "event_type": "stream-end", "response": self.response(),
            "finish_reason": self.reason(),
        });
        put(out, format_args!("{end}\n"));
    }

    fn error(&mut self, kind: &str, out: &mut BytesMut) {
        let end = json!({
            "is_finished": true, "event_type": "stream-end", "finish_reason": "ERROR",
            "error": format!("{kind}: simulated error"),
        });
        put(out, format_args!("{end}\n"));
    }

    fn whole(&mut self) -> Vec<u8> {
        self.response().to_string().into_bytes()
    }

    fn summary(&self, _streamed: bool) -> ResponseSummary {
        ResponseSummary {
            finish_reasons: vec![self.reason().into()],
            usage: self.planned.usage.map(Counts::without_reasoning),
        }
    }
}
