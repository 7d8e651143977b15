//! Gemini `generateContent` and `streamGenerateContent`.
//!
//! Every message, streamed or not, has the same format: candidates with parts, and the usage so
//! far. There is no terminator: a finish reason marks the end. Code Assist, which Gemini CLI uses,
//! wraps messages in `response`.

use super::detect::{Detected, GoogleMethod, Target};
use super::emit::{self, RepeatedName};
use super::event_template::{CountFields, CountLiterals, Counts, Template};
use super::json::{Count, List, Object, Text, compact, error_kind, parse, parse_list};
use super::own_error::OwnError;
use super::usage_names;
use super::{Malformed, Reader, Registration, Sink};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokengauge_core::call::{
    Channel, Dialect, Event, Operation, PROMPT_BLOCKED, Segment, ServerTool, Usage, UsageDetails,
};

const MAX_CANDIDATES: usize = 128;

pub(super) static REGISTRATION: Registration = Registration {
    detect,
    has_members: |members| members.candidates.is_some() || members.usage_metadata.is_some(),
    array_is_stream: true,
    template: Some(&Template {
        unread: &["\"totalTokenCount\":", "\"tokenCount\":"],
        counts: Some(CountFields {
            literals: count_literals,
            usage,
        }),
        ..Template::PLAIN
    }),
    model_in_path: true,
    error_body,
    summarises_reasoning: true,
    usage: &[usage_names::GEMINI],
    ..Registration::new::<Gemini>(Dialect::Gemini)
};

fn detect(target: &Target<'_>) -> Option<Detected> {
    let method = GoogleMethod::of(target.post()?)?;
    let stream = match method.verb {
        "generateContent" => false,
        "streamGenerateContent" => true,
        _ => return None,
    };
    let found = Detected::new(Dialect::Gemini, Operation::GenerateContent).stream(stream);
    Some(match method.model {
        // In Code Assist, the request body names the model.
        "v1internal" => found,
        model => found.model(model),
    })
}

pub(super) fn error_body(error: &OwnError<'_>) -> Value {
    let status = match error.status.as_u16() {
        401 => "UNAUTHENTICATED",
        403 => "PERMISSION_DENIED",
        404 => "NOT_FOUND",
        429 => "RESOURCE_EXHAUSTED",
        502 | 503 => "UNAVAILABLE",
        504 => "DEADLINE_EXCEEDED",
        400..500 => "INVALID_ARGUMENT",
        _ => "INTERNAL",
    };
    json!({
        "error": {"code": error.status.as_u16(), "message": error.message, "status": status},
    })
}

/// Reads Gemini in any of its three framings.
#[derive(Default)]
pub struct Gemini {
    model: RepeatedName,
    id: RepeatedName,
    tier: RepeatedName,
    candidates: Vec<(u32, PartState)>,
    ended: bool,
}

impl Reader for Gemini {
    fn event(&mut self, _: &str, payload: &[u8], sink: Sink<'_>) -> Result<(), Malformed> {
        let chunk: Chunk<'_> = parse(payload)?;
        if self.give(&chunk, sink) && !self.ended {
            self.ended = true;
            sink(Event::End);
        }
        Ok(())
    }

    fn body(&mut self, payload: &[u8], sink: Sink<'_>) -> Result<(), Malformed> {
        if payload.trim_ascii_start().starts_with(b"[") {
            for chunk in parse_list::<Chunk<'_>>(payload)? {
                self.give(&chunk, sink);
            }
            return Ok(());
        }
        let chunk: Chunk<'_> = parse(payload)?;
        self.give(&chunk, sink);
        Ok(())
    }
}

impl Gemini {
    /// Emits the content of a chunk. Returns whether it ends the response.
    fn give(&mut self, chunk: &Chunk<'_>, sink: Sink<'_>) -> bool {
        if let Some(error) = chunk.error {
            sink(Event::Error(&error_kind(error)));
        }
        self.id.response_id(sink, &chunk.response_id);
        self.model.model(sink, &chunk.model_version);
        let mut ended = match &chunk.response.0 {
            Some(response) => self.give(response, sink),
            None => false,
        };
        for candidate in chunk.candidates.iter() {
            let choice = candidate.index.index().unwrap_or(0);
            self.candidate(choice, candidate, sink);
            let reason = specified(&candidate.finish_reason);
            emit::finish(sink, choice, reason);
            if let Some(grounding) = &candidate.grounding_metadata.0 {
                emit::details(sink, grounding.details());
            }
            ended |= !reason.is_empty();
        }
        if let Some(feedback) = &chunk.prompt_feedback {
            let reason = specified(&feedback.block_reason);
            emit::finish(sink, 0, reason);
            if !reason.is_empty() {
                sink(Event::Error(PROMPT_BLOCKED));
                ended = true;
            }
        }
        if let Some(usage) = &chunk.usage_metadata {
            self.tier.service_tier(sink, &usage.service_tier);
            self.tier.service_tier(sink, &usage.traffic_type);
            emit::usage(sink, usage.usage());
        }
        ended
    }

    fn candidate(&mut self, choice: u32, candidate: &Candidate<'_>, sink: Sink<'_>) {
        let Some(content) = &candidate.content else {
            return;
        };
        if let Some(parts) = self.parts(choice) {
            for part in content.parts.iter() {
                parts.give(choice, part, sink);
            }
        }
    }

    fn parts(&mut self, choice: u32) -> Option<&mut PartState> {
        let known = self.candidates.iter().position(|(of, _)| *of == choice);
        let at = match known {
            Some(at) => at,
            None if self.candidates.len() < MAX_CANDIDATES => {
                self.candidates.push((choice, PartState::default()));
                self.candidates.len() - 1
            }
            None => return None,
        };
        self.candidates.get_mut(at).map(|(_, parts)| parts)
    }
}

/// The position within the parts of one candidate. Consecutive text parts are one text, even across
/// chunks. A part of another kind starts a new text.
#[derive(Default)]
pub(super) struct PartState {
    next: u32,
    run: Option<(Channel, u32)>,
    call: Option<u32>,
}

impl PartState {
    pub(super) fn give(&mut self, choice: u32, part: &Part<'_>, sink: Sink<'_>) {
        if let Some(call) = &part.function_call {
            self.call(choice, call, sink);
        } else if let Some(code) = &part.executable_code {
            let index = self.begin();
            emit::delta(sink, arguments(choice, index), &code.code);
            sink(Event::ServerTool(ServerTool::Began));
        } else if part.tool_call.is_some() {
            sink(Event::ServerTool(ServerTool::Began));
            self.run = None;
        } else if part.code_execution_result.is_some() || part.tool_response.is_some() {
            sink(Event::ServerTool(ServerTool::Ended));
            self.run = None;
        } else if part.inline_data.is_some() {
            self.run = None;
        } else if !part.text.is_empty() {
            let channel = match part.thought {
                Some(true) => Channel::Reasoning,
                _ => Channel::Answer,
            };
            let index = self.text(channel);
            emit::delta(sink, emit::segment(choice, index, channel), &part.text);
        }
    }

    fn text(&mut self, channel: Channel) -> u32 {
        match self.run {
            Some((same, index)) if same == channel => index,
            _ => {
                let index = self.begin();
                self.run = Some((channel, index));
                index
            }
        }
    }

    fn begin(&mut self) -> u32 {
        self.run = None;
        self.next += 1;
        self.next - 1
    }

    /// Reads a call. Arguments arrive as one object or, on Vertex, value by value with paths. Only
    /// the values count as text then.
    pub(super) fn call(&mut self, choice: u32, call: &FunctionCall<'_>, sink: Sink<'_>) {
        let index = match self.call.take() {
            Some(open) if call.name.is_empty() => open,
            _ => self.begin(),
        };
        if call.will_continue == Some(true) {
            self.call = Some(index);
        }
        let segment = arguments(choice, index);
        emit::tool_name(sink, segment, &call.name);
        if let Some(args) = call.args {
            emit::delta(sink, segment, &compact(args));
        }
        for partial in call.partial_args.iter() {
            emit::delta(sink, segment, &partial.string_value);
            for value in [partial.number_value, partial.bool_value] {
                emit::delta(sink, segment, value.map_or("", RawValue::get));
            }
        }
    }
}

/// A word of an enumeration. Empty for the first value of an enumeration, which means unspecified.
pub(super) fn specified(word: &str) -> &str {
    if word == "0" || word.ends_with("_UNSPECIFIED") {
        return "";
    }
    word
}

fn arguments(choice: u32, index: u32) -> Segment {
    emit::segment(choice, index, Channel::ToolCall)
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Chunk<'a> {
    #[serde(borrow, default)]
    candidates: List<Candidate<'a>>,
    #[serde(borrow, default, deserialize_with = "super::json::object")]
    usage_metadata: Option<UsageMetadata<'a>>,
    #[serde(borrow, default)]
    model_version: Text<'a>,
    #[serde(borrow, default)]
    response_id: Text<'a>,
    #[serde(borrow, default, deserialize_with = "super::json::object")]
    prompt_feedback: Option<PromptFeedback<'a>>,
    #[serde(borrow, default, deserialize_with = "super::json::error")]
    error: Option<&'a RawValue>,
    #[serde(borrow, default)]
    response: Object<Box<Chunk<'a>>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Candidate<'a> {
    #[serde(default)]
    index: Count,
    #[serde(borrow, default, deserialize_with = "super::json::object")]
    content: Option<Content<'a>>,
    /// A word, or a number if the agent requested numeric enumerations.
    #[serde(borrow, default)]
    finish_reason: Text<'a>,
    #[serde(default)]
    grounding_metadata: Object<Grounding>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Grounding {
    #[serde(default)]
    web_search_queries: List<IgnoredAny>,
    #[serde(default)]
    image_search_queries: List<IgnoredAny>,
    #[serde(default)]
    grounding_chunks: List<Object<GroundingChunk>>,
    #[serde(default)]
    search_entry_point: Object<IgnoredAny>,
}

/// Results from the agent's own documents are not billed.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct GroundingChunk {
    retrieved_context: Option<IgnoredAny>,
}

impl Grounding {
    /// The searches that are billed separately from tokens.
    pub(super) fn details(&self) -> UsageDetails {
        let searches = self.web_search_queries.len() + self.image_search_queries.len();
        let mut chunks = self.grounding_chunks.iter().filter_map(|it| it.0.as_ref());
        let found = chunks.any(|chunk| chunk.retrieved_context.is_none());
        UsageDetails {
            searches: (searches > 0).then_some(searches as u64),
            searched: (found || self.search_entry_point.0.is_some()).then_some(true),
            ..UsageDetails::default()
        }
    }
}

#[derive(Deserialize)]
pub(super) struct Content<'a> {
    #[serde(borrow, default)]
    pub(super) parts: List<Part<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Part<'a> {
    #[serde(borrow, default)]
    text: Text<'a>,
    thought: Option<bool>,
    #[serde(borrow, default, deserialize_with = "super::json::object")]
    function_call: Option<FunctionCall<'a>>,
    #[serde(borrow, default, deserialize_with = "super::json::object")]
    executable_code: Option<ExecutableCode<'a>>,
    code_execution_result: Option<IgnoredAny>,
    /// The call of a hosted tool, and its result.
    tool_call: Option<IgnoredAny>,
    tool_response: Option<IgnoredAny>,
    inline_data: Option<IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct FunctionCall<'a> {
    #[serde(borrow, default)]
    name: Text<'a>,
    #[serde(borrow)]
    args: Option<&'a RawValue>,
    #[serde(borrow, default)]
    partial_args: List<PartialArg<'a>>,
    will_continue: Option<bool>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PartialArg<'a> {
    #[serde(borrow, default)]
    string_value: Text<'a>,
    #[serde(borrow)]
    number_value: Option<&'a RawValue>,
    #[serde(borrow)]
    bool_value: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct ExecutableCode<'a> {
    #[serde(borrow, default)]
    code: Text<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PromptFeedback<'a> {
    #[serde(borrow, default)]
    block_reason: Text<'a>,
}

/// Usage as sent. Candidates exclude thoughts, the prompt includes cached input, and input from
/// tools is excluded from the prompt but billed like it.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct UsageMetadata<'a> {
    #[serde(default)]
    prompt_token_count: Count,
    #[serde(default)]
    cached_content_token_count: Count,
    #[serde(default, alias = "responseTokenCount")]
    candidates_token_count: Count,
    #[serde(default)]
    thoughts_token_count: Count,
    #[serde(default)]
    tool_use_prompt_token_count: Count,
    #[serde(default)]
    total_token_count: Count,
    #[serde(borrow, default)]
    prompt_tokens_details: List<ModalityTokens<'a>>,
    #[serde(borrow, default)]
    tool_use_prompt_tokens_details: List<ModalityTokens<'a>>,
    #[serde(borrow, default)]
    cache_tokens_details: List<ModalityTokens<'a>>,
    #[serde(borrow, default, alias = "responseTokensDetails")]
    candidates_tokens_details: List<ModalityTokens<'a>>,
    #[serde(borrow, default)]
    pub(super) service_tier: Text<'a>,
    /// The service tier on Vertex.
    #[serde(borrow, default)]
    pub(super) traffic_type: Text<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ModalityTokens<'a> {
    #[serde(borrow, default)]
    modality: Text<'a>,
    #[serde(default, alias = "tokens")]
    token_count: Count,
}

/// The sum of the tokens of these modalities, if there are any.
fn of_modalities(all: &[ModalityTokens<'_>], kinds: &[&str]) -> Option<u64> {
    let is_of = |word: &str| kinds.iter().any(|kind| word.eq_ignore_ascii_case(kind));
    let of = all.iter().filter(|one| is_of(&one.modality));
    of.filter_map(|one| one.token_count.positive())
        .reduce(u64::saturating_add)
}

/// The tokens that are not text, in the prompt, in input from tools, in input from a cache, and in
/// the answer.
pub(super) fn modalities(
    [prompt, tools, cached, answer]: [&[ModalityTokens<'_>]; 4],
) -> UsageDetails {
    UsageDetails {
        audio_input: sum(
            of_modalities(prompt, &["AUDIO"]),
            of_modalities(tools, &["AUDIO"]),
        ),
        cached_audio_input: of_modalities(cached, &["AUDIO"]),
        audio_output: of_modalities(answer, &["AUDIO"]),
        image_output: of_modalities(answer, &["IMAGE", "VIDEO"]),
        ..UsageDetails::default()
    }
}

/// The JSON literals of the counts for [`usage`] in an event.
fn count_literals(payload: &[u8]) -> Option<CountLiterals<'_>> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Chunk<'a> {
        #[serde(borrow)]
        usage_metadata: Option<Sent<'a>>,
        #[serde(borrow, default)]
        response: Object<Box<Chunk<'a>>>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Sent<'a> {
        #[serde(borrow)]
        prompt_token_count: Option<&'a RawValue>,
        #[serde(borrow)]
        cached_content_token_count: Option<&'a RawValue>,
        #[serde(borrow, alias = "responseTokenCount")]
        candidates_token_count: Option<&'a RawValue>,
        #[serde(borrow)]
        thoughts_token_count: Option<&'a RawValue>,
        #[serde(borrow)]
        tool_use_prompt_token_count: Option<&'a RawValue>,
    }
    let chunk = serde_json::from_slice::<Chunk<'_>>(payload).ok()?;
    let sent = match chunk.response.0 {
        Some(response) => response.usage_metadata,
        None => chunk.usage_metadata,
    }?;
    Some([
        sent.prompt_token_count,
        sent.cached_content_token_count,
        sent.candidates_token_count,
        sent.thoughts_token_count,
        sent.tool_use_prompt_token_count,
    ])
}

/// Makes a usage from these counts of [`UsageMetadata`].
fn usage([prompt, cached, answer, thoughts, tools]: Counts) -> Usage {
    Usage {
        input: sum(prompt, tools),
        cached_input: cached,
        cache_write: None,
        output: sum(answer, thoughts),
        reasoning: thoughts,
        ..Usage::default()
    }
}

/// The sum of the known values. `None` if both are unknown.
fn sum(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    match (one, other) {
        (None, None) => None,
        _ => Some(one.unwrap_or(0).saturating_add(other.unwrap_or(0))),
    }
}

impl UsageMetadata<'_> {
    pub(super) fn usage(&self) -> Usage {
        let usage = usage([
            self.prompt_token_count.0,
            self.cached_content_token_count.0,
            self.candidates_token_count.0,
            self.thoughts_token_count.0,
            self.tool_use_prompt_token_count.0,
        ]);
        Usage {
            output: if self.has_thoughts_within() {
                self.candidates_token_count.0
            } else {
                usage.output
            },
            details: modalities([
                &self.prompt_tokens_details,
                &self.tool_use_prompt_tokens_details,
                &self.cache_tokens_details,
                &self.candidates_tokens_details,
            ]),
            ..usage
        }
    }

    /// Whether the candidates include the thoughts, as some gateways report them. Only the total
    /// shows it.
    fn has_thoughts_within(&self) -> bool {
        let (Some(total), Some(candidates)) =
            (self.total_token_count.0, self.candidates_token_count.0)
        else {
            return false;
        };
        let input = sum(
            self.prompt_token_count.0,
            self.tool_use_prompt_token_count.0,
        );
        let thoughts = self.thoughts_token_count.0.unwrap_or(0);
        let within = input.unwrap_or(0).checked_add(candidates) == Some(total);
        within && thoughts > 0 && thoughts <= candidates
    }
}
