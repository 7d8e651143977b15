//! Gemini Interactions, streamed or not, with steps or in the older format with contents.

use super::detect::{Detected, Target};
use super::emit::{self, RepeatedName};
use super::gemini::{self, ModalityTokens, modalities};
use super::json::{Count, List, Object, Text, arguments, error_kind, parse, parse_text};
use super::openai_json::TextOrList;
use super::usage_names;
use super::{Malformed, Reader, Registration, Sink};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokengauge_core::call::{Channel, Dialect, Event, Operation, ServerTool, Usage};

#[derive(Deserialize)]
struct StreamEvent<'a> {
    #[serde(borrow, default)]
    event_type: Text<'a>,
    #[serde(default)]
    index: Count,
    #[serde(borrow, default)]
    delta: Object<Part<'a>>,
    #[serde(borrow, default, alias = "content")]
    step: Object<Part<'a>>,
    #[serde(borrow)]
    interaction: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "super::json::error")]
    error: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Part<'a> {
    #[serde(borrow, default)]
    r#type: Text<'a>,
    #[serde(borrow, default)]
    text: Text<'a>,
    /// The parts of an answer, or a part of a summary.
    #[serde(borrow)]
    content: Option<&'a RawValue>,
    #[serde(borrow, default)]
    summary: List<Words<'a>>,
    #[serde(borrow, default)]
    name: Text<'a>,
    #[serde(borrow, alias = "partial_arguments")]
    arguments: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
struct Words<'a> {
    #[serde(borrow, default)]
    text: Text<'a>,
}

/// A complete interaction: the body, or the content of the first and last events.
#[derive(Deserialize)]
struct Interaction<'a> {
    #[serde(borrow, default)]
    id: Text<'a>,
    #[serde(borrow, default)]
    model: Text<'a>,
    #[serde(borrow, default)]
    status: Text<'a>,
    #[serde(borrow, default)]
    service_tier: Text<'a>,
    #[serde(borrow, default, alias = "outputs")]
    steps: List<Part<'a>>,
    #[serde(borrow, default)]
    usage: Object<InteractionUsage<'a>>,
    #[serde(borrow, default, deserialize_with = "super::json::error")]
    error: Option<&'a RawValue>,
}

/// Usage as sent. Thoughts and input from tools are separate from the other counts.
#[derive(Deserialize)]
struct InteractionUsage<'a> {
    #[serde(default)]
    total_input_tokens: Count,
    #[serde(default)]
    total_cached_tokens: Count,
    #[serde(default)]
    total_output_tokens: Count,
    #[serde(default, alias = "total_reasoning_tokens")]
    total_thought_tokens: Count,
    #[serde(default)]
    total_tool_use_tokens: Count,
    #[serde(borrow, default)]
    input_tokens_by_modality: List<ModalityTokens<'a>>,
    #[serde(borrow, default)]
    tool_use_tokens_by_modality: List<ModalityTokens<'a>>,
    #[serde(borrow, default)]
    cached_tokens_by_modality: List<ModalityTokens<'a>>,
    #[serde(borrow, default)]
    output_tokens_by_modality: List<ModalityTokens<'a>>,
}

pub(super) static REGISTRATION: Registration = Registration {
    detect,
    objects: &["interaction"],
    has_members: |members| FIRST_EVENTS.contains(&&*members.event_type),
    default_stream: Some(false),
    needs_model: false,
    error_body: gemini::error_body,
    usage: &[usage_names::INTERACTIONS],
    ..Registration::new::<Interactions>(Dialect::GeminiInteractions)
};

const FIRST_EVENTS: [&str; 3] = ["interaction.created", "interaction.start", "step.start"];

fn detect(target: &Target<'_>) -> Option<Detected> {
    let operation = match (target.get(), target.post()) {
        (Some([.., "interactions", _]), _) => Operation::Retrieve,
        (_, Some([.., "interactions"])) => Operation::GenerateContent,
        _ => return None,
    };
    Some(Detected::new(Dialect::GeminiInteractions, operation))
}

/// Reads interactions.
#[derive(Default)]
pub struct Interactions {
    id: RepeatedName,
    model: RepeatedName,
    tier: RepeatedName,
    streamed: bool,
    tools: HostedTools,
}

/// The hosted tools that are running, by position of the call. Each result ends one of them.
#[derive(Default)]
struct HostedTools {
    running: Vec<u32>,
    last_result: Option<u32>,
}

const MAX_TOOLS: usize = 64;

impl HostedTools {
    fn note(&mut self, index: u32, part: &Part<'_>, sink: Sink<'_>) {
        let is_known = self.running.contains(&index);
        if part.is_hosted_call() && !is_known && self.running.len() < MAX_TOOLS {
            self.running.push(index);
            sink(Event::ServerTool(ServerTool::Began));
            part.bill(sink);
        } else if part.r#type.ends_with("_result") && self.last_result != Some(index) {
            self.last_result = Some(index);
            if self.running.pop().is_some() {
                sink(Event::ServerTool(ServerTool::Ended));
            }
        }
    }
}

impl Reader for Interactions {
    fn event(&mut self, _: &str, payload: &[u8], sink: Sink<'_>) -> Result<(), Malformed> {
        let event: StreamEvent<'_> = parse(payload)?;
        let index = event.index.index().unwrap_or(0);
        match &*event.event_type {
            "step.delta" | "content.delta" => self.delta(index, event.delta.0.as_ref(), sink),
            // A call may arrive complete.
            "step.start" | "content.start" => match event.step.0.as_ref() {
                Some(begun) if begun.is_empty_call() => {
                    self.tools.note(index, begun, sink);
                    begun.give_name(index, sink);
                }
                begun => self.delta(index, begun, sink),
            },
            "interaction.completed" | "interaction.complete" => {
                let raw = event.interaction.ok_or(Malformed)?;
                self.whole(&parse_text(raw.get())?, sink);
                sink(Event::End);
            }
            "interaction.created" | "interaction.start" => {
                let raw = event.interaction.ok_or(Malformed)?;
                let interaction: Interaction<'_> = parse_text(raw.get())?;
                self.names(&interaction, sink);
            }
            "error" => sink(Event::Error(
                &event.error.map(error_kind).unwrap_or("error".into()),
            )),
            "" => return Err(Malformed),
            _ => {}
        }
        Ok(())
    }

    fn body(&mut self, payload: &[u8], sink: Sink<'_>) -> Result<(), Malformed> {
        self.whole(&parse(payload)?, sink);
        Ok(())
    }
}

impl Interactions {
    fn names(&mut self, interaction: &Interaction<'_>, sink: Sink<'_>) {
        self.id.response_id(sink, &interaction.id);
        self.model.model(sink, &interaction.model);
        self.tier.service_tier(sink, &interaction.service_tier);
    }

    fn delta(&mut self, index: u32, part: Option<&Part<'_>>, sink: Sink<'_>) {
        let Some(part) = part else { return };
        self.tools.note(index, part, sink);
        let streamed = &mut self.streamed;
        part.give_name(index, sink);
        part.give(&mut |channel, text| {
            *streamed |= !text.is_empty();
            emit::delta(sink, emit::segment(0, index, channel), text);
        });
    }

    fn whole(&mut self, interaction: &Interaction<'_>, sink: Sink<'_>) {
        self.names(interaction, sink);
        for step in interaction.steps.iter() {
            step.bill(sink);
        }
        let steps = interaction.steps.iter().filter(|_| !self.streamed);
        for (index, step) in steps.enumerate() {
            step.give_name(index as u32, sink);
            step.give(&mut |channel, text| {
                emit::delta(sink, emit::segment(0, index as u32, channel), text);
            });
        }
        if let Some(usage) = &interaction.usage.0 {
            emit::usage(sink, usage.sum());
        }
        emit::finish(sink, 0, &interaction.status);
        if let Some(error) = interaction.error {
            sink(Event::Error(&error_kind(error)));
        }
    }
}

impl Part<'_> {
    /// Passes the texts to `each`. Signatures, images and results of tools are not included.
    fn give(&self, each: &mut dyn FnMut(Channel, &str)) {
        match &*self.r#type {
            "text" => each(Channel::Answer, &self.text),
            "model_output" => self.content(Channel::Answer, each),
            "thought" | "thought_summary" => {
                each(Channel::Reasoning, &self.text);
                self.content(Channel::Reasoning, each);
                self.summary
                    .iter()
                    .for_each(|words| each(Channel::Reasoning, &words.text));
            }
            "function_call"
            | "arguments_delta"
            | "code_execution_call"
            | "mcp_server_tool_call" => {
                let text = self.arguments.map(arguments).unwrap_or_default();
                each(Channel::ToolCall, &text);
            }
            _ => {}
        }
    }

    fn give_name(&self, index: u32, sink: Sink<'_>) {
        if self.r#type.ends_with("_call") {
            emit::tool_name(sink, emit::segment(0, index, Channel::ToolCall), &self.name);
        }
    }

    fn is_hosted_call(&self) -> bool {
        self.r#type.ends_with("_call") && &*self.r#type != "function_call"
    }

    /// Emits what the provider bills for it separately from tokens.
    fn bill(&self, sink: Sink<'_>) {
        const FREE: &[&str] = &[
            "code_execution_call",
            "file_search_call",
            "mcp_server_tool_call",
            "url_context_call",
        ];
        match &*self.r#type {
            "google_search_call" => emit::searched(sink),
            kind if self.is_hosted_call() && !FREE.contains(&kind) => emit::billed_tool(sink),
            _ => {}
        }
    }

    fn is_empty_call(&self) -> bool {
        let text = self.arguments.map(arguments).unwrap_or_default();
        self.r#type.ends_with("_call") && text == "{}"
    }

    fn content(&self, channel: Channel, each: &mut dyn FnMut(Channel, &str)) {
        let Some(raw) = self.content else { return };
        if raw.get().starts_with('{') {
            let words: Words<'_> = serde_json::from_str(raw.get()).unwrap_or_default();
            return each(channel, &words.text);
        }
        let parts: TextOrList<'_, Words<'_>> = serde_json::from_str(raw.get()).unwrap_or_default();
        match &parts {
            TextOrList::Text(text) => each(channel, text),
            TextOrList::List(parts) => parts.iter().for_each(|part| each(channel, &part.text)),
        }
    }
}

impl InteractionUsage<'_> {
    fn sum(&self) -> Usage {
        let sum = |count: Count, other: Count| Some(count.0?.saturating_add(other.0.unwrap_or(0)));
        Usage {
            input: sum(self.total_input_tokens, self.total_tool_use_tokens),
            cached_input: self.total_cached_tokens.0,
            output: sum(self.total_output_tokens, self.total_thought_tokens),
            reasoning: self.total_thought_tokens.0,
            details: modalities([
                &self.input_tokens_by_modality,
                &self.tool_use_tokens_by_modality,
                &self.cached_tokens_by_modality,
                &self.output_tokens_by_modality,
            ]),
            ..Usage::default()
        }
    }
}
