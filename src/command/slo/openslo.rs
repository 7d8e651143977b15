//! `tokengauge slo import` and `export`: convert from and to OpenSLO v1.

use crate::Error;
use crate::cli::{CheckArgs, ImportArgs};
use crate::command::error::CommandError;
use tokengauge_process::{SystemError, output};
use tokengauge_slo::{as_toml, openslo};

pub(super) fn import(args: &ImportArgs) -> Result<(), Error> {
    let file = &args.file;
    let text = std::fs::read_to_string(file).map_err(SystemError::read(file))?;
    let objectives = openslo::read(&text).map_err(CommandError::file(file))?;
    if objectives.is_empty() {
        return Err(CommandError::file(file)("the file has no document of kind SLO").into());
    }
    let blocks: Vec<String> = objectives.iter().map(as_toml).collect();
    output::print(&blocks.join("\n"))
}

pub(super) fn export(args: &CheckArgs) -> Result<(), Error> {
    let (config, origin) = crate::command::load(&args.config)?;
    if config.slos.is_empty() {
        return Err(CommandError::refused(origin, "the configuration has no [[slo]]").into());
    }
    let text =
        openslo::write(&config.slos).map_err(|error| CommandError::refused(origin, error))?;
    output::print(&text)
}
