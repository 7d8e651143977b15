//! Gemini Live over WebSocket: what the server sends. What the model says from one end of its
//! turn, or call of a tool, to the next is a turn, and counts as a choice.

use super::gemini::{Content, FunctionCall, Parts, UsageMetadata};
use super::json::{List, Text, error_kind, parse};
use super::{Malformed, Reader, Sink, emit};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokengauge_core::call::{Channel, Event};

/// Segments of transcripts stand behind those of the model's parts.
const TRANSCRIPT: u32 = 1 << 20;

/// Reads Gemini Live.
#[derive(Default)]
pub struct GeminiLive {
    tier: emit::Name,
    parts: Parts,
    turn: u32,
    in_turn: bool,
    interrupted: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Message<'a> {
    #[serde(borrow)]
    setup_complete: Option<SetupComplete<'a>>,
    #[serde(borrow)]
    server_content: Option<ServerContent<'a>>,
    #[serde(borrow)]
    tool_call: Option<ToolCall<'a>>,
    #[serde(borrow)]
    usage_metadata: Option<UsageMetadata<'a>>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SetupComplete<'a> {
    #[serde(borrow, default)]
    session_id: Text<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ServerContent<'a> {
    #[serde(borrow)]
    model_turn: Option<Content<'a>>,
    #[serde(borrow)]
    output_transcription: Option<Transcription<'a>>,
    generation_complete: Option<bool>,
    turn_complete: Option<bool>,
    interrupted: Option<bool>,
    #[serde(borrow, default)]
    turn_complete_reason: Text<'a>,
}

#[derive(Deserialize)]
struct Transcription<'a> {
    #[serde(borrow, default)]
    text: Text<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ToolCall<'a> {
    #[serde(borrow, default)]
    function_calls: List<FunctionCall<'a>>,
}

impl Reader for GeminiLive {
    fn event(&mut self, _: &str, payload: &[u8], sink: Sink<'_>) -> Result<(), Malformed> {
        let message: Message<'_> = parse(payload)?;
        if let Some(setup) = &message.setup_complete
            && !setup.session_id.is_empty()
        {
            sink(Event::Session(&setup.session_id));
        }
        if let Some(content) = &message.server_content {
            self.content(content, sink);
        }
        if let Some(call) = &message.tool_call {
            self.begin(sink);
            for call in call.function_calls.iter() {
                self.parts.call(self.turn, call, sink);
            }
        }
        if let Some(usage) = &message.usage_metadata {
            self.tier.service_tier(sink, &usage.service_tier);
            self.tier.service_tier(sink, &usage.traffic_type);
            emit::usage(sink, usage.usage());
        }
        if let Some(error) = message.error {
            sink(Event::Error(&error_kind(error)));
            self.end("", sink);
        } else if message.tool_call.is_some() {
            self.end("tool_call", sink);
        } else if let Some(content) = &message.server_content
            && content.turn_complete == Some(true)
        {
            self.end(content.reason(), sink);
        }
        Ok(())
    }

    fn body(&mut self, payload: &[u8], sink: Sink<'_>) -> Result<(), Malformed> {
        self.event("", payload, sink)
    }
}

impl ServerContent<'_> {
    fn reason(&self) -> &str {
        match &*self.turn_complete_reason {
            "" => "turn_complete",
            reason => reason,
        }
    }
}

impl GeminiLive {
    fn content(&mut self, content: &ServerContent<'_>, sink: Sink<'_>) {
        if let Some(turn) = &content.model_turn {
            self.begin(sink);
            for part in turn.parts.iter() {
                self.parts.give(self.turn, part, sink);
            }
        }
        if let Some(transcript) = &content.output_transcription
            && !transcript.text.is_empty()
        {
            self.begin(sink);
            let segment = emit::segment(self.turn, TRANSCRIPT, Channel::Answer);
            emit::delta(sink, segment, &transcript.text);
        }
        if content.generation_complete == Some(true) && self.in_turn {
            sink(Event::End);
        }
        if content.interrupted == Some(true) && self.in_turn {
            self.interrupted = true;
        }
    }

    /// Begins a turn where none is under way. One that was interrupted is over by now.
    fn begin(&mut self, sink: Sink<'_>) {
        if self.interrupted {
            self.end("", sink);
        }
        if !self.in_turn {
            self.in_turn = true;
            sink(Event::TurnStarted);
        }
    }

    /// Ends the turn. One that the server answers with nothing is over, too.
    fn end(&mut self, reason: &str, sink: Sink<'_>) {
        let reason = if self.interrupted {
            "interrupted"
        } else {
            reason
        };
        if self.in_turn {
            emit::finish(sink, self.turn, reason);
        }
        sink(Event::TurnEnded);
        self.in_turn = false;
        self.interrupted = false;
        self.turn = self.turn.saturating_add(1);
        self.parts = Parts::default();
    }
}
