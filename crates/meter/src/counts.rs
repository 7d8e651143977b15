//! Exact running token counts of all texts of one generation.

use super::repetition::{Found, MAX_PUSH, Watch};
use super::script::{Script, Scripts};
use std::sync::Arc;
use tokengauge_core::call::{Channel, Segment};
use tokengauge_core::memory::Memory;
use tokengauge_core::prompt::Repetition;
use tokengauge_tokenizer::Counter;

/// The limit for open texts. Beyond it the text that was idle longest is closed. If a closed text
/// continues, the rest counts as a new text.
const MAX_OPEN: usize = 256;
/// The limit for open texts that are searched for repetitions. Beyond it the text that was idle
/// longest is no longer searched.
const MAX_WATCHED: usize = 8;
/// Shorter texts are not searched, because most answers are short.
const WATCHED_FROM: u32 = 64;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ByChannel {
    pub(crate) answer: u64,
    pub(crate) reasoning: u64,
    pub(crate) tool_call: u64,
}

impl ByChannel {
    pub(crate) fn all(&self) -> u64 {
        self.answer + self.reasoning + self.tool_call
    }

    pub(crate) fn answered(&self) -> u64 {
        self.answer + self.tool_call
    }

    pub(crate) fn of(&mut self, channel: Channel) -> &mut u64 {
        match channel {
            Channel::Answer => &mut self.answer,
            Channel::Reasoning => &mut self.reasoning,
            Channel::ToolCall => &mut self.tool_call,
        }
    }
}

struct OpenText {
    segment: Segment,
    counter: Counter,
    counted: u64,
    settled: u64,
    /// Whether text was added after `counter` counted last.
    changed: bool,
    chunk: u32,
    /// The tokens of the generation before this text.
    offset: u32,
    watch: Option<Box<Watch>>,
    /// The count at which a watch begins.
    watch_from: u32,
}

impl OpenText {
    /// Returns whether the text must be watched from now on.
    fn push(&mut self, text: &str, repeats: &mut bool) -> bool {
        self.counter.push(text);
        let Some(watch) = &mut self.watch else {
            return self.counter.count() >= u64::from(self.watch_from);
        };
        if watch.push(text.as_bytes()) {
            *repeats |= watch.check(self.counter.count());
        }
        false
    }

    fn found(&self) -> Option<Found> {
        let found = self.watch.as_ref()?.found()?;
        Some(found.after(self.offset.into()))
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ChunkContent {
    pub(crate) text: bool,
    pub(crate) answer: bool,
}

#[derive(Default)]
pub(crate) struct Counts {
    open: Vec<OpenText>,
    /// The index of the text that was continued last. At most [`MAX_OPEN`].
    current: u16,
    running: ByChannel,
    settled: ByChannel,
    content: ChunkContent,
    chunk: u32,
    /// The first choice and 1; 0 before any.
    first_choice: u32,
    pub(crate) several_choices: bool,
    /// The scripts of reasoning, then of all other text.
    reasoning_scripts: Scripts,
    other_scripts: Scripts,
    tool_calls: u32,
    /// The memory for watches; `None` if repetitions are not searched.
    memory: Option<Arc<Memory>>,
    /// Whether a text repeats itself, and the repetitions of texts that are no longer watched.
    repeats: bool,
    /// Boxed, because few texts repeat themselves.
    repeated: Option<Box<Found>>,
    unsearched: u16,
}

impl Counts {
    /// Searches texts of at least [`WATCHED_FROM`] tokens for repetitions, within this memory.
    pub(crate) fn watch_within(&mut self, memory: &Arc<Memory>) {
        self.memory = Some(Arc::clone(memory));
    }

    /// The counts of the next generation.
    pub(crate) fn next(&mut self) -> Counts {
        Counts {
            memory: self.memory.take(),
            ..Counts::default()
        }
    }

    pub(crate) fn push(&mut self, segment: Segment, text: &str) {
        self.content.text = true;
        self.content.answer |= segment.channel != Channel::Reasoning;
        let choice = segment.choice.saturating_add(1);
        if self.first_choice == 0 {
            self.first_choice = choice;
        }
        self.several_choices |= self.first_choice != choice;
        let at = self.position(segment);
        let mut rest = text;
        while rest.len() > MAX_PUSH {
            let (part, more) = rest.split_at(part_length(rest));
            self.push_part(at, part);
            rest = more;
        }
        self.push_part(at, rest);
        let open = &mut self.open[at];
        match segment.channel {
            Channel::Reasoning => self.reasoning_scripts.push(text),
            Channel::Answer | Channel::ToolCall => self.other_scripts.push(text),
        }
        open.changed = true;
        open.chunk = self.chunk;
    }

    #[inline]
    fn push_part(&mut self, at: usize, part: &str) {
        if self.open[at].push(part, &mut self.repeats) {
            self.watch(at, part);
        }
    }

    pub(crate) fn chunk(&mut self) -> ChunkContent {
        let content = std::mem::take(&mut self.content);
        if content.text {
            self.chunk = self.chunk.wrapping_add(1);
            for open in self.open.iter_mut().filter(|open| open.changed) {
                let (counted, settled) = (open.counter.count(), open.counter.settled());
                update_counts(&mut self.running, &mut self.settled, open, counted, settled);
            }
        }
        content
    }

    /// The script with the largest difference between tokenizers, in all text, in all text except
    /// reasoning, and in reasoning.
    pub(crate) fn scripts(&self) -> [Script; 3] {
        let (reasoning, other) = (self.reasoning_scripts, self.other_scripts);
        [reasoning.and(&other), other, reasoning].map(|scripts| scripts.widest())
    }

    /// Texts whose rest was not searched for repetitions, because of a limit.
    pub(crate) fn unsearched(&self) -> u32 {
        self.unsearched.into()
    }

    /// The repetitions so far.
    pub(crate) fn repetition(&self) -> Option<Repetition> {
        if !self.repeats {
            return None;
        }
        let open = self.open.iter().filter_map(OpenText::found);
        let found = open
            .chain(self.repeated.as_deref().copied())
            .reduce(Found::and)?;
        Some(Repetition {
            start: found.start,
            period: found.period,
            tokens: found.tokens,
            share: (found.tokens as f64 / self.running.all().max(1) as f64).min(1.0),
        })
    }

    #[cold]
    fn watch(&mut self, at: usize, text: &str) {
        let watched = self.open.iter().enumerate();
        let watched = watched.filter(|(_, open)| open.watch.is_some());
        let idle = watched.clone().min_by_key(|(_, open)| open.chunk);
        if let (MAX_WATCHED.., Some((idle, _))) = (watched.count(), idle) {
            self.unwatch(idle);
            self.unsearched = self.unsearched.saturating_add(1);
        }
        let open = &mut self.open[at];
        open.watch_from = u32::MAX;
        let tokens = open.counter.count();
        open.watch = (self.memory.as_ref()).and_then(|memory| Watch::begin(memory, tokens));
        match &mut open.watch {
            Some(watch) => {
                watch.push(text.as_bytes());
            }
            None => {
                let missed = u16::from(self.memory.is_some());
                self.unsearched = self.unsearched.saturating_add(missed);
            }
        }
    }

    fn unwatch(&mut self, at: usize) {
        let found = self.open[at].found();
        self.keep(found);
        self.open[at].watch = None;
    }

    /// Keeps the repetition of a text that is no longer watched.
    fn keep(&mut self, found: Option<Found>) {
        let Some(found) = found else {
            return;
        };
        let known = self.repeated.as_deref().copied();
        let all = known.map_or(found, |known| Found::and(known, found));
        self.repeated = Some(Box::new(all));
    }

    pub(crate) fn tool_calls(&self) -> u32 {
        self.tool_calls
    }

    pub(crate) fn running(&self) -> ByChannel {
        self.running
    }

    /// The part of the running counts that later text cannot change. It never shrinks.
    pub(crate) fn settled(&self) -> ByChannel {
        self.settled
    }

    pub(crate) fn finish(&mut self) {
        for mut open in std::mem::take(&mut self.open) {
            self.close(&mut open);
        }
        self.current = 0;
    }

    fn close(&mut self, open: &mut OpenText) {
        let count = open.counter.finish();
        if let Some(watch) = &mut open.watch {
            self.repeats |= watch.check(count);
        }
        self.keep(open.found());
        update_counts(&mut self.running, &mut self.settled, open, count, count);
    }

    fn position(&mut self, segment: Segment) -> usize {
        let current = self.open.get(usize::from(self.current));
        if current.is_none_or(|open| open.segment != segment) {
            let known = self.open.iter().position(|open| open.segment == segment);
            let at = known.unwrap_or_else(|| self.begin(segment));
            self.current = u16::try_from(at).unwrap_or(u16::MAX);
        }
        usize::from(self.current)
    }

    fn begin(&mut self, segment: Segment) -> usize {
        if segment.channel == Channel::ToolCall {
            self.tool_calls = self.tool_calls.saturating_add(1);
        }
        let unsettled = self.open.iter().filter(|open| open.changed);
        let unsettled = unsettled.map(|open| open.counter.count().saturating_sub(open.counted));
        let fresh = OpenText {
            offset: u32::try_from(self.running.all() + unsettled.sum::<u64>()).unwrap_or(u32::MAX),
            watch: None,
            watch_from: WATCHED_FROM,
            segment,
            counter: Counter::new(),
            counted: 0,
            settled: 0,
            changed: false,
            chunk: self.chunk,
        };
        if self.open.len() < MAX_OPEN {
            // Most generations have one or two texts. The default growth would reserve room for
            // four.
            if self.open.len() == self.open.capacity() {
                self.open.reserve_exact(self.open.len().max(1));
            }
            self.open.push(fresh);
            return self.open.len() - 1;
        }
        let silent = self
            .open
            .iter()
            .enumerate()
            .min_by_key(|(_, open)| open.chunk);
        let at = silent.map_or(0, |(at, _)| at);
        let mut old = std::mem::replace(&mut self.open[at], fresh);
        self.close(&mut old);
        at
    }
}

/// The bytes of a long text that a watch takes at once.
fn part_length(text: &str) -> usize {
    let fits = (0..=MAX_PUSH).rev();
    { fits }.find(|at| text.is_char_boundary(*at)).unwrap_or(0)
}

fn update_counts(
    running: &mut ByChannel,
    settled: &mut ByChannel,
    open: &mut OpenText,
    counted: u64,
    certain: u64,
) {
    let sum = running.of(open.segment.channel);
    *sum = *sum + counted - open.counted;
    *settled.of(open.segment.channel) += certain.saturating_sub(open.settled);
    open.counted = counted;
    open.settled = certain.max(open.settled);
    open.changed = false;
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokengauge_tokenizer as tokens;

    fn segment(choice: u32, channel: Channel) -> Segment {
        Segment {
            choice,
            index: 0,
            channel,
        }
    }

    const TEXT: &str = "The quick brown fox, unquestionably, jumps over 1234567 lazy dogs.\n\nDone";

    #[test]
    fn interleaved_texts_count_as_if_each_came_alone() {
        let mut counts = Counts::default();
        for piece in TEXT.as_bytes().chunks(3) {
            let piece = std::str::from_utf8(piece).expect("ASCII");
            for channel in [Channel::Answer, Channel::Reasoning, Channel::ToolCall] {
                counts.push(segment(0, channel), piece);
            }
            counts.chunk();
        }
        let whole = tokens::count(TEXT);
        let expected = ByChannel {
            answer: whole,
            reasoning: whole,
            tool_call: whole,
        };
        assert_eq!(counts.running(), expected);
        counts.finish();
        assert_eq!((counts.running(), counts.settled()), (expected, expected));
        assert!(!counts.several_choices);
    }

    #[test]
    fn settled_counts_never_shrink_and_never_exceed_the_running_ones() {
        let mut counts = Counts::default();
        let mut before = 0;
        for letter in TEXT.chars() {
            counts.push(segment(0, Channel::Answer), letter.encode_utf8(&mut [0; 4]));
            counts.chunk();
            let settled = counts.settled().answer;
            assert!(before <= settled && settled <= counts.running().answer);
            before = settled;
        }
    }

    #[test]
    fn more_choices_than_the_bound_stay_bounded_and_counted() {
        let mut counts = Counts::default();
        let choices = MAX_OPEN as u32 + 50;
        for choice in 0..choices {
            counts.push(segment(choice, Channel::Answer), TEXT);
            counts.chunk();
        }
        assert_eq!(counts.open.len(), MAX_OPEN);
        counts.finish();
        assert_eq!(
            counts.running().answer,
            u64::from(choices) * tokens::count(TEXT)
        );
        assert!(counts.several_choices);
    }

    #[test]
    fn a_chunk_without_text_brings_nothing() {
        let mut counts = Counts::default();
        assert_eq!(counts.chunk(), ChunkContent::default());
        counts.push(segment(0, Channel::Reasoning), "so");
        let content = counts.chunk();
        assert!(content.text && !content.answer);
        assert_eq!(counts.chunk(), ChunkContent::default());
    }
}
