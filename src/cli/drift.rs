//! The options of `drift`.

use super::*;

/// Options of `drift`.
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Exit codes: 0 nothing has drifted, or it is not known yet; 1 failed; 3 something has drifted."
)]
pub struct DriftArgs {
    /// Only the `drift` entry of this name
    #[arg(value_name = "NAME")]
    pub name: Option<String>,
    /// Read this ledger, and evaluate the `drift` entries of the configuration, or one of everything with all defaults where it has
    /// none [default: ask the proxy at --admin]
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
    /// Evaluate as of this instant, or so long ago [default: now]
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
    /// For terminals
    #[value(alias = "table")]
    Text,
    /// For documents
    Markdown,
    /// As the API answers
    Json,
}
