//! OpenAI responses, streamed or not. Deltas count. The complete copies in `done` events and in the
//! final response count only if no delta preceded them.

mod socket;

use super::detect::{Detected, Target, behind_deployment};
use super::emit;
use super::event_template::Template;
use super::json::{Count, List, Object, Text, arguments, error_kind, is_word, parse, parse_text};
use super::openai_chat::Timings;
use super::openai_json::{Annotation, TextOrList, is_of_web};
use super::openai_usage::{ResponseIdentity, ResponsesUsage};
use super::socket_protocol::SocketProtocol;
use super::usage_names;
use super::{Malformed, Reader, Registration, Sink};
use serde::Deserialize;
use serde_json::value::RawValue;
use socket::ResponsesSocket;
use std::borrow::Cow;
use tokengauge_core::call::{
    Channel, Dialect, Event, Operation, Segment, ServerTool, UsageDetails,
};

/// Maximum number of texts that are distinguished in one response. Further complete texts count as
/// copies.
const MAX_SEEN: usize = 4096;
/// Maximum number of parts that are distinguished in one output item: content first, then
/// summaries.
const PARTS: u32 = 1024;
/// The index of the first summary.
const SUMMARIES: u32 = 512;

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
    #[serde(borrow)]
    item: Option<&'a RawValue>,
    #[serde(borrow)]
    part: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) response: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) session: Option<&'a RawValue>,
    /// The usage in xAI's Realtime, which is outside of the response.
    #[serde(default)]
    pub(super) usage: Object<Box<ResponsesUsage>>,
    #[serde(borrow, default, deserialize_with = "super::json::error")]
    pub(super) error: Option<&'a RawValue>,
    /// The measurement of llama.cpp, which is outside of the response.
    #[serde(borrow, default)]
    pub(super) timings: Object<Box<Timings<'a>>>,
}

/// A complete response: the body, or the content of the first and last events.
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
    /// OpenRouter's name for the provider.
    #[serde(borrow, default)]
    provider: Text<'a>,
    #[serde(borrow, default)]
    status: Text<'a>,
    #[serde(borrow, default)]
    incomplete_details: Object<Reason<'a>>,
    /// The reason of an incomplete response in the Realtime API.
    #[serde(borrow, default)]
    status_details: Object<Reason<'a>>,
    #[serde(borrow, default)]
    output: List<Object<Item<'a>>>,
    #[serde(default)]
    pub(super) usage: Object<ResponsesUsage>,
    #[serde(borrow, default, deserialize_with = "super::json::error")]
    error: Option<&'a RawValue>,
    /// The code of an error from xAI, whose `error` is a string.
    #[serde(borrow, default)]
    code: Text<'a>,
}

#[derive(Deserialize)]
struct Reason<'a> {
    #[serde(borrow, default)]
    reason: Text<'a>,
    #[serde(borrow, default, deserialize_with = "super::json::error")]
    error: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Item<'a> {
    #[serde(borrow, default)]
    r#type: Text<'a>,
    #[serde(borrow, default)]
    content: TextOrList<'a, Part<'a>>,
    #[serde(borrow, default)]
    summary: List<Part<'a>>,
    /// Name of the called tool.
    #[serde(borrow, default)]
    name: Text<'a>,
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
    r#type: Text<'a>,
    #[serde(borrow, default)]
    text: Text<'a>,
    #[serde(borrow, default)]
    refusal: Text<'a>,
    #[serde(borrow, default)]
    transcript: Text<'a>,
    #[serde(borrow, default)]
    annotations: List<Annotation<'a>>,
}

pub(super) static REGISTRATION: Registration = Registration {
    detect,
    objects: &["response", "response.compaction"],
    has_members: |members| members.r#type.starts_with("response.") && members.response.is_some(),
    template: Some(&Template {
        unread: &["\"sequence_number\":", "\"obfuscation\":"],
        ..Template::PLAIN
    }),
    default_stream: Some(false),
    summarises_reasoning: true,
    socket: Some(&SocketProtocol {
        reader: Some(|| Box::<ResponsesSocket>::default()),
        ..SocketProtocol::RESPONSE_CREATE
    }),
    usage: &[usage_names::RESPONSES],
    ..Registration::new::<Responses>(Dialect::OpenaiResponses)
};

fn detect(target: &Target<'_>) -> Option<Detected> {
    let found = Detected::new(Dialect::OpenaiResponses, Operation::Chat);
    if let (true, [.., "responses"]) = (target.is_socket(), target.path()) {
        return Some(found.stream(true));
    }
    if let Some([.., "responses", _]) = target.get() {
        return Some(Detected::new(Dialect::OpenaiResponses, Operation::Retrieve));
    }
    match target.post()? {
        [prefix @ .., "responses"] | [prefix @ .., "responses", "compact"] => {
            Some(behind_deployment(found, prefix))
        }
        _ => None,
    }
}

/// Reads responses.
#[derive(Default)]
pub struct Responses {
    identity: ResponseIdentity,
    texts: EmittedTexts,
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
        self.identity.provider(&response.provider, sink);
        // A compacted conversation repeats earlier text.
        if &*response.object != "response.compaction" {
            self.texts.copies(0, response, sink);
        }
        response.outcome(0, sink);
    }
}

pub(super) fn response(raw: Option<&RawValue>) -> Result<Response<'_>, Malformed> {
    parse_text(raw.ok_or(Malformed)?.get())
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
    /// Emits usage, status and error.
    pub(super) fn outcome(&self, choice: u32, sink: Sink<'_>) {
        if let Some(usage) = &self.usage.0 {
            usage.give(sink);
        }
        let mut tools = BilledTools::default();
        for item in self.output.iter().filter_map(|item| item.0.as_ref()) {
            tools.add(&item.r#type);
            tools.searched |= item.cites_the_web();
        }
        emit::details(sink, tools.details());
        let nested = self
            .status_details
            .0
            .as_ref()
            .and_then(|details| details.error);
        let error = self.error.or(nested);
        // In errors of gateways, the status is an HTTP status.
        let failed = emit::is_error_status(&self.status);
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
                None if failed && error.is_some() => {}
                None => emit::finish(sink, choice, &self.status),
            }
        }
        match error {
            Some(error) if error.get().starts_with('"') && is_word(&self.code) => {
                sink(Event::Error(&self.code));
            }
            Some(error) => {
                let kind = error_kind(error);
                let is_named = kind != "error" || !failed;
                sink(Event::Error(if is_named { &kind } else { &self.status }));
            }
            None => {}
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct TextKey {
    choice: u32,
    item: u32,
    part: u32,
    channel: Channel,
}

impl TextKey {
    /// Whether both texts belong to the same item and channel.
    fn is_sibling(&self, other: &TextKey) -> bool {
        let parts = |place: &TextKey| (place.choice, place.item, place.channel);
        parts(self) == parts(other)
    }

    fn segment(self) -> Segment {
        Segment {
            choice: self.choice,
            index: self.item.saturating_mul(PARTS).saturating_add(self.part),
            channel: self.channel,
        }
    }
}

/// The texts that were emitted, so that copies do not count again. Some servers number the parts
/// differently in deltas and in complete items. So a complete text counts only if no text was
/// emitted at its position, and only if there are more complete texts than texts with deltas.
#[derive(Default)]
pub(super) struct EmittedTexts {
    seen: Vec<TextKey>,
    /// The length of each text in bytes.
    lengths: Vec<usize>,
    /// Texts that an event completed.
    done: Vec<TextKey>,
    /// Tool calls whose names were emitted.
    named: Vec<TextKey>,
    /// Items whose hosted tools are running.
    running: Vec<u32>,
    /// Items of hosted tools.
    hosted: Vec<u32>,
    billed: BilledTools,
}

impl EmittedTexts {
    /// Reads an event with text or a copy of a text. Returns whether it was one.
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
        self.tool(kind, item, event, sink);
        let place = |(channel, part)| TextKey {
            choice,
            item,
            part,
            channel,
        };
        if let Some(text) = kind.strip_suffix(".delta") {
            if let Some(place) = event.place(text).map(place)
                && !event.delta.is_empty()
            {
                self.give(place, &event.delta, sink);
            }
        } else if let Some(text) = kind.strip_suffix(".done") {
            if text == "output_item" {
                let whole: Object<Item<'_>> = match event.item {
                    Some(raw) => serde_json::from_str(raw.get())?,
                    None => Object(None),
                };
                let items = whole.0.iter().map(|whole| (item, whole));
                self.whole(choice, Some(item), items, sink);
            } else if text == "content_part" {
                let part: Object<Part<'_>> = match event.part {
                    Some(raw) => serde_json::from_str(raw.get())?,
                    None => Object(None),
                };
                if let Some(part) = &part.0 {
                    self.copy(place((part.channel(), event.content())), part.text(), sink);
                }
            } else if let Some(place) = event.place(text).map(place) {
                self.copy(place, &event.complete(), sink);
            }
        } else {
            return Ok(false);
        }
        Ok(true)
    }

    /// Reads an event about a hosted tool. The tool runs from its first event, or from the end of
    /// its arguments, until an event ends its item.
    fn tool(&mut self, event: &str, item: u32, sent: &StreamEvent<'_>, sink: Sink<'_>) {
        const OVER: &[&str] = &["completed", "failed", "incomplete", "cancelled"];
        let Some((of, state)) = event.split_once('.') else {
            return;
        };
        if of == "output_item" {
            let kind = sent.item.map(item_type).unwrap_or_default();
            match &*kind {
                SHELL_CALL if state == "done" => self.runs(SHELL, true, sink),
                SHELL_OUTPUT => {
                    self.bills(item, &kind, sink);
                    self.runs(SHELL, false, sink);
                }
                kind if is_hosted(kind) => {
                    self.bills(item, kind, sink);
                    self.runs(item, state != "done", sink);
                }
                _ => {}
            }
            return;
        }
        let suffixes = ["_arguments", "_code"];
        let call = suffixes.iter().find_map(|suffix| of.strip_suffix(suffix));
        let kind = call.unwrap_or(of);
        if is_hosted(kind) {
            self.bills(item, kind, sink);
            let is_over = call.is_none() && OVER.contains(&state);
            self.runs(item, !is_over, sink);
        }
    }

    /// Records that an item belongs to a hosted tool. The final response may not repeat it.
    fn bills(&mut self, item: u32, kind: &str, sink: Sink<'_>) {
        if !self.hosted.contains(&item) && self.hosted.len() < MAX_SEEN {
            self.hosted.push(item);
            self.billed.add(kind);
            emit::details(sink, self.billed.details());
        }
    }

    /// Records that the tool of an item starts or ends.
    fn runs(&mut self, item: u32, runs: bool, sink: Sink<'_>) {
        let at = self.running.iter().position(|other| *other == item);
        match at {
            None if runs && self.running.len() < MAX_SEEN => {
                self.running.push(item);
                sink(Event::ServerTool(ServerTool::Began));
            }
            Some(at) if !runs => {
                self.running.swap_remove(at);
                sink(Event::ServerTool(ServerTool::Ended));
            }
            _ => {}
        }
    }

    /// Reads the items of a complete response, and emits texts that were not streamed.
    pub(super) fn copies(&mut self, choice: u32, response: &Response<'_>, sink: Sink<'_>) {
        let items = response.output.iter().enumerate();
        let items = items.filter_map(|(at, item)| Some((at as u32, item.0.as_ref()?)));
        self.whole(choice, None, items, sink);
    }

    /// Reads complete items: one or all of a response. In each channel, only texts in excess of the
    /// emitted ones count.
    fn whole<'i>(
        &mut self,
        choice: u32,
        only: Option<u32>,
        items: impl Iterator<Item = (u32, &'i Item<'i>)>,
        sink: Sink<'_>,
    ) {
        let mut texts = Vec::new();
        for (at, item) in items {
            self.name(choice, at, item, sink);
            item.texts(&mut |part, channel, text| {
                let place = TextKey {
                    choice,
                    item: at,
                    part,
                    channel,
                };
                texts.push((place, text.to_owned()));
            });
        }
        let mut missing = [0; 3];
        for (channel, missing) in CHANNELS.iter().zip(&mut missing) {
            let within = |place: &TextKey| {
                place.choice == choice
                    && place.channel == *channel
                    && only.is_none_or(|item| place.item == item)
            };
            let came = self.seen.iter().filter(|place| within(place)).count();
            let sent = texts.iter().filter(|(place, _)| place.channel == *channel);
            // A summary repeats reasoning that was streamed completely.
            let counts = *channel != Channel::Reasoning || came == 0;
            *missing = if counts {
                sent.count().saturating_sub(came)
            } else {
                0
            };
        }
        for (place, text) in texts {
            let missing = &mut missing[place.channel as usize];
            if *missing > 0 && !self.seen.contains(&place) {
                *missing -= 1;
                self.give(place, &text, sink);
            }
        }
    }

    /// Emits the name of a tool call once.
    fn name(&mut self, choice: u32, at: u32, item: &Item<'_>, sink: Sink<'_>) {
        let place = TextKey {
            choice,
            item: at,
            part: 0,
            channel: Channel::ToolCall,
        };
        if item.is_tool_call() && !item.name.is_empty() && note(&mut self.named, place) {
            emit::tool_name(sink, place.segment(), &item.name);
        }
    }

    /// Reads a complete text.
    fn copy(&mut self, place: TextKey, text: &str, sink: Sink<'_>) {
        if text.is_empty() {
            return;
        }
        note(&mut self.done, place);
        let siblings = |of: &[TextKey]| of.iter().filter(|other| place.is_sibling(other)).count();
        // A text with the same length was streamed under another number, so this one is a copy.
        let mut streamed = self.seen.iter().zip(&self.lengths);
        let is_copy =
            streamed.any(|(other, bytes)| place.is_sibling(other) && *bytes == text.len());
        let is_new = siblings(&self.done) > siblings(&self.seen) || !is_copy;
        if is_new && !self.seen.contains(&place) {
            self.give(place, text, sink);
        }
    }

    /// Emits a part of a text, unless there are too many texts.
    fn give(&mut self, place: TextKey, text: &str, sink: Sink<'_>) {
        if note(&mut self.seen, place) {
            self.lengths.push(0);
        }
        let at = self.seen.iter().rposition(|seen| *seen == place);
        if let Some(bytes) = at.and_then(|at| self.lengths.get_mut(at)) {
            *bytes += text.len();
        }
        give(place, text, sink);
    }
}

/// Types of calls that the agent runs. The provider runs all other `…_call` items.
const AGENT_CALLS: &[&str] = &[
    "function_call",
    "custom_tool_call",
    "computer_call",
    "local_shell_call",
    "apply_patch_call",
    // The provider runs the shell only if the output of the shell call is also an item.
    SHELL_CALL,
];
const SHELL_CALL: &str = "shell_call";
const SHELL_OUTPUT: &str = "shell_call_output";

/// Whether an item of this type belongs to a hosted tool.
fn is_hosted(kind: &str) -> bool {
    kind == "mcp_list_tools" || kind.ends_with("_call") && !AGENT_CALLS.contains(&kind)
}

/// Types of hosted tool items that are not billed separately from tokens.
const UNBILLED: &[&str] = &["mcp_call", "mcp_list_tools", "tool_search_call"];

/// Uses of hosted tools that are billed separately from tokens.
#[derive(Default)]
struct BilledTools {
    searches: u64,
    others: u64,
    searched: bool,
}

impl BilledTools {
    fn add(&mut self, kind: &str) {
        match kind {
            "web_search_call" => self.searches += 1,
            SHELL_OUTPUT => self.others += 1,
            kind if is_hosted(kind) && !UNBILLED.contains(&kind) => self.others += 1,
            _ => {}
        }
    }

    fn details(&self) -> UsageDetails {
        UsageDetails {
            searches: (self.searches > 0).then_some(self.searches),
            other_tools: (self.others > 0).then_some(self.others),
            searched: self.searched.then_some(true),
            ..UsageDetails::default()
        }
    }
}

/// Stands for the item of the hosted shell, whose call and output are two items.
const SHELL: u32 = u32::MAX;

fn item_type(item: &RawValue) -> Text<'_> {
    #[derive(Default, Deserialize)]
    struct Typed<'a> {
        #[serde(borrow, default)]
        r#type: Text<'a>,
    }
    parse_text::<Typed<'_>>(item.get())
        .unwrap_or_default()
        .r#type
}

const CHANNELS: [Channel; 3] = [Channel::Answer, Channel::Reasoning, Channel::ToolCall];

/// Records a text. Returns whether it is the first at its position.
fn note(places: &mut Vec<TextKey>, place: TextKey) -> bool {
    let is_known = places.last() == Some(&place) || places.contains(&place);
    if is_known || places.len() >= MAX_SEEN {
        return false;
    }
    places.push(place);
    true
}

impl Part<'_> {
    fn text(&self) -> &str {
        let texts = [&self.text, &self.refusal, &self.transcript];
        let text = texts.into_iter().find(|text| !text.is_empty());
        text.map_or("", |text| text)
    }

    fn channel(&self) -> Channel {
        match &*self.r#type {
            "reasoning_text" | "summary_text" => Channel::Reasoning,
            _ => Channel::Answer,
        }
    }
}

impl Item<'_> {
    fn cites_the_web(&self) -> bool {
        let TextOrList::List(parts) = &self.content else {
            return false;
        };
        parts.iter().any(|part| is_of_web(&part.annotations))
    }

    fn is_tool_call(&self) -> bool {
        matches!(
            &*self.r#type,
            "function_call" | "mcp_call" | "custom_tool_call"
        )
    }

    /// Passes the non-empty texts to `each`, with part and channel.
    fn texts(&self, each: &mut dyn FnMut(u32, Channel, &str)) {
        let mut text = |part: u32, channel: Channel, text: &str| {
            if !text.is_empty() {
                each(part, channel, text);
            }
        };
        match &*self.r#type {
            kind @ ("message" | "reasoning") => {
                let channel = if kind == "message" {
                    Channel::Answer
                } else {
                    Channel::Reasoning
                };
                match &self.content {
                    TextOrList::Text(content) => text(0, channel, content),
                    TextOrList::List(parts) => {
                        for (part, content) in parts.iter().enumerate() {
                            text(part as u32, channel, content.text());
                        }
                    }
                }
                for (part, summary) in self.summary.iter().enumerate() {
                    text(SUMMARIES + part as u32, Channel::Reasoning, &summary.text);
                }
            }
            "function_call" | "mcp_call" => {
                let sent = self.arguments.map_or(Cow::Borrowed(""), arguments);
                text(0, Channel::ToolCall, &sent);
            }
            "custom_tool_call" => text(0, Channel::ToolCall, &self.input),
            "code_interpreter_call" => text(0, Channel::ToolCall, &self.code),
            _ => {}
        }
    }
}

impl StreamEvent<'_> {
    fn content(&self) -> u32 {
        self.content_index.index().unwrap_or(0).min(SUMMARIES - 1)
    }

    /// The channel and the part of the text that an event belongs to, by the middle of the name of
    /// the event. The part only distinguishes texts, because some servers number deltas and items
    /// differently.
    fn place(&self, text: &str) -> Option<(Channel, u32)> {
        let content = || self.content();
        let summary = || SUMMARIES + self.summary_index.index().unwrap_or(0).min(SUMMARIES - 1);
        match text {
            "output_text" | "text" | "refusal" => Some((Channel::Answer, content())),
            "output_audio_transcript"
            | "output_audio.transcript"
            | "audio_transcript"
            | "audio.transcript" => Some((Channel::Answer, content())),
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

fn give(place: TextKey, text: &str, sink: Sink<'_>) {
    let segment = place.segment();
    sink(Event::Delta { segment, text });
}
