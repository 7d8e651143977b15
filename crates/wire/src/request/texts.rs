//! The prompt texts in a request body, for counting input tokens.

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use std::fmt;
use tokengauge_core::call::Dialect;

/// Calls `each` with every prompt text in a request body, in order: messages, instructions, tool
/// results, and the definitions of tools as JSON. Nothing is copied. Texts after a section that
/// cannot be read are omitted.
pub fn request_texts(dialect: Dialect, body: &[u8], each: &mut dyn FnMut(&str)) {
    if dialect == Dialect::Unknown {
        return;
    }
    let mut reader = serde_json::Deserializer::from_slice(body);
    let visitor = TextVisitor {
        section: Section::Body,
        each,
    };
    // Texts before a syntax error count.
    let _ = visitor.deserialize(&mut reader);
}

/// Calls `each` with the texts of the conversation only, in order. With each turn, an agent repeats
/// them and adds new ones.
pub fn conversation_texts(body: &[u8], each: &mut dyn FnMut(&str)) {
    let mut reader = serde_json::Deserializer::from_slice(body);
    let visitor = TextVisitor {
        section: Section::Request,
        each,
    };
    // Texts before a syntax error count.
    let _ = visitor.deserialize(&mut reader);
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Section {
    /// The body itself, in which strings are settings.
    Body,
    /// The body itself, if only the conversation is read.
    Request,
    Prompt,
    /// Any structure whose strings are all part of the prompt.
    Material,
}

enum KeyAction {
    Into(Section),
    /// A string as text, any other value as JSON.
    Json,
    Skip,
}

impl Section {
    fn action(self, key: &str) -> KeyAction {
        match self {
            Section::Body => body_action(key),
            Section::Request => conversation_action(key),
            Section::Prompt => prompt_action(key),
            Section::Material => KeyAction::Into(Section::Material),
        }
    }
}

fn body_action(key: &str) -> KeyAction {
    match key {
        "messages" | "system" | "instructions" | "input" | "prompt" | "suffix" | "contents"
        | "content" | "requests" | "systemInstruction" | "system_instruction" | "message"
        | "chat_history" | "preamble" | "inputs" | "inputText" | "query" => {
            KeyAction::Into(Section::Prompt)
        }
        "documents" | "texts" => KeyAction::Into(Section::Material),
        "tools" | "functions" | "toolConfig" | "tool_results" => KeyAction::Json,
        // Code Assist's envelope.
        "request" => KeyAction::Into(Section::Body),
        _ => KeyAction::Skip,
    }
}

/// Members with messages, oldest first.
fn conversation_action(key: &str) -> KeyAction {
    match key {
        "messages" | "input" | "contents" => KeyAction::Into(Section::Prompt),
        "request" => KeyAction::Into(Section::Request),
        _ => KeyAction::Skip,
    }
}

/// Members of a message or of a part. All others are not text: roles, ids, images, signatures.
fn prompt_action(key: &str) -> KeyAction {
    match key {
        "content"
        | "parts"
        | "text"
        | "message"
        | "thinking"
        | "reasoning_content"
        | "reasoning"
        | "refusal"
        | "summary"
        | "output"
        | "transcript"
        | "function"
        | "tool_calls"
        | "function_call"
        | "functionCall"
        | "functionResponse"
        | "executableCode"
        | "codeExecutionResult"
        | "code"
        | "toolUse"
        | "toolResult"
        | "reasoningContent"
        | "reasoningText"
        | "tool_plan"
        | "guardContent"
        | "document"
        | "source"
        | "context" => KeyAction::Into(Section::Prompt),
        "input" | "arguments" | "args" | "response" | "json" | "parameters" | "outputs" => {
            KeyAction::Json
        }
        _ => KeyAction::Skip,
    }
}

struct TextVisitor<'e> {
    section: Section,
    each: &'e mut dyn FnMut(&str),
}

impl TextVisitor<'_> {
    fn emit(self, text: &str) {
        if !matches!(self.section, Section::Body | Section::Request) && !text.is_empty() {
            (self.each)(text);
        }
    }
}

impl<'de> DeserializeSeed<'de> for TextVisitor<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for TextVisitor<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a request body")
    }

    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        self.emit(text);
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let TextVisitor { section, each } = self;
        while items
            .next_element_seed(TextVisitor { section, each })?
            .is_some()
        {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        let TextVisitor { section, each } = self;
        while let Some(action) = entries.next_key_seed(KeySeed(section))? {
            match action {
                KeyAction::Into(section) => {
                    entries.next_value_seed(TextVisitor { section, each })?
                }
                KeyAction::Json => json(entries.next_value()?, each),
                KeyAction::Skip => drop(entries.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }
}

fn json(value: &RawValue, each: &mut dyn FnMut(&str)) {
    if value.get().starts_with('"') {
        let visitor = TextVisitor {
            section: Section::Material,
            each,
        };
        let _ = visitor.deserialize(&mut serde_json::Deserializer::from_str(value.get()));
    } else if value.get() != "null" {
        each(value.get());
    }
}

/// Reads a key without copying it.
struct KeySeed(Section);

impl<'de> DeserializeSeed<'de> for KeySeed {
    type Value = KeyAction;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<KeyAction, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for KeySeed {
    type Value = KeyAction;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a key")
    }

    fn visit_str<E>(self, key: &str) -> Result<KeyAction, E> {
        Ok(self.0.action(key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(body: &str) -> Vec<String> {
        let mut found = Vec::new();
        request_texts(Dialect::OpenaiChat, body.as_bytes(), &mut |text| {
            found.push(text.to_owned());
        });
        found
    }

    #[test]
    fn every_prompt_text_is_given_and_nothing_else() {
        for (body, expected) in [
            (
                r#"{"model":"m","messages":[{"role":"system","content":"be \"kind\""},{"role":"user","name":"bob","content":[{"type":"text","text":"hi"},{"type":"image_url","image_url":{"url":"data:AAAA"}}]},{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{\"a\":1}"}}]},{"role":"tool","tool_call_id":"c1","content":"42"}],"tools":[{"type":"function"}],"user":"u"}"#,
                vec![
                    "be \"kind\"",
                    "hi",
                    "{\"a\":1}",
                    "42",
                    "[{\"type\":\"function\"}]",
                ],
            ),
            (
                r#"{"system":[{"type":"text","text":"sys","cache_control":{"type":"ephemeral"}}],"messages":[{"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"SIG"},{"type":"tool_use","id":"t","name":"f","input":{"a":1}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":[{"type":"text","text":"ok"}]},{"type":"image","source":{"type":"base64","data":"AAAA"}}]}]}"#,
                vec!["sys", "hm", "{\"a\":1}", "ok"],
            ),
            (
                r#"{"instructions":"do","input":[{"role":"user","content":[{"type":"input_text","text":"q"}]},{"type":"function_call","call_id":"c","name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"c","output":"r"},{"type":"reasoning","encrypted_content":"XX","summary":[]}]}"#,
                vec!["do", "q", "{}", "r"],
            ),
            (
                r#"{"systemInstruction":{"parts":[{"text":"s"}]},"contents":[{"role":"user","parts":[{"text":"q"},{"inlineData":{"mimeType":"image/png","data":"AAAA"}}]},{"parts":[{"functionCall":{"name":"f","args":{"x":[1]}},"thoughtSignature":"SIG"},{"functionResponse":{"name":"f","response":{"y":2}}}]}]}"#,
                vec!["s", "q", "{\"x\":[1]}", "{\"y\":2}"],
            ),
            (
                r#"{"system":[{"text":"s"}],"messages":[{"role":"user","content":[{"text":"q"},{"toolResult":{"toolUseId":"t","content":[{"json":{"a":1}},{"text":"r"}]}}]}],"inferenceConfig":{"stopSequences":["no"]}}"#,
                vec!["s", "q", "{\"a\":1}", "r"],
            ),
            (
                r#"{"messages":[{"content":[{"guardContent":{"text":{"text":"g","qualifiers":["query"]}}},{"document":{"format":"txt","name":"n","source":{"text":"d"},"context":"c"}},{"image":{"source":{"bytes":"AAAA"}}}]}]}"#,
                vec!["g", "d", "c"],
            ),
            (
                r#"{"model":"g","request":{"systemInstruction":{"parts":[{"text":"s"}]},"contents":[{"parts":[{"text":"q"}]}],"session_id":"no"}}"#,
                vec!["s", "q"],
            ),
            (r#"{"prompt":["a","b"],"stop":["no"]}"#, vec!["a", "b"]),
            (r#"{"prompt":[1,2,3],"template":"no"}"#, vec![]),
            (r#"{"input":["a","b"],"model":"e"}"#, vec!["a", "b"]),
            (
                r#"{"query":"q","documents":["d",{"title":"t","text":"u"}]}"#,
                vec!["q", "d", "t", "u"],
            ),
            (
                r#"{"message":"m","preamble":"p","chat_history":[{"role":"USER","message":"h"}]}"#,
                vec!["m", "p", "h"],
            ),
        ] {
            assert_eq!(texts(body), expected, "{body}");
        }
    }

    #[test]
    fn a_body_that_breaks_off_gives_what_came_before() {
        assert_eq!(texts(r#"{"system":"s","messages":[{"content":"#), ["s"]);
    }

    #[test]
    fn nothing_is_read_of_an_unknown_dialect() {
        request_texts(Dialect::Unknown, br#"{"prompt":"p"}"#, &mut |_| {
            panic!("read")
        });
    }
}
