use super::json::{Quoted, put, sse};
use crate::plan::{Counts, PlannedResponse, Stop, Text};
use crate::script::{Script, TokenRun};
use crate::truth::ResponseSummary;
use bytes::BytesMut;
use serde_json::{Value, json};
use std::fmt;
use std::sync::Arc;
use tokengauge_core::call::Channel;

pub struct Chat {
    planned: Arc<PlannedResponse>,
    /// The beginning of every chunk, up to `"choices":`.
    head: String,
    /// The end of every chunk except the last.
    tail: &'static str,
}

impl Chat {
    /// `tail` is the end of every chunk except the last.
    pub fn new(planned: Arc<PlannedResponse>, tail: &'static str) -> Chat {
        let head = format!(
            r#"{{"id":"chatcmpl-{}","object":"chat.completion.chunk","created":{},"model":{},"service_tier":"default","system_fingerprint":"fp_simulated","choices":"#,
            &planned.id[..24],
            planned.created,
            Quoted(&planned.model),
        );
        Chat {
            planned,
            head,
            tail,
        }
    }

    /// The beginning of every chunk, up to its choices.
    pub fn head(&self) -> &str {
        &self.head
    }

    pub fn chunk(
        &self,
        choice: u32,
        delta: fmt::Arguments<'_>,
        finish: Option<&str>,
        out: &mut BytesMut,
    ) {
        let (head, tail) = (&self.head, self.tail);
        let finish = finish.map_or("null".into(), |reason| format!("\"{reason}\""));
        sse(
            out,
            format_args!(
                r#"{head}[{{"index":{choice},"delta":{delta},"logprobs":null,"finish_reason":{finish}}}]{tail}"#
            ),
        );
    }

    fn begin_call(&self, text: &Text, out: &mut BytesMut) {
        let id = self.planned.call_id("call_", text);
        let name = Quoted(&self.planned.tool_name);
        let delta = format_args!(
            r#"{{"tool_calls":[{{"index":{},"id":"{id}","type":"function","function":{{"name":{name},"arguments":""}}}}]}}"#,
            text.call
        );
        self.chunk(text.choice, delta, None, out);
    }

    fn message(&self, choice: u32) -> Value {
        let content = self.planned.joined(choice, Channel::Answer);
        let mut message =
            json!({"role": "assistant", "content": content, "refusal": null, "annotations": []});
        let reasoning = self.planned.joined(choice, Channel::Reasoning);
        if !reasoning.is_empty() {
            message["reasoning_content"] = reasoning.into();
        }
        let calls: Vec<Value> = self
            .planned
            .calls(choice)
            .map(|call| self.whole_call(call))
            .collect();
        if !calls.is_empty() {
            message["tool_calls"] = calls.into();
        }
        message
    }

    fn whole_call(&self, text: &Text) -> Value {
        json!({
            "id": self.planned.call_id("call_", text),
            "type": "function",
            "function": {"name": self.planned.tool_name, "arguments": text.whole()},
        })
    }
}

pub fn finish_reason(planned: &PlannedResponse) -> &'static str {
    match planned.stop() {
        Stop::Natural | Stop::InvalidToolCall => "stop",
        Stop::Refused => "content_filter",
        Stop::Length => "length",
        Stop::ToolCalls => "tool_calls",
    }
}

/// The end of chunks before the chunk with usage, for clients that request usage.
pub fn tail(planned: &PlannedResponse) -> &'static str {
    if planned.usage.is_some() {
        r#","usage":null}"#
    } else {
        "}"
    }
}

/// The `usage` object of the Chat Completions and text Completions APIs.
pub fn usage(counts: Counts) -> Value {
    json!({
        "prompt_tokens": counts.input,
        "completion_tokens": counts.output,
        "total_tokens": counts.input + counts.output,
        "prompt_tokens_details": {"cached_tokens": counts.cached_tokens(), "audio_tokens": 0},
        "completion_tokens_details": {
            "reasoning_tokens": counts.reasoning, "audio_tokens": 0,
            "accepted_prediction_tokens": 0, "rejected_prediction_tokens": 0,
        },
    })
}

/// Writes an error in the middle of a stream.
pub fn error(kind: &str, out: &mut BytesMut) {
    sse(
        out,
        format_args!(
            r#"{{"error":{{"message":"simulated error","type":"{kind}","param":null,"code":null}}}}"#
        ),
    );
}

impl Script for Chat {
    fn content_type(&self) -> &'static str {
        "text/event-stream; charset=utf-8"
    }

    fn open(&mut self, out: &mut BytesMut) {
        for choice in 0..self.planned.choices {
            self.chunk(
                choice,
                format_args!(r#"{{"role":"assistant","content":"","refusal":null}}"#),
                None,
                out,
            );
            for _ in 0..self.planned.empty_deltas {
                self.chunk(choice, format_args!(r#"{{"content":""}}"#), None, out);
            }
        }
    }

    fn say(&mut self, said: TokenRun<'_>, out: &mut BytesMut) {
        let TokenRun {
            text,
            fragment,
            first,
            ..
        } = said;
        let (choice, call, quoted) = (text.choice, text.call, Quoted(fragment));
        match text.channel {
            Channel::Answer => {
                self.chunk(choice, format_args!(r#"{{"content":{quoted}}}"#), None, out)
            }
            Channel::Reasoning => {
                self.chunk(
                    choice,
                    format_args!(r#"{{"reasoning_content":{quoted}}}"#),
                    None,
                    out,
                );
            }
            Channel::ToolCall => {
                if first {
                    self.begin_call(text, out);
                }
                let delta = format_args!(
                    r#"{{"tool_calls":[{{"index":{call},"function":{{"arguments":{quoted}}}}}]}}"#
                );
                self.chunk(choice, delta, None, out);
            }
        }
    }

    fn ping(&mut self, out: &mut BytesMut) {
        put(out, format_args!(": ping\n\n"));
    }

    fn close(&mut self, out: &mut BytesMut) {
        for choice in 0..self.planned.choices {
            self.chunk(
                choice,
                format_args!("{{}}"),
                Some(finish_reason(&self.planned)),
                out,
            );
        }
        if let Some(counts) = self.planned.usage {
            sse(
                out,
                format_args!(r#"{}[],"usage":{}}}"#, self.head, usage(counts)),
            );
        }
        sse(out, format_args!("[DONE]"));
    }

    fn error(&mut self, kind: &str, out: &mut BytesMut) {
        error(kind, out);
    }

    fn whole(&mut self) -> Vec<u8> {
        let finish = finish_reason(&self.planned);
        let choices: Vec<Value> = (0..self.planned.choices)
            .map(|choice| json!({"index": choice, "message": self.message(choice), "logprobs": null, "finish_reason": finish}))
            .collect();
        let mut body = json!({
            "id": format!("chatcmpl-{}", &self.planned.id[..24]), "object": "chat.completion",
            "created": self.planned.created, "model": self.planned.model, "choices": choices,
            "service_tier": "default", "system_fingerprint": "fp_simulated",
        });
        if let Some(counts) = self.planned.usage {
            body["usage"] = usage(counts);
        }
        body.to_string().into_bytes()
    }

    fn summary(&self, _streamed: bool) -> ResponseSummary {
        ResponseSummary {
            finish_reasons: vec![
                finish_reason(&self.planned).into();
                self.planned.choices as usize
            ],
            usage: self.planned.usage.map(Counts::in_full),
        }
    }
}
