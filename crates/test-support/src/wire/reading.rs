//! Reads a body with a decoder and keeps everything it found.

use std::collections::BTreeMap;
use tokengauge_core::call::{Dialect, EngineReport, Event, Segment, Usage};
use tokengauge_wire::{DecodeError, Decoder};

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reading {
    /// The texts, in their order within the response.
    pub segments: BTreeMap<Segment, String>,
    pub model: Option<String>,
    /// The last finish reason of each choice.
    pub finish: BTreeMap<u32, String>,
    /// The last reported usage. On a connection with several turns it is their sum.
    pub usage: Usage,
    pub engine: Option<EngineReport>,
    /// The number of the wire event with the first text.
    pub first_token_event: Option<u64>,
    pub error: Option<String>,
    pub ends: u64,
    /// The number of wire events that could not be read.
    pub unparsed: u64,
    /// The numbers of turns that began and ended.
    pub turns: (u64, u64),
    pub messages: u64,
    pub comments: u64,
    /// Whether events were decoded as they arrived.
    pub is_stream: bool,
    /// The dialect that the wire confirmed.
    pub dialect: Dialect,
    pub broken: Option<DecodeError>,
    finished_turns: Usage,
    /// The number of events that were skipped or damaged.
    pub skipped: u64,
}

impl Reading {
    pub fn visible(&self) -> String {
        let response = |at: &&Segment| at.channel == tokengauge_core::call::Channel::Answer;
        let of = |at: &Segment| self.segments[at].as_str();
        self.segments.keys().filter(response).map(of).collect()
    }

    fn take(&mut self, event: Event<'_>) {
        match event {
            Event::Message => self.messages += 1,
            Event::Delta { segment, text } => {
                assert!(!text.is_empty(), "an empty delta");
                self.segments.entry(segment).or_default().push_str(text);
                let at = self
                    .messages
                    .checked_sub(1)
                    .expect("a delta outside a message");
                self.first_token_event.get_or_insert(at);
            }
            Event::ToolName { name, .. } => assert!(!name.is_empty(), "an empty tool name"),
            Event::Model(model) => self.model = Some(model.to_owned()),
            Event::Session(id) => assert!(!id.is_empty(), "an empty session"),
            Event::ResponseId(id) => assert!(!id.is_empty(), "an empty id"),
            Event::Finish { choice, reason } => {
                self.finish.insert(choice, reason.to_owned());
            }
            Event::Usage(usage) => self.usage.overlay(usage),
            Event::Engine(report) => self.engine = Some(report),
            Event::Error(word) => self.error = Some(word.to_owned()),
            Event::ServedBy(provider) => assert!(!provider.is_empty(), "an empty provider"),
            Event::ServiceTier(tier) => assert!(!tier.is_empty(), "an empty tier"),
            Event::Cost(usd) => assert!(usd >= 0.0, "a cost below nothing"),
            Event::ServerTool(_) => {}
            Event::UnknownUsage(name) => panic!("a usage has {name}, which is in no table"),
            Event::TurnStarted => self.turns.0 += 1,
            Event::TurnEnded => {
                self.turns.1 += 1;
                add(&mut self.finished_turns, &std::mem::take(&mut self.usage));
            }
            Event::End => self.ends += 1,
            Event::Skipped | Event::Damaged => self.skipped += 1,
            Event::Unparsed => self.unparsed += 1,
        }
    }
}

fn add(sum: &mut Usage, more: &Usage) {
    let add = |sum: &mut Option<u64>, more: Option<u64>| {
        if let Some(more) = more {
            *sum = Some(sum.unwrap_or(0) + more);
        }
    };
    add(&mut sum.input, more.input);
    add(&mut sum.cached_input, more.cached_input);
    add(&mut sum.cache_write, more.cache_write);
    add(&mut sum.output, more.output);
    add(&mut sum.reasoning, more.reasoning);
}

pub fn read(decoder: Decoder, body: &[u8]) -> Reading {
    read_cut(decoder, body, [])
}

pub fn read_cut(
    mut decoder: Decoder,
    body: &[u8],
    cuts: impl IntoIterator<Item = usize>,
) -> Reading {
    let mut cuts: Vec<usize> = cuts.into_iter().collect();
    cuts.sort_unstable();
    let mut reading = Reading::default();
    let mut from = 0;
    for to in cuts.into_iter().chain([body.len()]) {
        if let Err(broken) = decoder.push(&body[from..to], &mut |event| reading.take(event)) {
            reading.broken = Some(broken);
        }
        from = to;
    }
    if let Err(broken) = decoder.finish(&mut |event| reading.take(event)) {
        reading.broken = Some(broken);
    }
    if reading.turns.1 > 0 {
        reading.usage = reading.finished_turns;
    }
    assert_eq!(
        reading.messages,
        decoder.messages(),
        "messages are counted alike"
    );
    reading.comments = decoder.comments();
    reading.is_stream = decoder.is_stream();
    reading.dialect = decoder.dialect();
    reading
}
