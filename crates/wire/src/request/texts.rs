//! The prompt texts in a request body, for counting input tokens.

use super::part::Part;
use super::sections::{Section, request_sections};
use tokengauge_core::call::Dialect;

/// Calls `each` with every prompt text in a request body, in order: messages, instructions, tool
/// results, and the definition of each tool as JSON. The member of the body that has a syntax error,
/// and those after it, are omitted.
pub fn request_texts(dialect: Dialect, body: &[u8], each: &mut dyn FnMut(&str)) {
    request_sections(dialect, body, &mut |section| texts(section, each));
}

/// Calls `each` with the texts of the conversation only, in order. With each turn, an agent repeats
/// them and adds new ones.
pub fn conversation_texts(body: &[u8], each: &mut dyn FnMut(&str)) {
    let dialect = Dialect::OpenaiChat;
    request_sections(dialect, body, &mut |section| {
        if section.is_turn() {
            texts(section, each);
        }
    });
}

fn texts(section: Section<'_>, each: &mut dyn FnMut(&str)) {
    section.parts(&mut |part| {
        if let Part::Text { text, .. } = part {
            each(text);
        }
    });
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
                    "{\"type\":\"function\"}",
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
