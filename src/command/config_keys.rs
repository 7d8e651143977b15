//! `tokengauge config`: the schema and the reference of the configuration file.

use crate::Error;
use crate::cli::ConfigCommand;
use tokengauge_config::{json_schema, reference};
use tokengauge_process::output;

pub(super) fn config(command: ConfigCommand) -> Result<(), Error> {
    match command {
        ConfigCommand::Reference => output::print(&reference()),
        ConfigCommand::Schema => {
            let text = serde_json::to_string_pretty(&json_schema())
                .map_err(|error| Error::Failed(error.to_string()))?;
            output::print(&(text + "\n"))
        }
    }
}
