//! The commands about the configuration file as such.

use clap::Subcommand;

/// What `config` prints.
#[derive(Debug, Clone, Copy, Subcommand)]
pub enum ConfigCommand {
    /// Print the JSON Schema of the configuration file (draft 2020-12), for editors and pipelines
    Schema,
    /// Print every key there is: type, bounds, default, meaning, as Markdown
    Reference,
}
