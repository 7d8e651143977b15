//! `tokengauge score`: sends scores to a running proxy.

use super::api_client::{self, Proxy};
use super::error::CommandError;
use crate::Error;
use crate::cli::ScoreArgs;
use serde::Deserialize;
use serde_json::{Value, json};
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use tokengauge_admin::{MAX_SCORES, SCORES};
use tokengauge_process::{SystemError, output};

#[derive(Default, Deserialize)]
struct Stored {
    stored: u64,
    waiting_for_call: u64,
}

pub(super) fn score(args: &ScoreArgs) -> Result<(), Error> {
    let proxy = Proxy::of(&args.admin)?;
    let stored = match &args.file {
        Some(path) => of_file(&proxy, path)?,
        None => send(&proxy, &[one(args)?])?,
    };
    let waiting = match stored.waiting_for_call {
        0 => String::new(),
        calls => format!("; {calls} of them wait for a call that is not known yet"),
    };
    output::print(&format!("stored {} scores{waiting}\n", stored.stored))
}

fn one(args: &ScoreArgs) -> Result<Value, Error> {
    let text = args.value.as_deref().unwrap_or_default();
    let value = match text {
        "true" => json!(true),
        "false" => json!(false),
        text => match text.parse::<f64>() {
            Ok(number) if number.is_finite() => json!(number),
            _ => return Err(CommandError::NoScore(text.to_owned()).into()),
        },
    };
    let mut score = json!({"name": args.name, "value": value});
    for (name, given) in [
        ("call", &args.call),
        ("session", &args.session),
        ("trace_id", &args.trace),
        ("source", &args.source),
    ] {
        if let Some(given) = given {
            score[name] = json!(given);
        }
    }
    Ok(score)
}

fn of_file(proxy: &Proxy, path: &Path) -> Result<Stored, Error> {
    let input: Box<dyn Read> = if path == Path::new("-") {
        Box::new(std::io::stdin())
    } else {
        Box::new(File::open(path).map_err(SystemError::read(path))?)
    };
    let mut sum = Stored::default();
    let mut scores = Vec::new();
    for (at, line) in BufReader::new(input).lines().enumerate() {
        let line = line.map_err(SystemError::read(path))?;
        if line.trim().is_empty() {
            continue;
        }
        let score = serde_json::from_str(&line);
        scores.push(score.map_err(|error| CommandError::ScoreLine(at + 1, error))?);
        if scores.len() == MAX_SCORES {
            sum.add(&send(proxy, &std::mem::take(&mut scores))?);
        }
    }
    if !scores.is_empty() {
        sum.add(&send(proxy, &scores)?);
    }
    Ok(sum)
}

fn send(proxy: &Proxy, scores: &[Value]) -> Result<Stored, Error> {
    let body = json!(scores);
    Ok(api_client::runtime()?.block_on(proxy.post(SCORES, &body))?)
}

impl Stored {
    fn add(&mut self, more: &Stored) {
        self.stored += more.stored;
        self.waiting_for_call += more.waiting_for_call;
    }
}
