//! `tokengauge slo import` and `export`: converts from and to OpenSLO v1.

use crate::Error;
use crate::cli::{CheckArgs, ImportArgs};
use tokengauge_process::output;
use tokengauge_slo::{as_toml, openslo};

pub(super) fn import(args: &ImportArgs) -> Result<(), Error> {
    let file = args.file.display();
    let text = std::fs::read_to_string(&args.file)
        .map_err(|error| Error::Failed(format!("{file}: {error}")))?;
    let objectives =
        openslo::read(&text).map_err(|error| Error::Failed(format!("{file}: {error}")))?;
    if objectives.is_empty() {
        return Err(Error::Failed(format!(
            "{file}: there is no document of kind SLO in it"
        )));
    }
    let blocks: Vec<String> = objectives.iter().map(as_toml).collect();
    output::print(&blocks.join("\n"))
}

pub(super) fn export(args: &CheckArgs) -> Result<(), Error> {
    let (config, origin) = crate::command::load(&args.config)?;
    if config.slos.is_empty() {
        return Err(Error::Failed(format!(
            "{origin}: there is no [[slo]] in it"
        )));
    }
    let text = openslo::write(&config.slos).map_err(|error| Error::Failed(error.to_string()))?;
    output::print(&text)
}
