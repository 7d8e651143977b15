//! Ollama's native `chat` and `generate` endpoints: one JSON object per line, or a single one.

use super::detect::{Detected, Target, percent_decoded, segments};
use super::emit::{self, RepeatedName};
use super::event_template::Template;
use super::json::{Count, List, Text, arguments, error_kind, parse};
use super::usage_names;
use super::{Malformed, Reader, Registration, Sink};
use http::Uri;
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;
use tokengauge_core::call::{Channel, Dialect, EngineReport, Event, Operation, Usage};

pub(super) static REGISTRATION: Registration = Registration {
    detect,
    has_members: |members| {
        members.done.is_some() && (members.message.is_some() || members.response.is_some())
    },
    template: Some(&Template {
        unread: &["\"created_at\":"],
        // Each message contains complete calls, so a second one like it is another call.
        tool_calls: false,
        ..Template::PLAIN
    }),
    default_stream: Some(true),
    error_body: |error| json!({"error": error.message}),
    usage: &[usage_names::OLLAMA],
    ..Registration::new::<Ollama>(Dialect::Ollama)
};

fn detect(target: &Target<'_>) -> Option<Detected> {
    let operation = match target.post()? {
        // A model or a version on Triton with the name `api`.
        [.., "models", "api", "generate"] | [.., "models", _, "versions", "api", "generate"] => {
            return None;
        }
        [.., "api", "chat"] => Operation::Chat,
        [.., "api", "generate"] => Operation::TextCompletion,
        _ => return None,
    };
    Some(Detected::new(Dialect::Ollama, operation))
}

/// Whether the server reads a body as JSON even if its media type is a form, which `curl -d` sends.
/// Ollama's native API does.
pub fn reads_forms_as_json(uri: &Uri) -> bool {
    let decoded = percent_decoded(uri.path());
    let verbs = ["chat", "generate", "embed", "embeddings"];
    matches!(&segments(&decoded)[..], [.., "api", verb] if verbs.contains(verb))
}

/// Reads `/api/chat` and `/api/generate`.
#[derive(Default)]
pub struct Ollama {
    model: RepeatedName,
    calls: u32,
}

impl Reader for Ollama {
    fn event(&mut self, _: &str, payload: &[u8], sink: Sink<'_>) -> Result<(), Malformed> {
        let line: Chunk<'_> = parse(payload)?;
        self.give(&line, sink);
        if line.done == Some(true) {
            sink(Event::End);
        }
        Ok(())
    }

    fn body(&mut self, payload: &[u8], sink: Sink<'_>) -> Result<(), Malformed> {
        let body: Chunk<'_> = parse(payload)?;
        self.give(&body, sink);
        Ok(())
    }
}

impl Ollama {
    fn give(&mut self, line: &Chunk<'_>, sink: Sink<'_>) {
        if let Some(error) = line.error {
            sink(Event::Error(&error_kind(error)));
        }
        self.model.model(sink, &line.model);
        let reasoning = emit::segment(0, 0, Channel::Reasoning);
        let answer = emit::segment(0, 0, Channel::Answer);
        emit::delta(sink, reasoning, &line.thinking);
        emit::delta(sink, answer, &line.response);
        if let Some(message) = &line.message {
            emit::delta(sink, reasoning, &message.thinking);
            emit::delta(sink, answer, &message.content);
            for call in message.tool_calls.iter() {
                self.call(call, sink);
            }
        }
        emit::finish(sink, 0, &line.done_reason);
        if line.done == Some(true) {
            line.report(sink);
        }
    }

    fn call(&mut self, call: &ToolCall<'_>, sink: Sink<'_>) {
        let segment = emit::segment(0, self.calls, Channel::ToolCall);
        self.calls += 1;
        let Some(function) = &call.function else {
            return;
        };
        emit::tool_name(sink, segment, &function.name);
        if let Some(sent) = function.arguments {
            emit::delta(sink, segment, &arguments(sent));
        }
    }
}

#[derive(Deserialize)]
struct Chunk<'a> {
    #[serde(borrow, default)]
    model: Text<'a>,
    #[serde(borrow, default, deserialize_with = "super::json::object")]
    message: Option<Message<'a>>,
    #[serde(borrow, default)]
    response: Text<'a>,
    #[serde(borrow, default)]
    thinking: Text<'a>,
    done: Option<bool>,
    #[serde(borrow, default)]
    done_reason: Text<'a>,
    /// Durations are in nanoseconds.
    #[serde(default)]
    total_duration: Count,
    #[serde(default)]
    load_duration: Count,
    #[serde(default)]
    prompt_eval_count: Count,
    #[serde(default)]
    prompt_eval_cached_count: Count,
    #[serde(default)]
    prompt_eval_duration: Count,
    #[serde(default)]
    eval_count: Count,
    #[serde(default)]
    eval_duration: Count,
    #[serde(borrow, default, deserialize_with = "super::json::error")]
    error: Option<&'a RawValue>,
}

impl Chunk<'_> {
    fn report(&self, sink: Sink<'_>) {
        let usage = Usage {
            input: self.prompt_eval_count.0,
            cached_input: self.prompt_eval_cached_count.0,
            output: self.eval_count.0,
            ..Usage::default()
        };
        emit::usage(sink, usage);
        let engine = EngineReport {
            prompt_tokens: self.prompt_eval_count.0,
            prompt_seconds: seconds(self.prompt_eval_duration),
            output_tokens: self.eval_count.0,
            output_seconds: seconds(self.eval_duration),
            load_seconds: seconds(self.load_duration),
            total_seconds: seconds(self.total_duration),
        };
        if engine != EngineReport::default() {
            sink(Event::Engine(engine));
        }
    }
}

fn seconds(nanoseconds: Count) -> Option<f64> {
    nanoseconds.0.map(|count| count as f64 / 1e9)
}

#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow, default)]
    content: Text<'a>,
    #[serde(borrow, default)]
    thinking: Text<'a>,
    #[serde(borrow, default)]
    tool_calls: List<ToolCall<'a>>,
}

#[derive(Deserialize)]
struct ToolCall<'a> {
    #[serde(borrow, default, deserialize_with = "super::json::object")]
    function: Option<Function<'a>>,
}

#[derive(Deserialize)]
struct Function<'a> {
    #[serde(borrow, default)]
    name: Text<'a>,
    #[serde(borrow)]
    arguments: Option<&'a RawValue>,
}
