//! OpenAI text completions, streamed or not.

use super::detect::{Detected, Target, behind_deployment};
use super::emit;
use super::event_template::Template;
use super::json::{Count, List, Object, Text, error_kind, parse};
use super::openai_usage::{CHAT_COUNTS, ChatUsage, ResponseIdentity};
use super::{Malformed, Reader, Registration, Sink};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokengauge_core::call::{Channel, Dialect, Event, Operation};

#[derive(Deserialize)]
struct Chunk<'a> {
    #[serde(borrow, default)]
    id: Text<'a>,
    #[serde(borrow, default)]
    model: Text<'a>,
    #[serde(borrow, default)]
    service_tier: Text<'a>,
    #[serde(borrow, default)]
    provider: Text<'a>,
    #[serde(borrow, default)]
    choices: List<Choice<'a>>,
    #[serde(default)]
    usage: Object<Box<ChatUsage>>,
    #[serde(borrow, default, deserialize_with = "super::json::error")]
    error: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Choice<'a> {
    #[serde(default)]
    index: Count,
    #[serde(borrow, default)]
    text: Text<'a>,
    #[serde(borrow, default, deserialize_with = "super::json::reason")]
    finish_reason: Text<'a>,
    #[serde(borrow, default, deserialize_with = "super::json::error")]
    error: Option<&'a RawValue>,
    #[serde(default)]
    usage: Object<Box<ChatUsage>>,
}

pub(super) static REGISTRATION: Registration = Registration {
    detect,
    objects: &["text_completion"],
    has_members: |members| members.choice().is_some_and(|choice| choice.text.is_some()),
    template: Some(&Template {
        unread: &["\"created\":"],
        counts: Some(CHAT_COUNTS),
        ..Template::PLAIN
    }),
    default_stream: Some(false),
    takes_usage_option: true,
    ..Registration::new::<Completions>(Dialect::OpenaiCompletions)
};

fn detect(target: &Target<'_>) -> Option<Detected> {
    let [prefix @ .., "completions"] = target.post()? else {
        return None;
    };
    let found = Detected::new(Dialect::OpenaiCompletions, Operation::TextCompletion);
    Some(behind_deployment(found, prefix))
}

/// Reads text completions.
#[derive(Default)]
pub struct Completions {
    identity: ResponseIdentity,
}

impl Reader for Completions {
    fn event(&mut self, _: &str, payload: &[u8], sink: Sink<'_>) -> Result<(), Malformed> {
        let chunk: Chunk<'_> = parse(payload)?;
        self.identity.note(&chunk.id, &chunk.model, sink);
        self.identity.service_tier(&chunk.service_tier, sink);
        self.identity.provider(&chunk.provider, sink);
        for (position, choice) in chunk.choices.iter().enumerate() {
            give(choice, position, sink);
        }
        let of_choices = chunk.choices.iter().filter_map(|it| it.usage.0.as_deref());
        for usage in of_choices.chain(chunk.usage.0.as_deref()) {
            usage.give(sink);
        }
        let of_choices = chunk.choices.iter().filter_map(|choice| choice.error);
        if let Some(error) = chunk.error.into_iter().chain(of_choices).next() {
            sink(Event::Error(&error_kind(error)));
        }
        Ok(())
    }
}

fn give(choice: &Choice<'_>, position: usize, sink: Sink<'_>) {
    let index = choice
        .index
        .0
        .and_then(|index| u32::try_from(index).ok())
        .unwrap_or(position as u32);
    emit::delta(sink, emit::segment(index, 0, Channel::Answer), &choice.text);
    emit::finish(sink, index, &choice.finish_reason);
}
