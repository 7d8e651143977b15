//! Ollama's `chat` and `generate` endpoints, with one JSON object per line.

use super::json::{Quoted, put};
use crate::clock;
use crate::plan::{Counts, PlannedResponse, Stop, Text};
use crate::script::{Script, TokenRun};
use crate::truth::ResponseSummary;
use bytes::BytesMut;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use tokengauge_core::call::Channel;
use tokengauge_core::time::rfc3339_nanos;

pub struct Ollama {
    planned: Arc<PlannedResponse>,
    /// Whether the endpoint is `generate`. Otherwise it is `chat`.
    generate: bool,
    begun: Instant,
    first: Option<Duration>,
}

impl Ollama {
    pub fn new(planned: Arc<PlannedResponse>, generate: bool) -> Ollama {
        Ollama {
            planned,
            generate,
            begun: clock::now(),
            first: None,
        }
    }

    fn head(&self) -> String {
        let now = rfc3339_nanos(SystemTime::now());
        format!(
            r#"{{"model":{},"created_at":"{now}","#,
            Quoted(&self.planned.model)
        )
    }

    fn line(&self, channel: Channel, fragment: &str, out: &mut BytesMut) {
        let (head, text) = (self.head(), Quoted(fragment));
        match (self.generate, channel) {
            (true, Channel::Reasoning) => {
                put(
                    out,
                    format_args!("{head}\"response\":\"\",\"thinking\":{text},\"done\":false}}\n"),
                );
            }
            (true, _) => put(
                out,
                format_args!("{head}\"response\":{text},\"done\":false}}\n"),
            ),
            (false, Channel::Reasoning) => put(
                out,
                format_args!(
                    "{head}\"message\":{{\"role\":\"assistant\",\"content\":\"\",\"thinking\":{text}}},\"done\":false}}\n"
                ),
            ),
            (false, _) => put(
                out,
                format_args!(
                    "{head}\"message\":{{\"role\":\"assistant\",\"content\":{text}}},\"done\":false}}\n"
                ),
            ),
        }
    }

    fn call(&self, text: &Text) -> Value {
        let arguments = super::arguments(text);
        json!({"function": {"index": text.call, "name": self.planned.tool_name, "arguments": arguments}})
    }

    /// The last line, or the only line of a response in one piece.
    fn end(&self, whole: bool) -> Value {
        let text = |channel| {
            if whole {
                self.planned.joined(0, channel)
            } else {
                String::new()
            }
        };
        let mut end = json!({
            "model": self.planned.model,
            "created_at": rfc3339_nanos(SystemTime::now()).to_string(),
            "done": true, "done_reason": self.reason(),
        });
        let thinking = text(Channel::Reasoning);
        if self.generate {
            end["response"] = text(Channel::Answer).into();
            end["context"] = json!([1, 2, 3]);
        } else {
            end["message"] = json!({"role": "assistant", "content": text(Channel::Answer)});
            let calls: Vec<Value> = self.planned.calls(0).map(|call| self.call(call)).collect();
            if whole && !calls.is_empty() {
                end["message"]["tool_calls"] = calls.into();
            }
        }
        if !thinking.is_empty() {
            let place = if self.generate {
                &mut end
            } else {
                &mut end["message"]
            };
            place["thinking"] = thinking.into();
        }
        if let Some(counts) = self.planned.usage {
            self.measure(&mut end, counts);
        }
        end
    }

    /// Adds Ollama's own measurements.
    fn measure(&self, end: &mut Value, counts: Counts) {
        let total = clock::now() - self.begun;
        let prompt = self.first.unwrap_or(total / 2);
        end["total_duration"] = nanos(total);
        end["load_duration"] = nanos(Duration::from_millis(1).min(prompt));
        end["prompt_eval_count"] = counts.input.into();
        end["prompt_eval_duration"] = nanos(prompt);
        end["eval_count"] = counts.output.into();
        end["eval_duration"] = nanos(total.saturating_sub(prompt));
    }

    fn reason(&self) -> &'static str {
        if self.planned.stop() == Stop::Length {
            "length"
        } else {
            "stop"
        }
    }
}

fn nanos(duration: Duration) -> Value {
    (duration.as_nanos() as u64).into()
}

impl Script for Ollama {
    fn content_type(&self) -> &'static str {
        "application/x-ndjson"
    }

    fn whole_calls(&self) -> bool {
        true
    }

    fn open(&mut self, out: &mut BytesMut) {
        for _ in 0..self.planned.empty_deltas {
            self.line(Channel::Answer, "", out);
        }
    }

    fn say(&mut self, said: TokenRun<'_>, out: &mut BytesMut) {
        self.first.get_or_insert_with(|| clock::now() - self.begun);
        if said.text.channel == Channel::ToolCall {
            let calls = json!([self.call(said.text)]);
            let message = json!({"role": "assistant", "content": "", "tool_calls": calls});
            return put(
                out,
                format_args!("{}\"message\":{message},\"done\":false}}\n", self.head()),
            );
        }
        self.line(said.text.channel, said.fragment, out);
    }

    fn close(&mut self, out: &mut BytesMut) {
        put(out, format_args!("{}\n", self.end(false)));
    }

    fn error(&mut self, kind: &str, out: &mut BytesMut) {
        put(
            out,
            format_args!("{{\"error\":\"{kind}: simulated error\"}}\n"),
        );
    }

    fn whole(&mut self) -> Vec<u8> {
        self.end(true).to_string().into_bytes()
    }

    fn summary(&self, _streamed: bool) -> ResponseSummary {
        ResponseSummary {
            finish_reasons: vec![self.reason().into()],
            usage: self.planned.usage.map(Counts::without_reasoning),
        }
    }
}
