//! OpenAI Realtime: the server's events, one per line. [`crate::realtime`] sends each line as a
//! separate message.

use super::json::{Quoted, put};
use crate::plan::{Counts, PlannedResponse, Stop, Text};
use crate::script::{Script, TokenRun};
use crate::truth::ResponseSummary;
use bytes::BytesMut;
use serde_json::{Value, json};
use std::sync::Arc;
use tokengauge_core::call::Channel;

/// Writes one response of a session.
pub struct Realtime {
    planned: Arc<PlannedResponse>,
    /// Whether to send speech and its transcript. Otherwise it sends text.
    audio: bool,
    events: u64,
}

/// A short silence, PCM 16.
const SILENCE: &str = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

impl Realtime {
    pub fn new(planned: Arc<PlannedResponse>, audio: bool) -> Realtime {
        Realtime {
            planned,
            audio,
            events: 0,
        }
    }

    fn event(&mut self, mut event: Value, out: &mut BytesMut) {
        event["event_id"] = self.event_id().into();
        put(out, format_args!("{event}\n"));
    }

    fn event_id(&mut self) -> String {
        self.events += 1;
        format!("event_{}{:06}", &self.planned.id[..14], self.events)
    }

    fn response_id(&self) -> String {
        format!("resp_{}", &self.planned.id[..20])
    }

    fn item_id(&self, text: &Text) -> String {
        format!("item_{}{:02}", &self.planned.id[..18], text.block)
    }

    /// Fields that name the item of an event.
    fn about(&self, kind: &str, text: &Text) -> Value {
        json!({
            "type": kind, "response_id": self.response_id(), "item_id": self.item_id(text),
            "output_index": text.block,
        })
    }

    /// The prefix of the names of the channel's events.
    fn name(&self, channel: Channel) -> &'static str {
        match (channel, self.audio) {
            (Channel::ToolCall, _) => "response.function_call_arguments",
            (_, true) => "response.output_audio_transcript",
            (_, false) => "response.output_text",
        }
    }

    fn part(&self, whole: &str) -> Value {
        if self.audio {
            json!({"type": "audio", "transcript": whole})
        } else {
            json!({"type": "text", "text": whole})
        }
    }

    fn item(&self, text: &Text, done: bool) -> Value {
        let status = if done { "completed" } else { "in_progress" };
        let whole = if done { text.whole() } else { String::new() };
        if text.channel == Channel::ToolCall {
            return json!({
                "id": self.item_id(text), "type": "function_call", "status": status,
                "name": self.planned.tool_name, "call_id": self.planned.call_id("call_", text),
                "arguments": whole,
            });
        }
        let content = match (done, self.audio) {
            (false, _) => json!([]),
            (true, true) => json!([{"type": "output_audio", "transcript": whole}]),
            (true, false) => json!([{"type": "output_text", "text": whole}]),
        };
        json!({
            "id": self.item_id(text), "type": "message", "status": status, "role": "assistant",
            "content": content,
        })
    }

    fn begin(&mut self, text: &Text, out: &mut BytesMut) {
        let item = self.item(text, false);
        for kind in ["response.output_item.added", "conversation.item.added"] {
            self.event(json!({
                "type": kind, "response_id": self.response_id(), "output_index": text.block, "item": item,
            }), out);
        }
        if text.channel != Channel::ToolCall {
            let mut added = self.about("response.content_part.added", text);
            added["content_index"] = 0.into();
            added["part"] = self.part("");
            self.event(added, out);
        }
    }

    fn end(&mut self, text: &Text, out: &mut BytesMut) {
        let whole = text.whole();
        let mut done = self.about(&format!("{}.done", self.name(text.channel)), text);
        match (text.channel, self.audio) {
            (Channel::ToolCall, _) => {
                done["arguments"] = whole.into();
                done["name"] = self.planned.tool_name.clone().into();
                done["call_id"] = self.planned.call_id("call_", text).into();
                self.event(done, out);
            }
            (_, audio) => {
                done["content_index"] = 0.into();
                done[if audio { "transcript" } else { "text" }] = whole.clone().into();
                self.event(done, out);
                let mut part = self.about("response.content_part.done", text);
                part["content_index"] = 0.into();
                part["part"] = self.part(&whole);
                self.event(part, out);
            }
        }
        let item = self.item(text, true);
        for kind in ["conversation.item.done", "response.output_item.done"] {
            self.event(json!({
                "type": kind, "response_id": self.response_id(), "output_index": text.block, "item": item,
            }), out);
        }
    }

    fn response(&self, status: &str, details: Value) -> Value {
        let done = status != "in_progress";
        let output: Vec<Value> = if done && status != "failed" {
            self.planned
                .texts
                .iter()
                .map(|text| self.item(text, true))
                .collect()
        } else {
            Vec::new()
        };
        json!({
            "object": "realtime.response", "id": self.response_id(), "status": status,
            "status_details": details, "output": output,
            "conversation_id": format!("conv_{}", &self.planned.id[12..]),
            "output_modalities": [if self.audio { "audio" } else { "text" }],
            "max_output_tokens": "inf", "metadata": null,
            "usage": self.planned.usage.filter(|_| done).map(usage),
        })
    }

    fn status(&self) -> &'static str {
        if self.planned.stop() == Stop::Length {
            "incomplete"
        } else {
            "completed"
        }
    }
}

fn usage(counts: Counts) -> Value {
    let details = json!({
        "text_tokens": counts.input, "audio_tokens": 0, "image_tokens": 0, "cached_tokens": 0,
        "cached_tokens_details": {"text_tokens": 0, "audio_tokens": 0, "image_tokens": 0},
    });
    json!({
        "total_tokens": counts.input + counts.output, "input_tokens": counts.input,
        "output_tokens": counts.output, "input_token_details": details,
        "output_token_details": {"text_tokens": counts.output, "audio_tokens": 0},
    })
}

impl Script for Realtime {
    fn content_type(&self) -> &'static str {
        "application/json"
    }

    fn open(&mut self, out: &mut BytesMut) {
        let response = self.response("in_progress", Value::Null);
        self.event(
            json!({"type": "response.created", "response": response}),
            out,
        );
    }

    fn say(&mut self, said: TokenRun<'_>, out: &mut BytesMut) {
        if said.first {
            self.begin(said.text, out);
        }
        let (event, response, item) =
            (self.event_id(), self.response_id(), self.item_id(said.text));
        let (name, index) = (self.name(said.text.channel), said.text.block);
        let place = match said.text.channel {
            Channel::ToolCall => {
                format!(
                    r#""call_id":"{}""#,
                    self.planned.call_id("call_", said.text)
                )
            }
            _ => r#""content_index":0"#.to_owned(),
        };
        let about = format!(
            r#""event_id":"{event}","response_id":"{response}","item_id":"{item}","output_index":{index},{place}"#
        );
        put(
            out,
            format_args!(
                "{{\"type\":\"{name}.delta\",{about},\"delta\":{}}}\n",
                Quoted(said.fragment)
            ),
        );
        if self.audio && said.text.channel != Channel::ToolCall {
            put(
                out,
                format_args!(
                    "{{\"type\":\"response.output_audio.delta\",{about},\"delta\":\"{SILENCE}\"}}\n"
                ),
            );
        }
        if said.last {
            self.end(said.text, out);
        }
    }

    fn close(&mut self, out: &mut BytesMut) {
        let (status, details) = match self.status() {
            "incomplete" => (
                "incomplete",
                json!({"type": "incomplete", "reason": "max_output_tokens"}),
            ),
            status => (status, Value::Null),
        };
        let response = self.response(status, details);
        self.event(json!({"type": "response.done", "response": response}), out);
    }

    fn error(&mut self, kind: &str, out: &mut BytesMut) {
        let error =
            json!({"type": kind, "code": kind, "message": "simulated error", "param": null});
        self.event(json!({"type": "error", "error": error}), out);
        let details = json!({"type": "failed", "error": {"type": kind, "code": kind}});
        let response = self.response("failed", details);
        self.event(json!({"type": "response.done", "response": response}), out);
    }

    fn whole(&mut self) -> Vec<u8> {
        self.response(self.status(), Value::Null)
            .to_string()
            .into_bytes()
    }

    fn summary(&self, _streamed: bool) -> ResponseSummary {
        let reason = match self.status() {
            "incomplete" => "incomplete:max_output_tokens",
            status => status,
        };
        ResponseSummary {
            finish_reasons: vec![reason.into()],
            usage: self.planned.usage.map(Counts::without_reasoning),
        }
    }
}
