//! The options of `report session`.

use super::*;

/// The formats of `report session`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum SessionFormat {
    /// Text with the critical path and the prompt cache misses
    #[value(alias = "table")]
    Text,
    /// JSON in the format of /api/v1/sessions/{id}/analysis
    Json,
    /// Trace for ui.perfetto.dev or chrome://tracing
    Perfetto,
    /// Trace in OTLP JSON
    Otlp,
    /// One HTML file with figures, critical path, prompt cache misses and calls over time
    Html,
}

/// Options of `report session`.
#[derive(Debug, Clone, Args)]
pub struct SessionArgs {
    /// Session id, as the agents sent it
    #[arg(value_name = "ID")]
    pub id: String,
    /// Read this ledger file [default: ask the proxy at --admin]
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
    #[command(flatten)]
    pub admin: AdminArgs,
    #[command(flatten)]
    pub format: FormatArgs<SessionFormat>,
    /// Output file [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}
