//! Recorded responses of all dialects, as the backend replays them: those of tests/fixtures, and of
//! the folder that `TOKENGAUGE_CORPUS` names. Backend and load read them in the same order, so that
//! a number says which one is meant.

use crate::recorded_events::{longest_run, split};
use crate::recorded_files::{corpus, fixtures};
use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;

/// Events of a body after its longest run of like events has been repeated.
const REPEATED_EVENTS: usize = 1_000;
/// Fewer like events in a row are not repeated: they are no stream of tokens.
const SHORTEST_RUN: usize = 4;

/// How events are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// Ends of events are blank lines.
    Sse,
    Ndjson,
    /// Amazon's frames, which begin with their length.
    EventStream,
    /// A body that is one event, or compressed: pieces of this many bytes.
    Pieces(usize),
}

#[derive(Clone, Debug)]
pub struct Recorded {
    /// As a record names it.
    pub dialect: String,
    /// Where it was read.
    pub name: String,
    /// Path and query of its request.
    pub path: String,
    pub content_type: String,
    pub content_encoding: Option<String>,
    body: Vec<u8>,
    events: Vec<Range<usize>>,
    /// Its longest run of like events, where that is long enough.
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

    /// Whether it has a run of like events.
    pub fn can_be_repeated(&self) -> bool {
        self.run.is_some()
    }

    /// The head of the response in HTTP/1.1.
    pub fn head(&self) -> String {
        let encoding = self.content_encoding.as_ref();
        let encoding = encoding.map(|coding| format!("content-encoding: {coding}\r\n"));
        format!(
            "HTTP/1.1 200 OK\r\ncontent-type: {}\r\n{}transfer-encoding: chunked\r\n\r\n",
            self.content_type,
            encoding.unwrap_or_default()
        )
    }

    /// Its events; with `repeated` its longest run is repeated until there are 1,000 of them.
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

/// All recorded responses, read when the first is wanted.
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

/// Which body a response shall be, and how. It stands in a header line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordedSpec {
    /// Its number in the [`Library`].
    pub index: usize,
    pub per_write: u32,
    /// Whether its longest run of like events is repeated.
    pub repeated: bool,
}

impl RecordedSpec {
    pub const HEADER: &str = "x-recorded";

    /// The request for it, with a small body.
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

    /// What the header line says; none where it is none of ours.
    pub fn of_header(value: &str) -> Option<RecordedSpec> {
        let mut numbers = value.split_ascii_whitespace();
        Some(RecordedSpec {
            index: numbers.next()?.parse().ok()?,
            per_write: numbers.next()?.parse().ok().filter(|number| *number > 0)?,
            repeated: numbers.next()? == "1",
        })
    }
}
