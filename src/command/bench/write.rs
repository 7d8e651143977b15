//! Writes results in the requested formats.

use super::html;
use crate::Error;
use crate::cli::{BenchArgs, BenchFormat};
use crate::command::error::CommandError;
use crate::command::json;
use std::path::{Path, PathBuf};
use tokengauge_bench::junit::junit;
use tokengauge_bench::{Results, text};
use tokengauge_process::{SystemError, output};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Json,
    Markdown,
    Html,
    Junit,
}

/// Checks the formats of all files before the measurement.
///
/// # Errors
/// Returns an error if the format of a file is unknown.
pub(super) fn check(files: &[PathBuf]) -> Result<(), CommandError> {
    files.iter().try_for_each(|file| form(file).map(|_| ()))
}

fn form(file: &Path) -> Result<Form, CommandError> {
    match file.extension().and_then(|extension| extension.to_str()) {
        Some("json") => Ok(Form::Json),
        Some("md") => Ok(Form::Markdown),
        Some("html") => Ok(Form::Html),
        Some("xml") => Ok(Form::Junit),
        _ => Err(CommandError::file(file)(
            "the file name must end with .json, .md, .html or .xml (JUnit)",
        )),
    }
}

/// Prints the results and writes them to the files.
///
/// # Errors
/// Returns an error if a file cannot be written. The other files are still written.
pub(super) fn results(results: &Results, args: &BenchArgs) -> Result<(), Error> {
    let written: Vec<_> = args
        .output
        .iter()
        .map(|file| write(results, file))
        .collect();
    output::print(&match args.format.chosen() {
        BenchFormat::Text => text::table(results),
        BenchFormat::Markdown => text::markdown(results),
        BenchFormat::Json => json(results)?,
    })?;
    written.into_iter().collect()
}

fn write(results: &Results, file: &Path) -> Result<(), Error> {
    let text = match form(file)? {
        Form::Json => json(results)?,
        Form::Markdown => text::markdown(results),
        Form::Html => html::page(results),
        Form::Junit => junit(results),
    };
    Ok(std::fs::write(file, text).map_err(SystemError::write(file))?)
}

pub(super) fn schema() -> String {
    let schema = schemars::schema_for!(Results);
    format!("{:#}\n", schema.as_value())
}
