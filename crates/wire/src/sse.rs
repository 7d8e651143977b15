//! Server-sent events, parsed according to the HTML standard
//! (<https://html.spec.whatwg.org/multipage/server-sent-events.html>) with two extensions: an event
//! at the end counts without an empty line after it, and errors outside of `data` are also read.

use super::framing::{Item, Splitter};
use super::{DecodeError, Limits, buffer};
use memchr::{memchr, memchr2};
use std::sync::Arc;
use tokengauge_core::memory::{Buffer, Memory};

const MAX_NAME: usize = 256;
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

pub(super) struct Sse {
    limit: usize,
    /// The beginning of an incomplete line.
    line: Buffer,
    event: EventBuffer,
    /// Whether the last byte was CR, so that a following LF belongs to it.
    after_cr: bool,
}

struct EventBuffer {
    /// The data of the event, unless it is a single line of the current bytes.
    data: Buffer,
    has_data: bool,
    name: String,
    start: bool,
}

impl Sse {
    pub(super) fn new(limits: &Limits, memory: &Arc<Memory>) -> Self {
        let (limit, line) = (limits.event_bytes, buffer(memory, limits.event_bytes));
        let event = EventBuffer {
            data: buffer(memory, limit),
            has_data: false,
            name: String::new(),
            start: true,
        };
        Sse {
            limit,
            line,
            event,
            after_cr: false,
        }
    }

    /// Checks that a line and the preceding data are within the limit, independent of chunks.
    fn check(&self, more: usize) -> Result<(), DecodeError> {
        if self.line.len() + self.event.data.len() + more > self.limit {
            return Err(DecodeError::TooLarge);
        }
        Ok(())
    }
}

impl EventBuffer {
    /// Processes one line. `current` is the data of the event while it is a single line of the
    /// current bytes, which saves a copy.
    fn line<'b>(
        &mut self,
        line: &'b [u8],
        current: &mut Option<&'b [u8]>,
        sink: ItemSink<'_>,
    ) -> Result<(), DecodeError> {
        let line = match line.strip_prefix(BYTE_ORDER_MARK) {
            Some(rest) if self.start => rest,
            _ => line,
        };
        self.start = false;
        match line {
            [] => self.dispatch(current, sink),
            [b':', ..] => sink(Item::Comment),
            // No field begins like this, so the server omitted the framing.
            [b'{', ..] => sink(Item::Event {
                name: "",
                payload: line,
            }),
            _ => return self.field(line, current, sink),
        }
        Ok(())
    }

    fn field<'b>(
        &mut self,
        line: &'b [u8],
        current: &mut Option<&'b [u8]>,
        sink: ItemSink<'_>,
    ) -> Result<(), DecodeError> {
        let colon = if line.starts_with(b"data:") {
            Some(b"data".len())
        } else {
            memchr(b':', line)
        };
        let (field, value) = match colon {
            Some(colon) => (&line[..colon], &line[colon + 1..]),
            None => (line, &line[line.len()..]),
        };
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match field {
            b"data" if current.is_none() && !self.has_data => *current = Some(value),
            b"data" => {
                self.buffer_data(current)?;
                self.data.extend(b"\n")?;
                self.data.extend(value)?;
            }
            b"event" => {
                // No reader uses a longer name.
                let name = value.get(..MAX_NAME).unwrap_or(value);
                self.name.clear();
                self.name.push_str(str::from_utf8(name).unwrap_or_default());
            }
            b"error" => sink(Item::Error { payload: value }),
            _ => {}
        }
        Ok(())
    }

    fn dispatch(&mut self, current: &mut Option<&[u8]>, sink: ItemSink<'_>) {
        let payload = current.take().unwrap_or(self.data.as_slice());
        if !payload.is_empty() {
            sink(Item::Event {
                name: &self.name,
                payload,
            });
        }
        self.data.clear();
        self.has_data = false;
        self.name.clear();
    }

    fn buffer_data(&mut self, current: &mut Option<&[u8]>) -> Result<(), DecodeError> {
        if let Some(data) = current.take() {
            self.data.extend(data)?;
            self.has_data = true;
        }
        Ok(())
    }
}

type ItemSink<'a> = &'a mut dyn FnMut(Item<'_>);

impl Splitter for Sse {
    fn push(&mut self, bytes: &[u8], sink: ItemSink<'_>) -> Result<(), DecodeError> {
        let mut rest = bytes;
        let mut current = None;
        if self.after_cr && !rest.is_empty() {
            rest = rest.strip_prefix(b"\n").unwrap_or(rest);
            self.after_cr = false;
        }
        while let Some(end) = memchr2(b'\n', b'\r', rest) {
            let (line, tail) = (&rest[..end], &rest[end + 1..]);
            self.check(end + current.map_or(0, <[u8]>::len))?;
            if self.line.is_empty() {
                self.event.line(line, &mut current, sink)?;
            } else {
                self.line.extend(line)?;
                let mut held = None;
                self.event.buffer_data(&mut current)?;
                self.event.line(self.line.as_slice(), &mut held, sink)?;
                self.event.buffer_data(&mut held)?;
                self.line.clear();
            }
            rest = match (rest[end], tail) {
                (b'\r', [b'\n', after @ ..]) => after,
                (b'\r', []) => {
                    self.after_cr = true;
                    tail
                }
                _ => tail,
            };
        }
        self.line.extend(rest)?;
        self.event.buffer_data(&mut current)?;
        self.check(0)
    }

    fn finish(&mut self, sink: ItemSink<'_>) {
        let (last, event) = (self.line.as_slice(), &mut self.event);
        let mut current = None;
        if !last.is_empty() && event.line(last, &mut current, sink).is_err() {
            return sink(Item::Unparsed);
        }
        event.dispatch(&mut current, sink);
    }
}
