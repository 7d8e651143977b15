//! Hashes of the tool calls of one generation, so that the same call can be recognised. Names and
//! arguments are not kept, and the key of the hashes is that of this process.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, DefaultHasher, Hasher};
use std::sync::LazyLock;
use tokengauge_core::call::Segment;

/// The most calls of one answer that are hashed.
const MAX_CALLS: usize = 32;

static KEY: LazyLock<RandomState> = LazyLock::new(RandomState::new);

/// The tool calls of one generation.
#[derive(Default)]
pub(crate) struct ToolCalls(Vec<ToolCall>);

struct ToolCall {
    segment: Segment,
    name: Option<u64>,
    arguments: Option<DefaultHasher>,
}

impl ToolCalls {
    /// The tool that the call of `segment` is for. Some servers repeat it.
    pub(crate) fn name(&mut self, segment: Segment, name: &str) {
        if let Some(call) = self.call(segment) {
            call.name = Some(KEY.hash_one(name));
        }
    }

    /// More of the arguments of the call of `segment`.
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

    /// A hash of name and arguments of each.
    pub(crate) fn hashes(&self) -> Box<[u64]> {
        let of = |call: &ToolCall| {
            let arguments = call.arguments.as_ref().map(Hasher::finish);
            KEY.hash_one((call.name, arguments))
        };
        self.0.iter().map(of).collect()
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
}
