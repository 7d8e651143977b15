//! OpenAI transcriptions, speech and images, streamed or not. Audio and images are not text, so
//! only their reported usage is known.

use super::detect::{Detected, Target};
use super::emit;
use super::json::{Object, Text, error_kind, parse};
use super::openai_usage::{ChatUsage, ResponsesUsage};
use super::registration::BeyondText;
use super::usage_names;
use super::{Malformed, Reader, Registration, Sink};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokengauge_core::call::{Channel, Dialect, Event, Operation, Segment};

const ANSWER: Segment = Segment {
    choice: 0,
    index: 0,
    channel: Channel::Answer,
};

#[derive(Deserialize)]
struct Media<'a> {
    #[serde(borrow, default)]
    r#type: Text<'a>,
    #[serde(borrow, default)]
    delta: Text<'a>,
    #[serde(borrow, default)]
    text: Text<'a>,
    #[serde(borrow)]
    usage: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "super::json::error")]
    error: Option<&'a RawValue>,
}

pub(super) static REGISTRATION: Registration = Registration {
    detect,
    types: &[
        "transcript.text.delta",
        "transcript.text.done",
        "speech.audio.delta",
    ],
    default_stream: Some(false),
    needs_model: false,
    beyond_text: BeyondText::WholeAnswers,
    usage: &[usage_names::RESPONSES, usage_names::CHAT],
    ..Registration::new::<OpenaiMedia>(Dialect::OpenaiMedia)
};

fn detect(target: &Target<'_>) -> Option<Detected> {
    let found = Detected::new(Dialect::OpenaiMedia, Operation::GenerateContent);
    match target.post()? {
        [.., "audio", "transcriptions" | "translations" | "speech"]
        | [.., "images", "generations" | "edits" | "variations"] => Some(found),
        _ => None,
    }
}

/// Reads transcriptions, speech and images.
#[derive(Default)]
pub struct OpenaiMedia {
    streamed: bool,
}

impl Reader for OpenaiMedia {
    fn event(&mut self, _: &str, payload: &[u8], sink: Sink<'_>) -> Result<(), Malformed> {
        let event: Media<'_> = parse(payload)?;
        match &*event.r#type {
            "transcript.text.delta" => {
                self.streamed |= !event.delta.is_empty();
                emit::delta(sink, ANSWER, &event.delta);
            }
            "transcript.text.done" => {
                if !self.streamed {
                    emit::delta(sink, ANSWER, &event.text);
                }
                event.end(sink)?;
            }
            "speech.audio.done" | "image_generation.completed" | "image_edit.completed" => {
                event.end(sink)?;
            }
            "" if event.error.is_none() => return Err(Malformed),
            "" | "error" => event.error(sink),
            _ => {}
        }
        Ok(())
    }

    fn body(&mut self, payload: &[u8], sink: Sink<'_>) -> Result<(), Malformed> {
        let body: Media<'_> = parse(payload)?;
        body.usage(sink)?;
        emit::delta(sink, ANSWER, &body.text);
        if body.error.is_some() {
            body.error(sink);
        }
        Ok(())
    }
}

impl Media<'_> {
    fn end(&self, sink: Sink<'_>) -> Result<(), Malformed> {
        self.usage(sink)?;
        sink(Event::End);
        Ok(())
    }

    /// Emits the usage. OpenRouter uses the names of the Chat Completions API.
    fn usage(&self, sink: Sink<'_>) -> Result<(), Malformed> {
        let Some(raw) = self.usage else { return Ok(()) };
        let usage: Object<ResponsesUsage> = serde_json::from_str(raw.get())?;
        let chat: Object<ChatUsage> = serde_json::from_str(raw.get())?;
        if let Some(chat) = chat.0.filter(|_| raw.get().contains("completion_tokens")) {
            chat.give(sink);
        } else if let Some(usage) = &usage.0 {
            usage.give(sink);
        }
        Ok(())
    }

    fn error(&self, sink: Sink<'_>) {
        let kind = self.error.map_or("error".into(), error_kind);
        sink(Event::Error(&kind));
    }
}
