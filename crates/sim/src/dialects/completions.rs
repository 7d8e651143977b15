//! OpenAI's older text completions.

use super::chat;
use super::json::{Quoted, put, sse};
use crate::plan::{Answer, Counts};
use crate::script::{Script, TokenRun};
use crate::truth::AnswerSummary;
use bytes::BytesMut;
use serde_json::{Value, json};
use std::sync::Arc;
use tokengauge_core::call::Channel;

pub struct Completions {
    answer: Arc<Answer>,
    head: String,
    tail: &'static str,
}

impl Completions {
    pub fn new(answer: Arc<Answer>) -> Completions {
        let head = format!(
            r#"{{"id":"cmpl-{}","object":"text_completion","created":{},"model":{},"choices":"#,
            &answer.id[..24],
            answer.created,
            Quoted(&answer.model),
        );
        let tail = chat::tail(&answer);
        Completions { answer, head, tail }
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
        for _ in 0..self.answer.empty_deltas {
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
        for choice in 0..self.answer.choices {
            self.chunk(choice, "", Some(chat::finish_reason(&self.answer)), out);
        }
        if let Some(counts) = self.answer.usage {
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
        let finish = chat::finish_reason(&self.answer);
        let text = |choice| self.answer.joined(choice, Channel::Answer);
        let choices: Vec<Value> = (0..self.answer.choices)
            .map(
                |n| json!({"text": text(n), "index": n, "logprobs": null, "finish_reason": finish}),
            )
            .collect();
        let mut body = json!({
            "id": format!("cmpl-{}", &self.answer.id[..24]), "object": "text_completion",
            "created": self.answer.created, "model": self.answer.model, "choices": choices,
        });
        if let Some(counts) = self.answer.usage {
            body["usage"] = chat::usage(counts);
        }
        body.to_string().into_bytes()
    }

    fn summary(&self, _streamed: bool) -> AnswerSummary {
        AnswerSummary {
            finish_reasons: vec![
                chat::finish_reason(&self.answer).into();
                self.answer.choices as usize
            ],
            usage: self.answer.usage.map(Counts::in_full),
        }
    }
}
