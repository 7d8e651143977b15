//! The commands for objectives.

use super::*;

/// The subcommands of `slo`.
#[derive(Debug, Clone, Subcommand)]
pub enum SloCommand {
    /// Show the state of every objective: remaining budget, burn rates, time to exhaustion
    Status(StatusArgs),
    /// Save an incident as one HTML file: curves, cause, budget, the worst calls, configuration
    Incident(IncidentArgs),
    /// Suggest objectives that recorded calls would have met, with the remaining budget
    Suggest(SuggestArgs),
    /// Evaluate recorded calls against the objectives of a configuration
    Test(TestArgs),
    /// Convert a file of OpenSLO v1 documents into objectives for the configuration
    Import(ImportArgs),
    /// Print the objectives of the configuration as OpenSLO v1 documents
    Export(CheckArgs),
}

/// Options of `slo suggest`.
#[derive(Debug, Clone, Args)]
pub struct SuggestArgs {
    /// Call logs, which `run --call-log` writes
    #[arg(
        required_unless_present = "calls_of",
        conflicts_with = "calls_of",
        value_name = "FILE"
    )]
    pub logs: Vec<PathBuf>,
    /// Read this ledger file
    #[arg(long, value_name = "FILE", group = "calls_of")]
    pub ledger: Option<PathBuf>,
    #[command(flatten)]
    pub warehouse: WarehouseArgs,
    /// Only calls that ended within this duration before the newest call
    #[arg(long, value_name = "DURATION", default_value = "7days", value_parser = humantime::parse_duration)]
    pub last: std::time::Duration,
    /// Required share of good calls
    #[arg(long, value_name = "SHARE", default_value_t = 0.99, value_parser = share)]
    pub objective: f64,
    /// Period of the error budget
    #[arg(long, value_name = "DURATION", default_value = "30days", value_parser = humantime::parse_duration)]
    pub window: std::time::Duration,
    #[command(flatten)]
    pub format: FormatArgs<SuggestFormat>,
}

/// The formats of `slo suggest`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum SuggestFormat {
    /// `[[slo]]` tables for the configuration, each with its outcome as a comment
    #[value(alias = "table")]
    Text,
    /// JSON for programs
    Json,
}

/// Options of `slo test`.
#[derive(Debug, Clone, Args)]
pub struct TestArgs {
    /// Call logs, which `run --call-log` writes
    #[arg(
        required_unless_present = "calls_of",
        conflicts_with = "calls_of",
        value_name = "FILE"
    )]
    pub logs: Vec<PathBuf>,
    /// Read this ledger file
    #[arg(long, value_name = "FILE", group = "calls_of")]
    pub ledger: Option<PathBuf>,
    #[command(flatten)]
    pub warehouse: WarehouseArgs,
    #[command(flatten)]
    pub config: ConfigArgs,
    /// Only calls that ended within this duration before the newest call [default: all calls]
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration)]
    pub last: Option<std::time::Duration>,
    /// Exit with 1 if an objective would have been missed
    #[arg(long)]
    pub strict: bool,
    #[command(flatten)]
    pub format: FormatArgs<OutputFormat>,
}

/// Options of `slo import`.
#[derive(Debug, Clone, Args)]
pub struct ImportArgs {
    /// File with OpenSLO v1 documents
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
}

/// Options of `slo status`.
#[derive(Debug, Clone, Args)]
pub struct StatusArgs {
    #[command(flatten)]
    pub admin: AdminArgs,
    #[command(flatten)]
    pub format: FormatArgs<OutputFormat>,
    /// Print the attainment of every objective in this calendar month (UTC), as a statement to sign
    #[arg(long, value_name = "YYYY-MM", value_parser = month, conflicts_with_all = ["format", "json"])]
    pub month: Option<String>,
}

fn month(text: &str) -> Result<String, &'static str> {
    let day = humantime::parse_rfc3339(&format!("{text}-01T00:00:00Z"));
    let day = day.ok().filter(|_| text.len() == "2026-10".len());
    day.map(|_| text.to_owned())
        .ok_or("must be a month such as 2026-10")
}

fn share(text: &str) -> Result<f64, &'static str> {
    let share = text
        .parse()
        .ok()
        .filter(|share| *share > 0.0 && *share <= 1.0);
    share.ok_or("must be above 0 and at most 1, such as 0.99")
}
