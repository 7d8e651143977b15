//! Gemini `generateContent` and `streamGenerateContent`, in both framings.

use super::json::{Quoted, put};
use crate::plan::{Counts, PlannedResponse, Stop, Text};
use crate::script::{Script, TokenRun};
use crate::truth::ResponseSummary;
use bytes::BytesMut;
use serde_json::{Value, json};
use std::fmt;
use std::sync::Arc;
use tokengauge_core::call::Channel;

pub struct Gemini {
    planned: Arc<PlannedResponse>,
    /// Whether to send server-sent events. Otherwise the response is one growing array.
    sse: bool,
    begun: bool,
    candidates: u64,
    thoughts: u64,
}

impl Gemini {
    pub fn new(planned: Arc<PlannedResponse>, sse: bool) -> Gemini {
        Gemini {
            planned,
            sse,
            begun: false,
            candidates: 0,
            thoughts: 0,
        }
    }

    fn element(&mut self, json: fmt::Arguments<'_>, out: &mut BytesMut) {
        match (self.sse, self.begun) {
            (true, _) => put(out, format_args!("data: {json}\r\n\r\n")),
            (false, false) => put(out, format_args!("[{json}\n")),
            (false, true) => put(out, format_args!(",\n{json}\n")),
        }
        self.begun = true;
    }

    fn chunk(&mut self, part: fmt::Arguments<'_>, finish: Option<&str>, out: &mut BytesMut) {
        let finish = finish.map_or(String::new(), |reason| {
            format!(r#","finishReason": "{reason}""#)
        });
        let usage = match self.planned.usage {
            Some(counts) => format!(r#""usageMetadata": {},"#, self.usage(counts)),
            None => String::new(),
        };
        let planned = Arc::clone(&self.planned);
        let (model, id) = (Quoted(&planned.model), &planned.id[..22]);
        self.element(
            format_args!(
                r#"{{"candidates": [{{"content": {{"parts": [{part}],"role": "model"}}{finish},"index": 0}}],{usage}"modelVersion": {model},"responseId": "{id}"}}"#
            ),
            out,
        );
    }

    /// The usage so far. Thoughts are counted separately from candidates.
    fn usage(&self, counts: Counts) -> Value {
        let details = |tokens: u64| json!([{"modality": "TEXT", "tokenCount": tokens}]);
        let mut usage = json!({
            "promptTokenCount": counts.input,
            "totalTokenCount": counts.input + self.candidates + self.thoughts,
            "promptTokensDetails": details(counts.input),
        });
        if counts.cached_tokens() > 0 {
            usage["cachedContentTokenCount"] = counts.cached_tokens().into();
        }
        if self.candidates > 0 {
            usage["candidatesTokenCount"] = self.candidates.into();
        }
        if counts.reasoning > 0 {
            usage["thoughtsTokenCount"] = self.thoughts.into();
        }
        usage
    }

    fn part(&self, text: &Text) -> Value {
        match text.channel {
            Channel::Answer => json!({"text": text.whole()}),
            Channel::Reasoning => json!({"text": text.whole(), "thought": true}),
            Channel::ToolCall => {
                let call = json!({"name": self.planned.tool_name, "args": super::arguments(text)});
                json!({"functionCall": call})
            }
        }
    }

    fn finish_reason(&self) -> &'static str {
        match self.planned.stop() {
            Stop::Length => "MAX_TOKENS",
            Stop::Refused => "SAFETY",
            Stop::InvalidToolCall => "MALFORMED_FUNCTION_CALL",
            Stop::Natural | Stop::ToolCalls => "STOP",
        }
    }

    fn count(&mut self, channel: Channel, tokens: u64) {
        match channel {
            Channel::Reasoning => self.thoughts += tokens,
            _ => self.candidates += tokens,
        }
    }
}

impl Script for Gemini {
    fn content_type(&self) -> &'static str {
        if self.sse {
            "text/event-stream"
        } else {
            "application/json; charset=UTF-8"
        }
    }

    fn whole_calls(&self) -> bool {
        true
    }

    fn open(&mut self, out: &mut BytesMut) {
        for _ in 0..self.planned.empty_deltas {
            self.chunk(format_args!(r#"{{"text": ""}}"#), None, out);
        }
    }

    fn say(&mut self, said: TokenRun<'_>, out: &mut BytesMut) {
        self.count(said.text.channel, said.tokens);
        let fragment = Quoted(said.fragment);
        match said.text.channel {
            Channel::Answer => self.chunk(format_args!(r#"{{"text": {fragment}}}"#), None, out),
            Channel::Reasoning => {
                self.chunk(
                    format_args!(r#"{{"text": {fragment},"thought": true}}"#),
                    None,
                    out,
                );
            }
            Channel::ToolCall => {
                let part = self.part(said.text);
                self.chunk(format_args!("{part}"), None, out);
            }
        }
    }

    fn ping(&mut self, out: &mut BytesMut) {
        if self.sse {
            put(out, format_args!(": ping\r\n\r\n"));
        }
    }

    fn close(&mut self, out: &mut BytesMut) {
        self.chunk(
            format_args!(r#"{{"text": ""}}"#),
            Some(self.finish_reason()),
            out,
        );
        if !self.sse {
            put(out, format_args!("]"));
        }
    }

    fn error_type(&self) -> &'static str {
        "UNAVAILABLE"
    }

    fn error(&mut self, kind: &str, out: &mut BytesMut) {
        self.element(
            format_args!(
                r#"{{"error": {{"code": 503,"message": "simulated error","status": "{kind}"}}}}"#
            ),
            out,
        );
        if !self.sse {
            put(out, format_args!("]"));
        }
    }

    fn whole(&mut self) -> Vec<u8> {
        let planned = Arc::clone(&self.planned);
        for text in &planned.texts {
            self.count(text.channel, text.units.len() as u64);
        }
        let parts: Vec<Value> = planned.texts.iter().map(|text| self.part(text)).collect();
        let mut body = json!({
            "candidates": [{
                "content": {"parts": parts, "role": "model"},
                "finishReason": self.finish_reason(), "index": 0,
            }],
            "modelVersion": planned.model, "responseId": &planned.id[..22],
        });
        if let Some(counts) = planned.usage {
            body["usageMetadata"] = self.usage(counts);
        }
        format!("{body:#}\n").into_bytes()
    }

    fn summary(&self, _streamed: bool) -> ResponseSummary {
        let thought = |counts: Counts| match counts.reasoning {
            0 => counts.without_reasoning(),
            _ => counts.in_full(),
        };
        ResponseSummary {
            finish_reasons: vec![self.finish_reason().into()],
            usage: self.planned.usage.map(thought),
        }
    }
}
