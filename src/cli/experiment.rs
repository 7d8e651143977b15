//! The options of `experiment`.

use super::*;
use std::time::Duration;

/// Options of `experiment`.
#[derive(Debug, Clone, Args)]
pub struct ExperimentArgs {
    /// Name of the experiment
    pub name: String,
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
    /// With --ledger or --store: unit of an experiment that is not configured
    #[arg(long, value_enum, requires = "calls_of")]
    pub unit: Option<ExperimentUnit>,
    /// With --ledger or --store: compare the share of calls with a longer time to first token
    #[arg(long, value_name = "DURATION", requires = "calls_of", value_parser = humantime::parse_duration)]
    pub ttft_above: Option<Duration>,
    /// With --ledger or --store: compare the share of calls with this decode speed or a lower one, in tokens per second
    #[arg(long, value_name = "TPS", requires = "calls_of")]
    pub tps_below: Option<f64>,
    /// With --ledger or --store: minimum number of units of each variant
    #[arg(long, value_name = "N", requires = "calls_of", value_parser = clap::value_parser!(u64).range(10..))]
    pub min_units: Option<u64>,
    #[command(flatten)]
    pub admin: AdminArgs,
    #[command(flatten)]
    pub format: FormatArgs<ExperimentFormat>,
}

/// The units of an experiment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum ExperimentUnit {
    /// A session is one unit
    Session,
    /// An agent is one unit
    Agent,
    /// A user is one unit
    User,
}

/// The formats of `experiment`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum ExperimentFormat {
    /// Table for terminals
    #[value(alias = "table")]
    Text,
    /// Markdown for documents
    Markdown,
    /// JSON for programs
    Json,
}
