//! OpenAI's older text completions.

use super::chat;
use super::json::{Quoted, put, sse};
use crate::plan::{Counts, PlannedResponse};
use crate::script::{Script, TokenRun};
use crate::truth::ResponseSummary;
use bytes::BytesMut;
use serde_json::{Value, json};
use std::sync::Arc;
use tokengauge_core::call::Channel;

pub struct Completions {
    planned: Arc<PlannedResponse>,
    head: String,
    tail: &'static str,
}

impl Completions {
    pub fn new(planned: Arc<PlannedResponse>) -> Completions {
        let head = format!(
            r#"{{"id":"cmpl-{}","object":"text_completion","created":{},"model":{},"choices":"#,
            &planned.id[..24],
            planned.created,
            Quoted(&planned.model),
        );
        let tail = chat::tail(&planned);
        Completions {
            planned,
            head,
            tail,
        }
    }

    fn chunk(&self, choice: u32, text: &str, finish: Option<&str>, out: &mut BytesMut) {
        let (head, tail, text) = (&self.head, self.tail, Quoted(text));
        let finish = finish.map_or("null".into(), |reason| format!("\"{reason}\""));
        sse(
            out,
            format_args!(
                r#"{head}[{{"text":{text},"index":{choice},"logprobs":null,"finish_reason":{finish}}}]{tail}"#
            ),
        );
    }
}

impl Script for Completions {
    fn content_type(&self) -> &'static str {
        "text/event-stream; charset=utf-8"
    }

    fn open(&mut self, out: &mut BytesMut) {
        for _ in 0..self.planned.empty_deltas {
            self.chunk(0, "", None, out);
        }
    }

    fn say(&mut self, said: TokenRun<'_>, out: &mut BytesMut) {
        self.chunk(said.text.choice, said.fragment, None, out);
    }

    fn ping(&mut self, out: &mut BytesMut) {
        put(out, format_args!(": ping\n\n"));
    }

    fn close(&mut self, out: &mut BytesMut) {
        for choice in 0..self.planned.choices {
            self.chunk(choice, "", Some(chat::finish_reason(&self.planned)), out);
        }
        if let Some(counts) = self.planned.usage {
            sse(
                out,
                format_args!(r#"{}[],"usage":{}}}"#, self.head, chat::usage(counts)),
            );
        }
        sse(out, format_args!("[DONE]"));
    }

    fn error(&mut self, kind: &str, out: &mut BytesMut) {
        chat::error(kind, out);
    }

    fn whole(&mut self) -> Vec<u8> {
        let finish = chat::finish_reason(&self.planned);
        let text = |choice| self.planned.joined(choice, Channel::Answer);
        let choices: Vec<Value> = (0..self.planned.choices)
            .map(
                |n| json!({"text": text(n), "index": n, "logprobs": null, "finish_reason": finish}),
            )
            .collect();
        let mut body = json!({
            "id": format!("cmpl-{}", &self.planned.id[..24]), "object": "text_completion",
            "created": self.planned.created, "model": self.planned.model, "choices": choices,
        });
        if let Some(counts) = self.planned.usage {
            body["usage"] = chat::usage(counts);
        }
        body.to_string().into_bytes()
    }

    fn summary(&self, _streamed: bool) -> ResponseSummary {
        ResponseSummary {
            finish_reasons: vec![
                chat::finish_reason(&self.planned).into();
                self.planned.choices as usize
            ],
            usage: self.planned.usage.map(Counts::in_full),
        }
    }
}
