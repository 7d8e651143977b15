//! What a simulated agent sends: a system prompt, definitions of tools, and a conversation that
//! grows with each call.

use crate::text_gen::{self, Random};
use serde_json::{Value, json};

/// The kind of conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    /// A new prompt for each call.
    Single,
    /// Messages of a person and answers.
    Chat,
    /// Tools and their results.
    Tools,
}

/// The tools of agents that have some. Common coding agents have tools with these names and purposes.
const TOOLS: [(&str, &str); 4] = [
    (
        "read_file",
        "Reads a file of the workspace and returns its lines with their numbers.",
    ),
    (
        "search",
        "Searches the workspace for a regular expression and returns the lines that match.",
    ),
    (
        "run_tests",
        "Runs the tests whose names contain a text and returns their output.",
    ),
    (
        "edit_file",
        "Replaces one occurrence of a text in a file of the workspace.",
    ),
];
/// Words in the description of a tool's parameters, so that definitions have a usual size.
const TOOL_WORDS: u64 = 120;
const SYSTEM_WORDS: u64 = 1_500;
/// The seed of the texts that every conversation has.
const FIXED_SEED: u64 = 54;
/// One result in this number is an error.
const ERROR_IN: u64 = 12;

#[derive(Clone, Debug)]
enum Item {
    User(String),
    Assistant(String, Vec<ToolCall>),
    Results(Vec<ToolResult>),
}

#[derive(Clone, Debug)]
struct ToolCall {
    id: String,
    name: &'static str,
    query: String,
}

#[derive(Clone, Debug)]
struct ToolResult {
    id: String,
    text: String,
    failed: bool,
}

/// A conversation in progress.
#[derive(Clone, Debug)]
pub(super) struct Conversation {
    style: Style,
    system: String,
    tools: Vec<Value>,
    items: Vec<Item>,
}

impl Conversation {
    /// A conversation that begins with a message of `words` words.
    pub(super) fn begin(style: Style, words: u64, random: &mut Random) -> Conversation {
        let with_tools = style == Style::Tools;
        // All conversations begin alike, so that caches know their beginning.
        let mut fixed = Random::new(FIXED_SEED);
        let tools = TOOLS.iter().filter(|_| with_tools);
        let tools = tools.map(|(name, about)| tool(name, about, &mut fixed));
        Conversation {
            style,
            tools: tools.collect(),
            system: match style {
                Style::Tools => text(SYSTEM_WORDS, &mut fixed),
                Style::Single | Style::Chat => String::new(),
            },
            items: vec![Item::User(text(words, random))],
        }
    }

    /// Adds an answer to the last message, and the next message: results of the tools that the
    /// answer calls, or `words` words of a person.
    pub(super) fn next(&mut self, words: u64, random: &mut Random) {
        let answer = text(40, random);
        match self.style {
            Style::Single => self.items.clear(),
            Style::Chat => self.items.push(Item::Assistant(answer, Vec::new())),
            Style::Tools => {
                let calls: Vec<ToolCall> = (0..=random.below(2)).map(|_| call(random)).collect();
                let results = calls.iter().map(|call| result(call, words, random));
                let results = results.collect();
                self.items.push(Item::Assistant(answer, calls));
                self.items.push(Item::Results(results));
                return;
            }
        }
        self.items.push(Item::User(text(words, random)));
    }

    /// Puts a number at the beginning of the system prompt, so that no cache has the prompt.
    pub(super) fn number(&mut self, number: u64) {
        let text = self.system.split_once("\n\n").map_or("", |(_, text)| text);
        let text = if text.is_empty() { &self.system } else { text };
        self.system = format!("Step {number}.\n\n{text}");
    }

    /// The body of a request in Anthropic's format.
    pub(super) fn anthropic(&self, model: &str) -> Value {
        let messages: Vec<Value> = self.items.iter().map(anthropic_message).collect();
        let mut body =
            json!({"model": model, "max_tokens": 4096, "stream": true, "messages": messages});
        if !self.tools.is_empty() {
            body["tools"] = self.tools.clone().into();
        }
        if !self.system.is_empty() {
            body["system"] = self.system.clone().into();
        }
        body
    }

    /// The messages in the format of OpenAI and Ollama. Tools are not written.
    pub(super) fn messages(&self) -> Vec<Value> {
        let texts = self.items.iter().filter_map(|item| match item {
            Item::User(text) => Some(("user", text)),
            Item::Assistant(text, _) => Some(("assistant", text)),
            Item::Results(_) => None,
        });
        texts
            .map(|(role, text)| json!({"role": role, "content": text}))
            .collect()
    }

    /// The last message of a person.
    pub(super) fn prompt(&self) -> &str {
        let mut texts = self.items.iter().rev().filter_map(|item| match item {
            Item::User(text) => Some(text.as_str()),
            _ => None,
        });
        texts.next().unwrap_or("")
    }
}

fn text(words: u64, random: &mut Random) -> String {
    text_gen::answer(words, random).concat()
}

fn tool(name: &str, about: &str, random: &mut Random) -> Value {
    let query = json!({"type": "string", "description": text(TOOL_WORDS, random)});
    let schema = json!({"type": "object", "properties": {"query": query}, "required": ["query"]});
    json!({"name": name, "description": about, "input_schema": schema})
}

fn call(random: &mut Random) -> ToolCall {
    let (name, _) = TOOLS[random.below(TOOLS.len() as u64) as usize];
    ToolCall {
        id: format!("toolu_{:016x}", random.bits()),
        name,
        query: text(8, random),
    }
}

fn result(call: &ToolCall, words: u64, random: &mut Random) -> ToolResult {
    ToolResult {
        id: call.id.clone(),
        text: text(words / 4 + random.below(words.max(1)), random),
        failed: random.below(ERROR_IN) == 0,
    }
}

fn anthropic_message(item: &Item) -> Value {
    match item {
        Item::User(text) => json!({"role": "user", "content": text}),
        Item::Assistant(text, calls) => {
            let mut blocks = vec![json!({"type": "text", "text": text})];
            blocks.extend(calls.iter().map(|call| {
                let input = json!({"query": call.query});
                json!({"type": "tool_use", "id": call.id, "name": call.name, "input": input})
            }));
            json!({"role": "assistant", "content": blocks})
        }
        Item::Results(results) => {
            let blocks = results.iter().map(|result| {
                json!({
                    "type": "tool_result", "tool_use_id": result.id, "content": result.text,
                    "is_error": result.failed,
                })
            });
            json!({"role": "user", "content": blocks.collect::<Vec<_>>()})
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_call_repeats_the_conversation_and_adds_the_results_of_tools() {
        let mut random = Random::new(1);
        let mut conversation = Conversation::begin(Style::Tools, 100, &mut random);
        let first = conversation.anthropic("m");
        conversation.next(50, &mut random);
        let second = conversation.anthropic("m");
        assert_eq!(first["tools"], second["tools"]);
        assert_eq!(first["system"], second["system"]);
        assert_eq!(first["messages"][0], second["messages"][0]);
        let asked = second["messages"][1]["content"][1]["id"].as_str();
        assert!(asked.is_some());
        let result = &second["messages"][2]["content"][0]["tool_use_id"];
        assert_eq!(result.as_str(), asked);
        conversation.number(7);
        let system = conversation.anthropic("m")["system"].to_string();
        assert!(system.starts_with("\"Step 7."), "{system}");
    }

    #[test]
    fn a_single_prompt_repeats_nothing() {
        let mut random = Random::new(1);
        let mut single = Conversation::begin(Style::Single, 30, &mut random);
        let first = single.prompt().to_owned();
        single.next(30, &mut random);
        assert_ne!(single.prompt(), first);
        assert_eq!(single.messages().len(), 1);
        let mut chat = Conversation::begin(Style::Chat, 30, &mut random);
        chat.next(30, &mut random);
        assert_eq!(chat.messages().len(), 3);
    }
}
