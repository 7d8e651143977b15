//! `tokengauge print schema` and `tokengauge print keys`: the schema and the keys of the configuration file.

use crate::Error;
use crate::cli::ReferenceFormat;
use tokengauge_config::{json_schema, keys as all_keys, reference};
use tokengauge_process::output;

pub(super) fn schema() -> Result<(), Error> {
    let text = serde_json::to_string_pretty(&json_schema());
    let text = text.map_err(|error| Error::Failed(error.to_string()))?;
    output::print(&(text + "\n"))
}

pub(super) fn keys(format: ReferenceFormat) -> Result<(), Error> {
    output::print(&match format {
        ReferenceFormat::Markdown => reference(),
        ReferenceFormat::Json => {
            let keys = all_keys();
            let lines = keys.iter().map(serde_json::to_string);
            let lines: Result<Vec<_>, _> = lines.collect();
            let lines = lines.map_err(|error| Error::Failed(error.to_string()))?;
            lines.join("\n") + "\n"
        }
    })
}
