//! Recorded responses of all dialects, which the backend replays, from tests/fixtures and from the folder
//! `TOKENGAUGE_CORPUS`. Backend and load read them in the same order, so an index identifies one.

use crate::recorded_events::{longest_run, split};
use crate::recorded_files::{corpus, fixtures};
use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;

/// Number of events of a body after its longest run of similar events has been repeated.
const REPEATED_EVENTS: usize = 1_000;
/// Shorter runs of similar events are not repeated, because they are not a stream of tokens.
const SHORTEST_RUN: usize = 4;

/// How events are separated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// Blank lines end events.
    Sse,
    Ndjson,
    /// Amazon's frames, which begin with their length.
    EventStream,
    /// Pieces of this many bytes, for a compressed body or one without several events.
    Pieces(usize),
}

#[derive(Clone, Debug)]
pub struct Recorded {
    pub dialect: String,
    pub name: String,
    pub path: String,
    pub content_type: String,
    pub content_encoding: Option<String>,
    body: Vec<u8>,
    events: Vec<Range<usize>>,
    /// The body's longest run of similar events, if the run is long enough.
    run: Option<Range<usize>>,
}

impl Recorded {
    pub fn new(
        (dialect, name, path): (String, String, String),
        (content_type, content_encoding): (String, Option<String>),
        framing: Framing,
        body: Vec<u8>,
    ) -> Recorded {
        let events = split(framing, &body);
        let run = match framing {
            Framing::Pieces(_) => None,
            _ => Some(longest_run(framing, &body, &events)),
        };
        Recorded {
            dialect,
            name,
            path,
            content_type,
            content_encoding,
            body,
            events,
            run: run.filter(|run| run.len() >= SHORTEST_RUN),
        }
    }

    /// Whether the body has a run of similar events.
    pub fn can_be_repeated(&self) -> bool {
        self.run.is_some()
    }

    pub fn head(&self) -> String {
        let encoding = self.content_encoding.as_ref();
        let encoding = encoding.map(|coding| format!("content-encoding: {coding}\r\n"));
        format!(
            "HTTP/1.1 200 OK\r\ncontent-type: {}\r\n{}transfer-encoding: chunked\r\n\r\n",
            self.content_type,
            encoding.unwrap_or_default()
        )
    }

    /// The body's events. With `repeated`, the longest run is repeated until there are 1,000 events.
    pub fn events(&self, repeated: bool) -> impl Iterator<Item = &[u8]> {
        let all = self.events.len();
        let run = match &self.run {
            Some(run) if repeated => run.clone(),
            _ => all..all,
        };
        let times = match run.len() {
            0 => 0,
            length => REPEATED_EVENTS
                .saturating_sub(all - length)
                .div_ceil(length),
        };
        let before = 0..run.start;
        let after = run.end..all;
        let middle = (0..times).flat_map(move |_| run.clone());
        let order = before.chain(middle).chain(after);
        order.map(|index| &self.body[self.events[index].clone()])
    }
}

/// All recorded responses, read on first use.
#[derive(Debug, Default)]
pub struct Library {
    recorded: RefCell<Option<Rc<[Recorded]>>>,
}

impl Library {
    pub fn all(&self) -> anyhow::Result<Rc<[Recorded]>> {
        let mut recorded = self.recorded.borrow_mut();
        if let Some(all) = &*recorded {
            return Ok(Rc::clone(all));
        }
        let mut all = fixtures()?;
        all.extend(corpus()?);
        Ok(Rc::clone(recorded.insert(all.into())))
    }
}

/// The requested body and its form, sent in a header line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordedSpec {
    pub index: usize,
    pub per_write: u32,
    pub repeated: bool,
}

impl RecordedSpec {
    pub const HEADER: &str = "x-recorded";

    pub fn request(self, of: &Recorded) -> Vec<u8> {
        let RecordedSpec {
            index,
            per_write,
            repeated,
        } = self;
        let repeated = u32::from(repeated);
        let body = "{\"model\":\"bench\",\"stream\":true,\"messages\":[{\"role\":\"user\",\"content\":\"Hello\"}]}";
        format!(
            "POST {} HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\n{}: {index} {per_write} {repeated}\r\n\
             content-length: {}\r\n\r\n{body}",
            of.path,
            Self::HEADER,
            body.len()
        )
        .into_bytes()
    }

    /// Parses the header line; `None` if it has another format.
    pub fn of_header(value: &str) -> Option<RecordedSpec> {
        let mut numbers = value.split_ascii_whitespace();
        Some(RecordedSpec {
            index: numbers.next()?.parse().ok()?,
            per_write: numbers.next()?.parse().ok().filter(|number| *number > 0)?,
            repeated: numbers.next()? == "1",
        })
    }
}
