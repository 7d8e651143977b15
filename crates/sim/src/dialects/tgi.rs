//! Hugging Face text-generation-inference. Its events have no space after `data:`.

use super::json::{Quoted, put};
use crate::plan::{PlannedResponse, Stop};
use crate::script::{Script, TokenRun};
use crate::truth::ResponseSummary;
use bytes::BytesMut;
use serde_json::{Value, json};
use std::sync::Arc;
use tokengauge_core::call::Channel;

pub struct Tgi {
    planned: Arc<PlannedResponse>,
    index: u64,
}

impl Tgi {
    pub fn new(planned: Arc<PlannedResponse>) -> Tgi {
        Tgi { planned, index: 0 }
    }

    fn reason(&self) -> &'static str {
        if self.planned.stop() == Stop::Length {
            "length"
        } else {
            "eos_token"
        }
    }

    fn details(&self) -> Option<Value> {
        let counts = self.planned.usage?;
        Some(json!({
            "finish_reason": self.reason(), "generated_tokens": counts.output, "seed": null,
            "input_length": counts.input,
        }))
    }
}

impl Script for Tgi {
    fn content_type(&self) -> &'static str {
        "text/event-stream"
    }

    fn open(&mut self, _out: &mut BytesMut) {}

    fn say(&mut self, said: TokenRun<'_>, out: &mut BytesMut) {
        self.index += 1;
        let (index, text) = (self.index, Quoted(said.fragment));
        put(
            out,
            format_args!(
                "data:{{\"index\":{index},\"token\":{{\"id\":{index},\"text\":{text},\"logprob\":-0.25,\"special\":false}},\"generated_text\":null,\"details\":null}}\n\n"
            ),
        );
    }

    fn ping(&mut self, out: &mut BytesMut) {
        put(out, format_args!(":\n\n"));
    }

    /// Writes the special end token together with the whole text.
    fn close(&mut self, out: &mut BytesMut) {
        let last = json!({
            "index": self.index + 1,
            "token": {"id": 2, "text": "</s>", "logprob": -0.01, "special": true},
            "generated_text": self.planned.joined(0, Channel::Answer), "details": self.details(),
        });
        put(out, format_args!("data:{last}\n\n"));
    }

    fn error_type(&self) -> &'static str {
        "generation"
    }

    fn error(&mut self, kind: &str, out: &mut BytesMut) {
        put(
            out,
            format_args!("data:{{\"error\":\"simulated error\",\"error_type\":\"{kind}\"}}\n\n"),
        );
    }

    fn whole(&mut self) -> Vec<u8> {
        let text = self.planned.joined(0, Channel::Answer);
        json!({"generated_text": text, "details": self.details()})
            .to_string()
            .into_bytes()
    }

    fn summary(&self, _streamed: bool) -> ResponseSummary {
        let usage = self.planned.usage;
        ResponseSummary {
            finish_reasons: usage
                .map(|_| self.reason().to_owned())
                .into_iter()
                .collect(),
            usage: usage.map(super::Counts::without_reasoning),
        }
    }
}
