//! The options of `slo incident`.

use super::*;

/// Options of `slo incident`.
#[derive(Debug, Clone, Args)]
pub struct IncidentArgs {
    /// Objective of the incident. The file then also shows the cause, the error budget and the calls that spent it
    #[arg(long, value_name = "NAME", conflicts_with = "ledger")]
    pub slo: Option<String>,
    /// Start of the incident: an instant, or a duration before now such as `2h` [default: two windows of the firing
    /// alert, or 1h if no alert fires]
    #[arg(long, value_name = "TIME", value_parser = When::parse)]
    pub since: Option<When>,
    /// End of the incident: an instant, or a duration before now [default: now]
    #[arg(long, value_name = "TIME", value_parser = When::parse)]
    pub until: Option<When>,
    /// Read this ledger file, which contains no objectives [default: ask the proxy at --admin]
    #[arg(long, value_name = "FILE", conflicts_with = "admin")]
    pub ledger: Option<PathBuf>,
    #[command(flatten)]
    pub config: ConfigArgs,
    #[command(flatten)]
    pub admin: AdminArgs,
    /// Output file [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}
