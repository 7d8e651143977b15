//! `tokengauge check`: validates the configuration, with line, column and reason of each error.

mod summary;

use super::error::CommandError;
use crate::Error;
use crate::cli::{AnswerFormat, CheckArgs};
use serde::Serialize;
use tokengauge_config::{self as config, Config, Problem};
use tokengauge_process::{check, ledger, output};

/// The answer for programs.
#[derive(Default, Serialize)]
struct Answer {
    /// The file, or another name of the source.
    configuration: String,
    valid: bool,
    problems: Vec<Problem>,
    warnings: Vec<Problem>,
    /// What a valid configuration says, a line each.
    summary: Vec<String>,
}

pub(super) fn check(args: &CheckArgs) -> Result<(), Error> {
    let (text, origin) = super::text(&args.config)?;
    let mut answer = Answer {
        configuration: origin,
        ..Answer::default()
    };
    let checked = checked(args, &text, &mut answer);
    match (args.format.chosen(), checked) {
        (AnswerFormat::Json, checked) => {
            answer.valid = checked.is_ok();
            if let (Err(error), true) = (&checked, answer.problems.is_empty()) {
                answer.problems.push(Problem {
                    reason: error.to_string(),
                    ..Problem::default()
                });
            }
            output::print(&super::json(&answer)?)?;
            checked?;
        }
        (AnswerFormat::Text, checked) => {
            checked?;
            output::print(&in_words(&answer))?;
        }
    }
    if args.strict && !answer.warnings.is_empty() {
        return Err(CommandError::StrictWarnings.into());
    }
    Ok(())
}

fn checked(args: &CheckArgs, text: &str, answer: &mut Answer) -> Result<(), Error> {
    let origin = answer.configuration.clone();
    let mut config = match Config::parse(text, &origin) {
        Ok(config) => config,
        Err(invalid) => {
            answer.problems.clone_from(&invalid.problems);
            return Err(invalid.into());
        }
    };
    super::take_admin_token(&mut config)?;
    config::check_named_files(text, &origin)?;
    check::files(&config)?;
    check::started(&config)?;
    // A file of values names folders of the pod.
    let here = !args.config.config.as_deref().is_some_and(config::is_values);
    if here {
        check::state(&config)?;
    }
    answer.warnings.clone_from(&config.warnings);
    let unwritable = here.then(|| ledger::unwritable(&config)).flatten();
    answer.warnings.extend(unwritable.map(|reason| Problem {
        reason,
        ..Problem::default()
    }));
    for warning in &answer.warnings {
        output::note(&format!("warning: {origin}{warning}"));
    }
    answer.summary = summary::lines(&config);
    Ok(())
}

fn in_words(answer: &Answer) -> String {
    let origin = &answer.configuration;
    let mut text = match answer.warnings.len() {
        0 => format!("{origin}: valid\n"),
        1 => format!("{origin}: valid, with a warning\n"),
        several => format!("{origin}: valid, with {several} warnings\n"),
    };
    for line in &answer.summary {
        text += &format!("  {line}\n");
    }
    text
}
