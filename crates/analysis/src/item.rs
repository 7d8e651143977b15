//! What is known about one section of a prompt. It is read once; when an agent sends the section
//! again, only its hash is compared.

use super::hash::Seeds;
use super::names::name;
use std::borrow::Cow;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use tokengauge_core::prompt::PromptPart;
use tokengauge_tokenizer as tokens;
use tokengauge_wire::{Part, Section, SectionKind, TextKind};

pub(crate) const PARTS: usize = PromptPart::ALL.len();
/// Tools of one section that are told apart.
const MAX_TOOLS: usize = 256;
/// How many bytes of a text are counted between pauses.
const SLICE: usize = 4096;

#[derive(Clone, Debug)]
pub(crate) struct Item {
    /// A hash of the parts. Equal parts have equal hashes, however they are written.
    pub(crate) content: u64,
    pub(crate) kind: SectionKind,
    /// Whether all text of a message belongs to a system prompt.
    pub(crate) is_instruction: bool,
    /// Whether the agent asks the provider to cache the prompt up to here.
    pub(crate) is_marked: bool,
    /// Tokens in the order of [`PromptPart::ALL`].
    pub(crate) tokens: [u32; PARTS],
    pub(crate) media: u32,
    pub(crate) media_bytes: u64,
    pub(crate) tools: Box<[ItemTool]>,
}

#[derive(Clone, Debug)]
pub(crate) enum ItemTool {
    Definition {
        name: Arc<str>,
        server: Option<Arc<str>>,
        tokens: u32,
    },
    Call {
        id: u64,
        name: Arc<str>,
        server: Option<Arc<str>>,
    },
    Result {
        id: u64,
        /// Empty if only the call has the name.
        name: Arc<str>,
        server: Option<Arc<str>>,
        /// Equal for the same result in another turn.
        key: u64,
        tokens: u32,
        is_error: bool,
        /// Whether the provider ran the tool, as part of the previous call.
        is_hosted: bool,
    },
}

impl Item {
    pub(crate) fn read(section: &Section<'_>, seeds: &Seeds, pause: &mut dyn FnMut()) -> Item {
        let mut reading = Reading {
            seeds,
            hasher: seeds.hasher(),
            has_text: false,
            item: Item {
                content: 0,
                kind: section.kind(),
                is_instruction: true,
                is_marked: is_marked(section.json()),
                tokens: [0; PARTS],
                media: 0,
                media_bytes: 0,
                tools: Box::default(),
            },
            tools: Vec::new(),
        };
        section.parts(&mut |part| reading.part(&part, pause));
        reading.finish()
    }

    pub(crate) fn total(&self) -> u64 {
        self.tokens.iter().copied().map(u64::from).sum()
    }

    /// Whether the section has nothing that a model reads.
    pub(crate) fn is_empty(&self) -> bool {
        self.total() == 0 && self.media == 0 && self.tools.is_empty()
    }

    pub(crate) fn has(&self, part: PromptPart) -> bool {
        self.tokens[part as usize] > 0
    }

    /// The name of the tool that a section defines.
    pub(crate) fn definition(&self) -> Option<&Arc<str>> {
        match self.tools.first() {
            Some(ItemTool::Definition { name, .. }) if self.kind == SectionKind::Tool => Some(name),
            _ => None,
        }
    }

    /// The approximate number of bytes that the item takes on the heap.
    pub(crate) fn heap_bytes(&self) -> usize {
        size_of::<Item>() + self.tools.len() * (size_of::<ItemTool>() + 32)
    }
}

struct Reading<'s, H> {
    seeds: &'s Seeds,
    hasher: H,
    has_text: bool,
    item: Item,
    tools: Vec<ItemTool>,
}

impl<H: Hasher> Reading<'_, H> {
    fn part(&mut self, part: &Part<'_>, pause: &mut dyn FnMut()) {
        match *part {
            Part::Text { kind, text } => self.text(kind, text, pause),
            Part::Tool { name: tool, server } => self.tool(ItemTool::Definition {
                name: name(tool),
                server: server.map(name),
                tokens: 0,
            }),
            Part::ToolCall {
                id,
                name: tool,
                server,
            } => {
                (1, id, tool).hash(&mut self.hasher);
                self.tool(ItemTool::Call {
                    id: self.seeds.short(id),
                    name: name(tool),
                    server: server.map(name),
                });
            }
            Part::ToolResult {
                id,
                name: tool,
                server,
                is_error,
                is_hosted,
            } => {
                (2, id, tool).hash(&mut self.hasher);
                let key = self.seeds.short((id, tool));
                self.tool(ItemTool::Result {
                    id: if id.is_empty() {
                        0
                    } else {
                        self.seeds.short(id)
                    },
                    name: if tool.is_empty() {
                        Arc::default()
                    } else {
                        name(tool)
                    },
                    server: server.map(name),
                    key,
                    tokens: 0,
                    is_error,
                    is_hosted,
                });
            }
            Part::Media { data, bytes } => {
                (3, data).hash(&mut self.hasher);
                self.item.media = self.item.media.saturating_add(1);
                self.item.media_bytes = self.item.media_bytes.saturating_add(bytes);
            }
        }
    }

    fn tool(&mut self, tool: ItemTool) {
        if self.tools.len() < MAX_TOOLS {
            self.tools.push(tool);
        }
    }

    fn text(&mut self, kind: TextKind, text: &str, pause: &mut dyn FnMut()) {
        let counted = count(text, pause);
        let counted = u32::try_from(counted).unwrap_or(u32::MAX);
        let part = &mut self.item.tokens[part_of(kind) as usize];
        *part = part.saturating_add(counted);
        self.has_text = true;
        self.item.is_instruction &= kind == TextKind::System;
        if kind == TextKind::ToolSchema {
            definition_without_mark(text).hash(&mut self.hasher);
        } else {
            (kind as u8, text).hash(&mut self.hasher);
        }
        match self.tools.last_mut() {
            Some(ItemTool::Definition { tokens, .. }) if kind == TextKind::ToolSchema => {
                *tokens = tokens.saturating_add(counted);
            }
            Some(ItemTool::Result {
                tokens, key, id, ..
            }) if kind == TextKind::ToolResult => {
                *tokens = tokens.saturating_add(counted);
                if *id == 0 {
                    *key = self.seeds.short((*key, text));
                }
            }
            _ => {}
        }
    }

    fn finish(mut self) -> Item {
        self.item.kind.hash(&mut self.hasher);
        self.item.content = self.hasher.finish();
        self.item.is_instruction &= self.has_text;
        self.item.tools = self.tools.into_boxed_slice();
        self.item
    }
}

fn is_marked(json: &str) -> bool {
    ["\"cache_control\"", "\"cachePoint\""]
        .iter()
        .any(|mark| json.contains(mark))
}

/// A definition of a tool without the mark at which a provider is asked to cache. Agents move the
/// mark, which is not part of the prompt.
fn definition_without_mark(json: &str) -> Cow<'_, str> {
    const MARK: &str = "\"cache_control\":";
    let Some(at) = json.find(MARK) else {
        return Cow::Borrowed(json);
    };
    let after = &json[at + MARK.len()..];
    let end = after.find('}').map_or(after.len(), |end| end + 1);
    let (before, after) = (json[..at].trim_end(), after[end..].trim_start());
    let joined = match (before.strip_suffix(','), after.strip_prefix(',')) {
        (Some(before), _) => [before, after],
        (None, Some(after)) => [before, after.trim_start()],
        (None, None) => [before, after],
    };
    Cow::Owned(joined.concat())
}

pub(crate) fn part_of(kind: TextKind) -> PromptPart {
    match kind {
        TextKind::System => PromptPart::System,
        TextKind::ToolSchema => PromptPart::ToolSchemas,
        TextKind::User => PromptPart::User,
        TextKind::Assistant => PromptPart::Assistant,
        TextKind::Reasoning => PromptPart::Reasoning,
        TextKind::ToolCall => PromptPart::ToolCalls,
        TextKind::ToolResult => PromptPart::ToolResults,
        TextKind::Other => PromptPart::Other,
    }
}

fn count(text: &str, pause: &mut dyn FnMut()) -> u64 {
    let mut counter = tokens::Counter::new();
    for slice in text.as_bytes().chunks(SLICE) {
        counter.push_bytes(slice);
        if slice.len() == SLICE {
            pause();
        }
    }
    counter.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokengauge_core::call::Dialect;
    use tokengauge_wire::request_sections;

    fn contents(body: &str) -> Vec<u64> {
        let seeds = shared_seeds();
        let mut found = Vec::new();
        request_sections(Dialect::Anthropic, body.as_bytes(), &mut |section| {
            found.push(Item::read(&section, seeds, &mut || {}).content);
        });
        found
    }

    fn shared_seeds() -> &'static Seeds {
        static SEEDS: std::sync::LazyLock<Seeds> = std::sync::LazyLock::new(Seeds::default);
        &SEEDS
    }

    #[test]
    fn marks_for_caches_and_the_form_of_json_do_not_change_a_section() {
        let plain = r#"{"messages":[{"role":"user","content":[{"type":"text","text":"hi é"}]}],"tools":[{"name":"f","description":"d"}]}"#;
        let marked = r#"{"messages":[{"content":[{"text":"hi \u00e9", "type":"text","cache_control":{"type":"ephemeral"}}],"role":"user"}],"tools":[{"name":"f","description":"d","cache_control":{"type":"ephemeral"}}]}"#;
        let marked_first = marked.replace(
            r#""name":"f","description":"d","cache_control":{"type":"ephemeral"}"#,
            r#""cache_control":{"type":"ephemeral"},"name":"f","description":"d""#,
        );
        assert_eq!(contents(plain), contents(marked));
        assert_eq!(contents(plain), contents(&marked_first));
        let other = plain.replace("\"d\"", "\"e\"");
        assert_eq!(contents(plain)[0], contents(&other)[0]);
        assert_ne!(contents(plain)[1], contents(&other)[1]);
        let other = plain.replace("user", "assistant");
        assert_ne!(contents(plain)[0], contents(&other)[0]);
    }
}
