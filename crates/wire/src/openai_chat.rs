//! OpenAI chat completions and compatible APIs, streamed or not: Azure, Groq, Mistral, DeepSeek,
//! OpenRouter, vLLM, llama.cpp and others.

use super::detect::{Detected, GoogleMethod, Target, behind_deployment};
use super::emit::{self, segment, truncated};
use super::event_template::{Template, range_in};
use super::find::MESSAGE;
use super::json::{Count, List, Object, Text, arguments, error_kind, parse};
use super::members::Members;
use super::openai_json::{Annotation, TextOrList, is_of_web};
use super::openai_usage::{CHAT_COUNTS, ChatUsage, ResponseIdentity};
use super::{Malformed, Reader, Registration, Sink};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::ops::Range;
use tokengauge_core::call::{
    Channel, Dialect, EngineReport, Event, Operation, Segment, ServerTool,
};

/// Maximum number of tool calls that are distinguished in one response. Further calls continue the
/// last.
const MAX_CALLS: usize = 1024;
const MAX_CHOICES: usize = 1024;

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
    #[serde(default)]
    x_groq: Object<Box<Groq>>,
    #[serde(borrow, default)]
    timings: Object<Box<Timings<'a>>>,
    #[serde(borrow, default, deserialize_with = "super::json::error")]
    error: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Groq {
    #[serde(default)]
    usage: Object<ChatUsage>,
}

impl Function<'_> {
    fn text(&self) -> Cow<'_, str> {
        self.arguments.map_or(Cow::Borrowed(""), arguments)
    }
}

/// llama.cpp's own measurement, in milliseconds.
#[derive(Deserialize)]
pub(super) struct Timings<'a> {
    #[serde(default)]
    prompt_n: Count,
    #[serde(borrow)]
    prompt_ms: Option<&'a RawValue>,
    #[serde(default)]
    predicted_n: Count,
    #[serde(borrow)]
    predicted_ms: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Choice<'a> {
    #[serde(default)]
    index: Count,
    #[serde(borrow, default)]
    delta: Object<Message<'a>>,
    #[serde(borrow, default)]
    message: Object<Box<Message<'a>>>,
    #[serde(borrow, default)]
    text: Text<'a>,
    #[serde(borrow, default, deserialize_with = "super::json::reason")]
    finish_reason: Text<'a>,
    /// The finish reason in Mistral on Bedrock. In vLLM, the text that ended the generation, in
    /// addition to a reason.
    #[serde(borrow, default)]
    stop_reason: Text<'a>,
    /// The error of a provider in the middle of a response (OpenRouter).
    #[serde(borrow, default, deserialize_with = "super::json::error")]
    error: Option<&'a RawValue>,
    /// The usage in Moonshot's Kimi.
    #[serde(default)]
    usage: Object<Box<ChatUsage>>,
}

impl Choice<'_> {
    fn reason(&self) -> &str {
        match &*self.finish_reason {
            "" => &self.stop_reason,
            reason => reason,
        }
    }

    fn failure(&self) -> Option<&RawValue> {
        let of_delta = || self.delta.0.as_ref()?.error;
        let of_message = || self.message.0.as_ref()?.error;
        self.error.or_else(of_delta).or_else(of_message)
    }
}

#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow, default)]
    content: TextOrList<'a, Part<'a>>,
    #[serde(borrow, default)]
    refusal: Text<'a>,
    #[serde(borrow, default)]
    audio: Object<Box<Audio<'a>>>,
    #[serde(borrow, default)]
    reasoning_content: Text<'a>,
    #[serde(borrow, default)]
    reasoning: Text<'a>,
    #[serde(borrow, default)]
    reasoning_details: List<Detail<'a>>,
    #[serde(borrow, default)]
    tool_calls: List<ToolCall<'a>>,
    #[serde(borrow, default)]
    function_call: Object<Box<Function<'a>>>,
    #[serde(borrow, default, deserialize_with = "super::json::error")]
    error: Option<&'a RawValue>,
    /// The hosted tools of Groq.
    #[serde(borrow, default)]
    executed_tools: List<ExecutedTool<'a>>,
    #[serde(borrow, default)]
    annotations: List<Annotation<'a>>,
}

/// A hosted tool. Its output is empty while it runs.
#[derive(Deserialize)]
struct ExecutedTool<'a> {
    #[serde(borrow, default)]
    output: Text<'a>,
}

#[derive(Deserialize)]
struct Audio<'a> {
    #[serde(borrow, default)]
    transcript: Text<'a>,
}

/// A part of Mistral's content: text, or thinking that consists of text parts.
#[derive(Deserialize)]
struct Part<'a> {
    #[serde(borrow, default)]
    text: Text<'a>,
    #[serde(borrow, default)]
    thinking: TextOrList<'a, ThinkingPart<'a>>,
}

#[derive(Deserialize)]
struct ThinkingPart<'a> {
    #[serde(borrow, default)]
    text: Text<'a>,
}

#[derive(Deserialize)]
struct Detail<'a> {
    #[serde(borrow, default)]
    text: Text<'a>,
    #[serde(borrow, default)]
    summary: Text<'a>,
}

#[derive(Deserialize)]
struct ToolCall<'a> {
    #[serde(default)]
    index: Count,
    #[serde(borrow, default)]
    id: Text<'a>,
    #[serde(borrow, default)]
    function: Object<Function<'a>>,
    #[serde(borrow, default)]
    custom: Object<Custom<'a>>,
}

#[derive(Deserialize)]
struct Function<'a> {
    #[serde(borrow, default)]
    name: Text<'a>,
    #[serde(borrow)]
    arguments: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Custom<'a> {
    #[serde(borrow, default)]
    name: Text<'a>,
    #[serde(borrow, default)]
    input: Text<'a>,
}

pub(super) static REGISTRATION: Registration = Registration {
    detect,
    objects: &["chat.completion", "chat.completion.chunk"],
    has_members,
    template: Some(&Template {
        unread: &[
            "\"obfuscation\":",
            "\"created\":",
            "\"token_id\":",
            "\"p\":",
            "\"logprobs\":",
        ],
        // Together sends an answer in two members, OpenRouter and vLLM send reasoning in two.
        copies: &["\"text\":", "\"reasoning\":", "\"reasoning_content\":"],
        unread_beside: text_so_far,
        counts: Some(CHAT_COUNTS),
        ..Template::PLAIN
    }),
    default_stream: Some(false),
    takes_usage_option: true,
    ..Registration::new::<Chat>(Dialect::OpenaiChat)
};

fn detect(target: &Target<'_>) -> Option<Detected> {
    if let Some([.., "chat", "completions", _]) = target.get() {
        return Some(Detected::new(Dialect::OpenaiChat, Operation::Retrieve));
    }
    let found = Detected::new(Dialect::OpenaiChat, Operation::Chat);
    let path = target.post()?;
    if let [prefix @ .., "chat", "completions"] = path {
        return Some(behind_deployment(found, prefix));
    }
    // Vertex serves models of publishers other than Google and Anthropic in this format.
    let google = GoogleMethod::of(path).filter(|it| it.publisher != Some("anthropic"))?;
    Some(found.model(google.model).stream(google.raw_stream()?))
}

/// Finds the text of `message` in an event with one choice whose `text` is in its `delta`.
/// Perplexity repeats the whole answer so far there with every delta. [`Chat::choice`] ignores it
/// if the delta has a text.
fn text_so_far(payload: &[u8], text: &Range<usize>) -> Option<Range<usize>> {
    #[derive(Deserialize)]
    struct Chunk<'a> {
        #[serde(borrow)]
        choices: [Choice<'a>; 1],
    }
    #[derive(Deserialize)]
    struct Choice<'a> {
        #[serde(borrow)]
        delta: &'a RawValue,
        #[serde(borrow)]
        message: Message<'a>,
    }
    #[derive(Deserialize)]
    struct Message<'a> {
        #[serde(borrow)]
        content: &'a RawValue,
    }
    MESSAGE.find(payload)?;
    let [choice] = serde_json::from_slice::<Chunk<'_>>(payload).ok()?.choices;
    let delta = range_in(payload, choice.delta.get())?;
    let content = choice.message.content.get();
    let is_beside = delta.start < text.start && text.end < delta.end && content.starts_with('"');
    range_in(payload, content).filter(|_| is_beside)
}

fn has_members(members: &Members<'_>) -> bool {
    match members.choices() {
        Some([]) => members.prompt_filter_results.is_some(),
        Some([choice, ..]) => choice.delta.is_some() || choice.message.is_some(),
        None => false,
    }
}

/// Reads chat completions.
#[derive(Default)]
pub struct Chat {
    identity: ResponseIdentity,
    choices: Vec<ChoiceState>,
    calls: Vec<OpenToolCall>,
    /// Whether a body that is not streamed is being read.
    whole: bool,
}

#[derive(Clone, Default)]
struct ChoiceState {
    reasoning: Option<ReasoningField>,
    beginning: Beginning,
    streamed: bool,
}

/// The field from which the reasoning of a choice is read. Servers often send the same text in two.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ReasoningField {
    Content,
    Plain,
    Details,
}

struct OpenToolCall {
    choice: u32,
    index: Option<u32>,
    id: String,
    name: String,
    arguments: ArgumentsEnd,
}

/// The beginning of a text, by which a copy of the whole text is recognised. The reader always sees
/// the first two chunks of a text, but the event cache may handle later ones.
#[derive(Clone, Default)]
struct Beginning {
    /// The first two chunks, truncated to the length that is kept.
    text: String,
    /// The number of these two chunks that arrived.
    pieces: u8,
    /// The number of bytes in all chunks that the reader saw.
    bytes: usize,
    is_copied: bool,
}

impl Beginning {
    fn note(&mut self, text: &str) {
        if self.pieces < 2 && self.text.len() == self.bytes {
            self.text.push_str(truncated(text));
        }
        self.pieces = (self.pieces + 1).min(2);
        self.bytes = self.bytes.saturating_add(text.len());
    }

    /// Whether `text` from another field is a copy of everything so far.
    fn is_repeated_by(&mut self, text: &str) -> bool {
        let is_whole = match self.pieces {
            0 => false,
            // A second repetition of a single chunk is new text.
            1 => text.len() == self.bytes && !self.is_copied,
            _ => text.len() >= self.bytes,
        };
        let is_copy = is_whole && text.starts_with(&self.text);
        self.is_copied |= is_copy;
        is_copy
    }

    /// The text that was mistaken for a copy of the first chunk, although it was the second chunk.
    fn second(&self) -> Option<String> {
        let is_second = self.is_copied && self.pieces == 1 && self.text.len() == self.bytes;
        is_second.then(|| self.text.clone())
    }
}

/// Finds the end of arguments that arrive in several chunks.
#[derive(Default)]
struct ArgumentsEnd {
    depth: u32,
    in_string: bool,
    escaped: bool,
    ended: bool,
}

impl ArgumentsEnd {
    fn push(&mut self, text: &str) {
        for byte in text.bytes() {
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' if self.in_string => self.escaped = true,
                b'"' => self.in_string = !self.in_string,
                b'{' if !self.in_string => self.depth += 1,
                b'}' if !self.in_string => {
                    self.depth = self.depth.saturating_sub(1);
                    self.ended |= self.depth == 0;
                }
                _ => {}
            }
        }
    }
}

impl Reader for Chat {
    fn event(&mut self, _: &str, payload: &[u8], sink: Sink<'_>) -> Result<(), Malformed> {
        self.chunk(&parse(payload)?, sink);
        Ok(())
    }

    fn body(&mut self, payload: &[u8], sink: Sink<'_>) -> Result<(), Malformed> {
        self.whole = true;
        self.event("", payload, sink)
    }
}

impl Chat {
    fn chunk(&mut self, chunk: &Chunk<'_>, sink: Sink<'_>) {
        self.identity.note(&chunk.id, &chunk.model, sink);
        self.identity.service_tier(&chunk.service_tier, sink);
        self.identity.provider(&chunk.provider, sink);
        for (position, choice) in chunk.choices.iter().enumerate() {
            self.choice(position, choice, sink);
        }
        let groq = chunk
            .x_groq
            .0
            .as_ref()
            .and_then(|groq| groq.usage.0.as_ref());
        let of_choices = chunk.choices.iter().filter_map(|it| it.usage.0.as_deref());
        let usages = of_choices.chain(groq).chain(chunk.usage.0.as_deref());
        for usage in usages {
            usage.give(sink);
        }
        if let Some(timings) = &chunk.timings.0 {
            sink(Event::Engine(timings.report()));
        }
        let of_choices = chunk.choices.iter().filter_map(Choice::failure);
        if let Some(error) = chunk.error.into_iter().chain(of_choices).next() {
            sink(Event::Error(&error_kind(error)));
        }
    }

    fn choice(&mut self, position: usize, choice: &Choice<'_>, sink: Sink<'_>) {
        let index = choice
            .index
            .0
            .and_then(|index| u32::try_from(index).ok())
            .unwrap_or(position as u32);
        if index as usize >= MAX_CHOICES {
            return;
        }
        if self.choices.len() <= index as usize {
            // Most responses have one choice.
            let more = index as usize + 1 - self.choices.len();
            self.choices.reserve_exact(more);
            self.choices
                .resize(index as usize + 1, ChoiceState::default());
        }
        let streamed = self.choices[index as usize].streamed;
        match (&choice.delta.0, &choice.message.0) {
            (Some(delta), message) => {
                let any = self.message(index, delta, sink);
                self.choices[index as usize].streamed |= any;
                // Perplexity sends an empty delta together with a message that has the whole text.
                // In a stream, this is known only at the end.
                let last = self.whole || !choice.reason().is_empty();
                if let Some(message) = message.as_ref().filter(|_| last && !any && !streamed) {
                    self.message(index, message, sink);
                }
            }
            // A cumulative copy in addition to deltas, or the only text.
            (None, Some(message)) if !streamed => {
                self.message(index, message, sink);
            }
            (None, Some(_)) => {}
            (None, None) => {
                give(segment(index, 0, Channel::Answer), &choice.text, sink);
            }
        }
        emit::finish(sink, index, choice.reason());
    }

    /// Emits the texts of a delta or a message. Returns whether there were any.
    fn message(&mut self, choice: u32, message: &Message<'_>, sink: Sink<'_>) -> bool {
        let mut any = self.reasoning(choice, message, sink);
        let answer = |index| segment(choice, index, Channel::Answer);
        match &message.content {
            TextOrList::Text(text) => any |= give(answer(0), text, sink),
            TextOrList::List(parts) => {
                for part in parts.iter() {
                    any |= give(answer(0), &part.text, sink);
                    any |= thinking(choice, &part.thinking, sink);
                }
            }
        }
        any |= give(answer(1), &message.refusal, sink);
        if let Some(audio) = &message.audio.0 {
            any |= give(answer(2), &audio.transcript, sink);
        }
        for call in message.tool_calls.iter() {
            any |= self.tool_call(choice, call, sink);
        }
        if let Some(function) = &message.function_call.0 {
            let segment = segment(choice, 0, Channel::ToolCall);
            emit::tool_name(sink, segment, &function.name);
            any |= give(segment, &function.text(), sink);
        }
        hosted_tools(message, sink);
        any
    }

    fn reasoning(&mut self, choice: u32, message: &Message<'_>, sink: Sink<'_>) -> bool {
        let has_details = || {
            message
                .reasoning_details
                .iter()
                .any(|d| !d.text.is_empty() || !d.summary.is_empty())
        };
        let found = if !message.reasoning_content.is_empty() {
            ReasoningField::Content
        } else if !message.reasoning.is_empty() {
            ReasoningField::Plain
        } else if has_details() {
            ReasoningField::Details
        } else {
            return false;
        };
        let texts = |field| -> Vec<&str> {
            let details = message.reasoning_details.iter();
            let texts: Vec<&str> = match field {
                ReasoningField::Content => vec![&message.reasoning_content],
                ReasoningField::Plain => vec![&message.reasoning],
                ReasoningField::Details => details.flat_map(|d| [&*d.text, &*d.summary]).collect(),
            };
            texts.into_iter().filter(|text| !text.is_empty()).collect()
        };
        let state = &mut self.choices[choice as usize];
        let mut second = None;
        let mut new = texts(*state.reasoning.get_or_insert(found));
        if new.is_empty() {
            // The rest arrives in another field, unless that field repeats everything so far.
            new = texts(found);
            if state.beginning.is_repeated_by(&new.concat()) {
                return false;
            }
            state.reasoning = Some(found);
            second = state.beginning.second();
        }
        let segment = segment(choice, 0, Channel::Reasoning);
        for text in second.as_deref().into_iter().chain(new.iter().copied()) {
            state.beginning.note(text);
            give(segment, text, sink);
        }
        !new.is_empty()
    }

    fn tool_call(&mut self, choice: u32, call: &ToolCall<'_>, sink: Sink<'_>) -> bool {
        let function = call.function.0.as_ref();
        let text = function.map_or(Cow::Borrowed(""), Function::text);
        let sent = SentCall {
            index: call.index.index(),
            id: truncated(&call.id),
            name: function.map_or("", |function| truncated(&function.name)),
            arguments: &text,
        };
        let index = self.call_index(choice, &sent);
        let segment = segment(choice, index, Channel::ToolCall);
        let mut any = false;
        if let Some(function) = function {
            emit::tool_name(sink, segment, &function.name);
            any |= give(segment, &text, sink);
        }
        if let Some(custom) = &call.custom.0 {
            emit::tool_name(sink, segment, &custom.name);
            any |= give(segment, &custom.input, sink);
        }
        any
    }

    /// The call that a delta continues. Mistral sends no index. Alibaba sends an empty id on later
    /// deltas. Some servers send index 0 for every call, with a new id and name. Others send
    /// neither index nor id.
    fn call_index(&mut self, choice: u32, sent: &SentCall<'_>) -> u32 {
        let known = self.calls.iter().rposition(|call| {
            call.choice == choice
                && match sent.index {
                    Some(_) => call.index == sent.index,
                    None => sent.id.is_empty() || call.id == sent.id,
                }
        });
        let at = known
            .filter(|at| sent.continues(&self.calls[*at]))
            .unwrap_or_else(|| {
                if self.calls.len() < MAX_CALLS {
                    self.calls.push(OpenToolCall {
                        choice,
                        index: sent.index,
                        id: sent.id.to_owned(),
                        name: String::new(),
                        arguments: ArgumentsEnd::default(),
                    });
                }
                self.calls.len() - 1
            });
        let call = &mut self.calls[at];
        if call.name.is_empty() {
            call.name.push_str(sent.name);
        }
        call.arguments.push(sent.arguments);
        at as u32 + 1
    }
}

/// Emits the hosted tools in a message. Their time and price do not belong to the model.
fn hosted_tools(message: &Message<'_>, sink: Sink<'_>) {
    if is_of_web(&message.annotations) {
        emit::searched(sink);
    }
    for tool in message.executed_tools.iter() {
        emit::billed_tool(sink);
        sink(Event::ServerTool(match &*tool.output {
            "" => ServerTool::Began,
            _ => ServerTool::Ended,
        }));
    }
}

struct SentCall<'a> {
    index: Option<u32>,
    id: &'a str,
    name: &'a str,
    arguments: &'a str,
}

impl SentCall<'_> {
    /// Whether the delta continues `call`, which has the same index or id.
    fn continues(&self, call: &OpenToolCall) -> bool {
        if self.name.is_empty() {
            return true;
        }
        if !self.id.is_empty() && !call.id.is_empty() {
            return self.id == call.id;
        }
        // Some servers repeat the name in every delta. Another name starts another call, and so do
        // arguments that begin after the arguments of this call have ended.
        let same_name = call.name.is_empty() || call.name == self.name;
        let is_rest = !call.arguments.ended || self.arguments.trim_start().is_empty();
        same_name && is_rest
    }
}

impl Timings<'_> {
    pub(super) fn report(&self) -> EngineReport {
        EngineReport {
            prompt_tokens: self.prompt_n.0,
            prompt_seconds: seconds(self.prompt_ms),
            output_tokens: self.predicted_n.0,
            output_seconds: seconds(self.predicted_ms),
            ..EngineReport::default()
        }
    }
}

fn seconds(milliseconds: Option<&RawValue>) -> Option<f64> {
    let number: f64 = milliseconds?.get().parse().ok()?;
    Some(number / 1e3)
}

fn thinking(choice: u32, thinking: &TextOrList<'_, ThinkingPart<'_>>, sink: Sink<'_>) -> bool {
    let segment = segment(choice, 0, Channel::Reasoning);
    match thinking {
        TextOrList::Text(text) => give(segment, text, sink),
        TextOrList::List(thoughts) => thoughts.iter().fold(false, |any, thought| {
            give(segment, &thought.text, sink) | any
        }),
    }
}

/// Emits a part of a text unless it is empty. Returns whether it was emitted.
fn give(segment: Segment, text: &str, sink: Sink<'_>) -> bool {
    if text.is_empty() {
        return false;
    }
    sink(Event::Delta { segment, text });
    true
}
