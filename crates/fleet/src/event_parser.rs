//! Parses server-sent events from the bytes that a pod sends.

/// Largest event in bytes; a larger event is skipped. An event with a hundred streams has about 60
/// KB.
const MAX_EVENT: usize = 1 << 20;
/// Capacity in bytes that a buffer keeps after an event.
const KEEP: usize = 16 << 10;

#[derive(Debug, Default)]
pub(super) struct EventParser {
    line: Vec<u8>,
    kind: String,
    data: Vec<u8>,
    too_large: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Parsed<'a> {
    Event(&'a str, &'a [u8]),
    TooLarge,
}

impl EventParser {
    /// Calls `take` for every event that ends within `bytes`.
    pub(super) fn push(&mut self, bytes: &[u8], mut take: impl FnMut(Parsed<'_>)) {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            if self.line.len() + self.data.len() + piece.len() > MAX_EVENT {
                self.too_large = true;
                self.line.clear();
                self.data.clear();
            }
            self.line.extend_from_slice(piece);
            if piece.ends_with(b"\n") {
                self.end_line(&mut take);
            }
        }
    }

    fn end_line(&mut self, take: &mut impl FnMut(Parsed<'_>)) {
        let line = self.line.trim_ascii_end();
        if line.is_empty() {
            if self.too_large {
                take(Parsed::TooLarge);
            } else if !self.data.is_empty() {
                take(Parsed::Event(&self.kind, &self.data));
            }
            self.too_large = false;
            self.kind.clear();
            self.data.clear();
            self.data.shrink_to(KEEP);
        } else if let Some(kind) = line.strip_prefix(b"event:") {
            self.kind = String::from_utf8_lossy(kind.trim_ascii()).into_owned();
        } else if let Some(data) = line.strip_prefix(b"data:") {
            if !self.data.is_empty() {
                self.data.push(b'\n');
            }
            self.data.extend_from_slice(data.trim_ascii_start());
        }
        self.line.clear();
        self.line.shrink_to(KEEP);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(pieces: &[&[u8]]) -> Vec<String> {
        let (mut parser, mut found) = (EventParser::default(), Vec::new());
        for piece in pieces {
            parser.push(piece, |parsed| {
                found.push(match parsed {
                    Parsed::Event(kind, data) => {
                        format!("{kind}={}", String::from_utf8_lossy(data))
                    }
                    Parsed::TooLarge => "too large".to_owned(),
                });
            });
        }
        found
    }

    #[test]
    fn events_are_found_however_the_bytes_are_cut() {
        let text = b"event: call\ndata: {\"a\":1}\n\n: still there\n\nevent: slos\r\ndata: x\r\ndata: y\r\n\r\nevent: cut\ndata: z";
        let expected = ["call={\"a\":1}", "slos=x\ny"];
        assert_eq!(parsed(&[text]), expected);
        for cut in 0..text.len() {
            assert_eq!(parsed(&[&text[..cut], &text[cut..]]), expected, "{cut}");
        }
    }

    #[test]
    fn an_event_that_is_too_large_costs_itself_alone() {
        let long = vec![b'x'; MAX_EVENT];
        let pieces: [&[u8]; 4] = [
            b"event: streams\ndata: ",
            &long,
            b"\n\n",
            b"event: call\ndata: 1\n\n",
        ];
        assert_eq!(parsed(&pieces), ["too large", "call=1"]);
        let mut parser = EventParser::default();
        for _ in 0..40 {
            parser.push(&long, |_| {});
        }
        assert!(parser.line.capacity() + parser.data.capacity() <= 4 * MAX_EVENT);
    }
}
