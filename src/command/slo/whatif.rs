//! `tokengauge slo suggest` and `test`: evaluate objectives on recorded calls.

use super::SloCommandError;
use crate::Error;
use crate::cli::{OutputFormat, SuggestArgs, SuggestFormat, TestArgs, WarehouseArgs};
use crate::command::error::CommandError;
use crate::command::progress::Progress;
use crate::command::{json, warehouse};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokengauge_core::call::CallRecord;
use tokengauge_process::SystemError;
use tokengauge_process::output::{self, printable};
use tokengauge_slo::{Objective, Outcome, as_toml, ended_at, replay, suggest as suggested};
use tokengauge_store::stored_calls::StoredCalls;

/// The maximum number of calls, which take a few gigabytes of memory.
const MAX_CALLS: usize = 2_000_000;
/// The maximum age of the newest call of a warehouse, if a period before the newest call is requested.
const MAX_AGE: Duration = Duration::from_secs(86_400);

pub(super) fn suggest(args: &SuggestArgs) -> Result<(), Error> {
    let source = Source {
        logs: &args.logs,
        ledger: args.ledger.as_deref(),
        warehouse: &args.warehouse,
    };
    let calls = source.calls(Some(args.last))?;
    let objectives = suggested(&calls, args.objective, args.window);
    if args.format.chosen() == SuggestFormat::Json {
        let objectives = objectives
            .iter()
            .map(|objective| Judged::of(objective, &replay(objective, &calls)));
        return output::print(&json(&JudgedCalls {
            calls: calls.len(),
            objectives: objectives.collect(),
        })?);
    }
    let mut text = format!(
        "# From {} calls. A comment above each objective shows its outcome.\n",
        calls.len()
    );
    for objective in objectives {
        let outcome = in_words(&replay(&objective, &calls));
        text += &format!("\n# {outcome}\n{}", as_toml(&objective));
    }
    output::print(&text)
}

pub(super) fn test(args: &TestArgs) -> Result<(), Error> {
    let (config, origin) = crate::command::load(&args.config)?;
    if config.slos.is_empty() {
        return Err(CommandError::refused(origin, "the configuration has no [[slo]]").into());
    }
    let source = Source {
        logs: &args.logs,
        ledger: args.ledger.as_deref(),
        warehouse: &args.warehouse,
    };
    let calls = source.calls(args.last)?;
    let mut text = format!("{} calls against {origin}\n", calls.len());
    let mut judged = Vec::new();
    let mut missed = 0;
    let mut progress = Progress::of("slo test");
    let all = config.slos.len() as u64;
    for (objective, done) in config.slos.iter().zip(0..) {
        progress.at(done, Some(all), "objectives");
        let outcome = replay(objective, &calls);
        missed += usize::from(outcome.remaining < 0.0);
        text += &format!("{}: {}\n", describe(objective), in_words(&outcome));
        judged.push(Judged::of(objective, &outcome));
    }
    drop(progress);
    match args.format.chosen() {
        OutputFormat::Text => output::print(&text)?,
        OutputFormat::Json => output::print(&json(&JudgedCalls {
            calls: calls.len(),
            objectives: judged,
        })?)?,
    }
    if missed > 0 && args.strict {
        return Err(SloCommandError::Missed { missed }.into());
    }
    Ok(())
}

#[derive(Serialize)]
struct JudgedCalls {
    calls: usize,
    objectives: Vec<Judged>,
}

#[derive(Serialize)]
struct Judged {
    slo: toml::Value,
    good: u64,
    bad: u64,
    excluded: BTreeMap<&'static str, u64>,
    ratio: Option<f64>,
    budget_remaining: f64,
    pages: u32,
    tickets: u32,
}

impl Judged {
    fn of(objective: &Objective, outcome: &Outcome) -> Judged {
        let table: Option<toml::Table> = toml::from_str(&as_toml(objective)).ok();
        let slo = table.and_then(|table| table.get("slo")?.get(0).cloned());
        Judged {
            slo: slo.unwrap_or_else(|| toml::Table::new().into()),
            good: outcome.good,
            bad: outcome.bad,
            excluded: outcome.excluded.clone(),
            ratio: outcome.ratio,
            budget_remaining: outcome.remaining,
            pages: outcome.pages,
            tickets: outcome.tickets,
        }
    }
}

struct Source<'a> {
    logs: &'a [PathBuf],
    ledger: Option<&'a Path>,
    warehouse: &'a WarehouseArgs,
}

impl Source<'_> {
    fn calls(&self, last: Option<Duration>) -> Result<Vec<CallRecord>, Error> {
        let mut calls = match warehouse::stored(self.warehouse, self.ledger)? {
            Some(stored) => self.stored(&stored, last)?,
            None => self.logged()?,
        };
        let newest = calls.iter().map(ended_at).fold(0.0, f64::max);
        if let Some(last) = last {
            let from = newest - last.as_secs_f64();
            calls.retain(|call| ended_at(call) >= from);
        }
        if calls.is_empty() {
            return Err(match (&self.warehouse.url, self.ledger) {
                (Some(url), _) => SloCommandError::NoCallsInWarehouse(url.address()),
                (None, Some(ledger)) => SloCommandError::NoCallsInLedger(ledger.to_owned()),
                (None, None) => SloCommandError::NoCallsInLogs,
            }
            .into());
        }
        Ok(calls)
    }

    fn stored(
        &self,
        stored: &StoredCalls,
        last: Option<Duration>,
    ) -> Result<Vec<CallRecord>, Error> {
        // `last` ends at the newest call, which is unknown before the calls are read.
        let back = last.map(|last| last.saturating_add(MAX_AGE).max(warehouse::SINCE));
        let since = back.and_then(|back| SystemTime::now().checked_sub(back));
        let since = match self.warehouse.since {
            Some(_) => warehouse::since(self.warehouse, None),
            None => warehouse::since(self.warehouse, since),
        };
        let (calls, more) = warehouse::records(stored, since, MAX_CALLS)?;
        if more {
            note_limit();
        }
        Ok(calls)
    }

    /// Returns the calls of the logs call. Reports and skips lines that are not a call record.
    fn logged(&self) -> Result<Vec<CallRecord>, Error> {
        let (mut calls, mut unreadable) = (Vec::new(), 0_u64);
        let mut progress = Progress::of("reading");
        for log in self.logs {
            read_one(log, &mut calls, &mut unreadable, &mut progress)
                .map_err(SystemError::read(log))?;
        }
        drop(progress);
        if unreadable > 0 {
            output::note(&format!(
                "{unreadable} lines are not call records of this version; they are skipped"
            ));
        }
        Ok(calls)
    }
}

fn note_limit() {
    output::note(&format!("only the first {MAX_CALLS} calls are read"));
}

fn describe(objective: &Arc<Objective>) -> String {
    let share = (objective.objective * 1e6).round() / 1e4;
    format!(
        "{} ({}, {share}%)",
        printable(&objective.name),
        objective.judgement.sli.in_words()
    )
}

fn in_words(outcome: &Outcome) -> String {
    let excluded: u64 = outcome.excluded.values().sum();
    let reasons = outcome
        .excluded
        .iter()
        .map(|(reason, count)| format!("{reason} {count}"));
    let reasons = reasons.collect::<Vec<_>>().join(", ");
    let reasons = if excluded > 0 {
        format!(" ({reasons})")
    } else {
        reasons
    };
    let ratio = outcome.ratio.map_or("no event".to_owned(), |ratio| {
        let verdict = if outcome.remaining < 0.0 {
            "missed"
        } else {
            "met"
        };
        let left = (outcome.remaining * 1e3).round() / 1e1;
        format!(
            "{verdict} with {:.3}%, {left}% of the budget left",
            ratio * 100.0
        )
    });
    format!(
        "{ratio}; good {}, bad {}, excluded {excluded}{reasons}; {} pages, {} tickets",
        outcome.good, outcome.bad, outcome.pages, outcome.tickets
    )
}

fn read_one(
    log: &Path,
    calls: &mut Vec<CallRecord>,
    unreadable: &mut u64,
    progress: &mut Progress,
) -> std::io::Result<()> {
    for line in BufReader::new(File::open(log)?).lines() {
        let line = line?;
        if calls.len() >= MAX_CALLS {
            note_limit();
            return Ok(());
        }
        progress.at(calls.len() as u64, None, "calls");
        match CallRecord::of_line(&line) {
            Ok(call) => calls.push(call),
            Err(_) if line.trim().is_empty() => {}
            Err(_) => *unreadable += 1,
        }
    }
    Ok(())
}
