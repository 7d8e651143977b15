//! `tokengauge bench --compare OLD NEW`: two results compared.

use super::write;
use crate::Error;
use crate::cli::{BenchArgs, BenchFormat};
use std::path::Path;
use tokengauge_bench::Results;
use tokengauge_bench::compare::Comparison;
use tokengauge_bench::results::SCHEMA_VERSION;
use tokengauge_process::output;

pub(super) fn compare(old: &Path, new: &Path, args: &BenchArgs) -> Result<(), Error> {
    if let Some(file) = args.output.first() {
        let reason = format!(
            "{}: a comparison is printed, -o is for results",
            file.display()
        );
        return Err(Error::Failed(reason));
    }
    let comparison = Comparison::of(&read(old)?, &read(new)?);
    output::print(&match args.format.chosen() {
        BenchFormat::Text => comparison.table(),
        BenchFormat::Markdown => comparison.markdown(),
        BenchFormat::Json => write::json(&comparison)?,
    })?;
    let worse: Vec<_> = comparison.worse().map(ToString::to_string).collect();
    if args.fail_if_worse && !worse.is_empty() {
        return Err(Error::Failed(worse.join("; ")));
    }
    let undecided = comparison.undecided();
    if (args.fail_if_worse || comparison.figures.is_empty()) && !undecided.is_empty() {
        Err(Error::Undecided(format!(
            "not decided whether {} is worse than {}: {}",
            new.display(),
            old.display(),
            undecided.join("; ")
        )))
    } else {
        Ok(())
    }
}

fn read(file: &Path) -> Result<Results, Error> {
    let failed = |reason: String| Error::Failed(format!("{}: {reason}", file.display()));
    let text = std::fs::read_to_string(file).map_err(|error| failed(error.to_string()))?;
    let results: Results = serde_json::from_str(&text)
        .map_err(|error| failed(format!("{error}; is it the JSON of `bench -o FILE.json`?")))?;
    match results.schema_version {
        SCHEMA_VERSION => Ok(results),
        other => Err(failed(format!(
            "its schema_version is {other}, this program's {SCHEMA_VERSION}: measure again with it"
        ))),
    }
}
