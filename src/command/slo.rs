//! `tokengauge slo`: the status of objectives, and suggestions for new ones.

mod openslo;
mod statement;
pub(super) mod status;
mod whatif;

use super::api_client::{self, Proxy};
use crate::Error;
use crate::cli::{OutputFormat, SloCommand, StatusArgs};
use status::SlosBody;
use std::path::PathBuf;
use tokengauge_process::{Fatal, output};

#[derive(Debug, thiserror::Error)]
enum SloCommandError {
    #[error("{missed} objectives would have been missed, and --strict is set")]
    Missed { missed: usize },
    #[error("{file} has no calls in this period", file = .0.display())]
    NoCallsInLedger(PathBuf),
    #[error("there are no calls in these logs; record some with `tokengauge run --call-log FILE`")]
    NoCallsInLogs,
    #[error("the warehouse {0} has no calls in this period; read older calls with --store-since")]
    NoCallsInWarehouse(String),
    #[error(
        "a fleet does not count by month and cannot make a statement; ask a pod instead (/api/v1/pods lists their addresses)"
    )]
    StatementOfFleet,
}

impl Fatal for SloCommandError {}

const PATH: &str = "/api/v1/slos";

pub(super) fn slo(command: &SloCommand) -> Result<(), Error> {
    match command {
        SloCommand::Status(args) => status(args),
        SloCommand::Incident(args) => super::incident::incident(args),
        SloCommand::Suggest(args) => whatif::suggest(args),
        SloCommand::Test(args) => whatif::test(args),
        SloCommand::Import(args) => openslo::import(args),
        SloCommand::Export(args) => openslo::export(args),
    }
}

fn status(args: &StatusArgs) -> Result<(), Error> {
    let proxy = Proxy::of(&args.admin)?;
    let runtime = api_client::runtime()?;
    if args.format.chosen() == OutputFormat::Json {
        let text = runtime.block_on(proxy.text(PATH))?;
        return output::print(&(String::from_utf8_lossy(&text) + "\n"));
    }
    let response: SlosBody = runtime.block_on(proxy.get(PATH))?;
    match &args.month {
        Some(month) => output::print(&statement(&response, month, proxy.address())?),
        None => output::print(&status::table(&response)),
    }
}

fn statement(response: &SlosBody, month: &str, address: &str) -> Result<String, SloCommandError> {
    match response.source {
        None => Ok(statement::text(month, address, &response.slos)),
        Some(_) => Err(SloCommandError::StatementOfFleet),
    }
}
