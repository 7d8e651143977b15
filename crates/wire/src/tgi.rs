//! Hugging Face text-generation-inference: one event per token, or a complete text.

use super::detect::{Detected, Target};
use super::emit;
use super::event_template::Template;
use super::json::{Count, List, Text, error_kind, is_word, parse, parse_list};
use super::strict::ModellessMember;
use super::{Malformed, Reader, Registration, Sink};
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;
use tokengauge_core::call::{Channel, Dialect, Event, Operation, Segment, Usage};

const ANSWER: Segment = Segment {
    choice: 0,
    index: 0,
    channel: Channel::Answer,
};

pub(super) static REGISTRATION: Registration = Registration {
    detect,
    has_members: |members| members.token.is_some() || members.generated_text.is_some(),
    template: Some(&Template {
        unread: &["\"id\":", "\"logprob\":", "\"index\":"],
        ..Template::PLAIN
    }),
    default_stream: Some(false),
    modelless: Some(ModellessMember::Inputs),
    error_body: |error| json!({"error": error.message, "error_type": error.code}),
    ..Registration::new::<Tgi>(Dialect::Tgi)
};

fn detect(target: &Target<'_>) -> Option<Detected> {
    let found = Detected::new(Dialect::Tgi, Operation::TextCompletion);
    match target.post()? {
        [.., "generate_stream"] | [.., "invocations-response-stream"] => Some(found.stream(true)),
        [.., "generate"] => Some(found.stream(false)),
        [] | [.., "invocations"] => Some(found),
        _ => None,
    }
}

/// Reads `/generate_stream` and `/generate`, including on SageMaker.
#[derive(Default)]
pub struct Tgi {
    tokens: u64,
}

impl Reader for Tgi {
    fn event(&mut self, _: &str, payload: &[u8], sink: Sink<'_>) -> Result<(), Malformed> {
        let event: GenerateResponse<'_> = parse(payload)?;
        if let Some(error) = event.error {
            sink(Event::Error(&event.error_kind(error)));
        }
        if let Some(token) = &event.token {
            self.tokens += 1;
            token.give(sink);
        }
        event.report(sink);
        // Only the last event has the complete text.
        if let Some(text) = &event.generated_text {
            if self.tokens == 0 {
                emit::delta(sink, ANSWER, text);
            }
            sink(Event::End);
        }
        Ok(())
    }

    fn body(&mut self, payload: &[u8], sink: Sink<'_>) -> Result<(), Malformed> {
        if payload.trim_ascii_start().starts_with(b"[") {
            for body in parse_list::<GenerateResponse<'_>>(payload)? {
                body.give_whole(sink);
            }
            return Ok(());
        }
        let body: GenerateResponse<'_> = parse(payload)?;
        body.give_whole(sink);
        Ok(())
    }
}

#[derive(Deserialize)]
struct GenerateResponse<'a> {
    #[serde(borrow, default, deserialize_with = "super::json::object")]
    token: Option<Token<'a>>,
    #[serde(borrow)]
    generated_text: Option<Text<'a>>,
    #[serde(borrow, default, deserialize_with = "super::json::object")]
    details: Option<Details<'a>>,
    #[serde(borrow, default, deserialize_with = "super::json::error")]
    error: Option<&'a RawValue>,
    #[serde(borrow, default)]
    error_type: Text<'a>,
}

impl GenerateResponse<'_> {
    fn error_kind(&self, error: &RawValue) -> String {
        if is_word(&self.error_type) {
            return self.error_type.to_string();
        }
        error_kind(error).into_owned()
    }

    /// Emits a complete text. `generated_text` may begin with the prompt (`return_full_text`), but
    /// the tokens in `details` never do.
    fn give_whole(&self, sink: Sink<'_>) {
        if let Some(error) = self.error {
            sink(Event::Error(&self.error_kind(error)));
        }
        let tokens = self.details.as_ref().map_or(&[][..], |d| &d.tokens);
        if tokens.is_empty() {
            emit::delta(sink, ANSWER, self.generated_text.as_deref().unwrap_or(""));
        }
        for token in tokens {
            token.give(sink);
        }
        self.report(sink);
    }

    fn report(&self, sink: Sink<'_>) {
        let Some(details) = &self.details else {
            return;
        };
        emit::finish(sink, 0, &details.finish_reason);
        let usage = Usage {
            input: details.input_length.0.or(details.prefilled()),
            output: details.generated_tokens.0,
            ..Usage::default()
        };
        emit::usage(sink, usage);
    }
}

#[derive(Deserialize)]
struct Token<'a> {
    #[serde(borrow, default)]
    text: Text<'a>,
    special: Option<bool>,
}

impl Token<'_> {
    fn give(&self, sink: Sink<'_>) {
        if self.special != Some(true) {
            emit::delta(sink, ANSWER, &self.text);
        }
    }
}

#[derive(Deserialize)]
struct Details<'a> {
    #[serde(borrow, default)]
    finish_reason: Text<'a>,
    #[serde(default)]
    generated_tokens: Count,
    #[serde(default)]
    input_length: Count,
    #[serde(borrow, default)]
    prefill: List<&'a RawValue>,
    #[serde(borrow, default)]
    tokens: List<Token<'a>>,
}

impl Details<'_> {
    /// The number of prompt tokens, if the request asked for a list of them.
    fn prefilled(&self) -> Option<u64> {
        match self.prefill.len() {
            0 => None,
            tokens => u64::try_from(tokens).ok(),
        }
    }
}
