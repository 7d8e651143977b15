//! Handwritten responses, one per oddity, each with the expected events in `<fixture>.events`. Each response is read
//! whole and cut in two at every byte. Every registered dialect has a folder with its name under `fixtures/`, which is
//! found automatically.
//!
//! `.sse`, `.ndjson` and `.json` files are unmodified bodies. A line of a `.frames` file is an event's type and
//! payload; a line of a `.chunks` file is the model's JSON. `!` marks an exception. The test packs them into Amazon's
//! framing.
//!
//! `fixtures/sources.tsv` states for each fixture the shape it shows and the source of that shape: a page of the vendor
//! or the source code of a server. Fixtures that are called recorded there came from a server. The texts are ours.

use aws_smithy_eventstream::frame::write_message_to;
use aws_smithy_types::event_stream::{Header, HeaderValue, Message};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use tokengauge_core::call::{Channel, Dialect, EngineReport, Event, ServerTool, Usage};
use tokengauge_test_support::wire::encode::{CODINGS, encode};
use tokengauge_wire::{DIALECTS, Decoder, Limits, ResponseHead};

/// Bodies up to this size are cut in two at every byte.
const CUT_EVERYWHERE: usize = 2500;
/// Larger bodies are cut in two at every multiple of this number.
const STEP: usize = 7;

pub struct Fixture {
    pub path: PathBuf,
    pub body: Vec<u8>,
    /// Expected events, one a line. `None` if `wire_openai.rs` has the expected reading.
    pub events: Option<String>,
}

/// The folder of a dialect's fixtures, which is its name in records.
pub fn folder_of(dialect: Dialect) -> String {
    let name = serde_json::to_value(dialect).expect("a name");
    name.as_str().expect("a string").to_owned()
}

pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

pub fn fixtures(folder: &str) -> Vec<Fixture> {
    let folder = root().join(folder);
    let entries = std::fs::read_dir(&folder)
        .unwrap_or_else(|error| panic!("{}: {error}: a dialect has fixtures", folder.display()));
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let is_body = |path: &PathBuf| {
        let name = path.to_string_lossy();
        !name.ends_with(".events") && !name.ends_with(".expected.json")
    };
    let mut bodies: Vec<PathBuf> = paths.filter(is_body).collect();
    bodies.sort();
    assert!(!bodies.is_empty(), "{} is empty", folder.display());
    for body in &bodies {
        assert!(
            is_described(body),
            "nothing says what {} gives",
            body.display()
        );
    }
    bodies.into_iter().map(fixture).collect()
}

fn fixture(path: PathBuf) -> Fixture {
    let mut events = path.clone().into_os_string();
    events.push(".events");
    let body = std::fs::read(&path).expect("a body");
    Fixture {
        events: std::fs::read_to_string(events).ok(),
        body: match extension(&path) {
            "frames" => packed(&body, |payload| payload.to_owned()),
            "chunks" => packed(&body, |native| {
                // Amazon pads most chunks, to hide how long their texts are.
                let padding = match native.len() % 3 {
                    0 => String::new(),
                    length => format!(r#","p":"{}""#, &"abcd"[..length]),
                };
                format!(r#"{{"bytes":"{}"{padding}}}"#, STANDARD.encode(native))
            }),
            _ => body,
        },
        path,
    }
}

fn extension(path: &Path) -> &str {
    path.extension().and_then(|end| end.to_str()).unwrap_or("")
}

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
    pub fn content_type(&self) -> &'static str {
        match extension(&self.path) {
            "sse" => "text/event-stream; charset=utf-8",
            "ndjson" => "application/x-ndjson",
            "frames" | "chunks" => "application/vnd.amazon.eventstream",
            _ => "application/json",
        }
    }

    /// Whether the events of the fixture can be read as they arrive.
    pub fn is_stream(&self) -> bool {
        // Without `alt=sse` Gemini streams an array.
        let is_gemini = self.path.parent().is_some_and(|it| it.ends_with("gemini"));
        extension(&self.path) != "json" || (is_gemini && self.body.starts_with(b"["))
    }

    /// Other media types that servers send with such bodies; `None` omits the header.
    fn other_content_types(&self) -> &'static [Option<&'static str>] {
        match extension(&self.path) {
            "sse" => &[
                None,
                Some("text/event-stream"),
                Some("text/event-stream;charset=UTF-8"),
                Some("Text/Event-Stream; charset=utf-8"),
                Some("application/json"),
            ],
            // Without a type the first line could be a whole body.
            "ndjson" => &[
                Some("application/stream+json"),
                Some("application/ndjson; charset=utf-8"),
                Some("application/jsonl"),
                Some("Application/X-NDJSON"),
                Some("application/x-jsonlines"),
            ],
            "frames" | "chunks" => &[None],
            _ => &[
                None,
                Some("application/json; charset=UTF-8"),
                Some("application/octet-stream"),
                Some("text/event-stream"),
            ],
        }
    }

    fn other_bodies(&self) -> Vec<(&'static str, Cow<'_, [u8]>)> {
        if extension(&self.path) != "sse" {
            return Vec::new();
        }
        let text = std::str::from_utf8(&self.body).expect("UTF-8");
        let plain = text.replace("\r\n", "\n").replace('\r', "\n");
        let bodies = [
            ("CR LF ends lines", plain.replace('\n', "\r\n")),
            ("CR ends lines", plain.replace('\n', "\r")),
            (
                "no blank after the colon",
                plain.replace("\ndata: ", "\ndata:"),
            ),
            ("nothing ends the last event", plain.trim_end().to_owned()),
            (
                "comments between events",
                format!(": first\n\n{}", plain.replace("\n\n", "\n\n: next\n\n")),
            ),
            (
                "fields that mean nothing",
                plain.replace("\ndata:", "\nid: 1\nretry: 9\ndata:"),
            ),
        ];
        let owned = bodies.map(|(how, body)| (how, Cow::Owned(body.into_bytes())));
        owned.into()
    }

    /// The events of a body cut at `cuts`, one a line.
    fn read<'b>(
        &self,
        dialect: Dialect,
        head: &ResponseHead<'_>,
        pieces: impl Iterator<Item = &'b [u8]>,
    ) -> String {
        let name = self.path.display();
        let mut decoder = Decoder::new(dialect, head, Limits::default());
        let mut lines = String::new();
        for piece in pieces {
            let pushed = decoder.push(piece, &mut |event| line(&mut lines, event));
            assert_eq!(pushed, Ok(()), "{name}");
        }
        let finished = decoder.finish(&mut |event| line(&mut lines, event));
        assert_eq!(finished, Ok(()), "{name}");
        assert_eq!(decoder.dialect(), dialect, "{name}");
        assert_eq!(decoder.is_stream(), self.is_stream(), "{name} as {head:?}");
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
        Event::ServedBy(provider) => {
            write!(lines, "provider {}", quoted(provider)).expect("written")
        }
        Event::ServiceTier(tier) => write!(lines, "tier {}", quoted(tier)).expect("written"),
        Event::Cost(usd) => write!(lines, "cost {usd}").expect("written"),
        Event::Error(kind) => write!(lines, "error {}", quoted(kind)).expect("written"),
        Event::UnknownUsage(name) => {
            write!(lines, "unknown_usage {}", quoted(name)).expect("written")
        }
        Event::ServerTool(ServerTool::Began) => lines.push_str("server_tool began"),
        Event::ServerTool(ServerTool::Ended) => lines.push_str("server_tool ended"),
        Event::TurnStarted => lines.push_str("turn_started"),
        Event::TurnEnded => lines.push_str("turn_ended"),
        Event::End => lines.push_str("end"),
        Event::Damaged => lines.push_str("damaged"),
        Event::Skipped => lines.push_str("skipped"),
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
        ("written_1h", usage.cache_write_1h),
        ("output", usage.output),
        ("reasoning", usage.reasoning),
        ("billed_input", usage.details.billed_input),
        ("billed_output", usage.details.billed_output),
        ("unsent", usage.details.unsent_output),
        ("audio_input", usage.details.audio_input),
        ("cached_audio_input", usage.details.cached_audio_input),
        ("audio_output", usage.details.audio_output),
        ("image_output", usage.details.image_output),
        ("searches", usage.details.searches),
        ("other_tools", usage.details.other_tools),
        ("searched", usage.details.searched.map(u64::from)),
        ("regional", usage.details.regional.map(u64::from)),
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

/// Checks that every fixture of a folder gives its events, however it is cut, encoded, labelled and framed.
fn check(folder: &str, dialect: Dialect) {
    for fixture in fixtures(folder) {
        let (body, name) = (&fixture.body, fixture.path.display());
        let Some(expected) = &fixture.events else {
            continue;
        };
        let head = ResponseHead {
            status: 200,
            content_type: Some(fixture.content_type()),
            content_encoding: None,
        };
        let whole = fixture.read(dialect, &head, [&body[..]].into_iter());
        if std::env::var_os("TOKENGAUGE_WRITE_EVENTS").is_some() {
            let mut events = fixture.path.clone().into_os_string();
            events.push(".events");
            std::fs::write(events, &whole).expect("written");
        } else {
            assert_eq!(whole, *expected, "{name}");
        }
        let step = if body.len() <= CUT_EVERYWHERE {
            1
        } else {
            STEP
        };
        for at in (1..body.len()).step_by(step) {
            let (first, second) = body.split_at(at);
            let read = fixture.read(dialect, &head, [first, second].into_iter());
            assert_eq!(read, whole, "{name} cut at {at}");
        }
        let read = fixture.read(dialect, &head, body.chunks(1));
        assert_eq!(read, whole, "{name} byte by byte");
        for content_type in fixture.other_content_types() {
            let head = ResponseHead {
                content_type: *content_type,
                ..head
            };
            let read = fixture.read(dialect, &head, body.chunks(64));
            assert_eq!(read, whole, "{name} as {content_type:?}");
        }
        for (how, body) in fixture.other_bodies() {
            let read = fixture.read(dialect, &head, body.chunks(1));
            assert_eq!(read, whole, "{name} where {how}");
        }
        let mut codings: Vec<(&str, Vec<u8>)> =
            CODINGS.map(|coding| (coding, encode(coding, body))).into();
        codings.push(("deflate", encode("raw-deflate", body)));
        codings.push(("gzip, br", encode("br", &encode("gzip", body))));
        for (coding, encoded) in &codings {
            let head = ResponseHead {
                content_encoding: Some(coding),
                ..head
            };
            let read = fixture.read(dialect, &head, encoded.chunks(encoded.len() / 2 + 1));
            assert_eq!(read, whole, "{name} encoded with {coding}");
        }
    }
}

/// Whether a file next to the body states the expected events here, or the expected reading in `wire_openai.rs`.
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
fn every_fixture_has_a_row_that_names_its_shape_and_its_source() {
    let table = std::fs::read_to_string(root().join("sources.tsv")).expect("a table");
    let mut rows = table.lines();
    assert_eq!(rows.next(), Some("fixture\tshape\tsource"));
    let mut listed = Vec::new();
    for row in rows {
        let cells: Vec<&str> = row.split('\t').collect();
        let [fixture, shape, source] = cells[..] else {
            panic!("three cells: {row}");
        };
        let is_source = source.contains("https://") || source.starts_with("recorded from ");
        assert!(
            !shape.is_empty() && is_source,
            "a shape and a source: {row}"
        );
        listed.push(fixture.to_owned());
    }
    assert!(
        listed.is_sorted(),
        "the rows are in the order of their fixtures"
    );
    let mut present = Vec::new();
    for registration in DIALECTS.iter() {
        for fixture in fixtures(&folder_of(registration.dialect)) {
            let path = fixture.path.strip_prefix(root()).expect("in the folder");
            present.push(path.to_string_lossy().into_owned());
        }
    }
    present.sort();
    assert_eq!(listed, present);
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
