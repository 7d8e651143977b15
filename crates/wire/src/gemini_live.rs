//! Gemini Live over WebSocket: the messages of the server. Each turn of the model, and each turn
//! between calls of tools, counts as a choice.

use super::detect::Detected;
use super::gemini::{Content, FunctionCall, Grounding, PartState, UsageMetadata, specified};
use super::json::{List, Object, Text, error_kind, parse};
use super::registration::{BeyondText, OverruledBy};
use super::socket_protocol::{SocketProtocol, SocketRequest};
use super::usage_names;
use super::{Malformed, Reader, Registration, Sink, emit};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokengauge_core::call::{Channel, Dialect, Event, Operation};

/// The index of the first segment of transcripts, after the segments of the parts.
const TRANSCRIPT: u32 = 1 << 20;

pub(super) static REGISTRATION: Registration = Registration {
    detect: |target| {
        let found = Detected::new(Dialect::GeminiLive, Operation::Realtime).stream(true);
        is_gemini_live(target.path().last()?).then_some(found)
    },
    // The usage has the same members as Gemini over HTTP.
    overruled_by: OverruledBy::None,
    request_in_body: false,
    needs_model: false,
    beyond_text: BeyondText::Mixed,
    socket: Some(&SocketProtocol {
        reader: None,
        read_request,
        long_requests: &[b"turnComplete\":true", b"turn_complete\":true"],
    }),
    usage: &[usage_names::GEMINI],
    ..Registration::new::<GeminiLive>(Dialect::GeminiLive)
};

/// Whether the last path segment is the method of Gemini Live. On Vertex it is the whole segment,
/// otherwise it follows a dot. Methods with `Constrained` take short-lived tokens.
pub fn is_gemini_live(last: &str) -> bool {
    let method = last.rsplit('.').next().unwrap_or(last);
    matches!(
        method,
        "BidiGenerateContent" | "BidiGenerateContentConstrained"
    )
}

/// Classifies a message of the agent. SDKs write some members in snake case.
fn read_request(payload: &[u8]) -> Option<SocketRequest<'_>> {
    #[derive(Deserialize)]
    struct Message<'a> {
        #[serde(borrow)]
        setup: Option<&'a RawValue>,
        #[serde(rename = "clientContent", alias = "client_content")]
        client_content: Option<ClientContent>,
        #[serde(borrow, rename = "toolResponse", alias = "tool_response")]
        tool_response: Option<&'a RawValue>,
        #[serde(borrow, rename = "realtimeInput", alias = "realtime_input")]
        realtime_input: Option<RealtimeInput<'a>>,
    }
    #[derive(Deserialize)]
    struct ClientContent {
        #[serde(rename = "turnComplete", alias = "turn_complete")]
        turn_complete: Option<bool>,
    }
    #[derive(Deserialize)]
    struct RealtimeInput<'a> {
        #[serde(borrow)]
        text: Option<&'a RawValue>,
        #[serde(borrow, rename = "activityEnd", alias = "activity_end")]
        activity_end: Option<&'a RawValue>,
        #[serde(borrow, rename = "audioStreamEnd", alias = "audio_stream_end")]
        audio_stream_end: Option<&'a RawValue>,
    }
    let message: Message<'_> = serde_json::from_slice(payload).ok()?;
    if let Some(setup) = message.setup {
        return Some(SocketRequest::Setup(setup.get().as_bytes()));
    }
    let complete = message.client_content.and_then(|it| it.turn_complete);
    if complete == Some(true) || message.tool_response.is_some() {
        return Some(SocketRequest::Response(payload));
    }
    let input = message.realtime_input?;
    let ends = [input.text, input.activity_end, input.audio_stream_end];
    let ends = ends.iter().any(Option::is_some);
    ends.then_some(SocketRequest::PossibleResponse)
}

/// Reads Gemini Live.
#[derive(Default)]
pub struct GeminiLive {
    tier: emit::RepeatedName,
    parts: PartState,
    turn: u32,
    in_turn: bool,
    interrupted: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Message<'a> {
    #[serde(borrow, default, deserialize_with = "super::json::object")]
    setup_complete: Option<SetupComplete<'a>>,
    #[serde(borrow, default, deserialize_with = "super::json::object")]
    server_content: Option<ServerContent<'a>>,
    #[serde(borrow, default, deserialize_with = "super::json::object")]
    tool_call: Option<ToolCall<'a>>,
    #[serde(borrow, default, deserialize_with = "super::json::object")]
    usage_metadata: Option<UsageMetadata<'a>>,
    #[serde(borrow, default, deserialize_with = "super::json::error")]
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
    #[serde(borrow, default, deserialize_with = "super::json::object")]
    model_turn: Option<Content<'a>>,
    #[serde(borrow, default, deserialize_with = "super::json::object")]
    output_transcription: Option<Transcription<'a>>,
    generation_complete: Option<bool>,
    turn_complete: Option<bool>,
    interrupted: Option<bool>,
    #[serde(borrow, default)]
    turn_complete_reason: Text<'a>,
    #[serde(default)]
    grounding_metadata: Object<Grounding>,
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
}

impl ServerContent<'_> {
    fn reason(&self) -> &str {
        match specified(&self.turn_complete_reason) {
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
        if let Some(grounding) = &content.grounding_metadata.0 {
            emit::details(sink, grounding.details());
        }
        if content.generation_complete == Some(true) && self.in_turn {
            sink(Event::End);
        }
        if content.interrupted == Some(true) && self.in_turn {
            self.interrupted = true;
        }
    }

    /// Begins a turn unless one is in progress. An interrupted turn has ended.
    fn begin(&mut self, sink: Sink<'_>) {
        if self.interrupted {
            self.end("", sink);
        }
        if !self.in_turn {
            self.in_turn = true;
            sink(Event::TurnStarted);
        }
    }

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
        self.parts = PartState::default();
    }
}
