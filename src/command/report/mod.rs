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
mod source;
#[cfg(test)]
mod tests;
mod text;
mod user_names;
mod variants;

use crate::Error;
use crate::cli::{By, ReportArgs, ReportFormat};
use crate::command::progress::Progress;
use crate::query::Dimension;
use crate::{output, private_file};
use figures::Report;
use std::io::Write;
use std::time::SystemTime;
use user_names::UserNames;

pub(super) fn report(args: &ReportArgs) -> Result<(), Error> {
    let report = gathered(args, SystemTime::now())?;
    let text = match args.format {
        ReportFormat::Table => text::table(&report, width(args)),
        ReportFormat::Markdown => text::markdown(&report),
        ReportFormat::Json => json(&report)?,
        ReportFormat::Html => html::page(&report),
    };
    let Some(path) = &args.output else {
        return output::print(&text);
    };
    let written = private_file::create(path).and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|error| Error::Failed(format!("cannot write {}: {error}", path.display())))
}

/// The width that a table may have: that of the terminal, where it is written to one.
fn width(args: &ReportArgs) -> Option<usize> {
    match args.output {
        Some(_) => None,
        None => output::width(),
    }
}

fn gathered(args: &ReportArgs, now: SystemTime) -> Result<Report, Error> {
    let mut by: Vec<Dimension> = args.by.iter().map(|by| dimension(*by)).collect();
    by.dedup();
    let (since, until) = (
        instant(args.since.as_deref(), now)?,
        instant(args.until.as_deref(), now)?,
    );
    let mut report = Report::new(&by, args.with_warm_up, now);
    report.since = since;
    report.until = until;
    let users = match &args.user_names {
        Some(path) => UserNames::read(path)?,
        None => UserNames::default(),
    };
    let mut progress = Progress::of("report");
    let mut args = args.clone();
    let _copy = super::store::read(&args.store, since, &mut args.ledger)?;
    source::each_call(&args, since, until, &mut |call| {
        report.add(&users.named(call));
        progress.at(report.calls, None, "calls");
    })?;
    drop(progress);
    let (from, to) = (since.or(report.first), until.or(report.last));
    report.marks = source::marks(&args, from, to)?;
    if report.calls == 0 {
        let wide = "there are no finished calls in that time; --since and --until name another";
        return Err(Error::Failed(wide.to_owned()));
    }
    if let Some(name) = &args.baseline {
        report.set_baseline(name).map_err(|rows| {
            let rows = rows.join(" · ");
            Error::Failed(format!(
                "--baseline {name}: no row is called so; there are: {rows}"
            ))
        })?;
    }
    Ok(report)
}

fn json(report: &Report) -> Result<String, Error> {
    let text = serde_json::to_string_pretty(&document::document(report));
    let text = text.map_err(|error| Error::Failed(error.to_string()))?;
    Ok(text + "\n")
}

/// Parses an instant: RFC 3339, or a duration before now.
fn instant(text: Option<&str>, now: SystemTime) -> Result<Option<SystemTime>, Error> {
    let parse = |text: &str| {
        crate::history::instant(text, now).ok_or_else(|| {
            Error::Failed(format!(
                "{text} is neither an instant such as 2026-01-31T09:30:00Z nor a duration back such as 72h or 7d"
            ))
        })
    };
    text.map(parse).transpose()
}

fn dimension(by: By) -> Dimension {
    match by {
        By::Model => Dimension::Model,
        By::Workload => Dimension::Workload,
        By::Upstream => Dimension::Upstream,
        By::Agent => Dimension::Agent,
        By::User => Dimension::User,
        By::Team => Dimension::Team,
        By::CostCenter => Dimension::CostCenter,
        By::Tenant => Dimension::Tenant,
        By::KeyHash => Dimension::KeyHash,
        By::Route => Dimension::Route,
        By::Experiment => Dimension::Experiment,
        By::Variant => Dimension::Variant,
        By::UpstreamFacts => Dimension::UpstreamFacts,
        By::PromptLength => Dimension::PromptLength,
        By::OutputLength => Dimension::OutputLength,
    }
}
