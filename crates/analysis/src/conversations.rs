//! The last turns of conversations, by which the next turn finds the previous one.

use super::block_chain::BLOCK_TOKENS;
use super::lru::Lru;
use super::turn::{Change, TurnItem};
use std::collections::VecDeque;
use std::time::{Duration, Instant};
use tokengauge_core::hash::FastMap;
use tokengauge_core::prompt_cache::CachedTurn;

/// A turn that ended longer ago is not continued.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(60 * 60);
/// Turns of a conversation that can be continued. Only the last one usually is.
const MAX_TURNS: usize = 64;

/// A finished call.
#[derive(Clone, Debug)]
pub(crate) struct Turn {
    /// Increases with each turn of the process.
    pub(crate) number: u64,
    /// The number of sections of the prompt.
    pub(crate) items: usize,
    pub(crate) ended: Instant,
    pub(crate) complete: bool,
    pub(crate) cache: Option<CachedTurn>,
    pub(crate) model: u64,
    /// The upstream and its endpoint.
    pub(crate) place: u64,
    /// The names under which the turn is found.
    pub(crate) keys: Keys,
}

/// The turn whose cache a prompt could have used.
#[derive(Clone, Debug)]
pub(crate) struct Before {
    pub(crate) turn: Turn,
    pub(crate) change: Option<Change>,
    pub(crate) mark: Option<u64>,
    pub(crate) shows_cache: bool,
}

/// The names under which a turn is found, from the most to the least exact.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Keys {
    /// All messages, tools and instructions.
    pub(crate) strict: Option<u64>,
    /// All messages.
    pub(crate) loose: Option<u64>,
    /// The session and the agent.
    pub(crate) session: Option<u64>,
}

impl Keys {
    fn iter(self) -> impl Iterator<Item = u64> {
        [self.strict, self.loose, self.session]
            .into_iter()
            .flatten()
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Conversation {
    pub(crate) items: Vec<TurnItem>,
    pub(crate) blocks: Vec<u64>,
    /// The results of tools: the number of the section, and the key of the result.
    pub(crate) results: Vec<(u32, u64)>,
    turns: VecDeque<Turn>,
}

impl Conversation {
    /// The last turn up to `number` whose provider reported what it cached.
    pub(crate) fn cached_before(&self, number: u64) -> Option<&Turn> {
        let turns = self.turns.iter().rev();
        let mut turns = turns.skip_while(|turn| turn.number > number);
        turns.find(|turn| turn.cache.is_some())
    }

    /// The number of sections of the last complete turn before the turn `number`.
    pub(crate) fn complete_before(&self, number: u64) -> usize {
        let turns = self.turns.iter().rev();
        let mut turns = turns.skip_while(|turn| turn.number >= number);
        turns
            .find(|turn| turn.complete)
            .map_or(0, |turn| turn.items)
    }

    /// The number of the last turn, if it ended before `started`.
    pub(crate) fn last_before(&self, started: Instant) -> Option<u64> {
        let last = self.turns.back().filter(|last| last.ended <= started);
        last.map(|last| last.number)
    }

    /// Whether the provider cached any turn.
    pub(crate) fn shows_cache(&self) -> bool {
        let shows = |turn: &Turn| turn.cache.is_some_and(|cache| cache.shows);
        self.turns.iter().any(shows)
    }

    /// The blocks of the first `items` sections.
    pub(crate) fn blocks_of(&self, items: usize) -> &[u64] {
        let last = items.checked_sub(1).and_then(|last| self.items.get(last));
        let tokens = last.map_or(0, |last| last.end);
        let blocks = usize::try_from(tokens / BLOCK_TOKENS).unwrap_or(usize::MAX);
        &self.blocks[..blocks.min(self.blocks.len())]
    }

    fn truncate(&mut self, items: usize) {
        let blocks = self.blocks_of(items).len();
        self.blocks.truncate(blocks);
        self.items.truncate(items);
        self.results.retain(|(item, _)| (*item as usize) < items);
    }

    fn heap_bytes(&self) -> usize {
        self.items.capacity() * size_of::<TurnItem>()
            + self.blocks.capacity() * size_of::<u64>()
            + self.results.capacity() * size_of::<(u32, u64)>()
            // Each turn has up to three names.
            + self.turns.capacity() * (size_of::<Turn>() + 3 * 48)
    }
}

/// The position of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) conversation: u64,
    pub(crate) number: u64,
}

/// What a turn adds to the conversation that it continues.
pub(crate) struct Addition {
    /// The previous turn, and the number of sections that both turns begin with.
    pub(crate) after: Option<(Place, usize)>,
    pub(crate) items: Vec<TurnItem>,
    pub(crate) blocks: Vec<u64>,
    pub(crate) results: Vec<(u32, u64)>,
    pub(crate) turn: Turn,
}

#[derive(Default)]
pub(crate) struct Conversations {
    all: Lru<u64, Conversation>,
    index: FastMap<u64, Place>,
    next: u64,
}

impl Conversations {
    pub(crate) fn bytes(&self) -> usize {
        self.all.bytes()
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.all.len()
    }

    pub(crate) fn get(&self, place: Place) -> Option<(&Conversation, &Turn)> {
        let conversation = self.all.peek(&place.conversation)?;
        let mut turns = conversation.turns.iter().rev();
        let turn = turns.find(|turn| turn.number == place.number)?;
        Some((conversation, turn))
    }

    /// The first turn under `keys` that ended before `started`, but not too long before.
    pub(crate) fn find(&self, keys: impl Iterator<Item = u64>, started: Instant) -> Option<Place> {
        let continues = |place: &Place| {
            let (_, turn) = self.get(*place)?;
            let idle = started.checked_duration_since(turn.ended)?;
            (idle <= FORGOTTEN_AFTER).then_some(())
        };
        let mut keys = keys.filter_map(|key| self.index.get(&key));
        keys.find(|place| continues(place).is_some()).copied()
    }

    /// Adds a turn. A turn that continues the last one of its conversation extends it. Any other
    /// begins a conversation with a copy of what both have.
    pub(crate) fn add(&mut self, mut added: Addition) {
        self.next += 1;
        let number = self.next;
        added.turn.number = number;
        let known = added.after.and_then(|(place, common)| {
            let known = self.all.peek(&place.conversation)?;
            let last = known.turns.back().map(|turn| turn.number);
            Some((place, common, last == Some(place.number)))
        });
        if known.is_none() && added.after.is_some() {
            // The previous turn was forgotten meanwhile.
            return;
        }
        let (id, mut conversation) = match known {
            Some((place, common, true)) => (place.conversation, self.taken(place, common)),
            Some((place, common, false)) => (number, self.copied(place, common)),
            None => (number, Conversation::default()),
        };
        conversation.items.extend(added.items);
        conversation.blocks.extend(added.blocks);
        conversation.results.extend(added.results);
        for key in added.turn.keys.iter() {
            let conversation = id;
            self.index.insert(
                key,
                Place {
                    conversation,
                    number,
                },
            );
        }
        conversation.turns.push_back(added.turn);
        if conversation.turns.len() > MAX_TURNS
            && let Some(oldest) = conversation.turns.pop_front()
        {
            self.unname(&oldest);
        }
        let bytes = conversation.heap_bytes();
        self.all.insert(id, conversation, bytes);
    }

    /// The conversation without what its next turn changed.
    fn taken(&mut self, place: Place, common: usize) -> Conversation {
        let mut conversation = self.all.remove(&place.conversation).unwrap_or_default();
        conversation.truncate(common);
        let (kept, gone) = std::mem::take(&mut conversation.turns)
            .into_iter()
            .partition(|turn: &Turn| turn.items <= common);
        conversation.turns = kept;
        let gone: VecDeque<Turn> = gone;
        gone.iter().for_each(|turn| self.unname(turn));
        conversation
    }

    fn copied(&self, place: Place, common: usize) -> Conversation {
        let Some(known) = self.all.peek(&place.conversation) else {
            return Conversation::default();
        };
        let mut conversation = Conversation {
            turns: VecDeque::new(),
            ..known.clone()
        };
        conversation.truncate(common);
        conversation
    }

    pub(crate) fn forget_oldest(&mut self) -> bool {
        let Some((_, conversation)) = self.all.pop_oldest() else {
            return false;
        };
        conversation.turns.iter().for_each(|turn| self.unname(turn));
        true
    }

    fn unname(&mut self, turn: &Turn) {
        for key in turn.keys.iter() {
            if self
                .index
                .get(&key)
                .is_some_and(|place| place.number == turn.number)
            {
                self.index.remove(&key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block_chain::ChainState;
    use tokengauge_wire::SectionKind;

    fn turn(keys: Keys, items: usize, at: Instant) -> Turn {
        Turn {
            number: 0,
            items,
            ended: at,
            complete: true,
            cache: None,
            model: 0,
            place: 0,
            keys,
        }
    }

    fn item(content: u64, end: u64) -> TurnItem {
        TurnItem {
            content,
            name: 0,
            kind: SectionKind::Message,
            end,
            state: ChainState::default(),
            is_marked: false,
        }
    }

    fn loose(key: u64) -> Keys {
        Keys {
            loose: Some(key),
            ..Keys::default()
        }
    }

    fn add(
        all: &mut Conversations,
        key: u64,
        after: Option<(Place, usize)>,
        items: &[u64],
        at: Instant,
    ) {
        let before = after.map_or(0, |(_, common)| common);
        let ends = (before as u64 + 1..).map(|number| number * 64);
        all.add(Addition {
            after,
            items: items
                .iter()
                .zip(ends)
                .map(|(content, end)| item(*content, end))
                .collect(),
            blocks: items.to_vec(),
            results: Vec::new(),
            turn: turn(loose(key), before + items.len(), at),
        });
    }

    #[test]
    fn a_conversation_grows_and_forks_and_is_forgotten() {
        let at = Instant::now();
        let later = at + Duration::from_secs(1);
        let mut all = Conversations::default();
        let find = |all: &Conversations, key, at| all.find([key].into_iter(), at);
        add(&mut all, 1, None, &[10], at);
        let first = find(&all, 1, later).expect("known");
        assert_eq!(
            find(&all, 1, at - Duration::from_nanos(1)),
            None,
            "still runs"
        );
        assert_eq!(
            find(&all, 1, at + FORGOTTEN_AFTER * 2),
            None,
            "too long ago"
        );
        add(&mut all, 2, Some((first, 1)), &[20], at);
        assert_eq!((all.len(), find(&all, 1, later)), (1, Some(first)));
        // The first turn is continued a second time.
        add(&mut all, 3, Some((first, 1)), &[30], at);
        let fork = find(&all, 3, later)
            .and_then(|place| all.get(place))
            .expect("known")
            .0;
        assert_eq!((all.len(), &fork.blocks[..]), (2, &[10, 30][..]));
        // A change at the beginning replaces the conversation.
        let second = find(&all, 2, later).expect("known");
        add(&mut all, 4, Some((second, 0)), &[40], at);
        assert_eq!(
            (all.len(), find(&all, 1, later), find(&all, 2, later)),
            (2, None, None)
        );
        while all.forget_oldest() {}
        assert_eq!((all.len(), all.index.len(), all.bytes()), (0, 0, 0));
    }

    #[test]
    fn turns_of_one_conversation_are_bounded() {
        let at = Instant::now();
        let mut all = Conversations::default();
        add(&mut all, 0, None, &[0], at);
        for key in 1..500 {
            let before = all.find([key - 1].into_iter(), at).expect("known");
            add(&mut all, key, Some((before, key as usize)), &[key], at);
        }
        assert_eq!((all.len(), all.index.len()), (1, MAX_TURNS));
    }
}
