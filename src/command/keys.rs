//! `tokengauge print schema` and `tokengauge print keys`: the schema and the keys of the configuration file.

use crate::Error;
use crate::cli::ReferenceFormat;
use tokengauge_config::{json_schema, keys as all_keys, reference};
use tokengauge_process::output;

pub(super) fn schema() -> Result<(), Error> {
    output::print(&super::json(&json_schema())?)
}

pub(super) fn keys(format: ReferenceFormat) -> Result<(), Error> {
    output::print(&match format {
        ReferenceFormat::Markdown => reference(),
        ReferenceFormat::Json => super::json_lines(all_keys().iter())?,
    })
}
