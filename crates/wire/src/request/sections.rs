//! The sections of a request body: definitions of tools, instructions, messages and other texts.

use super::part::{Part, TextKind};
use super::parts::{Context, material, prompt, result_of_cohere};
use super::raw::{items, members};
use super::tool_definitions::definition;
use serde_json::value::RawValue;
use tokengauge_core::call::Dialect;

/// What a section is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SectionKind {
    /// The definition of a tool.
    Tool,
    /// The system prompt and other instructions. In some dialects they are messages.
    System,
    /// A document, or another text outside of the conversation.
    Other,
    /// A message or another item of the conversation.
    Message,
}

/// A section of a request body: a definition of a tool, a message, or another text.
#[derive(Clone, Copy, Debug)]
pub struct Section<'a> {
    kind: SectionKind,
    text: TextKind,
    /// Sections of equal kind are in the order of this number, and then in the order of the body.
    rank: u8,
    walk: Walk,
    raw: &'a RawValue,
}

#[derive(Clone, Copy, Debug)]
enum Walk {
    Prompt,
    /// A structure whose strings are all part of the prompt.
    Material,
    Tool,
    /// A structure that is one text as JSON: a result of a tool.
    Json,
}

impl<'a> Section<'a> {
    /// What the section is.
    pub fn kind(&self) -> SectionKind {
        self.kind
    }

    /// The position of the section in the prompt, compared with sections of other members of the
    /// body: tools, system prompt, documents, conversation.
    pub fn order(&self) -> (SectionKind, u8) {
        (self.kind, self.rank)
    }

    /// Whether the section is an item of a list of messages, oldest first.
    pub(super) fn is_turn(&self) -> bool {
        self.order() == (SectionKind::Message, 0)
    }

    /// The kind of texts that have no role and no type.
    pub fn text_kind(&self) -> TextKind {
        self.text
    }

    /// The section as it is in the body.
    pub fn json(&self) -> &'a str {
        self.raw.get()
    }

    /// Calls `each` with each part of the section, in order.
    pub fn parts(&self, each: &mut dyn FnMut(Part<'_>)) {
        let context = Context::new(self.text);
        match self.walk {
            Walk::Prompt => prompt(self.raw, context, each),
            Walk::Material => material(self.raw, context, each),
            Walk::Tool => definition(self.raw, None, each),
            Walk::Json => result_of_cohere(self.raw, each),
        }
    }
}

/// Calls `each` with each section of a request body, in the order of the body. Nothing is copied.
/// The member of the body that has a syntax error, and those after it, are omitted.
pub fn request_sections<'a>(dialect: Dialect, body: &'a [u8], each: &mut dyn FnMut(Section<'a>)) {
    if dialect == Dialect::Unknown {
        return;
    }
    // Sections before a byte that is not UTF-8 count.
    let valid = match std::str::from_utf8(body) {
        Ok(text) => text,
        Err(error) => std::str::from_utf8(&body[..error.valid_up_to()]).unwrap_or_default(),
    };
    let embeds = matches!(dialect, Dialect::Embeddings | Dialect::Rerank);
    let mut sections = Sections { embeds, each };
    members(valid, |key, value| sections.member(key, value, true));
}

struct Sections<'e, 'a> {
    embeds: bool,
    each: &'e mut dyn FnMut(Section<'a>),
}

impl<'a> Sections<'_, 'a> {
    fn member(&mut self, key: &str, value: &'a RawValue, is_outer: bool) {
        match key {
            "system" | "instructions" | "systemInstruction" | "system_instruction" | "preamble" => {
                self.list(SectionKind::System, 0, Walk::Prompt, value);
            }
            "messages" | "input" | "contents" | "chat_history" | "requests" => {
                self.list(SectionKind::Message, 0, Walk::Prompt, value);
            }
            "prompt" | "content" | "message" | "inputs" | "inputText" | "query" => {
                self.list(SectionKind::Message, 1, Walk::Prompt, value);
            }
            "tool_results" => self.list(SectionKind::Message, 2, Walk::Json, value),
            "suffix" => self.list(SectionKind::Other, 0, Walk::Prompt, value),
            "documents" | "texts" => self.list(SectionKind::Other, 0, Walk::Material, value),
            "tools" | "functions" => self.tools(value),
            "toolConfig" => members(value.get(), |key, value| {
                if key == "tools" {
                    self.tools(value);
                }
            }),
            // Code Assist's envelope.
            "request" if is_outer => {
                members(value.get(), |key, value| self.member(key, value, false));
            }
            _ => {}
        }
    }

    /// Gives each item of an array as a section, and any other value as one.
    fn list(&mut self, kind: SectionKind, rank: u8, walk: Walk, value: &'a RawValue) {
        let text = match kind {
            SectionKind::System => TextKind::System,
            SectionKind::Other => TextKind::Other,
            _ if matches!(walk, Walk::Json) => TextKind::ToolResult,
            _ if self.embeds => TextKind::Other,
            _ => TextKind::User,
        };
        let mut give = |raw: &'a RawValue| {
            if raw.get().starts_with(['"', '{', '[']) {
                (self.each)(Section {
                    kind,
                    text,
                    rank,
                    walk,
                    raw,
                });
            }
        };
        if value.get().starts_with('[') {
            items(value.get(), give);
        } else {
            give(value);
        }
    }

    fn tools(&mut self, value: &'a RawValue) {
        items(value.get(), |tool| {
            // Bedrock's marks for its cache are among the tools.
            let mut declared = tool.get().starts_with("{\"cachePoint\"");
            // Gemini groups functions.
            if tool.get().contains("unctionDeclarations") || tool.get().contains("function_decl") {
                members(tool.get(), |key, functions| {
                    if matches!(key, "functionDeclarations" | "function_declarations") {
                        declared = true;
                        items(functions.get(), |function| self.tool(function));
                    }
                });
            }
            if !declared {
                self.tool(tool);
            }
        });
    }

    fn tool(&mut self, raw: &'a RawValue) {
        (self.each)(Section {
            kind: SectionKind::Tool,
            text: TextKind::ToolSchema,
            rank: 0,
            walk: Walk::Tool,
            raw,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each part in a line: its kind, and its text or its names.
    fn parts(dialect: Dialect, body: &str) -> Vec<String> {
        let mut found = Vec::new();
        request_sections(dialect, body.as_bytes(), &mut |section| {
            section.parts(&mut |part| found.push(line(&part)));
        });
        found
    }

    fn line(part: &Part<'_>) -> String {
        let at =
            |server: &Option<&str>| server.map_or(String::new(), |server| format!(" at {server}"));
        match part {
            Part::Text { kind, text } => format!("{kind:?} {text}"),
            Part::Tool { name, server } => format!("tool {name}{}", at(server)),
            Part::ToolCall { id, name, server } => format!("call {id} {name}{}", at(server)),
            Part::ToolResult {
                id,
                name,
                server,
                is_error,
                is_hosted,
            } => {
                let hosted = if *is_hosted { " hosted" } else { "" };
                format!("result {id} {name} {is_error}{}{hosted}", at(server))
            }
            Part::Media { bytes, .. } => format!("media {bytes}"),
        }
    }

    #[test]
    fn each_dialect_tells_who_wrote_a_text_and_which_tool_it_is_of() {
        let chat = r#"{"messages":[{"content":"s","role":"developer"},{"role":"user","content":[{"type":"text","text":"u"},
            {"type":"image_url","image_url":{"url":"data:image/png;base64,AAAAAA=="}},{"type":"input_audio","input_audio":{"data":"AAAA","format":"wav"}}]},
            {"role":"assistant","content":"a","reasoning_content":"r","tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{}"}},{"id":"c2","type":"function","function":{"arguments":"","name":"g"}}]},
            {"role":"tool","tool_call_id":"c1","content":[{"type":"text","text":"o"}]}],
            "tools":[{"type":"function","function":{"description":"d","name":"f"}},{"type":"function","function":{"name":"mcp__git__log"}}],"functions":[{"name":"h"}]}"#;
        let anthropic = r#"{"system":[{"type":"text","text":"s"}],"messages":[{"role":"user","content":[{"type":"text","text":"u"},{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AAAA"}}]},
            {"role":"assistant","content":[{"type":"thinking","thinking":"r","signature":"x"},{"type":"redacted_thinking","data":"AAAA"},{"type":"text","text":"a"},{"type":"tool_use","id":"t1","name":"f","input":{"a":1}},
            {"type":"mcp_tool_use","id":"t2","name":"log","server_name":"git","input":{}},{"type":"mcp_tool_result","tool_use_id":"t2","is_error":true,"content":[{"type":"text","text":"m"}]},
            {"type":"server_tool_use","id":"t3","name":"web_search","input":{"query":"q"}},{"type":"web_search_tool_result","tool_use_id":"t3","content":[{"type":"web_search_result","url":"https://example.org","title":"no","encrypted_content":"no"}]}]},
            {"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","content":"o","is_error":false},{"type":"document","source":{"type":"content","content":"d"}}]}],
            "tools":[{"name":"f","input_schema":{}},{"type":"mcp_toolset","mcp_server_name":"git"},{"type":"web_search_20250305","name":"web_search"}]}"#;
        let responses = r#"{"instructions":"s","input":[{"role":"user","content":[{"type":"input_text","text":"u"},{"type":"input_image","image_url":"data:image/png;base64,AAAA"},{"type":"input_file","file_id":"file-1"}]},
            {"type":"reasoning","id":"rs","summary":[{"type":"summary_text","text":"r"}],"encrypted_content":"x"},
            {"type":"message","role":"assistant","content":[{"type":"output_text","text":"a"}]},
            {"type":"function_call","id":"fc","call_id":"c1","name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"c1","output":"o"},
            {"type":"mcp_list_tools","server_label":"git","tools":[{"name":"log","input_schema":{}}]},
            {"type":"mcp_call","id":"m1","server_label":"git","name":"log","arguments":"{}","output":"m","error":null},
            {"type":"mcp_call","id":"m2","server_label":"git","name":"log","arguments":"{}","output":"","error":"down"}],
            "tools":[{"type":"mcp","server_label":"git","server_url":"https://example.org"}]}"#;
        let gemini = r#"{"model":"g","request":{"systemInstruction":{"parts":[{"text":"s"}]},"contents":[{"role":"user","parts":[{"text":"u"},{"inlineData":{"mimeType":"image/png","data":"AAAA"}}]},
            {"role":"model","parts":[{"text":"r","thought":true},{"text":"a"},{"functionCall":{"name":"f","args":{"a":1}}}]},{"role":"user","parts":[{"functionResponse":{"name":"f","response":{"o":1}}}]}],
            "tools":[{"functionDeclarations":[{"name":"f"},{"name":"g"}]},{"googleSearch":{}}]}}"#;
        let bedrock = r#"{"system":[{"text":"s"}],"messages":[{"role":"user","content":[{"text":"u"},{"image":{"format":"png","source":{"bytes":"AAAA"}}},{"document":{"name":"n","source":{"text":"d"}}}]},
            {"role":"assistant","content":[{"reasoningContent":{"reasoningText":{"text":"r"}}},{"toolUse":{"toolUseId":"t","name":"f","input":{"a":1}}}]},
            {"role":"user","content":[{"toolResult":{"toolUseId":"t","content":[{"json":{"o":1}}],"status":"error"}}]}],"toolConfig":{"tools":[{"toolSpec":{"name":"f"}}],"toolChoice":{"auto":{}}}}"#;
        let cohere = r#"{"message":"u","preamble":"s","chat_history":[{"role":"CHATBOT","message":"a"}],"documents":[{"text":"d"}],
            "tool_results":[{"call":{"name":"f","parameters":{}},"outputs":[{"o":1}]}]}"#;
        let ollama = r#"{"messages":[{"role":"system","content":"s"},{"role":"user","content":"u","images":["AAAA"]},
            {"role":"assistant","content":"","thinking":"r","tool_calls":[{"function":{"name":"f","arguments":{"a":1}}}]},{"role":"tool","tool_name":"f","content":"o"}]}"#;
        let mistral = r#"{"inputs":[{"role":"user","content":"u","type":"message.input"},{"type":"function.call","tool_call_id":"c","name":"f","arguments":"{}"},
            {"type":"function.result","tool_call_id":"c","result":"o"}],"instructions":"s"}"#;
        for (dialect, body, expected) in [
            (
                Dialect::OpenaiChat,
                chat,
                "System s|User u|media 4|media 3|Assistant a|Reasoning r|call c1 f|ToolCall {}|call c2 g|result c1  false|ToolResult o|\
                tool f|ToolSchema {\"type\":\"function\",\"function\":{\"description\":\"d\",\"name\":\"f\"}}|\
                tool mcp__git__log at git|ToolSchema {\"type\":\"function\",\"function\":{\"name\":\"mcp__git__log\"}}|tool h|ToolSchema {\"name\":\"h\"}",
            ),
            (
                Dialect::Anthropic,
                anthropic,
                "System s|User u|media 3|Reasoning r|Assistant a|call t1 f|ToolCall {\"a\":1}|call t2 log at git|ToolCall {}|\
                result t2  true hosted|ToolResult m|call t3 web_search|ToolCall {\"query\":\"q\"}|result t3  false hosted|\
                result t1  false|ToolResult o|Other d|tool f|ToolSchema {\"name\":\"f\",\"input_schema\":{}}|\
                tool git at git|ToolSchema {\"type\":\"mcp_toolset\",\"mcp_server_name\":\"git\"}|\
                tool web_search|ToolSchema {\"type\":\"web_search_20250305\",\"name\":\"web_search\"}",
            ),
            (
                Dialect::OpenaiResponses,
                responses,
                "System s|User u|media 3|media 0|Reasoning r|Assistant a|call c1 f|ToolCall {}|result c1  false|ToolResult o|\
                tool log at git|ToolSchema {\"name\":\"log\",\"input_schema\":{}}|call m1 log at git|ToolCall {}|result m1 log false at git hosted|ToolResult m|\
                call m2 log at git|ToolCall {}|result m2 log true at git hosted|\
                tool git at git|ToolSchema {\"type\":\"mcp\",\"server_label\":\"git\",\"server_url\":\"https://example.org\"}",
            ),
            (
                Dialect::Gemini,
                gemini,
                "System s|User u|media 3|Reasoning r|Assistant a|call  f|ToolCall {\"a\":1}|result  f false|ToolResult {\"o\":1}|\
                tool f|ToolSchema {\"name\":\"f\"}|tool g|ToolSchema {\"name\":\"g\"}|tool tool|ToolSchema {\"googleSearch\":{}}",
            ),
            (
                Dialect::BedrockConverse,
                bedrock,
                "System s|User u|media 3|Other d|Reasoning r|call t f|ToolCall {\"a\":1}|result t  true|ToolResult {\"o\":1}|\
                tool f|ToolSchema {\"toolSpec\":{\"name\":\"f\"}}",
            ),
            (
                Dialect::CohereV1,
                cohere,
                "User u|System s|Assistant a|Other d|result  f false|\
                ToolResult {\"call\":{\"name\":\"f\",\"parameters\":{}},\"outputs\":[{\"o\":1}]}",
            ),
            (
                Dialect::Ollama,
                ollama,
                "System s|User u|media 3|Reasoning r|call  f|ToolCall {\"a\":1}|result  f false|ToolResult o",
            ),
            (
                Dialect::MistralConversations,
                mistral,
                "User u|call c f|ToolCall {}|result c  false|ToolResult o|System s",
            ),
            (Dialect::Embeddings, r#"{"input":["x"]}"#, "Other x"),
            (
                Dialect::OpenaiCompletions,
                r#"{"prompt":"u","suffix":"x"}"#,
                "User u|Other x",
            ),
        ] {
            assert_eq!(parts(dialect, body).join("|"), expected, "{dialect:?}");
        }
    }

    #[test]
    fn deep_and_broken_bodies_end_early() {
        let deep = format!(
            r#"{{"messages":[{}"x"{}]}}"#,
            r#"{"content":"#.repeat(5_000),
            "}".repeat(5_000)
        );
        assert_eq!(parts(Dialect::OpenaiChat, &deep), Vec::<String>::new());
        let cut = r#"{"prompt":"u","messages":[{"role":"user","content":"v"},{"role":"#;
        assert_eq!(parts(Dialect::OpenaiChat, cut), ["User u"]);
        let mut seen = 0;
        request_sections(
            Dialect::OpenaiChat,
            b"{\"prompt\":\"p\",\"x\":\"\xff\"}",
            &mut |_| seen += 1,
        );
        assert_eq!(seen, 1);
    }
}
