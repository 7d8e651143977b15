//! Helpers that turn fields into events, for all readers.

use super::Sink;
use tokengauge_core::call::{Channel, Event, Segment, Usage};

/// Gives a piece of text, where there is any.
pub fn delta(sink: Sink<'_>, segment: Segment, text: &str) {
    if !text.is_empty() {
        sink(Event::Delta { segment, text });
    }
}

/// Names a contiguous text.
pub fn segment(choice: u32, index: u32, channel: Channel) -> Segment {
    Segment {
        choice,
        index,
        channel,
    }
}

/// Gives the reason a choice ended for, where there is one.
pub fn finish(sink: Sink<'_>, choice: u32, reason: &str) {
    if !reason.is_empty() {
        sink(Event::Finish { choice, reason });
    }
}

/// Gives what was reported, where anything was.
pub fn usage(sink: Sink<'_>, usage: Usage) {
    if !usage.is_empty() {
        sink(Event::Usage(usage));
    }
}

/// Bytes of a name that are remembered, to know it again.
const MAX_NAME: usize = 256;

/// As much of a name as is remembered of it.
pub fn truncated(name: &str) -> &str {
    let mut ends = (0..=name.len().min(MAX_NAME)).rev();
    let end = ends.find(|end| name.is_char_boundary(*end));
    &name[..end.unwrap_or(0)]
}

/// A name that many dialects repeat in every event and that is given once.
#[derive(Debug, Default)]
pub struct RepeatedName(String);

impl RepeatedName {
    /// Whether `name` is one, and not the one before.
    fn is_new(&mut self, name: &str) -> bool {
        let name = truncated(name);
        let is_new = !name.is_empty() && self.0 != name;
        if is_new {
            name.clone_into(&mut self.0);
        }
        is_new
    }

    /// Gives the model's name.
    pub fn model(&mut self, sink: Sink<'_>, name: &str) {
        if self.is_new(name) {
            sink(Event::Model(name));
        }
    }

    /// Gives the service tier.
    pub fn service_tier(&mut self, sink: Sink<'_>, name: &str) {
        if self.is_new(name) {
            sink(Event::ServiceTier(name));
        }
    }

    /// Gives the response's id.
    pub fn response_id(&mut self, sink: Sink<'_>, id: &str) {
        if self.is_new(id) {
            sink(Event::ResponseId(id));
        }
    }
}
