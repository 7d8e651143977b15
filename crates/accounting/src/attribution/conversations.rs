//! Guesses the session of agents that name none. An agent sends the whole conversation again with
//! each turn, so a call that begins with all texts of an earlier call continues that call. Only
//! hashes of the texts are kept, with a random salt for each process.

use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, DefaultHasher, Hash, Hasher, RandomState};
use std::sync::Arc;

/// Beyond this number of tracked calls the oldest are forgotten.
const MAX_KNOWN: usize = 10_000;
/// The fewest texts that a turn adds: the previous answer, and the reply to it.
const MIN_ADDED: usize = 2;

#[derive(Debug, Default)]
pub struct Conversations {
    salt: RandomState,
    known: Mutex<ConversationIndex>,
}

#[derive(Debug, Default)]
struct ConversationIndex {
    /// The session of each call and the position of the call in `order`, by the hash of all texts of the call.
    sessions: HashMap<u64, (Arc<str>, u64)>,
    order: VecDeque<(u64, u64)>,
    calls: u64,
}

#[derive(Debug)]
pub struct Prefixes {
    hasher: DefaultHasher,
    hashes: Vec<u64>,
}

impl Prefixes {
    pub fn push(&mut self, text: &str) {
        text.hash(&mut self.hasher);
        self.hashes.push(self.hasher.finish());
    }
}

impl Conversations {
    /// Starts with no texts of the agent that `who` identifies. Conversations of two agents that
    /// begin with equal texts are different.
    pub fn prefixes(&self, who: impl Hash) -> Prefixes {
        let mut hasher = self.salt.build_hasher();
        who.hash(&mut hasher);
        Prefixes {
            hasher,
            hashes: Vec::new(),
        }
    }

    /// The session of the latest call that these texts continue, or otherwise `new`; `None` without
    /// texts.
    pub fn session(&self, prefixes: &Prefixes, new: impl FnOnce() -> String) -> Option<Arc<str>> {
        let hashes = &prefixes.hashes;
        let whole = *hashes.last()?;
        let before = hashes.len().saturating_sub(MIN_ADDED);
        let mut known = self.known.lock();
        let earlier = hashes[..before].iter().rev();
        let mut earlier = earlier.filter_map(|hash| known.sessions.get(hash));
        let session = earlier.next().map(|(session, _)| Arc::clone(session));
        let session = session.unwrap_or_else(|| new().into());
        known.remember(whole, &session);
        Some(session)
    }
}

impl ConversationIndex {
    fn remember(&mut self, hash: u64, session: &Arc<str>) {
        self.calls += 1;
        self.sessions
            .insert(hash, (Arc::clone(session), self.calls));
        self.order.push_back((hash, self.calls));
        while self.order.len() > MAX_KNOWN
            && let Some((oldest, call)) = self.order.pop_front()
        {
            // This call may have been repeated in the meantime.
            let latest = self.sessions.get(&oldest).map(|(_, latest)| *latest);
            if latest == Some(call) {
                self.sessions.remove(&oldest);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The session of a call with these texts by `who`. `new` names a new session.
    fn session(all: &Conversations, who: &str, texts: &[&str], new: &str) -> Option<String> {
        let mut prefixes = all.prefixes(who);
        texts.iter().for_each(|text| prefixes.push(text));
        let session = all.session(&prefixes, || new.to_owned());
        session.map(|session| session.to_string())
    }

    #[test]
    fn a_turn_belongs_to_the_conversation_it_goes_on() {
        let all = Conversations::default();
        let is = |texts: &[&str], new: &str, expected: &str| {
            assert_eq!(session(&all, "a", texts, new).as_deref(), Some(expected));
        };
        is(&["be kind", "hi"], "1", "1");
        is(&["be kind", "bye"], "2", "2");
        is(&["be kind", "hi", "hello", "who?"], "3", "1");
        is(&["be kind", "hi", "hello", "who?", "me", "why?"], "4", "1");
        // The turn is repeated, as after a failure, and then another turn starts from there.
        is(&["be kind", "hi", "hello", "who?", "me", "why?"], "5", "1");
        is(
            &["be kind", "hi", "hello", "where?", "here", "so?"],
            "6",
            "1",
        );
        is(&["be kind", "bye", "ciao", "when?"], "7", "2");
        // Another split of the texts is another conversation.
        is(&["be kindhi", "hello", "who?"], "8", "8");
        assert_eq!(session(&all, "a", &[], "9"), None);
    }

    #[test]
    fn what_adds_no_answer_is_a_conversation_of_its_own() {
        let all = Conversations::default();
        let first = session(&all, "a", &["be kind"], "1");
        let second = session(&all, "a", &["be kind", "hi"], "2");
        let same = session(&all, "a", &["be kind", "hi"], "3");
        assert_eq!(
            (first.as_deref(), second.as_deref(), same.as_deref()),
            (Some("1"), Some("2"), Some("3"))
        );
    }

    #[test]
    fn agents_are_told_apart_and_so_are_processes() {
        let (one, other) = (Conversations::default(), Conversations::default());
        session(&one, "a", &["hi"], "1");
        let turn = ["hi", "hello", "who?"];
        assert_eq!(session(&one, "b", &turn, "2").as_deref(), Some("2"));
        assert_eq!(session(&other, "a", &turn, "3").as_deref(), Some("3"));
        assert_eq!(session(&one, "a", &turn, "4").as_deref(), Some("1"));
    }

    #[test]
    fn no_more_are_remembered_than_may_be_the_oldest_go_first() {
        let all = Conversations::default();
        let hi = |number: usize| format!("hi {number}");
        for number in 0..MAX_KNOWN {
            session(&all, "a", &[&hi(number)], &number.to_string());
        }
        let turn = |number: usize| session(&all, "a", &[&hi(number), "x", "y"], "new");
        assert_eq!(turn(0).as_deref(), Some("0"));
        // The turn replaced the first call.
        assert_eq!(turn(0).as_deref(), Some("new"));
        assert_eq!(turn(MAX_KNOWN - 1).as_deref(), Some("9999"));
        let known = all.known.lock();
        assert!(known.sessions.len() <= MAX_KNOWN && known.order.len() <= MAX_KNOWN);
    }
}
