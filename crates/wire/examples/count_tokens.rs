//! Reads a recorded response body and prints the tokens of each event and the usage that the
//! provider reports. Shows how a program uses the crates `tokengauge-wire` and
//! `tokengauge-tokenizer` without the proxy.
//!
//! ```console
//! $ cargo run -p tokengauge-wire --example count_tokens -- anthropic tests/fixtures/anthropic/every_block.sse
//! ```
//!
//! Without a file the body is read from standard input.

use serde::Deserialize;
use serde::de::value::{Error as Unknown, StrDeserializer};
use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::process::ExitCode;
use tokengauge_core::call::{Dialect, Event, Segment, Usage};
use tokengauge_tokenizer::Counter;
use tokengauge_wire::{DecodeError, Decoder, Limits, ResponseHead};

const READ_BYTES: usize = 4096;

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("usage: count_tokens DIALECT [FILE], with a dialect such as openai_chat or anthropic")]
    Usage,
    #[error("`{name}` is not a dialect: {source}")]
    Dialect { name: String, source: Unknown },
    #[error("cannot read the body: {0}")]
    Body(#[from] io::Error),
    #[error("cannot decode the body: {0}")]
    DecodeError(#[from] DecodeError),
}

/// The counts of one response. Each segment (the answer of a choice, its reasoning, the arguments
/// of a tool call) is a separate text with a separate counter.
#[derive(Default)]
struct TokenCounts {
    events: u64,
    counters: HashMap<Segment, Counter>,
    usage: Usage,
}

impl TokenCounts {
    fn add(&mut self, event: Event<'_>, out: &mut impl Write) -> io::Result<()> {
        match event {
            Event::Message => self.events += 1,
            Event::Usage(usage) => self.usage.overlay(usage),
            Event::Delta { segment, text } => {
                let before = self.total();
                self.counters.entry(segment).or_default().push(text);
                // New text may join several tokens into one, so the count can decrease.
                let (total, event) = (self.total(), self.events);
                let added = i128::from(total) - i128::from(before);
                writeln!(out, "event {event}: {added:+} tokens, {total} so far")?;
            }
            _ => {}
        }
        Ok(())
    }

    fn total(&self) -> u64 {
        self.counters.values().map(Counter::count).sum()
    }
}

fn dialect(name: &str) -> Result<Dialect, Error> {
    Dialect::deserialize(StrDeserializer::<Unknown>::new(name)).map_err(|source| Error::Dialect {
        name: name.to_owned(),
        source,
    })
}

fn count(
    dialect: Dialect,
    mut body: impl Read,
    out: &mut impl Write,
) -> Result<TokenCounts, Error> {
    let mut counts = TokenCounts::default();
    let mut chunk = [0; READ_BYTES];
    let head = ResponseHead {
        status: 200,
        content_type: None, // a recording has no head, so the framing is detected from the first bytes
        content_encoding: None,
    };
    let mut decoder = Decoder::new(dialect, &head, Limits::default());
    let mut printed = Ok(());
    let mut sink = |event: Event<'_>| {
        if printed.is_ok() {
            printed = counts.add(event, out);
        }
    };
    loop {
        match body.read(&mut chunk)? {
            0 => break,
            read => decoder.push(&chunk[..read], &mut sink)?,
        }
    }
    decoder.finish(&mut sink)?;
    printed?;
    Ok(counts)
}

/// Prints the tokens of each event of a body, and the totals.
pub(crate) fn report(name: &str, body: impl Read, out: &mut impl Write) -> Result<(), Error> {
    let counts = count(dialect(name)?, body, out)?;
    let reported =
        |count: Option<u64>| count.map_or("unknown".to_owned(), |count| count.to_string());
    let (events, total, usage) = (counts.events, counts.total(), counts.usage);
    writeln!(out, "{events} events, {total} tokens counted")?;
    let (input, output) = (reported(usage.input), reported(usage.output));
    writeln!(
        out,
        "the provider reports {input} input and {output} output tokens"
    )?;
    Ok(())
}

fn run() -> Result<(), Error> {
    let mut arguments = std::env::args().skip(1);
    let name = arguments.next().ok_or(Error::Usage)?;
    let body: Box<dyn Read> = match arguments.next() {
        Some(file) => Box::new(std::fs::File::open(file)?),
        None => Box::new(io::stdin()),
    };
    report(&name, body, &mut io::stdout().lock())
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("count_tokens: {error}");
            ExitCode::FAILURE
        }
    }
}
