//! The options of `drift`.

use super::*;

/// Options of `drift`.
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Exit codes: 0 no drift is found, or drift is not known yet; 1 the command fails; 3 drift is found."
)]
pub struct DriftArgs {
    /// Evaluate only the `drift` entry with this name
    #[arg(value_name = "NAME")]
    pub name: Option<String>,
    /// Read this ledger file and evaluate the `drift` entries of the configuration. Without entries, all calls are
    /// compared with default settings [default: ask the proxy at --admin]
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with = "admin",
        group = "calls_of"
    )]
    pub ledger: Option<PathBuf>,
    #[command(flatten)]
    pub warehouse: WarehouseArgs,
    #[command(flatten)]
    pub config: ConfigArgs,
    /// Evaluate as of this time: an instant, or a duration before now such as `24h` [default: now]
    #[arg(long, value_name = "TIME", value_parser = When::parse, requires = "calls_of")]
    pub at: Option<When>,
    #[command(flatten)]
    pub admin: AdminArgs,
    #[command(flatten)]
    pub format: FormatArgs<DriftFormat>,
}

/// The formats of `drift`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum DriftFormat {
    /// Text for terminals
    #[value(alias = "table")]
    Text,
    /// Markdown for documents
    Markdown,
    /// JSON in the format of the API
    Json,
}
