//! Reads wire events by the dialect that the path indicates, unless the first events show
//! another.

use super::event_template::EventCache;
use super::framing::Item;
use super::registration::OverruledBy;
use super::repair::repair;
use super::{Reader, Registration, Sink, json, sniff};
use serde_json::value::RawValue;
use tokengauge_core::call::{Dialect, Event};

/// Events that may correct the dialect, counted from the first.
const EVENTS_SNIFFED: u64 = 4;

/// Reads wire events by their dialect, and counts them.
pub(super) struct EventReader {
    dialect: &'static Registration,
    reader: Box<dyn Reader>,
    messages: u64,
    comments: u64,
    sniffed: u64,
    cache: EventCache,
}

impl EventReader {
    pub(super) fn new(dialect: &'static Registration) -> Self {
        EventReader::read_by(dialect, (dialect.reader)())
    }

    /// The messages of a WebSocket.
    pub(super) fn of_socket(dialect: &'static Registration) -> Self {
        EventReader::read_by(dialect, dialect.socket_reader())
    }

    fn read_by(dialect: &'static Registration, reader: Box<dyn Reader>) -> Self {
        EventReader {
            dialect,
            reader,
            messages: 0,
            comments: 0,
            sniffed: 0,
            cache: EventCache::new(dialect.template),
        }
    }

    /// The dialect, as the wire confirmed or corrected it.
    pub(super) fn dialect(&self) -> Dialect {
        self.dialect.dialect
    }

    /// Wire events so far.
    pub(super) fn messages(&self) -> u64 {
        self.messages
    }

    /// Comments so far.
    pub(super) fn comments(&self) -> u64 {
        self.comments
    }

    /// The stream is over.
    pub(super) fn finish(&mut self, sink: Sink<'_>) {
        self.reader.finish(sink);
    }

    /// Reads an item that a framing found.
    pub(super) fn take(&mut self, item: Item<'_>, sink: Sink<'_>) {
        match item {
            Item::Comment => self.comments += 1,
            Item::Event { name, payload } => {
                self.message(sink);
                self.event(name, payload, sink);
            }
            Item::Error { payload } => sink(Event::Error(&error_line(payload))),
            Item::Exception(word) => {
                self.message(sink);
                sink(Event::Error(if json::is_word(word) {
                    word
                } else {
                    "exception"
                }));
            }
            Item::Unparsed => {
                self.message(sink);
                sink(Event::Unparsed);
            }
        }
    }

    fn message(&mut self, sink: Sink<'_>) {
        self.messages += 1;
        sink(Event::Message);
    }

    fn event(&mut self, name: &str, payload: &[u8], sink: Sink<'_>) {
        if payload.first() == Some(&b'[') && payload.trim_ascii() == b"[DONE]" {
            return sink(Event::End);
        }
        if self.cache.emit_cached(name, payload, sink) {
            // Checking it would give what checking the one before gave, so it counts as checked.
            self.sniffed += 1;
            return;
        }
        json::reset_budget();
        self.confirm(name, payload);
        let result = self
            .cache
            .read_and_learn(&mut *self.reader, name, payload, sink);
        if result.is_err() {
            self.retry_repaired(name, payload, sink);
        }
    }

    /// Repairs an event that could not be read, and reads it again.
    fn retry_repaired(&mut self, name: &str, payload: &[u8], sink: Sink<'_>) {
        let repaired = repair(payload);
        if repaired.is_none_or(|payload| self.reader.event(name, &payload, sink).is_err()) {
            sink(Event::Unparsed);
        }
    }

    /// Reads a body that was not streamed.
    pub(super) fn whole(&mut self, body: &[u8], sink: Sink<'_>) {
        let payload = body.trim_ascii();
        json::reset_budget();
        self.confirm("", payload);
        let repaired = repair(payload);
        let payload = repaired.as_deref().unwrap_or(payload);
        if payload.contains(&b'\n') && serde_json::from_slice::<&RawValue>(payload).is_err() {
            return self.lines(payload, sink);
        }
        self.message(sink);
        if self.reader.body(payload, sink).is_err() {
            sink(Event::Unparsed);
        }
    }

    /// Reads a body of lines that was not declared as such.
    fn lines(&mut self, body: &[u8], sink: Sink<'_>) {
        for line in body.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii) {
            if !line.is_empty() {
                self.take(
                    Item::Event {
                        name: "",
                        payload: line,
                    },
                    sink,
                );
            }
        }
        self.reader.finish(sink);
    }

    /// Lets the first events overrule the dialect of the path.
    fn confirm(&mut self, name: &str, payload: &[u8]) {
        if self.sniffed >= EVENTS_SNIFFED || self.dialect.overruled_by == OverruledBy::None {
            return;
        }
        self.sniffed += 1;
        if name.is_empty() && sniff::confirms(self.dialect, payload) {
            self.sniffed = EVENTS_SNIFFED;
            return;
        }
        let Some(seen) = sniff::sniff(name, payload) else {
            return;
        };
        self.sniffed = EVENTS_SNIFFED;
        if sniff::overrules(seen, self.dialect) {
            self.dialect = seen.into();
            self.reader = (self.dialect.reader)();
            self.cache = EventCache::new(self.dialect.template);
        }
    }
}

fn error_line(payload: &[u8]) -> String {
    #[derive(serde::Deserialize)]
    struct ErrorLine<'a> {
        #[serde(borrow)]
        error: Option<&'a RawValue>,
    }
    let line: Option<ErrorLine<'_>> = serde_json::from_slice(payload).ok();
    let error = line.and_then(|line| line.error);
    error.map_or_else(
        || "error".into(),
        |error| json::error_kind(error).into_owned(),
    )
}
