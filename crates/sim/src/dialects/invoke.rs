//! Bedrock `invoke` and `invoke-with-response-stream`: the format of each model family inside the
//! binary framing.

use super::anthropic::Messages;
use super::converse::stop_reason;
use super::event_stream::{event, exception};
use super::json::Quoted;
use crate::clock;
use crate::plan::{Counts, PlannedResponse, Stop};
use crate::script::{Script, TokenRun};
use crate::truth::ResponseSummary;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::BytesMut;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokengauge_core::call::Channel;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    Anthropic,
    Nova,
    Titan,
    Llama,
    Mistral,
    Cohere,
}

impl Family {
    /// The family of a model id. Unknown ids are treated as Anthropic's.
    pub fn of(model: &str) -> Family {
        let families = [
            ("nova", Family::Nova),
            ("titan", Family::Titan),
            ("meta.", Family::Llama),
            ("llama", Family::Llama),
            ("mistral", Family::Mistral),
            ("cohere", Family::Cohere),
        ];
        let found = families.iter().find(|(name, _)| model.contains(name));
        found.map_or(Family::Anthropic, |(_, family)| *family)
    }
}

pub struct Invoke {
    planned: Arc<PlannedResponse>,
    family: Family,
    messages: Messages,
    begun: Instant,
    first: Option<Duration>,
    generated: u64,
}

impl Invoke {
    pub fn new(planned: Arc<PlannedResponse>) -> Invoke {
        Invoke {
            family: Family::of(&planned.model),
            messages: Messages::new(Arc::clone(&planned)),
            planned,
            begun: clock::now(),
            first: None,
            generated: 0,
        }
    }

    fn reason(&self) -> &'static str {
        let cut_short = self.planned.stop() == Stop::Length;
        match (self.family, cut_short) {
            (Family::Anthropic | Family::Nova, _) => stop_reason(&self.planned),
            (Family::Titan, true) => "LENGTH",
            (Family::Titan, false) => "FINISH",
            (Family::Cohere, true) => "MAX_TOKENS",
            (Family::Cohere, false) => "COMPLETE",
            (Family::Llama | Family::Mistral, true) => "length",
            (Family::Llama | Family::Mistral, false) => "stop",
        }
    }

    fn metrics(&self) -> Option<Value> {
        let counts = self.planned.usage?;
        Some(json!({
            "inputTokenCount": counts.input, "outputTokenCount": counts.output,
            "invocationLatency": (clock::now() - self.begun).as_millis() as u64,
            "firstByteLatency": self.first.unwrap_or_default().as_millis() as u64,
        }))
    }

    /// Adds the fields that Bedrock adds to the last chunk of any family.
    fn last(&self, mut value: Value, out: &mut BytesMut) {
        if let Some(metrics) = self.metrics() {
            value["amazon-bedrock-invocationMetrics"] = metrics;
        }
        chunk(&value.to_string(), out);
    }

    fn nova(&self, said: &TokenRun<'_>, out: &mut BytesMut) {
        let (index, fragment) = (said.text.block, Quoted(said.fragment));
        if said.first && said.text.channel == Channel::ToolCall {
            let id = self.planned.call_id("tooluse_", said.text);
            let start = json!({"toolUse": {"toolUseId": id, "name": self.planned.tool_name}});
            let start = json!({"contentBlockStart": {"start": start, "contentBlockIndex": index}});
            chunk(&start.to_string(), out);
        }
        let delta = match said.text.channel {
            Channel::Answer => format!(r#"{{"text":{fragment}}}"#),
            Channel::Reasoning => format!(r#"{{"reasoningContent":{{"text":{fragment}}}}}"#),
            Channel::ToolCall => format!(r#"{{"toolUse":{{"input":{fragment}}}}}"#),
        };
        chunk(
            &format!(r#"{{"contentBlockDelta":{{"delta":{delta},"contentBlockIndex":{index}}}}}"#),
            out,
        );
        if said.last {
            chunk(
                &format!(r#"{{"contentBlockStop":{{"contentBlockIndex":{index}}}}}"#),
                out,
            );
        }
    }

    fn nova_whole(&self) -> Value {
        let content: Vec<Value> = self
            .planned
            .texts
            .iter()
            .map(|text| match text.channel {
                Channel::Answer => json!({"text": text.whole()}),
                Channel::Reasoning => {
                    json!({"reasoningContent": {"reasoningText": {"text": text.whole()}}})
                }
                Channel::ToolCall => json!({"toolUse": {
                    "toolUseId": self.planned.call_id("tooluse_", text),
                    "name": self.planned.tool_name, "input": super::arguments(text),
                }}),
            })
            .collect();
        let mut body = json!({
            "output": {"message": {"content": content, "role": "assistant"}},
            "stopReason": self.reason(),
        });
        if let Some(counts) = self.planned.usage {
            body["usage"] = json!({"inputTokens": counts.input, "outputTokens": counts.output});
        }
        body
    }

    /// Input and output counts. They are `null` if usage is off.
    fn counts(&self) -> (Value, Value) {
        let counts = self.planned.usage;
        (
            json!(counts.map(|c| c.input)),
            json!(counts.map(|c| c.output)),
        )
    }
}

/// `{"bytes": base64}` around the JSON of the model.
fn chunk(json: &str, out: &mut BytesMut) {
    let bytes = STANDARD.encode(json);
    event(
        "chunk",
        format!(r#"{{"bytes":"{bytes}","p":"abcdefghijkl"}}"#),
        out,
    );
}

impl Script for Invoke {
    fn content_type(&self) -> &'static str {
        "application/vnd.amazon.eventstream"
    }

    fn open(&mut self, out: &mut BytesMut) {
        match self.family {
            Family::Anthropic => chunk(&self.messages.start().1, out),
            Family::Nova => chunk(r#"{"messageStart":{"role":"assistant"}}"#, out),
            _ => {}
        }
    }

    fn say(&mut self, said: TokenRun<'_>, out: &mut BytesMut) {
        self.first.get_or_insert_with(|| clock::now() - self.begun);
        self.generated += said.tokens;
        let text = Quoted(said.fragment);
        let tokens = json!(self.planned.usage.map(|_| self.generated));
        let json = match self.family {
            Family::Anthropic => {
                return self
                    .messages
                    .said(&said)
                    .iter()
                    .for_each(|(_, json)| chunk(json, out));
            }
            Family::Nova => return self.nova(&said, out),
            Family::Titan => format!(
                r#"{{"outputText":{text},"index":0,"totalOutputTextTokenCount":null,"completionReason":null,"inputTextTokenCount":null}}"#
            ),
            Family::Llama => format!(
                r#"{{"generation":{text},"prompt_token_count":null,"generation_token_count":{tokens},"stop_reason":null}}"#
            ),
            Family::Mistral => format!(r#"{{"outputs":[{{"text":{text},"stop_reason":null}}]}}"#),
            Family::Cohere => {
                format!(r#"{{"is_finished":false,"event_type":"text-generation","text":{text}}}"#)
            }
        };
        chunk(&json, out);
    }

    fn close(&mut self, out: &mut BytesMut) {
        let (reason, (input, output)) = (self.reason(), self.counts());
        let last = match self.family {
            Family::Anthropic => {
                let [delta, _] = self.messages.end();
                chunk(&delta.1, out);
                json!({"type": "message_stop"})
            }
            Family::Nova => {
                chunk(
                    &json!({"messageStop": {"stopReason": reason}}).to_string(),
                    out,
                );
                let counts = self.planned.usage;
                let usage =
                    counts.map(|c| json!({"inputTokens": c.input, "outputTokens": c.output}));
                json!({"metadata": {"usage": usage, "metrics": {}, "trace": {}}})
            }
            Family::Titan => json!({
                "outputText": "", "index": 0, "totalOutputTextTokenCount": output,
                "completionReason": reason, "inputTextTokenCount": input,
            }),
            Family::Llama => json!({
                "generation": "", "prompt_token_count": null,
                "generation_token_count": output, "stop_reason": reason,
            }),
            Family::Mistral => json!({"outputs": [{"text": "", "stop_reason": reason}]}),
            Family::Cohere => {
                json!({"is_finished": true, "event_type": "stream-end", "finish_reason": reason})
            }
        };
        self.last(last, out);
    }

    fn error_type(&self) -> &'static str {
        "modelStreamErrorException"
    }

    fn error(&mut self, kind: &str, out: &mut BytesMut) {
        exception(kind, r#"{"message":"simulated error"}"#.into(), out);
    }

    fn whole(&mut self) -> Vec<u8> {
        let (text, reason) = (self.planned.joined(0, Channel::Answer), self.reason());
        let (input, output) = self.counts();
        let body = match self.family {
            Family::Anthropic => self.messages.message(),
            Family::Nova => self.nova_whole(),
            Family::Titan => json!({
                "inputTextTokenCount": input,
                "results": [{"tokenCount": output, "outputText": text, "completionReason": reason}],
            }),
            Family::Llama => json!({
                "generation": text, "prompt_token_count": input,
                "generation_token_count": output, "stop_reason": reason,
            }),
            Family::Mistral => json!({"outputs": [{"text": text, "stop_reason": reason}]}),
            Family::Cohere => json!({
                "response_id": self.planned.id, "text": text, "generation_id": self.planned.id,
                "chat_history": [], "finish_reason": reason,
            }),
        };
        body.to_string().into_bytes()
    }

    fn summary(&self, streamed: bool) -> ResponseSummary {
        // If the response is one body, these two report their counts only in headers.
        let in_body = streamed || !matches!(self.family, Family::Mistral | Family::Cohere);
        ResponseSummary {
            finish_reasons: vec![self.reason().into()],
            usage: self
                .planned
                .usage
                .filter(|_| in_body)
                .map(Counts::without_reasoning),
        }
    }
}
