//! OpenAI responses, streamed or not. Deltas count; the complete copies in `done`
//! events and in the final response count only where no delta came before them.

use super::json::{Count, List, Object, Text, arguments, error_kind, is_word, parse};
use super::openai_chat::Timings;
use super::openai_json::TextOrList;
use super::openai_usage::{Identity, ResponsesUsage};
use super::{Malformed, Reader, Sink};
use crate::call::{Channel, Event, Segment};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::borrow::Cow;

/// Texts told apart in one response; later ones are taken for copies.
const MAX_SEEN: usize = 4096;
/// Parts of an output item told apart: content first, summaries behind.
const PARTS: u32 = 1024;
/// Where the summaries' places begin.
const SUMMARIES: u32 = 512;

/// An event of a stream.
#[derive(Deserialize)]
pub(super) struct StreamEvent<'a> {
    #[serde(borrow, default)]
    pub(super) r#type: Text<'a>,
    #[serde(borrow, default)]
    delta: Text<'a>,
    #[serde(default)]
    output_index: Count,
    #[serde(default)]
    content_index: Count,
    #[serde(default)]
    summary_index: Count,
    #[serde(borrow, default)]
    text: Text<'a>,
    #[serde(borrow, default)]
    refusal: Text<'a>,
    #[serde(borrow, default)]
    transcript: Text<'a>,
    #[serde(borrow)]
    arguments: Option<&'a RawValue>,
    #[serde(borrow, default)]
    input: Text<'a>,
    #[serde(borrow, default)]
    code: Text<'a>,
    /// Read only where it is needed.
    #[serde(borrow)]
    item: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) response: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) session: Option<&'a RawValue>,
    /// xAI's Realtime has it beside the response.
    #[serde(default)]
    pub(super) usage: Object<Box<ResponsesUsage>>,
    #[serde(borrow)]
    pub(super) error: Option<&'a RawValue>,
    /// llama.cpp's, beside the response.
    #[serde(borrow, default)]
    timings: Object<Box<Timings<'a>>>,
}

/// A whole response: the body, or what the first and last events carry.
#[derive(Deserialize)]
pub(super) struct Response<'a> {
    #[serde(borrow, default)]
    object: Text<'a>,
    #[serde(borrow, default)]
    pub(super) id: Text<'a>,
    #[serde(borrow, default)]
    pub(super) model: Text<'a>,
    #[serde(borrow, default)]
    pub(super) service_tier: Text<'a>,
    #[serde(borrow, default)]
    status: Text<'a>,
    #[serde(borrow, default)]
    incomplete_details: Object<Reason<'a>>,
    /// Realtime's name for it.
    #[serde(borrow, default)]
    status_details: Object<Reason<'a>>,
    #[serde(borrow, default)]
    output: List<Object<Item<'a>>>,
    #[serde(default)]
    pub(super) usage: Object<ResponsesUsage>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
    /// xAI's, beside a plain `error` string.
    #[serde(borrow, default)]
    code: Text<'a>,
}

#[derive(Deserialize)]
struct Reason<'a> {
    #[serde(borrow, default)]
    reason: Text<'a>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

/// An output item.
#[derive(Deserialize)]
struct Item<'a> {
    #[serde(borrow, default)]
    r#type: Text<'a>,
    #[serde(borrow, default)]
    content: TextOrList<'a, Part<'a>>,
    #[serde(borrow, default)]
    summary: List<Part<'a>>,
    #[serde(borrow)]
    arguments: Option<&'a RawValue>,
    #[serde(borrow, default)]
    input: Text<'a>,
    #[serde(borrow, default)]
    code: Text<'a>,
}

#[derive(Deserialize)]
struct Part<'a> {
    #[serde(borrow, default)]
    text: Text<'a>,
    #[serde(borrow, default)]
    refusal: Text<'a>,
    #[serde(borrow, default)]
    transcript: Text<'a>,
}

/// Reads responses.
#[derive(Default)]
pub(crate) struct Responses {
    identity: Identity,
    texts: Texts,
}

impl Reader for Responses {
    fn event(&mut self, _: &str, payload: &[u8], sink: Sink<'_>) -> Result<(), Malformed> {
        let event: StreamEvent<'_> = parse(payload)?;
        if self.texts.read(0, &event, sink)? {
            return Ok(());
        }
        match &*event.r#type {
            "response.created" | "response.in_progress" | "response.queued" => {
                let response = response(event.response)?;
                self.identity.note(&response.id, &response.model, sink);
            }
            "response.completed"
            | "response.incomplete"
            | "response.failed"
            | "response.cancelled"
            | "response.done" => {
                let response = response(event.response)?;
                self.whole(&response, sink);
                if let Some(timings) = &event.timings.0 {
                    sink(Event::Engine(timings.report()));
                }
                sink(Event::End);
            }
            "" if event.error.is_none() => return Err(Malformed),
            "" | "error" => sink(Event::Error(&event.error_word())),
            _ => {}
        }
        Ok(())
    }

    fn body(&mut self, payload: &[u8], sink: Sink<'_>) -> Result<(), Malformed> {
        self.whole(&parse(payload)?, sink);
        Ok(())
    }
}

impl Responses {
    fn whole(&mut self, response: &Response<'_>, sink: Sink<'_>) {
        self.identity.note(&response.id, &response.model, sink);
        self.identity.service_tier(&response.service_tier, sink);
        // What is compacted holds what was said before.
        if &*response.object != "response.compaction" {
            self.texts.copies(0, response, sink);
        }
        response.outcome(0, sink);
    }
}

fn response(raw: Option<&RawValue>) -> Result<Response<'_>, Malformed> {
    Ok(serde_json::from_str(raw.ok_or(Malformed)?.get())?)
}

impl StreamEvent<'_> {
    pub(super) fn error_word(&self) -> Cow<'_, str> {
        match self.error {
            Some(error) => error_kind(error),
            None if is_word(&self.code) => Cow::Borrowed(&self.code),
            None => Cow::Borrowed("error"),
        }
    }

    /// The complete text of a `done` event.
    fn complete(&self) -> Cow<'_, str> {
        let texts = [
            &self.text,
            &self.refusal,
            &self.transcript,
            &self.input,
            &self.code,
        ];
        match texts.into_iter().find(|text| !text.is_empty()) {
            Some(text) => Cow::Borrowed(text),
            None => self.arguments.map_or(Cow::Borrowed(""), arguments),
        }
    }
}

impl Response<'_> {
    /// Gives usage, status and error.
    pub(super) fn outcome(&self, choice: u32, sink: Sink<'_>) {
        if let Some(usage) = &self.usage.0 {
            usage.give(sink);
        }
        if !self.status.is_empty() {
            let details = self
                .incomplete_details
                .0
                .as_ref()
                .or(self.status_details.0.as_ref());
            match details.filter(|d| &*self.status == "incomplete" && !d.reason.is_empty()) {
                Some(details) => {
                    let reason = format!("{}:{}", &*self.status, &*details.reason);
                    sink(Event::Finish {
                        choice,
                        reason: &reason,
                    });
                }
                None => sink(Event::Finish {
                    choice,
                    reason: &self.status,
                }),
            }
        }
        let nested = self
            .status_details
            .0
            .as_ref()
            .and_then(|details| details.error);
        match self.error.or(nested).filter(|error| error.get() != "null") {
            Some(error) if error.get().starts_with('"') && is_word(&self.code) => {
                sink(Event::Error(&self.code));
            }
            Some(error) => sink(Event::Error(&error_kind(error))),
            None => {}
        }
    }
}

/// Which texts have come, so that copies of them do not count again.
#[derive(Default)]
pub(super) struct Texts {
    seen: Vec<(u32, u32, Channel)>,
}

impl Texts {
    /// Reads an event that carries text, or a copy of one; whether it did.
    pub(super) fn read(
        &mut self,
        choice: u32,
        event: &StreamEvent<'_>,
        sink: Sink<'_>,
    ) -> Result<bool, Malformed> {
        let Some(kind) = event.r#type.strip_prefix("response.") else {
            return Ok(false);
        };
        let item = event.output_index.index().unwrap_or(0);
        if let Some(text) = kind.strip_suffix(".delta") {
            let Some((channel, part)) = event.place(text) else {
                return Ok(true);
            };
            if !event.delta.is_empty() {
                self.note(choice, item, channel);
                give(choice, item, part, channel, &event.delta, sink);
            }
        } else if let Some(text) = kind.strip_suffix(".done") {
            if text == "output_item" {
                let whole: Object<Item<'_>> = match event.item {
                    Some(raw) => serde_json::from_str(raw.get())?,
                    None => Object(None),
                };
                self.item(choice, item, whole.0.as_ref(), sink);
            } else if let Some((channel, part)) = event.place(text) {
                self.copy(choice, item, part, channel, &event.complete(), sink);
            }
        } else {
            return Ok(false);
        }
        Ok(true)
    }

    /// Reads the items of a whole response, where the stream had none of them.
    pub(super) fn copies(&mut self, choice: u32, response: &Response<'_>, sink: Sink<'_>) {
        if self.seen.iter().any(|(of, _, _)| *of == choice) {
            return;
        }
        for (item, output) in response.output.iter().enumerate() {
            self.item(choice, item as u32, output.0.as_ref(), sink);
        }
    }

    fn item(&mut self, choice: u32, at: u32, item: Option<&Item<'_>>, sink: Sink<'_>) {
        let Some(item) = item else { return };
        let channels = [Channel::Answer, Channel::Reasoning, Channel::ToolCall];
        let came = channels.map(|channel| self.seen.contains(&(choice, at, channel)));
        let mut copy = |part: u32, channel: Channel, text: &str| {
            if !came[channel as usize] && !text.is_empty() {
                self.note(choice, at, channel);
                give(choice, at, part, channel, text, sink);
            }
        };
        match &*item.r#type {
            kind @ ("message" | "reasoning") => {
                let answer = kind == "message";
                let channel = if answer {
                    Channel::Answer
                } else {
                    Channel::Reasoning
                };
                match &item.content {
                    TextOrList::Text(text) => copy(0, channel, text),
                    TextOrList::List(parts) => {
                        for (part, content) in parts.iter().enumerate() {
                            copy(part as u32, channel, &content.text);
                            copy(part as u32, channel, &content.refusal);
                            copy(part as u32, channel, &content.transcript);
                        }
                    }
                }
                for (part, summary) in item.summary.iter().enumerate() {
                    copy(SUMMARIES + part as u32, Channel::Reasoning, &summary.text);
                }
            }
            "function_call" | "mcp_call" => {
                let text = item.arguments.map_or(Cow::Borrowed(""), arguments);
                copy(0, Channel::ToolCall, &text);
            }
            "custom_tool_call" => copy(0, Channel::ToolCall, &item.input),
            "code_interpreter_call" => copy(0, Channel::ToolCall, &item.code),
            _ => {}
        }
    }

    fn copy(
        &mut self,
        choice: u32,
        item: u32,
        part: u32,
        channel: Channel,
        text: &str,
        sink: Sink<'_>,
    ) {
        if !text.is_empty() && self.note(choice, item, channel) {
            give(choice, item, part, channel, text, sink);
        }
    }

    /// Remembers that a text has come; whether it is the first there.
    fn note(&mut self, choice: u32, item: u32, channel: Channel) -> bool {
        let text = (choice, item, channel);
        let is_known = self.seen.last() == Some(&text) || self.seen.contains(&text);
        if is_known || self.seen.len() >= MAX_SEEN {
            return false;
        }
        self.seen.push(text);
        true
    }
}

impl StreamEvent<'_> {
    /// Which text of its item an event is of, by the middle of its name. The place
    /// only tells texts apart: some servers number deltas and items differently.
    fn place(&self, text: &str) -> Option<(Channel, u32)> {
        let content = || self.content_index.index().unwrap_or(0).min(SUMMARIES - 1);
        let summary = || SUMMARIES + self.summary_index.index().unwrap_or(0).min(SUMMARIES - 1);
        match text {
            "output_text" | "text" | "refusal" => Some((Channel::Answer, content())),
            "output_audio_transcript" | "audio_transcript" => Some((Channel::Answer, content())),
            "reasoning_text" | "reasoning" => Some((Channel::Reasoning, content())),
            "reasoning_summary_text" | "reasoning_summary" => Some((Channel::Reasoning, summary())),
            "function_call_arguments"
            | "custom_tool_call_input"
            | "mcp_call_arguments"
            | "mcp_call.arguments"
            | "code_interpreter_call_code"
            | "code_interpreter_call.code" => Some((Channel::ToolCall, 0)),
            _ => None,
        }
    }
}

fn give(choice: u32, item: u32, part: u32, channel: Channel, text: &str, sink: Sink<'_>) {
    let index = item.saturating_mul(PARTS).saturating_add(part);
    sink(Event::Delta {
        segment: Segment {
            choice,
            index,
            channel,
        },
        text,
    });
}
