//! Native endpoints of inference engines, with different members: llama.cpp's `/completion` and
//! `/infill`, SGLang's `/generate`, Triton's generate extension and vLLM's
//! `/inference/v1/generate`.

use super::detect::{Detected, Target};
use super::emit::{self, RepeatedName};
use super::event_template::Template;
use super::json::{Count, List, Object, Text, error_kind, parse, parse_list};
use super::openai_chat::Timings;
use super::registration::BeyondText;
use super::{Malformed, Reader, Registration, Sink};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::hash::{DefaultHasher, Hasher};
use tokengauge_core::call::{Channel, Dialect, Event, Operation, Usage};

const MAX_CHOICES: usize = 256;

#[derive(Deserialize)]
struct GenerateResponse<'a> {
    #[serde(default)]
    index: Count,
    /// llama.cpp.
    #[serde(borrow)]
    content: Option<Text<'a>>,
    #[serde(borrow)]
    stop: Option<&'a RawValue>,
    #[serde(borrow, default)]
    stop_type: Text<'a>,
    #[serde(borrow, default)]
    model: Text<'a>,
    #[serde(default)]
    tokens_predicted: Count,
    #[serde(default)]
    tokens_evaluated: Count,
    #[serde(borrow, default)]
    timings: Object<Timings<'a>>,
    /// SGLang.
    #[serde(borrow)]
    text: Option<Text<'a>>,
    output_ids: Option<List<Ignored>>,
    #[serde(borrow, default)]
    meta_info: Object<MetaInfo<'a>>,
    /// Triton.
    #[serde(borrow)]
    text_output: Option<Text<'a>>,
    #[serde(borrow, default)]
    model_name: Text<'a>,
    /// vLLM.
    #[serde(borrow, default)]
    request_id: Text<'a>,
    #[serde(borrow)]
    choices: Option<List<Choice<'a>>>,
    #[serde(borrow, default, deserialize_with = "super::json::error")]
    error: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct MetaInfo<'a> {
    #[serde(borrow, default)]
    id: Text<'a>,
    #[serde(borrow, default)]
    finish_reason: Object<FinishReason<'a>>,
    #[serde(default)]
    prompt_tokens: Count,
    #[serde(default)]
    completion_tokens: Count,
    #[serde(default)]
    cached_tokens: Count,
}

#[derive(Deserialize)]
struct FinishReason<'a> {
    #[serde(borrow, default, rename = "type")]
    kind: Text<'a>,
}

/// Token ids without text.
#[derive(Deserialize)]
struct Choice<'a> {
    #[serde(default)]
    index: Count,
    #[serde(borrow, default, deserialize_with = "super::json::reason")]
    finish_reason: Text<'a>,
    token_ids: Option<List<Ignored>>,
}

type Ignored = serde::de::IgnoredAny;

pub(super) static ENGINE_GENERATE: Registration = Registration {
    detect,
    has_members: |members| {
        let ids = members
            .choice()
            .is_some_and(|choice| choice.token_ids.is_some());
        ids || members.text_output.is_some()
            || (members.meta_info.is_some() && members.text.is_some())
    },
    default_stream: Some(false),
    // Triton's streams have no terminator other than the end of the body.
    ends_streams: false,
    beyond_text: BeyondText::WholeAnswers,
    ..Registration::new::<EngineGenerate>(Dialect::EngineGenerate)
};

pub(super) static LLAMA_CPP: Registration = Registration {
    detect: |target| match target.post()? {
        [.., "completion" | "infill"] => {
            Some(Detected::new(Dialect::LlamaCpp, Operation::TextCompletion))
        }
        _ => None,
    },
    has_members: |members| members.content.is_some() && members.stop.is_some(),
    // `tokens_predicted` is read only in the last event, whose `stop` is true.
    template: Some(&Template {
        unread: &[
            "\"tokens\":",
            "\"tokens_predicted\":",
            "\"completion_probabilities\":",
        ],
        ..Template::PLAIN
    }),
    default_stream: Some(false),
    needs_model: false,
    ..Registration::new::<EngineGenerate>(Dialect::LlamaCpp)
};

/// Detects vLLM's path, and Triton's `…/models/{model}[/versions/{version}]/generate[_stream]`.
fn detect(target: &Target<'_>) -> Option<Detected> {
    let found = Detected::new(Dialect::EngineGenerate, Operation::TextCompletion);
    let path = target.post()?;
    if let [.., "inference", "v1", "generate"] = path {
        return Some(found);
    }
    let (verb, rest) = path.split_last()?;
    let stream = match *verb {
        "generate" => false,
        "generate_stream" => true,
        _ => return None,
    };
    match rest {
        [.., "models", model] | [.., "models", model, "versions", _] => {
            Some(found.model(model).stream(stream))
        }
        _ => None,
    }
}

/// Reads the native endpoints of engines.
#[derive(Default)]
pub struct EngineGenerate {
    model: RepeatedName,
    id: RepeatedName,
    /// How much of a repeated text was emitted, by generation.
    emitted: Vec<EmittedText>,
    ids: u64,
}

#[derive(Clone, Copy, Default)]
struct EmittedText {
    bytes: usize,
    hash: u64,
    usage: Usage,
    incremental: bool,
}

impl Reader for EngineGenerate {
    fn event(&mut self, _: &str, payload: &[u8], sink: Sink<'_>) -> Result<(), Malformed> {
        let event: GenerateResponse<'_> = parse(payload)?;
        self.one(0, &event, sink)
    }

    fn body(&mut self, payload: &[u8], sink: Sink<'_>) -> Result<(), Malformed> {
        if !payload.trim_ascii_start().starts_with(b"[") {
            return self.event("", payload, sink);
        }
        // The request had several prompts.
        let bodies = parse_list::<GenerateResponse<'_>>(payload)?;
        for (position, body) in bodies.enumerate() {
            self.one(position, &body, sink)?;
        }
        Ok(())
    }
}

impl EngineGenerate {
    fn one(
        &mut self,
        position: usize,
        event: &GenerateResponse<'_>,
        sink: Sink<'_>,
    ) -> Result<(), Malformed> {
        let index = event.index.index().unwrap_or(position as u32);
        if index as usize >= MAX_CHOICES {
            return Ok(());
        }
        let answer = emit::segment(index, 0, Channel::Answer);
        self.model.model(sink, &event.model);
        self.model.model(sink, &event.model_name);
        if let Some(error) = event.error {
            sink(Event::Error(&error_kind(error)));
        } else if let Some(meta) = &event.meta_info.0 {
            self.sglang(index, event, meta, sink);
        } else if let Some(text) = &event.content {
            emit::delta(sink, answer, text);
            self.llama_cpp(index, event, sink);
        } else if let Some(text) = &event.text_output {
            emit::delta(sink, answer, text);
        } else if let Some(choices) = &event.choices {
            self.id.response_id(sink, &event.request_id);
            self.token_ids(choices, sink);
        } else {
            return Err(Malformed);
        }
        Ok(())
    }

    /// Reads an event of SGLang. It contains the whole text so far, or only the new text with a
    /// certain server option.
    fn sglang(
        &mut self,
        index: u32,
        event: &GenerateResponse<'_>,
        meta: &MetaInfo<'_>,
        sink: Sink<'_>,
    ) {
        let text = event.text.as_deref().unwrap_or("");
        let ids = event.output_ids.as_ref().map(|ids| ids.len() as u64);
        let generated = meta.completion_tokens.0;
        let emitted = self.emitted(index);
        emitted.incremental |= ids.zip(generated).is_some_and(|(ids, all)| ids < all);
        let known = emitted.bytes;
        let repeats = text
            .get(..known)
            .is_some_and(|begin| hash(begin) == emitted.hash);
        let new = if repeats && !emitted.incremental {
            &text[known..]
        } else {
            text
        };
        // An owned copy, so that no template is made from it. Which part of the text is new depends
        // on earlier events.
        let new = new.to_owned();
        emit::delta(sink, emit::segment(index, 0, Channel::Answer), &new);
        (emitted.bytes, emitted.hash) = (text.len(), hash(text));
        emitted.usage = Usage {
            input: meta.prompt_tokens.0,
            cached_input: meta.cached_tokens.0,
            output: generated,
            ..Usage::default()
        };
        self.id.response_id(sink, &meta.id);
        self.report(sink);
        if let Some(reason) = &meta.finish_reason.0 {
            emit::finish(sink, index, &reason.kind);
        }
    }

    /// Emits the sum of the usage of all generations, which are reported one by one.
    fn report(&self, sink: Sink<'_>) {
        let sum = |of: fn(&Usage) -> Option<u64>| {
            let known: Vec<u64> = self
                .emitted
                .iter()
                .filter_map(|emitted| of(&emitted.usage))
                .collect();
            (!known.is_empty()).then(|| known.iter().fold(0_u64, |sum, n| sum.saturating_add(*n)))
        };
        let usage = Usage {
            input: sum(|usage| usage.input),
            cached_input: sum(|usage| usage.cached_input),
            output: sum(|usage| usage.output),
            ..Usage::default()
        };
        emit::usage(sink, usage);
    }

    /// Reads the counts of llama.cpp, which only the last event or a whole body contains.
    fn llama_cpp(&mut self, index: u32, event: &GenerateResponse<'_>, sink: Sink<'_>) {
        if event.stop.is_none_or(|stop| stop.get() != "true") {
            return;
        }
        self.emitted(index).usage = Usage {
            input: event.tokens_evaluated.0,
            output: event.tokens_predicted.0,
            ..Usage::default()
        };
        self.report(sink);
        if let Some(timings) = &event.timings.0 {
            sink(Event::Engine(timings.report()));
        }
        let reason = match &*event.stop_type {
            "" => "stop",
            reason => reason,
        };
        emit::finish(sink, index, reason);
        sink(Event::End);
    }

    fn emitted(&mut self, index: u32) -> &mut EmittedText {
        let at = index as usize;
        if self.emitted.len() <= at {
            self.emitted.resize(at + 1, EmittedText::default());
        }
        &mut self.emitted[at]
    }

    fn token_ids(&mut self, choices: &[Choice<'_>], sink: Sink<'_>) {
        for (position, choice) in choices.iter().enumerate() {
            let ids = choice.token_ids.as_ref().map_or(0, |ids| ids.len());
            self.ids = self.ids.saturating_add(ids as u64);
            let index = choice.index.index().unwrap_or(position as u32);
            if (index as usize) < MAX_CHOICES {
                emit::finish(sink, index, &choice.finish_reason);
            }
        }
        let usage = Usage {
            output: Some(self.ids).filter(|ids| *ids > 0),
            ..Usage::default()
        };
        emit::usage(sink, usage);
    }
}

fn hash(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(text.as_bytes());
    hasher.finish()
}
