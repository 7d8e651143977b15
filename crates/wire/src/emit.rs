//! Functions that turn fields into events, shared by all readers.

use super::Sink;
use tokengauge_core::call::{Channel, Event, Segment, Usage, UsageDetails};

/// Emits a part of a text, unless it is empty.
pub fn delta(sink: Sink<'_>, segment: Segment, text: &str) {
    if !text.is_empty() {
        sink(Event::Delta { segment, text });
    }
}

/// Emits the name of a called tool, unless it is empty.
pub fn tool_name(sink: Sink<'_>, segment: Segment, name: &str) {
    if !name.is_empty() {
        sink(Event::ToolName { segment, name });
    }
}

/// Identifies a contiguous text.
pub fn segment(choice: u32, index: u32, channel: Channel) -> Segment {
    Segment {
        choice,
        index,
        channel,
    }
}

/// Emits the finish reason of a choice, unless it is empty. Gateways use the HTTP status of an
/// error as the reason, which is emitted as an error.
pub fn finish(sink: Sink<'_>, choice: u32, reason: &str) {
    if is_error_status(reason) {
        sink(Event::Error(reason));
    } else if !reason.is_empty() {
        sink(Event::Finish { choice, reason });
    }
}

/// Whether the text is the HTTP status of an error.
pub fn is_error_status(text: &str) -> bool {
    matches!(text.as_bytes(), [b'4' | b'5', b'0'..=b'9', b'0'..=b'9'])
}

/// Emits the reported usage, unless it is empty.
pub fn usage(sink: Sink<'_>, usage: Usage) {
    if !usage.is_empty() {
        sink(Event::Usage(usage));
    }
}

/// Emits the details that only the price depends on, unless they are empty.
pub fn details(sink: Sink<'_>, details: UsageDetails) {
    let of_price = Usage {
        details,
        ..Usage::default()
    };
    usage(sink, of_price);
}

/// Emits one use of a hosted tool that is billed separately from tokens.
pub fn billed_tool(sink: Sink<'_>) {
    let one = UsageDetails {
        other_tools: Some(1),
        ..UsageDetails::default()
    };
    details(sink, one);
}

/// Emits that the provider searched the web. The usage may contain the number of searches.
pub fn searched(sink: Sink<'_>) {
    let searched = UsageDetails {
        searched: Some(true),
        ..UsageDetails::default()
    };
    details(sink, searched);
}

/// Maximum number of bytes of a name that are kept to recognise it.
const MAX_NAME: usize = 256;

/// A name, truncated to the length that is kept.
pub fn truncated(name: &str) -> &str {
    let mut ends = (0..=name.len().min(MAX_NAME)).rev();
    let end = ends.find(|end| name.is_char_boundary(*end));
    &name[..end.unwrap_or(0)]
}

/// A name that many dialects repeat in every event. It is emitted once.
#[derive(Debug, Default)]
pub struct RepeatedName(Box<str>);

impl RepeatedName {
    fn is_new(&mut self, name: &str) -> bool {
        let name = truncated(name);
        let is_new = !name.is_empty() && *self.0 != *name;
        if is_new {
            self.0 = name.into();
        }
        is_new
    }

    /// Emits the model name if it is new.
    pub fn model(&mut self, sink: Sink<'_>, name: &str) {
        if self.is_new(name) {
            sink(Event::Model(name));
        }
    }

    /// Emits the service tier if it is new.
    pub fn service_tier(&mut self, sink: Sink<'_>, name: &str) {
        if self.is_new(name) {
            sink(Event::ServiceTier(name));
        }
    }

    /// Emits the provider that a gateway used, if it is new.
    pub fn served_by(&mut self, sink: Sink<'_>, provider: &str) {
        if self.is_new(provider) {
            sink(Event::ServedBy(provider));
        }
    }

    /// Emits the id of the response if it is new.
    pub fn response_id(&mut self, sink: Sink<'_>, id: &str) {
        if self.is_new(id) {
            sink(Event::ResponseId(id));
        }
    }
}
