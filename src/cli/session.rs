//! The options of `report session`.

use super::*;

/// The formats of `report session`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum SessionFormat {
    /// Its critical path and what its prompt cache missed, in words
    #[value(alias = "table")]
    Text,
    /// The same as JSON, as /api/v1/sessions/{id}/analysis has it
    Json,
    /// A trace for ui.perfetto.dev or chrome://tracing
    Perfetto,
    /// A trace in OTLP's JSON
    Otlp,
    /// One HTML file: its figures, its critical path, what its prompt cache missed, its calls
    /// over time
    Html,
}

/// Options of `report session`.
#[derive(Debug, Clone, Args)]
pub struct SessionArgs {
    /// The session, as the agents named it
    #[arg(value_name = "ID")]
    pub id: String,
    /// Read this ledger [default: ask the proxy at --admin]
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
    /// Where to [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}
