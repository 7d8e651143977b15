//! `tokengauge bench --compare OLD NEW`: compares two results.

use super::BenchCommandError;
use crate::Error;
use crate::cli::{BenchArgs, BenchFormat};
use crate::command::error::CommandError;
use crate::command::json;
use std::path::Path;
use tokengauge_bench::Results;
use tokengauge_bench::compare::Comparison;
use tokengauge_bench::results::SCHEMA_VERSION;
use tokengauge_process::{SystemError, output};

pub(super) fn compare(old: &Path, new: &Path, args: &BenchArgs) -> Result<(), Error> {
    if let Some(file) = args.output.first() {
        return Err(CommandError::file(file)(
            "--output works only for results; redirect standard output to save a comparison",
        )
        .into());
    }
    let comparison = Comparison::of(&read(old)?, &read(new)?);
    output::print(&match args.format.chosen() {
        BenchFormat::Text => comparison.table(),
        BenchFormat::Markdown => comparison.markdown(),
        BenchFormat::Json => json(&comparison)?,
    })?;
    let worse: Vec<_> = comparison.worse().map(ToString::to_string).collect();
    if args.fail_if_worse && !worse.is_empty() {
        return Err(BenchCommandError::Worse(worse.join("; ")).into());
    }
    let undecided = comparison.undecided();
    if (args.fail_if_worse || comparison.figures.is_empty()) && !undecided.is_empty() {
        Err(Error::Undecided(format!(
            "cannot decide whether {} is worse than {}: {}",
            new.display(),
            old.display(),
            undecided.join("; ")
        )))
    } else {
        Ok(())
    }
}

fn read(file: &Path) -> Result<Results, Error> {
    let text = std::fs::read_to_string(file).map_err(SystemError::read(file))?;
    let results: Results = serde_json::from_str(&text)
        .map_err(|error| BenchCommandError::NoResults(file.to_owned(), error))?;
    match results.schema_version {
        SCHEMA_VERSION => Ok(results),
        other => Err(CommandError::file(file)(format!(
            "the file has schema_version {other}, but this program needs {SCHEMA_VERSION}; measure again with this program"
        ))
        .into()),
    }
}
