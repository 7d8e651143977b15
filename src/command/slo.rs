//! `tokengauge slo`: the status of objectives, and proposals for others.

mod openslo;
mod statement;
pub(super) mod status;
mod whatif;

use crate::Error;
use crate::cli::SloCommand;

pub(super) fn slo(command: &SloCommand) -> Result<(), Error> {
    match command {
        SloCommand::Status(args) => status::status(args),
        SloCommand::Suggest(args) => whatif::suggest(args),
        SloCommand::Test(args) => whatif::test(args),
        SloCommand::Import(args) => openslo::import(args),
        SloCommand::Export(args) => openslo::export(args),
    }
}
