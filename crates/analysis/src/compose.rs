//! What a prompt consists of.

use super::item::ItemTool;
use super::turn::Sequence;
use std::collections::BTreeSet;
use std::sync::Arc;
use tokengauge_core::hash::FastMap;
use tokengauge_core::prompt::{MAX_TOOLS, OTHER_TOOLS, PromptPart, PromptParts, PromptTool};

/// The parts of a prompt, and the tools with results that the previous turn did not have.
pub(crate) struct Composition {
    pub(crate) parts: PromptParts,
    pub(crate) new_results: BTreeSet<Arc<str>>,
}

/// Adds up a prompt. `is_known` says whether the previous turn had a result with this key.
pub(crate) fn compose(sequence: &Sequence<'_>, is_known: impl Fn(u64) -> bool) -> Composition {
    let mut parts = PromptParts::default();
    let mut tools = Tools::default();
    for item in &sequence.items {
        for (part, tokens) in PromptPart::ALL.iter().zip(item.tokens) {
            *parts.part_mut(*part) += u64::from(tokens);
        }
        parts.media += u64::from(item.media);
        parts.media_bytes = parts.media_bytes.saturating_add(item.media_bytes);
        for tool in &item.tools {
            tools.add(tool, &is_known);
        }
    }
    parts.tools = bounded(tools.by_name.into_values().collect());
    Composition {
        parts,
        new_results: tools.new_results,
    }
}

/// A tool without a name.
const NAMELESS: &str = "tool";

#[derive(Default)]
struct Tools<'a> {
    by_name: FastMap<&'a str, PromptTool>,
    /// The names of tools and servers, by the id of the call.
    calls: FastMap<u64, (&'a str, Option<&'a Arc<str>>)>,
    new_results: BTreeSet<Arc<str>>,
}

impl<'a> Tools<'a> {
    fn add(&mut self, tool: &'a ItemTool, is_known: impl Fn(u64) -> bool) {
        match tool {
            ItemTool::Definition {
                name,
                server,
                tokens,
            } => entry(&mut self.by_name, name, server.as_ref()).schema += u64::from(*tokens),
            ItemTool::Call { id, name, server } => {
                self.calls.insert(*id, (name, server.as_ref()));
            }
            ItemTool::Result {
                id,
                name,
                server,
                key,
                tokens,
                is_error,
                is_hosted,
            } => {
                let (called, at) = self.calls.get(id).copied().unwrap_or_default();
                let names = [called, name, NAMELESS].into_iter();
                let name = names.into_iter().find(|name| !name.is_empty());
                let name = name.unwrap_or(NAMELESS);
                let tool = entry(&mut self.by_name, name, at.or(server.as_ref()));
                if is_known(*key) {
                    tool.resent_results += u64::from(*tokens);
                    return;
                }
                tool.new_results += u64::from(*tokens);
                tool.calls += 1;
                tool.failures += u64::from(*is_error);
                if !is_hosted {
                    self.new_results.insert(name.into());
                }
            }
        }
    }
}

fn entry<'m, 'a>(
    tools: &'m mut FastMap<&'a str, PromptTool>,
    name: &'a str,
    server: Option<&Arc<str>>,
) -> &'m mut PromptTool {
    let tool = tools.entry(name).or_insert_with(|| PromptTool {
        name: name.to_owned(),
        ..PromptTool::default()
    });
    if let (None, Some(server)) = (&tool.server, server) {
        tool.server = Some(server.to_string());
    }
    tool
}

/// The largest tools, and the sum of the others.
fn bounded(mut tools: Vec<PromptTool>) -> Vec<PromptTool> {
    tools.sort_by(|one, other| (other.total(), &one.name).cmp(&(one.total(), &other.name)));
    if tools.len() > MAX_TOOLS {
        let mut rest = PromptTool {
            name: OTHER_TOOLS.to_owned(),
            ..PromptTool::default()
        };
        for tool in tools.drain(MAX_TOOLS - 1..) {
            rest.schema += tool.schema;
            rest.new_results += tool.new_results;
            rest.resent_results += tool.resent_results;
            rest.calls += tool.calls;
            rest.failures += tool.failures;
        }
        tools.push(rest);
    }
    tools
}
