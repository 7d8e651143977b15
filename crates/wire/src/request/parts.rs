//! The parts of a message: texts by who wrote them, calls and results of tools, and media.

use super::part::{Each, Part, TextKind};
use super::raw::{items, members, string};
use super::tool_definitions::{definition, server_in};
use serde_json::value::RawValue;
use std::borrow::Cow;

/// Structures that are nested deeper than this are omitted, so that no body needs much stack.
const MAX_DEPTH: usize = 48;

/// What is known about a value from the structures around it.
#[derive(Clone, Copy)]
pub(super) struct Context<'c> {
    pub(super) kind: TextKind,
    id: &'c str,
    name: &'c str,
    server: Option<&'c str>,
    /// Whether the value is a result because of the key before it.
    is_result: bool,
    depth: usize,
}

impl<'c> Context<'c> {
    pub(super) fn new(kind: TextKind) -> Context<'c> {
        Context {
            kind,
            id: "",
            name: "",
            server: None,
            is_result: false,
            depth: 0,
        }
    }

    fn within(self, kind: Option<TextKind>) -> Context<'c> {
        Context {
            kind: kind.unwrap_or(self.kind),
            is_result: false,
            depth: self.depth + 1,
            ..self
        }
    }
}

/// Gives the parts of a value that is part of the prompt.
pub(super) fn prompt(value: &RawValue, context: Context<'_>, each: Each<'_>) {
    let json = value.get();
    match json.as_bytes().first() {
        _ if context.depth > MAX_DEPTH => {}
        Some(b'"') => text(value, context.kind, each),
        Some(b'[') => items(json, |item| prompt(item, context.within(None), &mut *each)),
        Some(b'{') => object(json, context, each),
        _ => {}
    }
}

/// Gives every string of a structure.
pub(super) fn material(value: &RawValue, context: Context<'_>, each: Each<'_>) {
    let json = value.get();
    match json.as_bytes().first() {
        _ if context.depth > MAX_DEPTH => {}
        Some(b'"') => text(value, context.kind, each),
        Some(b'[') => items(json, |item| {
            material(item, context.within(None), &mut *each);
        }),
        Some(b'{') => members(json, |_, value| {
            material(value, context.within(None), &mut *each);
        }),
        _ => {}
    }
}

/// Gives a string as a text, and any other value as JSON.
fn json(value: &RawValue, kind: TextKind, each: Each<'_>) {
    match value.get() {
        "null" => {}
        json if json.starts_with('"') => text(value, kind, each),
        json => each(Part::Text { kind, text: json }),
    }
}

fn text(value: &RawValue, kind: TextKind, each: Each<'_>) {
    if let Some(text) = string(value).filter(|text| !text.is_empty()) {
        each(Part::Text { kind, text: &text });
    }
}

/// What a member of a message or of a part is.
enum Action {
    Into(Option<TextKind>),
    /// The result of a tool call.
    Result,
    /// A result, or inline data of an image, depending on the type of the object.
    Made,
    /// A string as text, any other value as JSON.
    Json(Option<TextKind>),
    Media,
    /// Inline data of media, if the object is not a text or reasoning.
    Data,
    /// The address of media, if the object is media.
    Address,
    /// Definitions of tools that a server listed.
    Tools,
}

/// Members that are not listed are not text: roles, ids, signatures.
fn action(key: &str) -> Option<Action> {
    use Action::{Address, Data, Into, Json, Made, Media, Result, Tools};
    use TextKind::{Other, Reasoning, ToolCall, ToolResult};
    Some(match key {
        "content" | "parts" | "text" | "message" | "refusal" | "transcript" | "function"
        | "guardContent" | "source" | "summary" | "custom" => Into(None),
        "thinking" | "reasoning_content" | "reasoning" | "reasoningContent" | "reasoningText"
        | "tool_plan" => Into(Some(Reasoning)),
        "tool_calls" | "function_call" | "functionCall" | "executableCode" | "code" | "toolUse" => {
            Into(Some(ToolCall))
        }
        "functionResponse" | "codeExecutionResult" | "toolResult" => Result,
        "output" => Into(Some(ToolResult)),
        "result" => Made,
        "document" | "context" => Into(Some(Other)),
        "input" | "arguments" | "args" | "parameters" => Json(Some(ToolCall)),
        "response" | "json" | "outputs" => Json(Some(ToolResult)),
        "image_url" | "input_audio" | "file" | "file_data" | "file_url" | "inlineData"
        | "inline_data" | "fileData" | "image" | "images" | "video" | "video_url" | "audio"
        | "audio_url" => Media,
        "data" | "bytes" | "file_id" | "s3Location" => Data,
        "url" => Address,
        "tools" => Tools,
        _ => return None,
    })
}

/// An object of the prompt, read once. Its kind may be told by its last member.
#[derive(Default)]
struct Read<'a> {
    actions: Vec<(Action, &'a RawValue)>,
    role: Cow<'a, str>,
    r#type: Cow<'a, str>,
    id: Cow<'a, str>,
    call_id: Cow<'a, str>,
    name: Cow<'a, str>,
    server: Cow<'a, str>,
    is_error: bool,
    is_thought: bool,
}

impl<'a> Read<'a> {
    fn of(json: &'a str) -> Read<'a> {
        let mut read = Read::default();
        members(json, |key, value| read.member(key, value));
        read
    }

    fn member(&mut self, key: &str, value: &'a RawValue) {
        let word = || string(value).unwrap_or_default();
        match key {
            "role" => self.role = word(),
            "type" => self.r#type = word(),
            "id" => self.id = word(),
            "call_id" | "tool_call_id" | "tool_use_id" | "toolUseId" => self.call_id = word(),
            "name" | "tool_name" => self.name = word(),
            "server_label" | "server_name" | "mcp_server_name" => self.server = word(),
            "is_error" | "isError" => self.is_error |= value.get() == "true",
            "error" => self.is_error |= value.get() != "null",
            "status" => self.is_error |= matches!(&*word(), "error" | "failed"),
            "thought" => self.is_thought |= value.get() == "true",
            _ => self
                .actions
                .extend(action(key).map(|action| (action, value))),
        }
    }

    fn call_id(&self) -> &str {
        first(&self.call_id, &self.id)
    }

    fn begins_result(&self) -> bool {
        let is_typed = kind_of_type(&self.r#type, TextKind::User) == Some(TextKind::ToolResult);
        is_typed || kind_of_role(&self.role) == Some(TextKind::ToolResult)
    }

    fn kind(&self, around: TextKind) -> Option<TextKind> {
        if self.is_thought {
            return Some(TextKind::Reasoning);
        }
        kind_of_type(&self.r#type, around).or_else(|| kind_of_role(&self.role))
    }
}

fn kind_of_role(role: &str) -> Option<TextKind> {
    Some(match role {
        "system" | "developer" | "SYSTEM" => TextKind::System,
        "user" | "USER" | "human" => TextKind::User,
        "assistant" | "model" | "CHATBOT" => TextKind::Assistant,
        "tool" | "function" | "TOOL" | "ipython" => TextKind::ToolResult,
        _ => return None,
    })
}

fn kind_of_type(r#type: &str, around: TextKind) -> Option<TextKind> {
    let is_result = |name: &str| {
        name.ends_with("tool_result")
            || name.ends_with("_call_output")
            || matches!(name, "function_result" | "function.result")
    };
    let is_call = |name: &str| {
        name.ends_with("tool_use")
            || name.ends_with("_call")
            || matches!(name, "function.call" | "mcp_approval_request")
    };
    Some(match r#type {
        "" | "text" | "message" | "function" => return None,
        name if is_result(name) => TextKind::ToolResult,
        name if is_call(name) => TextKind::ToolCall,
        "thinking" | "redacted_thinking" | "reasoning" | "thought" => TextKind::Reasoning,
        "document" if around == TextKind::User => TextKind::Other,
        _ => return None,
    })
}

fn first<'a>(one: &'a str, other: &'a str) -> &'a str {
    if one.is_empty() { other } else { one }
}

fn object(json: &str, around: Context<'_>, each: Each<'_>) {
    let read = Read::of(json);
    let server = Some(&*read.server).filter(|server| !server.is_empty());
    let context = Context {
        kind: read.kind(around.kind).unwrap_or(around.kind),
        id: first(read.call_id(), around.id),
        name: first(&read.name, around.name),
        server: server.or(around.server),
        ..around
    };
    announce(&read, around.kind, context, each);
    for (action, value) in &read.actions {
        member(action, value, &read, context, each);
    }
}

/// Gives the call or the result that an object begins.
fn announce(read: &Read<'_>, around: TextKind, context: Context<'_>, each: Each<'_>) {
    match context.kind {
        TextKind::ToolCall if !read.name.is_empty() || is_hosted(&read.r#type) => {
            let name = first(context.name, read.r#type.trim_end_matches("_call"));
            let (id, server) = (context.id, context.server.or_else(|| server_in(name)));
            each(Part::ToolCall { id, name, server });
        }
        TextKind::ToolResult if context.is_result || read.begins_result() => {
            result(read, around == TextKind::Assistant, context, each);
        }
        _ => {}
    }
}

fn result(read: &Read<'_>, is_hosted: bool, context: Context<'_>, each: Each<'_>) {
    each(Part::ToolResult {
        id: context.id,
        name: context.name,
        server: context.server,
        is_error: read.is_error,
        is_hosted,
    });
}

fn is_media(r#type: &str) -> bool {
    matches!(r#type, "url" | "image" | "video" | "audio" | "document")
}

fn is_hosted(r#type: &str) -> bool {
    r#type.ends_with("_call") && r#type != "function_call"
}

fn member(
    action: &Action,
    value: &RawValue,
    read: &Read<'_>,
    context: Context<'_>,
    each: Each<'_>,
) {
    let result_kind = Some(TextKind::ToolResult);
    match action {
        Action::Into(kind) => {
            let kind = narrowed(*kind, read, context, each);
            prompt(value, context.within(kind), each);
        }
        Action::Result => {
            let within = context.within(result_kind);
            let is_result = context.kind != TextKind::ToolResult;
            prompt(
                value,
                Context {
                    is_result,
                    ..within
                },
                each,
            );
        }
        Action::Json(kind) => {
            let kind = narrowed(*kind, read, context, each);
            json(value, kind.unwrap_or(context.kind), each);
        }
        Action::Made if read.r#type.starts_with("function") => json(value, context.kind, each),
        Action::Made if read.r#type != "image_generation_call" => {}
        Action::Data if read.r#type == "text" || context.kind == TextKind::Reasoning => {}
        Action::Address if !is_media(&read.r#type) => {}
        Action::Made | Action::Media | Action::Data | Action::Address => {
            media(value, context.depth, each)
        }
        Action::Tools => items(value.get(), |tool| {
            definition(tool, context.server, &mut *each);
        }),
    }
}

/// The kind of a member. Within a result everything is part of the result. A call that the provider
/// ran has its result in the same object, which begins here.
fn narrowed(
    kind: Option<TextKind>,
    read: &Read<'_>,
    context: Context<'_>,
    each: Each<'_>,
) -> Option<TextKind> {
    match (kind, context.kind) {
        (_, TextKind::ToolResult) => None,
        (Some(TextKind::ToolCall | TextKind::ToolResult), TextKind::System) => None,
        (Some(TextKind::ToolResult), TextKind::ToolCall) => {
            result(read, true, context, each);
            kind
        }
        _ => kind,
    }
}

/// Gives the media of a value: an address, inline data, a list of them, or an object that has one.
fn media(value: &RawValue, depth: usize, each: Each<'_>) {
    let json = value.get();
    match json.as_bytes().first() {
        _ if depth > MAX_DEPTH => {}
        Some(b'"') => {
            let data = json.trim_matches('"');
            each(Part::Media {
                data,
                bytes: decoded_bytes(data),
            });
        }
        Some(b'[') => items(json, |item| media(item, depth + 1, &mut *each)),
        Some(b'{') => {
            let mut data = None;
            members(json, |key, value| match key {
                "data" | "bytes" | "url" | "file_data" | "source" | "fileUri" | "file_id"
                | "uri" | "id" | "s3Location" => data = Some(value),
                _ => {}
            });
            if let Some(data) = data {
                media(data, depth + 1, each);
            }
        }
        _ => {}
    }
}

/// The number of bytes that base64 encodes. An address has none.
fn decoded_bytes(data: &str) -> u64 {
    let base64 = match data.strip_prefix("data:") {
        Some(address) => address.split_once(',').map(|(_, base64)| base64),
        None => Some(data).filter(|data| !data.contains([':', '-', '_', '.'])),
    };
    let digits = base64.unwrap_or_default().trim_end_matches('=').len() as u64;
    digits * 3 / 4
}

/// Gives a result of Cohere's version 1, which is one text as JSON and repeats its call.
pub(super) fn result_of_cohere(value: &RawValue, each: Each<'_>) {
    let mut name = Cow::Borrowed("");
    members(value.get(), |key, call| {
        if key == "call" {
            name = Read::of(call.get()).name;
        }
    });
    let kind = TextKind::ToolResult;
    let context = Context {
        name: &name,
        ..Context::new(kind)
    };
    result(&Read::default(), false, context, each);
    json(value, kind, each);
}
