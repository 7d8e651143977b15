//! The commands for Kubernetes.

use super::*;

/// The settings of the injection.
#[derive(Debug, Clone, Args)]
pub struct InjectSettings {
    /// Configuration of the injector: image, resources, ports, base URLs (see docs/injection.md)
    #[arg(short, long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Image of the sidecar; overrides the configuration
    #[arg(long, value_name = "IMAGE")]
    pub image: Option<String>,
    /// When to inject a native sidecar; overrides the configuration
    #[arg(long, value_name = "WHEN")]
    pub native_sidecar: Option<NativeSidecar>,
}

/// The options and subcommands of `inject`.
#[derive(Debug, Clone, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct InjectCommand {
    /// The subcommand, if manifests are not changed.
    #[command(subcommand)]
    pub command: Option<InjectSubcommand>,
    #[command(flatten)]
    pub args: InjectArgs,
}

/// The subcommands of `inject`.
#[derive(Debug, Clone, Subcommand)]
pub enum InjectSubcommand {
    /// Serve the admission webhook that adds the sidecar to new pods
    Serve(InjectServeArgs),
}

/// Options of `inject`.
#[derive(Debug, Clone, Args)]
pub struct InjectArgs {
    /// File with manifests, YAML or JSON; `-` is standard input
    #[arg(short = 'f', long = "file", required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    #[command(flatten)]
    pub settings: InjectSettings,
    /// Inject only into pods that request it with an annotation
    #[arg(long)]
    pub annotated: bool,
    /// Leave objects that cannot be injected unchanged, and exit with 0. By default, `inject` exits with 1 and without
    /// output if a pod cannot be injected, and with 3 if an object has no known pod template
    #[arg(long)]
    pub lenient: bool,
}

/// Options of `inject serve`.
#[derive(Debug, Clone, Args)]
pub struct InjectServeArgs {
    #[command(flatten)]
    pub settings: InjectSettings,
    /// PEM file with the certificate chain of the webhook, reloaded when it changes
    #[arg(long, value_name = "FILE")]
    pub certificate: PathBuf,
    /// PEM file with the private key of the webhook
    #[arg(long, value_name = "FILE")]
    pub key: PathBuf,
    /// Address for API servers
    #[arg(long, value_name = "ADDR", default_value = "*:8443", value_parser = tokengauge_net::address::parse)]
    pub listen: SocketAddr,
}

/// Options of `probe`.
#[derive(Debug, Clone, Args)]
pub struct ProbeArgs {
    /// Addresses to test: `http://…` or `https://…` must answer with a 2xx status, `tcp://HOST:PORT` must accept a
    /// connection
    #[arg(required = true, value_name = "URL")]
    pub urls: Vec<http::Uri>,
    /// Total time for retries
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = humantime::parse_duration)]
    pub within: std::time::Duration,
    /// PEM file with trusted root certificates [default: those that the system trusts]
    #[arg(long, value_name = "FILE")]
    pub ca: Option<PathBuf>,
}

/// Options of `pause`.
#[derive(Debug, Clone, Args)]
pub struct PauseArgs {
    /// Duration of the pause, such as `5s`
    #[arg(value_name = "DURATION", value_parser = humantime::parse_duration)]
    pub time: std::time::Duration,
}
