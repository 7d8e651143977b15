//! `tokengauge check`: validates the configuration, with line, column and reason of each error.

mod summary;

use super::error::CommandError;
use crate::Error;
use crate::cli::{CheckArgs, OutputFormat};
use serde::Serialize;
use tokengauge_config::{self as config, Config, Problem};
use tokengauge_process::{check, ledger, output};

#[derive(Default, Serialize)]
struct CheckResult {
    /// The file or another name of the origin.
    configuration: String,
    valid: bool,
    problems: Vec<Problem>,
    warnings: Vec<Problem>,
    summary: Vec<String>,
}

pub(super) fn check(args: &CheckArgs) -> Result<(), Error> {
    let (text, origin) = super::text(&args.config)?;
    let mut result = CheckResult {
        configuration: origin,
        ..CheckResult::default()
    };
    let checked = checked(args, &text, &mut result);
    match (args.format.chosen(), checked) {
        (OutputFormat::Json, checked) => {
            result.valid = checked.is_ok();
            if let (Err(error), true) = (&checked, result.problems.is_empty()) {
                result.problems.push(Problem {
                    reason: error.to_string(),
                    ..Problem::default()
                });
            }
            output::print(&super::json(&result)?)?;
            checked?;
        }
        (OutputFormat::Text, checked) => {
            checked?;
            output::print(&in_words(&result))?;
        }
    }
    if args.strict && !result.warnings.is_empty() {
        return Err(CommandError::StrictWarnings.into());
    }
    Ok(())
}

fn checked(args: &CheckArgs, text: &str, result: &mut CheckResult) -> Result<(), Error> {
    let origin = result.configuration.clone();
    let mut config = match Config::parse(text, &origin) {
        Ok(config) => config,
        Err(invalid) => {
            result.problems.clone_from(&invalid.problems);
            return Err(invalid.into());
        }
    };
    super::take_admin_token(&mut config)?;
    config::check_named_files(text, &origin)?;
    check::files(&config)?;
    check::started(&config)?;
    // The folders in a values file are folders of the pod.
    let here = !args.config.config.as_deref().is_some_and(config::is_values);
    if here {
        check::state(&config)?;
    }
    result.warnings.clone_from(&config.warnings);
    let unwritable = here.then(|| ledger::unwritable(&config)).flatten();
    result.warnings.extend(unwritable.map(|reason| Problem {
        reason,
        ..Problem::default()
    }));
    for warning in &result.warnings {
        output::note(&format!("warning: {origin}{warning}"));
    }
    result.summary = summary::lines(&config);
    Ok(())
}

fn in_words(result: &CheckResult) -> String {
    let origin = &result.configuration;
    let mut text = match result.warnings.len() {
        0 => format!("{origin}: valid\n"),
        1 => format!("{origin}: valid, with a warning\n"),
        several => format!("{origin}: valid, with {several} warnings\n"),
    };
    for line in &result.summary {
        text += &format!("  {line}\n");
    }
    text
}
