//! The prompts of a run: generated prompts of given lengths, the prompts of a file, or the calls of a trace.

use crate::endpoint::Prompt;
use crate::error::BenchError;
use crate::length::{Length, MAX_TOKENS};
use crate::prompt;
use parking_lot::Mutex;
use rand::RngExt;
use serde::Deserialize;
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokengauge_stats::{Generator, seeded};

const MAX_LINES: usize = 1_000_000;

#[derive(Clone, Debug, PartialEq)]
pub enum Workload {
    Synthetic {
        input: Length,
        /// The maximum length of outputs. With `None` the backend decides.
        output: Option<Length>,
    },
    /// The lines of a file, which are repeated when all of them were used.
    Lines(Vec<Line>),
}

/// A line of a prompt file: a prompt, or the length of a prompt to generate.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    text: Text,
    output_tokens: Option<u32>,
    session: Option<String>,
    /// The start of the call, relative to the first call of the trace.
    pub at: Option<Duration>,
    /// The pause between the end of the session's previous call and the start of this call.
    delay: Option<Duration>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// The start of the first call, relative to the first call of the trace.
    pub at: Duration,
    /// The calls in the order of the file; at least one.
    pub turns: Vec<Turn>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    pub line: usize,
    /// The start relative to the first call of the trace, if the call has no `delay`.
    pub at: Option<Duration>,
    /// The pause after the end of the previous call.
    pub delay: Option<Duration>,
}

#[derive(Clone, Debug, PartialEq)]
enum Text {
    Given(String),
    Made(u32),
}

#[derive(Debug, thiserror::Error)]
enum InvalidLine {
    #[error("{0}")]
    Json(#[from] serde_json::Error),
    #[error("`input_length` cannot be {0} tokens; it must be from 1 to 10,000,000")]
    Length(u32),
    #[error("neither `text` nor `input_length` is set")]
    NoPrompt,
    #[error("invalid timestamp or delay: {0}")]
    Time(#[from] std::time::TryFromFloatSecsError),
}

/// The known members of a line: AIPerf's `single_turn` and `mooncake_trace`, and guidellm's columns.
#[derive(Debug, Deserialize)]
struct JsonLine {
    #[serde(alias = "text_input", alias = "prompt")]
    text: Option<String>,
    #[serde(alias = "prompt_tokens_count")]
    input_length: Option<u32>,
    #[serde(alias = "output_tokens_count")]
    output_length: Option<u32>,
    session_id: Option<String>,
    /// In milliseconds.
    timestamp: Option<f64>,
    /// Milliseconds after the end of the session's previous call.
    delay: Option<f64>,
}

impl Workload {
    /// Reads a file of JSON lines with `text` or `input_length`, or of plain prompts, one per line.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read or a line has another format.
    pub fn read(path: &Path) -> Result<Workload, BenchError> {
        let invalid = |reason: String| BenchError::Input {
            path: path.to_owned(),
            reason,
        };
        let text = std::fs::read_to_string(path).map_err(|error| invalid(error.to_string()))?;
        let lines = text.lines().enumerate();
        let filled: Vec<_> = lines.filter(|(_, line)| !line.trim().is_empty()).collect();
        if filled.is_empty() || filled.len() > MAX_LINES {
            let reason = format!(
                "the file has {} lines with prompts, but must have 1 to {MAX_LINES}",
                filled.len()
            );
            return Err(invalid(reason));
        }
        let json = filled[0].1.trim_start().starts_with('{');
        let read = |(number, line): &(usize, &str)| {
            if json {
                Line::of_json(line)
                    .map_err(|reason| invalid(format!("line {}: {reason}", number + 1)))
            } else {
                Ok(Line::of_text(line))
            }
        };
        let mut lines = filled.iter().map(read).collect::<Result<Vec<_>, _>>()?;
        let first = lines.iter().filter_map(|line| line.at).min();
        for line in &mut lines {
            line.at = line.at.map(|at| at - first.unwrap_or_default());
        }
        Ok(Workload::Lines(lines))
    }

    /// Returns the start of each call of a trace in ascending order; `None` if a line has no time.
    pub fn schedule(&self) -> Option<Vec<Duration>> {
        let Workload::Lines(lines) = self else {
            return None;
        };
        let mut starts: Vec<_> = lines.iter().map(|line| line.at).collect::<Option<_>>()?;
        starts.sort_unstable();
        Some(starts)
    }

    /// Returns the sessions of a trace, ordered by start. A line without a session name is a session of one call.
    /// Returns `None` if the first call of a session has no time.
    pub fn sessions(&self) -> Option<Vec<Session>> {
        let Workload::Lines(lines) = self else {
            return None;
        };
        let mut places = HashMap::new();
        let mut sessions: Vec<Session> = Vec::new();
        for (number, line) in lines.iter().enumerate() {
            let turn = Turn {
                line: number,
                at: line.at,
                delay: line.delay,
            };
            let known = line.session.as_deref();
            match known.and_then(|name| places.get(name)).copied() {
                Some(place) => {
                    let session: &mut Session = &mut sessions[place];
                    session.turns.push(turn);
                }
                None => {
                    known.map(|name| places.insert(name, sessions.len()));
                    sessions.push(Session {
                        at: line.at?,
                        turns: vec![turn],
                    });
                }
            }
        }
        sessions.sort_by_key(|session| session.at);
        Some(sessions)
    }

    pub fn describe(&self) -> String {
        match self {
            Workload::Synthetic { input, output } => {
                let output = output.map_or("as the backend likes".to_owned(), |tokens| {
                    format!("at most {tokens} tokens")
                });
                format!("prompts of {input} tokens, answers {output}")
            }
            Workload::Lines(lines) => format!("{} prompts of a file or trace", lines.len()),
        }
    }
}

impl Line {
    fn of_text(text: &str) -> Line {
        Line {
            text: Text::Given(text.to_owned()),
            output_tokens: None,
            session: None,
            at: None,
            delay: None,
        }
    }

    fn of_json(line: &str) -> Result<Line, InvalidLine> {
        let line: JsonLine = serde_json::from_str(line)?;
        let text = match (line.text, line.input_length) {
            (Some(text), _) => Text::Given(text),
            (None, Some(tokens)) if (1..=MAX_TOKENS).contains(&tokens) => Text::Made(tokens),
            (None, Some(tokens)) => return Err(InvalidLine::Length(tokens)),
            (None, None) => return Err(InvalidLine::NoPrompt),
        };
        let time = |millis: Option<f64>| {
            let seconds = millis.map(|millis| Duration::try_from_secs_f64(millis / 1e3));
            seconds.transpose()
        };
        Ok(Line {
            text,
            output_tokens: line.output_length.filter(|tokens| *tokens > 0),
            session: line.session_id,
            at: time(line.timestamp)?,
            delay: time(line.delay)?,
        })
    }

    fn prompt(&self, random: &mut Generator) -> Prompt {
        let text = match &self.text {
            Text::Given(text) => text.clone(),
            Text::Made(tokens) => prompt::text(*tokens, random),
        };
        Prompt {
            text,
            output_tokens: self.output_tokens,
            session: self.session.clone(),
        }
    }
}

/// Generates prompts in order. Equal seeds give equal prompts.
#[derive(Debug)]
pub struct Prompts {
    workload: Arc<Workload>,
    state: Mutex<(Generator, usize)>,
}

impl Prompts {
    pub fn new(workload: Arc<Workload>, seed: u64) -> Prompts {
        let state = Mutex::new((seeded(seed), 0));
        Prompts { workload, state }
    }

    /// Returns the prompt of a line. Texts for one `session` share a beginning: the shorter is a prefix of the longer,
    /// like a growing conversation, so that prefix caches of engines behave realistically.
    pub fn turn(&self, line: usize, session: u64) -> Prompt {
        match &*self.workload {
            Workload::Lines(lines) => lines[line % lines.len()].prompt(&mut seeded(session)),
            Workload::Synthetic { .. } => self.next(),
        }
    }

    /// Returns the next prompt. Its text is generated outside the lock, from a separate seed.
    pub fn next(&self) -> Prompt {
        let (seed, number) = {
            let mut state = self.state.lock();
            state.1 += 1;
            (state.0.random::<u64>(), state.1 - 1)
        };
        let mut random = seeded(seed);
        match &*self.workload {
            Workload::Synthetic { input, output } => Prompt {
                output_tokens: output.map(|output| output.sample(&mut random)),
                text: prompt::text(input.sample(&mut random), &mut random),
                session: None,
            },
            Workload::Lines(lines) => lines[number % lines.len()].prompt(&mut random),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokengauge_tokenizer::count;

    fn read(name: &str, text: &str) -> Result<Workload, BenchError> {
        let folder = std::env::temp_dir().join(format!("tokengauge-bench-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let path = folder.join(name);
        std::fs::write(&path, text).expect("a file");
        Workload::read(&path)
    }

    #[test]
    fn traces_have_lengths_sessions_and_times() {
        let text = "{\"timestamp\": 2000, \"input_length\": 40, \"output_length\": 9, \"hash_ids\": [1], \"session_id\": \"s\"}\n\
                    {\"timestamp\": 2500.5, \"input_length\": 7}\n";
        let trace = read("trace.jsonl", text).expect("a trace");
        let at = [0, 500_500].map(Duration::from_micros);
        assert_eq!(trace.schedule(), Some(at.to_vec()));
        let prompts = Prompts::new(trace.into(), 1);
        let (first, second, third) = (prompts.next(), prompts.next(), prompts.next());
        assert_eq!(count(&first.text), 40);
        assert_eq!(
            (first.output_tokens, first.session.as_deref()),
            (Some(9), Some("s"))
        );
        assert_eq!((count(&second.text), second.output_tokens), (7, None));
        assert_eq!(count(&third.text), 40, "it begins again");
        assert_ne!(first.text, third.text);
    }

    #[test]
    fn sessions_have_their_turns_and_texts_that_grow() {
        let text = "{\"timestamp\": 500, \"input_length\": 9, \"session_id\": \"late\"}\n\
                    {\"timestamp\": 0, \"input_length\": 40, \"session_id\": \"s\"}\n\
                    {\"timestamp\": 100, \"input_length\": 7}\n\
                    {\"timestamp\": 900, \"delay\": 250, \"input_length\": 60, \"session_id\": \"s\"}\n";
        let trace = read("sessions.jsonl", text).expect("a trace");
        let sessions = trace.sessions().expect("times");
        let lines = |session: &Session| {
            session
                .turns
                .iter()
                .map(|turn| turn.line)
                .collect::<Vec<_>>()
        };
        assert_eq!(
            sessions.iter().map(lines).collect::<Vec<_>>(),
            [vec![1, 3], vec![2], vec![0]]
        );
        assert_eq!(sessions[0].turns[1].delay, Some(Duration::from_millis(250)));
        let prompts = Prompts::new(trace.into(), 1);
        let (first, second) = (prompts.turn(1, 5), prompts.turn(3, 5));
        assert_eq!((count(&first.text), count(&second.text)), (40, 60));
        assert!(second.text.starts_with(&first.text));
        assert!(!prompts.turn(3, 6).text.starts_with(&first.text));
    }

    #[test]
    fn texts_are_asked_as_they_are_written() {
        let workload = read("plain.txt", "one\n\n two\n").expect("texts");
        let prompts = Prompts::new(workload.clone().into(), 1);
        assert_eq!(
            (prompts.next().text, prompts.next().text),
            ("one".to_owned(), " two".to_owned())
        );
        assert_eq!(workload.schedule(), None);
        let single_turn = read("turns.jsonl", "{\"text\": \"a\"}\n").expect("texts");
        assert_eq!(Prompts::new(single_turn.into(), 1).next().text, "a");
    }

    #[test]
    fn what_is_wrong_with_a_file_is_said_with_its_line() {
        let error =
            read("bad.jsonl", "{\"text\": \"a\"}\n{\"words\": 1}\n").expect_err("no prompt");
        assert!(
            error.to_string().contains("line 2: neither `text`"),
            "{error}"
        );
        assert!(
            read("empty.txt", "\n")
                .expect_err("empty")
                .to_string()
                .contains("0 lines")
        );
    }

    #[test]
    fn the_same_seed_asks_the_same() {
        let workload = Workload::Synthetic {
            input: "20..60".parse().expect("a length"),
            output: Some("8".parse().expect("a length")),
        };
        let all = |seed| {
            let prompts = Prompts::new(workload.clone().into(), seed);
            (0..5).map(|_| prompts.next()).collect::<Vec<_>>()
        };
        assert_eq!(all(3), all(3));
        assert_ne!(all(3), all(4));
        assert!(all(3).iter().all(|prompt| prompt.output_tokens == Some(8)));
    }
}
