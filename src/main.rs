//! Command line, run, exit code.

use clap::FromArgMatches;
use mimalloc::MiMalloc;
use std::process::ExitCode;
use tokengauge::{Error, cli, cli::Cli};
use tokengauge_process::output;

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// The exit code if a part was skipped, if drift was found, or if a result is inconclusive.
const LEFT_OUT: u8 = 3;
/// The exit code that shells use for interrupted programs.
const INTERRUPTED: u8 = 130;
/// `EX_CONFIG` of sysexits.h.
const BAD_CONFIGURATION: u8 = 78;

fn main() -> ExitCode {
    let (arguments, renamed) = cli::with_present_names(std::env::args_os());
    if let Some(note) = renamed {
        output::note(&note);
    }
    let matches = cli::command().get_matches_from(arguments);
    // The matches come from this command, so parsing fails only if the definition is wrong.
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    match tokengauge::run(cli) {
        Ok(()) | Err(Error::OutputClosed) => ExitCode::SUCCESS,
        Err(error) => {
            error.print();
            match error {
                Error::Configuration(_) => ExitCode::from(BAD_CONFIGURATION),
                Error::LeftOut(_) | Error::Found(_) | Error::Undecided(_) => {
                    ExitCode::from(LEFT_OUT)
                }
                Error::Interrupted(_) => ExitCode::from(INTERRUPTED),
                Error::Failed(_) | Error::Address(_) | Error::OutputClosed => ExitCode::FAILURE,
            }
        }
    }
}
