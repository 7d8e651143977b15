//! The options of `gate`.

use super::*;

/// Options of `gate`.
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Exit codes: 0 the gate passes; 1 the gate or the command fails; 3 the gate is inconclusive; 78 the configuration cannot be used."
)]
pub struct GateArgs {
    /// Name of the gate
    pub name: String,
    /// Read this ledger file, with the gate of the configuration [default: ask the proxy at --admin]
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
    /// Start of the evaluated calls, usually the start of the rollout: an instant, or a duration before now
    #[arg(long, value_name = "TIME", value_parser = When::parse)]
    pub since: Option<When>,
    /// With --ledger or --store: append the verdict to this audit log
    #[arg(long, value_name = "FILE", requires = "calls_of")]
    pub audit: Option<PathBuf>,
    #[command(flatten)]
    pub admin: AdminArgs,
    /// Print a manifest that asks the gate of the proxy at --admin, and exit. Use the address of the proxy inside the
    /// cluster
    #[arg(long, value_enum, conflicts_with_all = ["ledger", "since", "format", "json"])]
    pub emit: Option<Manifest>,
    /// Ask this Prometheus for the verdicts of all proxies that it scrapes. With --emit, the manifest asks this
    /// Prometheus, so use its address inside the cluster
    #[arg(long, value_name = "URL", conflicts_with_all = ["admin", "ledger", "since", "format", "json"])]
    pub prometheus: Option<String>,
    #[command(flatten)]
    pub credentials: PrometheusCredentials,
    /// Print how long a verdict takes for several shares of the traffic. The plan counts the baseline's calls in the
    /// window of the gate, so use it before a rollout
    #[arg(long, conflicts_with_all = ["emit", "prometheus", "since", "audit"])]
    pub plan: bool,
    #[command(flatten)]
    pub format: FormatArgs<GateFormat>,
}

pub const PROMETHEUS_TOKEN: &str = "TOKENGAUGE_PROMETHEUS_TOKEN";
pub const PROMETHEUS_PASSWORD: &str = "TOKENGAUGE_PROMETHEUS_PASSWORD";

/// Credentials for Prometheus. Secrets come only from files or the environment.
#[derive(Debug, Clone, Default, Args)]
pub struct PrometheusCredentials {
    /// File with the bearer token for --prometheus [default: TOKENGAUGE_PROMETHEUS_TOKEN]
    #[arg(
        long,
        value_name = "FILE",
        requires = "prometheus",
        conflicts_with = "prometheus_user"
    )]
    pub prometheus_token_file: Option<PathBuf>,
    /// User name for --prometheus (basic authentication)
    #[arg(long, value_name = "NAME", requires = "prometheus")]
    pub prometheus_user: Option<String>,
    /// File with the password of --prometheus-user [default: TOKENGAUGE_PROMETHEUS_PASSWORD]
    #[arg(long, value_name = "FILE", requires = "prometheus_user")]
    pub prometheus_password_file: Option<PathBuf>,
}

/// Manifests that ask a gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Manifest {
    /// AnalysisTemplate for Argo Rollouts 1.8 or later
    Argo,
    /// Canary for Flagger with webhooks; with --prometheus, also a MetricTemplate
    Flagger,
}

/// The formats of `gate`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum GateFormat {
    /// Text for terminals
    #[value(alias = "table")]
    Text,
    /// JSON in the format of the API
    Json,
    /// JUnit for CI, with a test case for each check
    Junit,
    /// Annotations for a GitHub workflow
    Github,
    /// Markdown for documents
    Markdown,
}
