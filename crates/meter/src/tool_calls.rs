//! The tool calls of one generation: the names of the tools, and a hash of each call that shows
//! repetitions. Arguments are not kept. The key of the hashes is random in each process.

use super::clip::remember;
use std::collections::BTreeSet;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, DefaultHasher, Hasher};
use std::sync::LazyLock;
use tokengauge_core::call::Segment;
use tokengauge_core::prompt::{MAX_TOOL_NAME, tool_name};

/// The limit for calls of one response that are hashed.
const MAX_CALLS: usize = 32;
/// The limit for all names together, in characters. The API has this limit for a name.
const MAX_NAMES: usize = 200;
/// Replaces the names beyond the limit.
const MORE: &str = "+other";

static KEY: LazyLock<RandomState> = LazyLock::new(RandomState::new);

#[derive(Default)]
pub(crate) struct ToolCalls(Vec<ToolCall>);

struct ToolCall {
    segment: Segment,
    name: Option<Box<str>>,
    arguments: Option<DefaultHasher>,
}

impl ToolCalls {
    pub(crate) fn name(&mut self, segment: Segment, name: &str) {
        if let Some(call) = self.call(segment) {
            remember(&mut call.name, name, MAX_TOOL_NAME);
        }
    }

    pub(crate) fn arguments(&mut self, segment: Segment, text: &str) {
        if let Some(call) = self.call(segment) {
            let hasher = call.arguments.get_or_insert_with(|| KEY.build_hasher());
            hasher.write(text.as_bytes());
        }
    }

    fn call(&mut self, segment: Segment) -> Option<&mut ToolCall> {
        let known = self.0.iter().rposition(|call| call.segment == segment);
        match known {
            Some(at) => self.0.get_mut(at),
            None if self.0.len() < MAX_CALLS => {
                self.0.push(ToolCall {
                    segment,
                    name: None,
                    arguments: None,
                });
                self.0.last_mut()
            }
            None => None,
        }
    }

    pub(crate) fn count(&self) -> u64 {
        self.0.len() as u64
    }

    pub(crate) fn hashes(&self) -> Box<[u64]> {
        let of = |call: &ToolCall| {
            let arguments = call.arguments.as_ref().map(Hasher::finish);
            KEY.hash_one((&call.name, arguments))
        };
        self.0.iter().map(of).collect()
    }

    /// The distinct names of the tools, in order and joined with `+`; `None` if there are none.
    /// Names beyond the limit become one `other`.
    pub(crate) fn names(&self) -> Option<String> {
        let names = self.0.iter().filter_map(|call| call.name.as_deref());
        let names: BTreeSet<String> = names.map(tool_name).collect();
        let mut joined = String::new();
        for name in names {
            let between = usize::from(!joined.is_empty());
            if joined.len() + between + name.len() + MORE.len() > MAX_NAMES {
                joined.push_str(MORE);
                break;
            }
            if between > 0 {
                joined.push('+');
            }
            joined.push_str(&name);
        }
        (!joined.is_empty()).then_some(joined)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokengauge_core::call::Channel;

    fn segment(index: u32) -> Segment {
        Segment {
            choice: 0,
            index,
            channel: Channel::ToolCall,
        }
    }

    fn hashes(name: &str, pieces: &[&str]) -> Box<[u64]> {
        let mut calls = ToolCalls::default();
        calls.name(segment(1), name);
        pieces
            .iter()
            .for_each(|piece| calls.arguments(segment(1), piece));
        calls.hashes()
    }

    #[test]
    fn the_same_call_has_the_same_hash_however_it_is_cut() {
        let whole = hashes("search", &["{\"q\":\"weather\"}"]);
        assert_eq!(whole.len(), 1);
        assert_eq!(whole, hashes("search", &["{\"q\":", "\"weat", "her\"}"]));
        assert_ne!(whole, hashes("search", &["{\"q\":\"news\"}"]));
        assert_ne!(whole, hashes("fetch", &["{\"q\":\"weather\"}"]));
        assert_ne!(hashes("search", &[]), hashes("search", &["{}"]));
    }

    #[test]
    fn calls_of_one_answer_are_told_apart_and_bounded() {
        let mut calls = ToolCalls::default();
        for index in 0..1_000 {
            calls.name(segment(index), "search");
            calls.arguments(segment(index), &index.to_string());
        }
        let mut hashes = calls.hashes().into_vec();
        hashes.sort_unstable();
        hashes.dedup();
        assert_eq!(hashes.len(), MAX_CALLS);
    }
    fn names(called: &[&str]) -> Option<String> {
        let mut calls = ToolCalls::default();
        for (index, name) in (0..).zip(called) {
            calls.arguments(segment(index), "{}");
            calls.name(segment(index), name);
        }
        calls.names()
    }

    #[test]
    fn names_are_each_once_and_in_order() {
        assert_eq!(
            names(&["search", "fetch", "search"]).as_deref(),
            Some("fetch+search")
        );
        assert_eq!(names(&[]), None);
        let mut nameless = ToolCalls::default();
        nameless.arguments(segment(0), "{}");
        assert_eq!(nameless.names(), None);
        let mut repeated = ToolCalls::default();
        repeated.name(segment(0), "fetch");
        repeated.name(segment(0), "fetch");
        assert_eq!(repeated.names().as_deref(), Some("fetch"));
    }

    #[test]
    fn names_are_those_of_functions_and_bounded() {
        assert_eq!(
            names(&["mcp__git.status-1", "a+b c\"é"]).as_deref(),
            Some("a_b_c__+mcp__git.status-1")
        );
        let long = "x".repeat(1_000);
        assert_eq!(
            names(&[&long]).map(|names| names.len()),
            Some(MAX_TOOL_NAME)
        );
        let many: Vec<String> = (10..40).map(|at| format!("{at}{long}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let joined = names(&many).expect("names");
        assert_eq!(joined.split('+').count(), 3 + 1, "{joined}");
        assert!(
            joined.ends_with("+other") && joined.len() <= MAX_NAMES,
            "{joined}"
        );
    }
}
