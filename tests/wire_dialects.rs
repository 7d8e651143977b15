//! Handwritten responses, one per oddity, each with the events it must give beside it
//! in `<fixture>.events`; read whole and cut in two at every byte. Every registered dialect has
//! a folder of them under `fixtures/`, which is called like it and found by itself.
//!
//! `.sse`, `.ndjson` and `.json` are bodies as they are. A line of `.frames` is the
//! type of an event and its payload, of `.chunks` the model's own JSON; `!` marks an
//! exception. The test packs them into Amazon's framing.
//!
//! Where a vendor's server was not at hand, its documents or its SDK decide on the shapes, and
//! the first comment of a stream says so; what is called recorded came from a server.

use aws_smithy_eventstream::frame::write_message_to;
use aws_smithy_types::event_stream::{Header, HeaderValue, Message};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use tokengauge::call::{Channel, Dialect, EngineReport, Event, Usage};
use tokengauge::wire::{DIALECTS, Decoder, Limits, ResponseHead};

/// A response and what it must give.
struct Fixture {
    path: PathBuf,
    body: Vec<u8>,
    events: String,
}

/// The folder of a dialect's fixtures: its name in records.
pub fn folder_of(dialect: Dialect) -> String {
    let name = serde_json::to_value(dialect).expect("a name");
    name.as_str().expect("a string").to_owned()
}

fn fixtures(folder: &str) -> Vec<Fixture> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures")
        .join(folder);
    let entries = std::fs::read_dir(&folder)
        .unwrap_or_else(|error| panic!("{}: {error}: a dialect has fixtures", folder.display()));
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let is_body = |path: &PathBuf| {
        let name = path.to_string_lossy();
        !name.ends_with(".events") && !name.ends_with(".expected.json")
    };
    let bodies: Vec<PathBuf> = paths.filter(is_body).collect();
    assert!(!bodies.is_empty(), "{} is empty", folder.display());
    for body in &bodies {
        assert!(
            is_described(body),
            "nothing says what {} gives",
            body.display()
        );
    }
    let by_events = |path: &PathBuf| !path.with_extension("expected.json").exists();
    bodies.into_iter().filter(by_events).map(fixture).collect()
}

fn fixture(path: PathBuf) -> Fixture {
    let mut events = path.clone().into_os_string();
    events.push(".events");
    let body = std::fs::read(&path).expect("a body");
    Fixture {
        events: std::fs::read_to_string(events).expect("the events beside it"),
        body: match extension(&path) {
            "frames" => packed(&body, |payload| payload.to_owned()),
            "chunks" => packed(&body, |native| {
                format!(r#"{{"bytes":"{}","p":"abc"}}"#, STANDARD.encode(native))
            }),
            _ => body,
        },
        path,
    }
}

fn extension(path: &Path) -> &str {
    path.extension().and_then(|end| end.to_str()).unwrap_or("")
}

/// Lines of events in Amazon's framing.
fn packed(lines: &[u8], payload: impl Fn(&str) -> String) -> Vec<u8> {
    let mut body = Vec::new();
    for line in std::str::from_utf8(lines).expect("UTF-8").lines() {
        let (kind, name, sent) = match (line.strip_prefix('!'), line.split_once(' ')) {
            (Some(exception), _) => {
                let (name, sent) = exception.split_once(' ').expect("a payload");
                ("exception", name, sent.to_owned())
            }
            (None, Some((name, sent))) if !line.starts_with('{') => ("event", name, payload(sent)),
            _ => ("event", "chunk", payload(line)),
        };
        let header = |name: &str, value: &str| {
            Header::new(
                name.to_owned(),
                HeaderValue::String(value.to_owned().into()),
            )
        };
        let message = Message::new(sent.into_bytes())
            .add_header(header(&format!(":{kind}-type"), name))
            .add_header(header(":content-type", "application/json"))
            .add_header(header(":message-type", kind));
        write_message_to(&message, &mut body).expect("a frame");
    }
    body
}

impl Fixture {
    fn decoder(&self, dialect: Dialect) -> Decoder {
        let content_type = match extension(&self.path) {
            "sse" => "text/event-stream; charset=utf-8",
            "ndjson" => "application/x-ndjson",
            "frames" | "chunks" => "application/vnd.amazon.eventstream",
            _ => "application/json",
        };
        let head = ResponseHead {
            status: 200,
            content_type: Some(content_type),
            content_encoding: None,
        };
        Decoder::new(dialect, &head, Limits::default())
    }

    /// The events of the body, cut at `at`, a line each.
    fn read(&self, dialect: Dialect, at: usize) -> String {
        let mut decoder = self.decoder(dialect);
        let mut lines = String::new();
        let (first, second) = self.body.split_at(at);
        for piece in [first, second] {
            let pushed = decoder.push(piece, &mut |event| line(&mut lines, event));
            assert_eq!(pushed, Ok(()), "{}", self.path.display());
        }
        let finished = decoder.finish(&mut |event| line(&mut lines, event));
        assert_eq!(finished, Ok(()), "{}", self.path.display());
        assert_eq!(decoder.dialect(), dialect, "{}", self.path.display());
        lines
    }
}

fn line(lines: &mut String, event: Event<'_>) {
    match event {
        Event::Message => lines.push_str("message"),
        Event::Delta { segment, text } => {
            let channel = match segment.channel {
                Channel::Answer => "answer",
                Channel::Reasoning => "reasoning",
                Channel::ToolCall => "tool_call",
            };
            let (choice, index) = (segment.choice, segment.index);
            write!(lines, "delta {choice}.{index} {channel} {}", quoted(text)).expect("written");
        }
        Event::ToolName { segment, name } => {
            let (choice, index) = (segment.choice, segment.index);
            write!(lines, "tool {choice}.{index} {}", quoted(name)).expect("written");
        }
        Event::Model(name) => write!(lines, "model {}", quoted(name)).expect("written"),
        Event::Session(id) => write!(lines, "session {}", quoted(id)).expect("written"),
        Event::ResponseId(id) => write!(lines, "response_id {}", quoted(id)).expect("written"),
        Event::Finish { choice, reason } => {
            write!(lines, "finish {choice} {}", quoted(reason)).expect("written");
        }
        Event::Usage(usage) => lines.push_str(&counts(&usage)),
        Event::Engine(report) => lines.push_str(&measured(&report)),
        Event::ServiceTier(tier) => write!(lines, "tier {}", quoted(tier)).expect("written"),
        Event::Cost(usd) => write!(lines, "cost {usd}").expect("written"),
        Event::Error(kind) => write!(lines, "error {}", quoted(kind)).expect("written"),
        Event::TurnStarted => lines.push_str("turn_started"),
        Event::TurnEnded => lines.push_str("turn_ended"),
        Event::End => lines.push_str("end"),
        Event::Unparsed => lines.push_str("unparsed"),
    }
    lines.push('\n');
}

fn quoted(text: &str) -> String {
    serde_json::to_string(text).expect("a string")
}

fn counts(usage: &Usage) -> String {
    let known = [
        ("input", usage.input),
        ("cached", usage.cached_input),
        ("written", usage.cache_write),
        ("output", usage.output),
        ("reasoning", usage.reasoning),
    ];
    let known = known
        .iter()
        .filter_map(|(kind, count)| Some((kind, (*count)?)));
    known.fold("usage".to_owned(), |line, (kind, count)| {
        format!("{line} {kind}={count}")
    })
}

fn measured(report: &EngineReport) -> String {
    let mut line = "engine".to_owned();
    let phases = [
        ("prompt", report.prompt_tokens, report.prompt_seconds),
        ("output", report.output_tokens, report.output_seconds),
    ];
    for (phase, tokens, seconds) in phases {
        if let Some(tokens) = tokens {
            let seconds = seconds.map_or("?".to_owned(), |seconds| format!("{seconds}s"));
            line += &format!(" {phase}={tokens}/{seconds}");
        }
    }
    for (phase, seconds) in [
        ("load", report.load_seconds),
        ("total", report.total_seconds),
    ] {
        if let Some(seconds) = seconds {
            line += &format!(" {phase}={seconds}s");
        }
    }
    line
}

/// Every fixture of a folder gives its events, however it is cut.
fn check(folder: &str, dialect: Dialect) {
    for fixture in fixtures(folder) {
        let name = fixture.path.display();
        let whole = fixture.read(dialect, 0);
        assert_eq!(whole, fixture.events, "{name}");
        for at in 1..fixture.body.len() {
            assert_eq!(fixture.read(dialect, at), whole, "{name} cut at {at}");
        }
    }
}

/// Whether the file beside a body says what it must give: its events here, what is read of it in
/// `wire_openai.rs`.
fn is_described(body: &Path) -> bool {
    let mut events = body.as_os_str().to_owned();
    events.push(".events");
    Path::new(&events).exists() || body.with_extension("expected.json").exists()
}

#[test]
fn every_registered_dialect_reads_its_fixtures_as_their_events_say() {
    std::thread::scope(|scope| {
        for registration in DIALECTS.iter() {
            let dialect = registration.dialect;
            scope.spawn(move || check(&folder_of(dialect), dialect));
        }
    });
}

#[test]
fn every_dialect_but_the_unknown_one_is_registered_once() {
    let registered: BTreeSet<Dialect> = DIALECTS.iter().map(|found| found.dialect).collect();
    assert_eq!(registered.len(), DIALECTS.iter().count());
    for &dialect in Dialect::ALL {
        let known = dialect != Dialect::Unknown;
        assert_eq!(registered.contains(&dialect), known, "{dialect:?}");
        let found = DIALECTS.registration(dialect);
        assert_eq!(found.dialect, dialect);
    }
    assert_eq!(registered.len(), Dialect::ALL.len() - 1);
}
