//! What a prompt consists of.

use super::item::ItemTool;
use super::turn::Sequence;
use std::collections::BTreeSet;
use std::sync::Arc;
use tokengauge_core::hash::FastMap;
use tokengauge_core::prompt::{MAX_TOOLS, OTHER_TOOLS, PromptPart, PromptParts, PromptTool};

/// The parts of a prompt, and the tools that have results which the turn before did not have.
pub(crate) struct Composition {
    pub(crate) parts: PromptParts,
    pub(crate) new_results: BTreeSet<Arc<str>>,
}

type Named<'a> = (&'a Arc<str>, Option<&'a Arc<str>>);

/// Adds up a prompt. `is_known` says whether the turn before had a result with this key.
pub(crate) fn compose(sequence: &Sequence<'_>, is_known: impl Fn(u64) -> bool) -> Composition {
    let mut parts = PromptParts::default();
    let mut new_results = BTreeSet::new();
    let mut tools: FastMap<&str, PromptTool> = FastMap::default();
    let mut calls: FastMap<u64, Named<'_>> = FastMap::default();
    let nameless: Arc<str> = "tool".into();
    for item in &sequence.items {
        for (part, tokens) in PromptPart::ALL.iter().zip(item.tokens) {
            *parts.part_mut(*part) += u64::from(tokens);
        }
        parts.media += u64::from(item.media);
        parts.media_bytes = parts.media_bytes.saturating_add(item.media_bytes);
        for tool in &item.tools {
            match tool {
                ItemTool::Definition {
                    name,
                    server,
                    tokens,
                } => {
                    entry(&mut tools, name, server.as_ref()).schema += u64::from(*tokens);
                }
                ItemTool::Call { id, name, server } => {
                    calls.insert(*id, (name, server.as_ref()));
                }
                ItemTool::Result {
                    id,
                    name,
                    server,
                    key,
                    tokens,
                    is_error,
                } => {
                    let (named, at) = calls.get(id).copied().unwrap_or((name, server.as_ref()));
                    let known = [named, name].into_iter().find(|name| !name.is_empty());
                    let named = known.cloned().unwrap_or_else(|| Arc::clone(&nameless));
                    let name: &str = known.map_or("tool", |name| name);
                    let tool = entry(&mut tools, name, at.or(server.as_ref()));
                    if is_known(*key) {
                        tool.resent_results += u64::from(*tokens);
                    } else {
                        tool.new_results += u64::from(*tokens);
                        tool.calls += 1;
                        tool.failures += u64::from(*is_error);
                        new_results.insert(named);
                    }
                }
            }
        }
    }
    parts.tools = bounded(tools.into_values().collect());
    Composition { parts, new_results }
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
