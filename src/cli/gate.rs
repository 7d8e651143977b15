//! The options of `gate`.

use super::*;

/// Options of `gate`.
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Exit codes: 0 it passes; 1 it fails, or the command did; 3 it is inconclusive; 78 bad configuration."
)]
pub struct GateArgs {
    /// The gate's name
    pub name: String,
    /// Read this ledger, and take the gate from the configuration [default: ask the proxy at --admin]
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
    /// Since when calls are looked at: when the rollout began, or so long ago
    #[arg(long, value_name = "TIME", value_parser = When::parse)]
    pub since: Option<When>,
    /// With --ledger or --store: append the verdict to this audit log
    #[arg(long, value_name = "FILE", requires = "calls_of")]
    pub audit: Option<PathBuf>,
    #[command(flatten)]
    pub admin: AdminArgs,
    /// Print the manifest by which this asks the gate of the configuration at --admin, as the cluster reaches it, and do nothing
    /// else
    #[arg(long, value_enum, conflicts_with_all = ["ledger", "since", "format", "json"])]
    pub emit: Option<Manifest>,
    /// Ask this Prometheus what all proxies say that it scrapes; with --emit, the manifest asks it, as the cluster reaches it
    #[arg(long, value_name = "URL", conflicts_with_all = ["admin", "ledger", "since", "format", "json"])]
    pub prometheus: Option<String>,
    #[command(flatten)]
    pub credentials: PrometheusCredentials,
    /// Print how long a verdict takes with several shares of the traffic, by the calls that the baseline had in the gate's window:
    /// before a rollout
    #[arg(long, conflicts_with_all = ["emit", "prometheus", "since", "audit"])]
    pub plan: bool,
    #[command(flatten)]
    pub format: FormatArgs<GateFormat>,
}

pub const PROMETHEUS_TOKEN: &str = "TOKENGAUGE_PROMETHEUS_TOKEN";
pub const PROMETHEUS_PASSWORD: &str = "TOKENGAUGE_PROMETHEUS_PASSWORD";

/// How a Prometheus that asks for it is shown who asks. Secrets come from files or the environment alone.
#[derive(Debug, Clone, Default, Args)]
pub struct PrometheusCredentials {
    /// A file with the bearer token for --prometheus [default: TOKENGAUGE_PROMETHEUS_TOKEN]
    #[arg(
        long,
        value_name = "FILE",
        requires = "prometheus",
        conflicts_with = "prometheus_user"
    )]
    pub prometheus_token_file: Option<PathBuf>,
    /// The user for --prometheus (basic authentication)
    #[arg(long, value_name = "NAME", requires = "prometheus")]
    pub prometheus_user: Option<String>,
    /// A file with that user's password [default: TOKENGAUGE_PROMETHEUS_PASSWORD]
    #[arg(long, value_name = "FILE", requires = "prometheus_user")]
    pub prometheus_password_file: Option<PathBuf>,
}

/// What asks a gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Manifest {
    /// An AnalysisTemplate of Argo Rollouts 1.8 or later
    Argo,
    /// A Canary of Flagger with its hooks; with --prometheus, with a MetricTemplate
    Flagger,
}

/// The formats of `gate`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum GateFormat {
    /// For terminals
    #[value(alias = "table")]
    Text,
    /// As the API answers
    Json,
    /// For CI, a test case for each check
    Junit,
    /// Annotations of a GitHub workflow
    Github,
    /// For documents
    Markdown,
}
