//! One generation: the events of its chunks, counted and timed. A plain call has one; a Realtime
//! connection has one for each response.

use super::clip::{clip, remember};
use super::counts::{ByChannel, Counts};
use super::think::ThinkSplit;
use super::timeline::{Running, Timeline};
use super::tool_calls::ToolCalls;
use std::time::{Duration, Instant};
use tokengauge_core::call::{Channel, EngineReport, Event, ServerTool, Usage};
use tokengauge_core::finish_class::FinishClass;

const MAX_CHOICES: usize = 256;
const MAX_NAME: usize = 200;
const MAX_UNKNOWN_USAGE: usize = 8;
const MAX_SERVER_TOOLS: usize = 256;
/// If more than one event in this number is damaged, the measurement is discarded.
const DAMAGED_IN: u64 = 20;
const MAX_WORD: usize = 64;

#[derive(Default)]
pub(crate) struct Generation {
    pub(crate) counts: Counts,
    pub(crate) timeline: Timeline,
    pub(crate) think: ThinkSplit,
    tool_calls: Option<Box<ToolCalls>>,
    pub(crate) model: Option<Box<str>>,
    /// The id of the response. Only the first is kept, because some providers repeat it in every
    /// event.
    pub(crate) response_id: Option<Box<str>>,
    pub(crate) usage: Option<Box<Usage>>,
    pub(crate) engine: Option<Box<EngineReport>>,
    pub(crate) service_tier: Option<Box<str>>,
    pub(crate) error: Option<Box<str>>,
    rare: Option<Box<Rare>>,
    finishes: Vec<(u32, Box<str>)>,
    pub(crate) messages: u64,
    pub(crate) first_token_event: Option<u32>,
    pub(crate) terminated: bool,
    /// Wire events or bodies that could not be read, so that an unknown amount of text is missing.
    unread: u16,
    /// Damaged wire events, each of which lacks a small amount of text.
    damaged: u16,
    skipped: u16,
    spoke: bool,
}

/// Fields that few responses have. They are boxed to keep the other responses small.
#[derive(Default)]
struct Rare {
    cost_usd: Option<f64>,
    served_by: Option<Box<str>>,
    failure: Option<Box<str>>,
    /// Hosted tools that began or ended in the present chunk.
    server_tools: Vec<ServerTool>,
    unknown_usage: Vec<Box<str>>,
}

impl Generation {
    pub(crate) fn event(&mut self, event: Event<'_>) {
        self.spoke |= match event {
            Event::Message | Event::Unparsed | Event::Damaged | Event::Skipped => false,
            Event::Engine(_) | Event::UnknownUsage(_) => false,
            Event::ServiceTier(_) | Event::ServedBy(_) | Event::Cost(_) => false,
            // Many engines name the model in the last event, in any dialect.
            Event::Model(_) => self.messages <= 1,
            _ => true,
        };
        match event {
            Event::Message => self.messages += 1,
            Event::Delta { segment, text } => {
                let index = u32::try_from(self.messages.saturating_sub(1)).unwrap_or(u32::MAX);
                self.first_token_event.get_or_insert(index);
                let counts = &mut self.counts;
                let mut push = |segment, text: &str| counts.push(segment, text);
                self.think.push((segment, text), &mut push);
                if segment.channel == Channel::ToolCall {
                    let calls = self.tool_calls.get_or_insert_default();
                    calls.arguments(segment, text);
                }
            }
            Event::ToolName { segment, name } => {
                let calls = self.tool_calls.get_or_insert_default();
                calls.name(segment, name);
            }
            Event::Model(model) => remember(&mut self.model, model, MAX_NAME),
            Event::Finish { choice, reason } => self.finish_reason(choice, reason),
            Event::Usage(usage) => self.usage.get_or_insert_default().overlay(usage),
            Event::Engine(engine) => self.engine = Some(Box::new(engine)),
            Event::ServiceTier(tier) => remember(&mut self.service_tier, tier, MAX_WORD),
            Event::ServedBy(provider) => self.served_by(provider),
            Event::Cost(usd) => self.cost(Some(usd)),
            Event::Error(kind) => {
                self.error
                    .get_or_insert_with(|| clip(kind, MAX_WORD).into());
            }
            Event::End => self.terminated = true,
            Event::Unparsed => self.unread = self.unread.saturating_add(1),
            Event::Skipped => self.skipped = self.skipped.saturating_add(1),
            Event::Damaged => self.damaged = self.damaged.saturating_add(1),
            Event::ResponseId(id) => {
                self.response_id
                    .get_or_insert_with(|| clip(id, MAX_NAME).into());
            }
            Event::UnknownUsage(name) => {
                let names = &mut self.rare.get_or_insert_default().unknown_usage;
                let name = clip(name, MAX_NAME);
                if names.len() < MAX_UNKNOWN_USAGE && !names.iter().any(|known| **known == *name) {
                    names.push(name.into());
                }
            }
            Event::ServerTool(tool) => {
                let tools = &mut self.rare.get_or_insert_default().server_tools;
                if tools.len() < MAX_SERVER_TOOLS {
                    tools.push(tool);
                }
            }
            Event::Session(_) | Event::TurnStarted | Event::TurnEnded => {}
        }
    }

    /// Ends a chunk that arrived at `at`. Returns whether it carried generated text.
    pub(crate) fn chunk(&mut self, at: Instant, stall_threshold: Duration) -> bool {
        if let Some(rare) = &mut self.rare {
            for tool in rare.server_tools.drain(..) {
                self.timeline.server_tool(at, tool);
            }
        }
        let content = self.counts.chunk();
        if content.text {
            let running = self.counts.running();
            let running = Running {
                all: running.all(),
                answer: running.answered(),
                answered: content.answer,
            };
            self.timeline.chunk(at, running, stall_threshold);
        }
        content.text
    }

    /// Ends a turn. An error from which the connection recovered does not count against a complete
    /// response.
    pub(crate) fn end_turn(&mut self) {
        self.terminated = true;
        let mut reasons = self.finishes.iter().map(|(_, reason)| &**reason);
        if !self.finishes.is_empty() && reasons.all(|reason| reason == "completed") {
            self.error = None;
        }
    }

    /// Starts the next generation on this connection, with the model and the numbering of the
    /// previous one.
    pub(crate) fn next(&mut self) -> Generation {
        Generation {
            model: self.model.take(),
            messages: self.messages,
            spoke: self.spoke,
            counts: self.counts.next(),
            ..Generation::default()
        }
    }

    /// Gives up reading the rest. If a provider reports a rising count repeatedly, its final value
    /// is now unknown.
    pub(crate) fn cut_off(&mut self) {
        if !self.concluded()
            && let Some(usage) = &mut self.usage
        {
            usage.output = None;
            usage.reasoning = None;
        }
    }

    pub(crate) fn is_foreign(&self) -> bool {
        let lost: u64 = self.lost().into_iter().map(u64::from).sum();
        self.messages > lost && !self.spoke
    }

    pub(crate) fn lost(&self) -> [u16; 3] {
        [self.unread, self.damaged, self.skipped]
    }

    /// Forgets the events that were lost after [`Generation::lost`] returned `before`.
    pub(crate) fn forget_lost(&mut self, before: [u16; 3]) {
        let sum = |lost: [u16; 3]| lost.into_iter().map(u64::from).sum::<u64>();
        let more = sum(self.lost()).saturating_sub(sum(before));
        self.messages = self.messages.saturating_sub(more);
        [self.unread, self.damaged, self.skipped] = before;
    }

    /// Whether an event was unread, or more were damaged than [`DAMAGED_IN`] allows.
    pub(crate) fn is_unparsed(&self) -> bool {
        let damaged = u64::from(self.damaged);
        self.unread > 0 || damaged * DAMAGED_IN > self.messages
    }

    pub(crate) fn skipped_events(&self) -> u64 {
        u64::from(self.damaged) + u64::from(self.skipped)
    }

    /// The error inside the body, or the finish reason that reports a failure.
    pub(crate) fn failure(&self) -> Option<&str> {
        let failure = || self.rare.as_ref()?.failure.as_deref();
        self.error.as_deref().or_else(failure)
    }

    /// The cost that the provider reported.
    pub(crate) fn cost_usd(&self) -> Option<f64> {
        self.rare.as_ref()?.cost_usd
    }

    pub(crate) fn cost(&mut self, usd: Option<f64>) {
        if usd.is_some() {
            self.rare.get_or_insert_default().cost_usd = usd;
        }
    }

    pub(crate) fn served_by(&mut self, provider: &str) {
        let rare = self.rare.get_or_insert_default();
        remember(&mut rare.served_by, provider, MAX_NAME);
    }

    pub(crate) fn unknown_usage(&self) -> &[Box<str>] {
        self.rare.as_ref().map_or(&[], |rare| &rare.unknown_usage)
    }

    pub(crate) fn provider(&self) -> Option<&str> {
        self.rare.as_ref()?.served_by.as_deref()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.first_token_event.is_none()
            && self.finishes.is_empty()
            && self.tool_calls.is_none()
            && self.usage().output.unwrap_or(0) == 0
    }

    pub(crate) fn is_answer(&self) -> bool {
        self.first_token_event.is_some() || self.usage().output.is_some()
    }

    /// Forgets the body, which is not an answer. The cost from the response head is kept.
    pub(crate) fn forget_body(&mut self, cost_of_head: Option<f64>) {
        let served_by = self.rare.take().and_then(|rare| rare.served_by);
        let is_known = served_by.is_some() || cost_of_head.is_some();
        let rare = is_known.then(|| Rare {
            served_by,
            cost_usd: cost_of_head,
            ..Rare::default()
        });
        *self = Generation {
            timeline: std::mem::take(&mut self.timeline),
            rare: rare.map(Box::new),
            ..Generation::default()
        };
    }

    pub(crate) fn is_unread(&self) -> bool {
        self.messages > 0 && !self.spoke
    }

    /// Whether the provider accepted the request to generate it later, so that there is neither
    /// text nor usage yet.
    pub(crate) fn is_queued(&self) -> bool {
        let reasons = self.finishes.iter();
        let later = |reason: &str| matches!(reason, "queued" | "in_progress");
        { reasons }.any(|(_, reason)| later(reason)) && self.usage().output.is_none()
    }

    pub(crate) fn tools(&self) -> Option<String> {
        self.tool_calls.as_deref()?.names()
    }

    pub(crate) fn calls(&self) -> u64 {
        let named = self.tool_calls.as_deref().map_or(0, ToolCalls::count);
        named.max(self.counts.tool_calls().into())
    }

    pub(crate) fn tool_calls(&self) -> Box<[u64]> {
        let calls = self.tool_calls.as_deref();
        calls.map(ToolCalls::hashes).unwrap_or_default()
    }

    pub(crate) fn finish(&mut self) {
        let counts = &mut self.counts;
        self.think
            .finish(&mut |segment, text| counts.push(segment, text));
        self.counts.finish();
    }

    pub(crate) fn tokens(&self) -> ByChannel {
        self.counts.running()
    }

    pub(crate) fn usage(&self) -> Usage {
        self.usage.as_deref().copied().unwrap_or_default()
    }

    pub(crate) fn concluded(&self) -> bool {
        self.terminated || !self.finishes.is_empty()
    }

    pub(crate) fn finish_reasons(&self) -> Vec<String> {
        let reasons = self.finishes.iter();
        reasons.map(|(_, reason)| reason.to_string()).collect()
    }

    fn finish_reason(&mut self, choice: u32, reason: &str) {
        let reason = clip(reason, MAX_WORD);
        if FinishClass::of(reason).is_failure() {
            let failure = reason.to_ascii_lowercase();
            let rare = self.rare.get_or_insert_default();
            rare.failure.get_or_insert_with(|| failure.into());
        }
        match self
            .finishes
            .binary_search_by_key(&choice, |(choice, _)| *choice)
        {
            Ok(at) => self.finishes[at].1 = reason.into(),
            Err(at) if self.finishes.len() < MAX_CHOICES => {
                self.finishes.insert(at, (choice, reason.into()));
            }
            Err(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokengauge_core::call::{Channel, Segment};

    fn delta(text: &str) -> Event<'_> {
        Event::Delta {
            segment: Segment {
                choice: 0,
                index: 0,
                channel: Channel::Answer,
            },
            text,
        }
    }

    #[test]
    fn the_first_token_event_counts_from_zero_and_stays() {
        let mut generation = Generation::default();
        for event in [
            Event::Message,
            Event::Message,
            delta("a"),
            Event::Message,
            delta("b"),
        ] {
            generation.event(event);
        }
        assert_eq!(generation.first_token_event, Some(1));
        assert_eq!(generation.messages, 3);
    }

    #[test]
    fn finish_reasons_come_by_choice_and_the_last_one_counts() {
        let mut generation = Generation::default();
        for (choice, reason) in [(1, "length"), (0, "tool_calls"), (0, "stop")] {
            generation.event(Event::Finish { choice, reason });
        }
        assert_eq!(generation.finish_reasons(), ["stop", "length"]);
        assert!(generation.concluded());
    }

    #[test]
    fn usage_is_overlaid_and_the_first_error_stays() {
        let mut generation = Generation::default();
        let known = |input, output| {
            Event::Usage(Usage {
                input,
                output,
                ..Usage::default()
            })
        };
        generation.event(known(Some(7), Some(1)));
        generation.event(known(None, Some(9)));
        generation.event(Event::Error("overloaded_error"));
        generation.event(Event::Error("other"));
        assert_eq!(generation.usage().input, Some(7));
        assert_eq!(generation.usage().output, Some(9));
        assert_eq!(generation.error.as_deref(), Some("overloaded_error"));
    }

    #[test]
    fn a_rising_count_is_unknown_once_the_rest_is_not_read() {
        let rising = || {
            let mut generation = Generation::default();
            generation.event(Event::Usage(Usage {
                input: Some(7),
                output: Some(3),
                ..Usage::default()
            }));
            generation
        };
        let mut cut = rising();
        cut.cut_off();
        assert_eq!((cut.usage().input, cut.usage().output), (Some(7), None));
        let mut concluded = rising();
        concluded.event(Event::Finish {
            choice: 0,
            reason: "stop",
        });
        concluded.cut_off();
        assert_eq!(concluded.usage().output, Some(3));
    }

    #[test]
    fn what_comes_off_the_wire_is_bounded() {
        let mut generation = Generation::default();
        let long = "é".repeat(1000);
        generation.event(Event::Model(&long));
        for choice in 0..1000 {
            generation.event(Event::Finish {
                choice,
                reason: &long,
            });
        }
        assert_eq!(
            generation.model.as_deref().map(|name| name.chars().count()),
            Some(200)
        );
        assert_eq!(generation.finish_reasons().len(), MAX_CHOICES);
        assert_eq!(generation.finish_reasons()[0].chars().count(), MAX_WORD);
    }
}
