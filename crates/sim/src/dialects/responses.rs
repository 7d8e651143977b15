use super::json::{Quoted, put, sse_named};
use crate::plan::{Counts, PlannedResponse, Stop, Text};
use crate::script::{Script, TokenRun};
use crate::truth::ResponseSummary;
use bytes::BytesMut;
use serde_json::{Value, json};
use std::sync::Arc;
use tokengauge_core::call::Channel;

pub struct Responses {
    planned: Arc<PlannedResponse>,
    sequence: u64,
}

impl Responses {
    pub fn new(planned: Arc<PlannedResponse>) -> Responses {
        Responses {
            planned,
            sequence: 0,
        }
    }

    fn event(&mut self, mut event: Value, out: &mut BytesMut) {
        event["sequence_number"] = self.sequence.into();
        self.sequence += 1;
        sse_named(
            out,
            event["type"].as_str().unwrap_or_default(),
            format_args!("{event}"),
        );
    }

    fn delta(&mut self, text: &Text, fragment: &str, out: &mut BytesMut) {
        let (kind, place) = match text.channel {
            Channel::Answer => (
                "response.output_text.delta",
                r#""content_index":0,"logprobs":[],"#,
            ),
            Channel::Reasoning => (
                "response.reasoning_summary_text.delta",
                r#""summary_index":0,"#,
            ),
            Channel::ToolCall => ("response.function_call_arguments.delta", ""),
        };
        let (sequence, index, id) = (self.sequence, text.block, self.item_id(text));
        self.sequence += 1;
        let fragment = Quoted(fragment);
        sse_named(
            out,
            kind,
            format_args!(
                r#"{{"type":"{kind}",{place}"delta":{fragment},"item_id":"{id}","output_index":{index},"sequence_number":{sequence}}}"#
            ),
        );
    }

    fn begin(&mut self, text: &Text, out: &mut BytesMut) {
        let (id, index) = (self.item_id(text), text.block);
        let item = self.item(text, false);
        self.event(
            json!({"type": "response.output_item.added", "output_index": index, "item": item}),
            out,
        );
        match text.channel {
            Channel::Answer => self.event(json!({
                "type": "response.content_part.added", "item_id": id, "output_index": index,
                "content_index": 0, "part": part(""),
            }), out),
            Channel::Reasoning => self.event(json!({
                "type": "response.reasoning_summary_part.added", "item_id": id, "output_index": index,
                "summary_index": 0, "part": {"type": "summary_text", "text": ""},
            }), out),
            Channel::ToolCall => {}
        }
    }

    fn end(&mut self, text: &Text, out: &mut BytesMut) {
        let (id, index, whole) = (self.item_id(text), text.block, text.whole());
        match text.channel {
            Channel::Answer => {
                self.event(
                    json!({
                        "type": "response.output_text.done", "item_id": id, "output_index": index,
                        "content_index": 0, "text": whole, "logprobs": [],
                    }),
                    out,
                );
                self.event(
                    json!({
                        "type": "response.content_part.done", "item_id": id, "output_index": index,
                        "content_index": 0, "part": part(&whole),
                    }),
                    out,
                );
            }
            Channel::Reasoning => {
                self.event(
                    json!({
                        "type": "response.reasoning_summary_text.done", "item_id": id,
                        "output_index": index, "summary_index": 0, "text": whole,
                    }),
                    out,
                );
                self.event(json!({
                    "type": "response.reasoning_summary_part.done", "item_id": id, "output_index": index,
                    "summary_index": 0, "part": {"type": "summary_text", "text": whole},
                }), out);
            }
            Channel::ToolCall => self.event(
                json!({
                    "type": "response.function_call_arguments.done", "item_id": id,
                    "output_index": index, "arguments": whole,
                }),
                out,
            ),
        }
        let item = self.item(text, true);
        self.event(
            json!({"type": "response.output_item.done", "output_index": index, "item": item}),
            out,
        );
    }

    fn item_id(&self, text: &Text) -> String {
        let prefix = match text.channel {
            Channel::Answer => "msg",
            Channel::Reasoning => "rs",
            Channel::ToolCall => "fc",
        };
        format!("{prefix}_{}{:02}", self.planned.id, text.block)
    }

    fn item(&self, text: &Text, done: bool) -> Value {
        let whole = if done { text.whole() } else { String::new() };
        let status = if done { "completed" } else { "in_progress" };
        let id = self.item_id(text);
        match text.channel {
            Channel::Answer => json!({
                "id": id, "type": "message", "status": status, "role": "assistant",
                "content": if done { json!([part(&whole)]) } else { json!([]) },
            }),
            Channel::Reasoning => json!({
                "id": id, "type": "reasoning",
                "summary": if done { json!([{"type": "summary_text", "text": whole}]) } else { json!([]) },
            }),
            Channel::ToolCall => json!({
                "id": id, "type": "function_call", "status": status, "arguments": whole,
                "call_id": self.planned.call_id("call_", text), "name": self.planned.tool_name,
            }),
        }
    }

    fn response(&self, status: &str) -> Value {
        let done = status == "completed" || status == "incomplete";
        let output: Vec<Value> = if done {
            self.planned
                .texts
                .iter()
                .map(|text| self.item(text, true))
                .collect()
        } else {
            Vec::new()
        };
        let details = (status == "incomplete").then(|| json!({"reason": "max_output_tokens"}));
        json!({
            "id": format!("resp_{}", self.planned.id), "object": "response",
            "created_at": self.planned.created, "status": status, "background": false, "error": null,
            "incomplete_details": details, "instructions": null, "max_output_tokens": null,
            "model": self.planned.model, "output": output, "parallel_tool_calls": true,
            "previous_response_id": null, "reasoning": {"effort": null, "summary": null},
            "service_tier": "default", "store": false, "temperature": 1.0,
            "text": {"format": {"type": "text"}}, "tool_choice": "auto", "tools": [], "top_p": 1.0,
            "truncation": "disabled", "user": null, "metadata": {},
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

fn part(text: &str) -> Value {
    json!({"type": "output_text", "annotations": [], "logprobs": [], "text": text})
}

fn usage(counts: Counts) -> Value {
    json!({
        "input_tokens": counts.input, "input_tokens_details": {"cached_tokens": counts.cached_tokens()},
        "output_tokens": counts.output, "output_tokens_details": {"reasoning_tokens": counts.reasoning},
        "total_tokens": counts.input + counts.output,
    })
}

impl Script for Responses {
    fn content_type(&self) -> &'static str {
        "text/event-stream; charset=utf-8"
    }

    fn open(&mut self, out: &mut BytesMut) {
        for kind in ["response.created", "response.in_progress"] {
            let response = self.response("in_progress");
            self.event(json!({"type": kind, "response": response}), out);
        }
    }

    fn say(&mut self, said: TokenRun<'_>, out: &mut BytesMut) {
        if said.first {
            self.begin(said.text, out);
        }
        self.delta(said.text, said.fragment, out);
        if said.last {
            self.end(said.text, out);
        }
    }

    fn ping(&mut self, out: &mut BytesMut) {
        put(out, format_args!(": ping\n\n"));
    }

    fn close(&mut self, out: &mut BytesMut) {
        let status = self.status();
        let response = self.response(status);
        self.event(
            json!({"type": format!("response.{status}"), "response": response}),
            out,
        );
    }

    fn error(&mut self, kind: &str, out: &mut BytesMut) {
        let message = "simulated error";
        self.event(
            json!({"type": "error", "code": kind, "message": message, "param": null}),
            out,
        );
        let mut response = self.response("failed");
        response["error"] = json!({"code": kind, "message": message});
        self.event(
            json!({"type": "response.failed", "response": response}),
            out,
        );
    }

    fn whole(&mut self) -> Vec<u8> {
        self.response(self.status()).to_string().into_bytes()
    }

    fn summary(&self, _streamed: bool) -> ResponseSummary {
        let reason = match self.status() {
            "incomplete" => "incomplete:max_output_tokens",
            status => status,
        };
        ResponseSummary {
            finish_reasons: vec![reason.into()],
            usage: self.planned.usage.map(Counts::in_full),
        }
    }
}
