//! Bedrock `converse` and `converse-stream`.

use super::event_stream::{event, exception};
use super::json::Quoted;
use crate::clock;
use crate::plan::{Counts, PlannedResponse, Stop, Text};
use crate::script::{Script, TokenRun};
use crate::truth::ResponseSummary;
use bytes::BytesMut;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Instant;
use tokengauge_core::call::Channel;

pub struct Converse {
    planned: Arc<PlannedResponse>,
    begun: Instant,
}

impl Converse {
    pub fn new(planned: Arc<PlannedResponse>) -> Converse {
        Converse {
            planned,
            begun: clock::now(),
        }
    }

    fn latency(&self) -> u64 {
        (clock::now() - self.begun).as_millis() as u64
    }

    fn tool_use(&self, text: &Text) -> Value {
        let id = self.planned.call_id("tooluse_", text);
        json!({"name": self.planned.tool_name, "toolUseId": id})
    }

    fn block(&self, text: &Text) -> Value {
        match text.channel {
            Channel::Answer => json!({"text": text.whole()}),
            Channel::Reasoning => {
                let reasoning = json!({"text": text.whole(), "signature": SIGNATURE});
                json!({"reasoningContent": {"reasoningText": reasoning}})
            }
            Channel::ToolCall => {
                let mut tool_use = self.tool_use(text);
                tool_use["input"] = super::arguments(text);
                json!({"toolUse": tool_use})
            }
        }
    }
}

const SIGNATURE: &str = "c2ltdWxhdGVk";

/// The provider pads its events, so that their lengths reveal nothing.
const PADDING: &str = "abcdefghijklmnopqrstuvwxyz";

pub fn stop_reason(planned: &PlannedResponse) -> &'static str {
    match planned.stop() {
        Stop::Natural => "end_turn",
        Stop::Refused => "content_filtered",
        Stop::InvalidToolCall => "malformed_tool_use",
        Stop::Length => "max_tokens",
        Stop::ToolCalls => "tool_use",
    }
}

fn usage(counts: Counts) -> Value {
    let total = counts.input + counts.output;
    json!({"inputTokens": counts.input, "outputTokens": counts.output, "totalTokens": total})
}

impl Script for Converse {
    fn content_type(&self) -> &'static str {
        "application/vnd.amazon.eventstream"
    }

    fn open(&mut self, out: &mut BytesMut) {
        event(
            "messageStart",
            r#"{"p":"abcdefgh","role":"assistant"}"#.into(),
            out,
        );
        for _ in 0..self.planned.empty_deltas {
            event(
                "contentBlockDelta",
                r#"{"contentBlockIndex":0,"delta":{"text":""},"p":"ab"}"#.into(),
                out,
            );
        }
    }

    fn say(&mut self, said: TokenRun<'_>, out: &mut BytesMut) {
        let (index, fragment) = (said.text.block, Quoted(said.fragment));
        if said.first && said.text.channel == Channel::ToolCall {
            let start = json!({"toolUse": self.tool_use(said.text)});
            let start = json!({"contentBlockIndex": index, "p": "abcd", "start": start});
            event("contentBlockStart", start.to_string(), out);
        }
        let delta = match said.text.channel {
            Channel::Answer => format!(r#"{{"text":{fragment}}}"#),
            Channel::Reasoning => format!(r#"{{"reasoningContent":{{"text":{fragment}}}}}"#),
            Channel::ToolCall => format!(r#"{{"toolUse":{{"input":{fragment}}}}}"#),
        };
        let padding = &PADDING[..said.fragment.len() * 7 % PADDING.len()];
        let payload = format!(r#"{{"contentBlockIndex":{index},"delta":{delta},"p":"{padding}"}}"#);
        event("contentBlockDelta", payload, out);
        if said.last {
            if said.text.channel == Channel::Reasoning {
                let signature = json!({"reasoningContent": {"signature": SIGNATURE}});
                let payload = json!({"contentBlockIndex": index, "delta": signature, "p": "abc"});
                event("contentBlockDelta", payload.to_string(), out);
            }
            event(
                "contentBlockStop",
                format!(r#"{{"contentBlockIndex":{index},"p":"abcdef"}}"#),
                out,
            );
        }
    }

    fn close(&mut self, out: &mut BytesMut) {
        let stop = json!({"p": "abcdefghijkl", "stopReason": stop_reason(&self.planned)});
        event("messageStop", stop.to_string(), out);
        let mut metadata = json!({"metrics": {"latencyMs": self.latency()}, "p": "abcd"});
        if let Some(counts) = self.planned.usage {
            metadata["usage"] = usage(counts);
        }
        event("metadata", metadata.to_string(), out);
    }

    fn error_type(&self) -> &'static str {
        "modelStreamErrorException"
    }

    fn error(&mut self, kind: &str, out: &mut BytesMut) {
        exception(kind, r#"{"message":"simulated error"}"#.into(), out);
    }

    fn whole(&mut self) -> Vec<u8> {
        let content: Vec<Value> = self
            .planned
            .texts
            .iter()
            .map(|text| self.block(text))
            .collect();
        let mut body = json!({
            "metrics": {"latencyMs": self.latency()},
            "output": {"message": {"content": content, "role": "assistant"}},
            "stopReason": stop_reason(&self.planned),
        });
        if let Some(counts) = self.planned.usage {
            body["usage"] = usage(counts);
        }
        body.to_string().into_bytes()
    }

    fn summary(&self, _streamed: bool) -> ResponseSummary {
        ResponseSummary {
            finish_reasons: vec![stop_reason(&self.planned).into()],
            usage: self.planned.usage.map(Counts::without_reasoning),
        }
    }
}
