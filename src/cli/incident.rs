//! The options of `slo incident`.

use super::*;

/// Options of `slo incident`.
#[derive(Debug, Clone, Args)]
pub struct IncidentArgs {
    /// The objective that it is about: its cause, its budget, the calls that spent it
    #[arg(long, value_name = "NAME", conflicts_with = "ledger")]
    pub slo: Option<String>,
    /// From an instant on, or a time back such as `2h` [default: two windows of the alert that
    /// fires, else 1h]
    #[arg(long, value_name = "TIME", value_parser = When::parse)]
    pub since: Option<When>,
    /// Until an instant, or a time back [default: now]
    #[arg(long, value_name = "TIME", value_parser = When::parse)]
    pub until: Option<When>,
    /// Read this ledger, which knows no objectives [default: ask the proxy at --admin]
    #[arg(long, value_name = "FILE", conflicts_with = "admin")]
    pub ledger: Option<PathBuf>,
    #[command(flatten)]
    pub config: ConfigArgs,
    #[command(flatten)]
    pub admin: AdminArgs,
    /// Where to [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}
