//! Mistral's chat completions. Tool calls are whole, reasoning is a part of a list, and the finish
//! chunk always has usage.

use super::chat::{Chat, finish_reason, usage};
use super::json::{Quoted, sse};
use crate::plan::{PlannedResponse, Text};
use crate::script::{Script, TokenRun};
use crate::truth::ResponseSummary;
use bytes::BytesMut;
use serde_json::{Value, json};
use std::sync::Arc;
use tokengauge_core::call::Channel;

pub struct Mistral {
    planned: Arc<PlannedResponse>,
    chat: Chat,
}

pub fn is_mistral(model: &str) -> bool {
    ["mistral", "ministral", "magistral", "codestral"]
        .iter()
        .any(|family| model.contains(family))
}

impl Mistral {
    pub fn new(planned: Arc<PlannedResponse>) -> Mistral {
        let chat = Chat::new(Arc::clone(&planned), "}");
        Mistral { planned, chat }
    }

    fn call(&self, text: &Text) -> Value {
        let function = json!({"name": self.planned.tool_name, "arguments": text.whole()});
        json!({"id": &self.planned.call_id("", text)[..9], "function": function, "index": text.call})
    }
}

impl Script for Mistral {
    fn content_type(&self) -> &'static str {
        self.chat.content_type()
    }

    fn whole_calls(&self) -> bool {
        true
    }

    fn open(&mut self, out: &mut BytesMut) {
        self.chat.open(out);
    }

    fn say(&mut self, said: TokenRun<'_>, out: &mut BytesMut) {
        let choice = said.text.choice;
        match said.text.channel {
            Channel::Answer => self.chat.say(said, out),
            Channel::Reasoning => {
                let text = Quoted(said.fragment);
                let thinking = format_args!(
                    r#"{{"content":[{{"type":"thinking","thinking":[{{"type":"text","text":{text}}}]}}]}}"#
                );
                self.chat.chunk(choice, thinking, None, out);
            }
            Channel::ToolCall => {
                let calls = json!({"tool_calls": [self.call(said.text)]});
                self.chat.chunk(choice, format_args!("{calls}"), None, out);
            }
        }
    }

    fn close(&mut self, out: &mut BytesMut) {
        let reason = finish_reason(&self.planned);
        let usage = self.planned.usage.map_or(String::new(), |counts| {
            format!(r#","usage":{}"#, usage(counts))
        });
        for choice in 0..self.planned.choices {
            let usage = if choice + 1 == self.planned.choices {
                usage.as_str()
            } else {
                ""
            };
            sse(
                out,
                format_args!(
                    r#"{}[{{"index":{choice},"delta":{{"content":""}},"finish_reason":"{reason}"}}]{usage}}}"#,
                    self.chat.head()
                ),
            );
        }
        sse(out, format_args!("[DONE]"));
    }

    fn error(&mut self, kind: &str, out: &mut BytesMut) {
        self.chat.error(kind, out);
    }

    fn whole(&mut self) -> Vec<u8> {
        self.chat.whole()
    }

    fn summary(&self, streamed: bool) -> ResponseSummary {
        self.chat.summary(streamed)
    }
}
