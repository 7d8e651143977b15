//! `tokengauge report`: compares finished calls by model and other dimensions.

#[cfg(test)]
mod calibration;
mod differences;
mod document;
mod estimates;
mod figures;
mod grid;
mod html;
mod notes;
mod observations;
mod prompt_grid;
mod scores;
mod showback;
mod source;
#[cfg(test)]
mod tests;
mod text;
mod tools;
mod user_names;
mod variants;

use super::error::CommandError;
use crate::Error;
use crate::cli::{Month, ReportArgs, ReportFormat};
use crate::command::progress::Progress;
use figures::Report;
use showback::Showback;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};
use tokengauge_core::call::CallRecord;
use tokengauge_core::time::rfc3339_seconds;
use tokengauge_process::{Fatal, output};
use tokengauge_store::query::Dimension;
use tokengauge_store::stored_calls::StoredCalls;
use user_names::UserNames;

const DAY: Duration = Duration::from_secs(86_400);

pub(super) fn report(args: &ReportArgs) -> Result<(), Error> {
    let now = SystemTime::now();
    let text = match args.format.chosen() {
        _ if args.tools => tools::tools(args, now)?,
        ReportFormat::Csv => csv(args, now)?,
        _ => comparison(args, now)?,
    };
    super::write(args.output.as_deref(), &text)
}

fn csv(args: &ReportArgs, now: SystemTime) -> Result<String, Error> {
    if args.baseline.is_some() {
        return Err(ReportCommandError::BaselineOfCsv.into());
    }
    let mut showback = Showback::by(&dimensions(args));
    let mut progress = Progress::of("report");
    Calls::of(args, now)?.each(|call| {
        showback.add(call);
        progress.at(showback.calls, None, "calls");
    })?;
    drop(progress);
    match showback.calls {
        0 => Err(ReportCommandError::NoCalls.into()),
        _ => {
            note_what_is_missing(args, showback.first);
            Ok(showback.csv(args.spreadsheet))
        }
    }
}

/// Prints a note if a month begins without calls. The ledger may not reach back that far, and memory has only the last
/// calls.
fn note_what_is_missing(args: &ReportArgs, first: Option<SystemTime>) {
    let (Some(month), Some(first)) = (&args.month, first) else {
        return;
    };
    if first.duration_since(month.from).unwrap_or_default() > DAY {
        let first = rfc3339_seconds(first);
        let elsewhere = match args.warehouse.url {
            Some(_) => "",
            None => "; a [[sink]] stores all calls",
        };
        output::note(&format!(
            "the earliest of these calls began at {first}: earlier in the month there were no calls, or they are no longer \
             stored{elsewhere}"
        ));
    }
}

fn comparison(args: &ReportArgs, now: SystemTime) -> Result<String, Error> {
    if args.spreadsheet {
        return Err(CommandError::SpreadsheetOfOtherFormat.into());
    }
    let report = gathered(args, now)?;
    Ok(match args.format.chosen() {
        ReportFormat::Csv | ReportFormat::Text => text::table(&report, width(args)),
        ReportFormat::Markdown => text::markdown(&report),
        ReportFormat::Json => super::json(&document::document(&report))?,
        ReportFormat::Html => html::page(&report),
    })
}

fn width(args: &ReportArgs) -> Option<usize> {
    match args.output {
        Some(_) => None,
        None => output::width(),
    }
}

fn dimensions(args: &ReportArgs) -> Vec<Dimension> {
    let mut by: Vec<Dimension> = args.by.iter().map(|by| by.0).collect();
    by.dedup();
    by
}

type Time = (Option<SystemTime>, Option<SystemTime>);

fn time(args: &ReportArgs, now: SystemTime) -> Result<Time, Error> {
    if let Some(Month { from, to }) = args.month {
        return Ok((Some(from), Some(to)));
    }
    let since = instant(args.since.as_deref(), now)?;
    let until = instant(args.until.as_deref(), now)?;
    super::in_order(since, until)?;
    Ok((since, until))
}

struct Calls {
    args: ReportArgs,
    time: Time,
    users: UserNames,
    /// The calls of a ledger or a warehouse, if the command line names one.
    stored: Option<StoredCalls>,
}

impl Calls {
    fn of(args: &ReportArgs, now: SystemTime) -> Result<Calls, Error> {
        let time = time(args, now)?;
        let users = match &args.user_names {
            Some(path) => UserNames::read(path)?,
            None => UserNames::default(),
        };
        Ok(Calls {
            args: args.clone(),
            time,
            users,
            stored: super::warehouse::stored(&args.warehouse, args.ledger.as_deref())?,
        })
    }

    fn each(&self, mut take: impl FnMut(&CallRecord)) -> Result<(), Error> {
        let (since, until) = self.time;
        let since = super::warehouse::since(&self.args.warehouse, since);
        source::each_call(
            (&self.args, self.stored.as_ref()),
            since,
            until,
            &mut |call| {
                take(&self.users.named(call));
            },
        )
    }
}

#[derive(Debug, thiserror::Error)]
enum ReportCommandError {
    #[error("--baseline does not work with --format csv, which only sums by month")]
    BaselineOfCsv,
    #[error("cannot read the call log {path}: {1}; `tokengauge run --call-log FILE` writes call logs", path = .0.display())]
    CallLog(PathBuf, #[source] std::io::Error),
    #[error(
        "there are no finished calls in this period; choose another with --since, --until or --month"
    )]
    NoCalls,
    #[error(
        "{0} is neither an instant such as 2026-01-31T09:30:00Z nor a duration before now such as 72h or 7d"
    )]
    NoInstant(String),
    #[error("--baseline {name}: no row has this name; the rows are: {rows}")]
    NoRow { name: String, rows: String },
    #[error("--tools works only with --format text, markdown or json")]
    ToolsFormat,
    #[error("cannot read the user names in {path}: {1}", path = .0.display())]
    UserNames(PathBuf, #[source] std::io::Error),
}

impl Fatal for ReportCommandError {}

fn gathered(args: &ReportArgs, now: SystemTime) -> Result<Report, Error> {
    let calls = Calls::of(args, now)?;
    let mut report = Report::new(&dimensions(args), args.with_warm_up, now);
    report.success.clone_from(&args.success);
    (report.since, report.until) = calls.time;
    let mut progress = Progress::of("report");
    calls.each(|call| {
        report.add(call);
        progress.at(report.calls, None, "calls");
    })?;
    drop(progress);
    let (from, to) = (report.since.or(report.first), report.until.or(report.last));
    report.marks = source::marks((&calls.args, calls.stored.as_ref()), from, to)?;
    if report.calls == 0 {
        return Err(ReportCommandError::NoCalls.into());
    }
    if let Some(name) = &args.baseline {
        report.set_baseline(name).map_err(|rows| {
            let (name, rows) = (name.clone(), rows.join(" · "));
            ReportCommandError::NoRow { name, rows }
        })?;
    }
    Ok(report)
}

fn instant(text: Option<&str>, now: SystemTime) -> Result<Option<SystemTime>, ReportCommandError> {
    let parse = |text: &str| {
        tokengauge_store::history::instant(text, now)
            .ok_or_else(|| ReportCommandError::NoInstant(text.to_owned()))
    };
    text.map(parse).transpose()
}
