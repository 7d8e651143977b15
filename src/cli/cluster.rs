//! The commands for Kubernetes.

use super::*;

/// What is injected.
#[derive(Debug, Clone, Args)]
pub struct InjectSettings {
    /// The injector's configuration: image, resources, ports, base URLs (see docs/injection.md)
    #[arg(short, long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The sidecar's image, in place of the configuration's
    #[arg(long, value_name = "IMAGE")]
    pub image: Option<String>,
    /// Whether the sidecar is a native one, in place of the configuration's
    #[arg(long, value_name = "WHEN")]
    pub native_sidecar: Option<NativeSidecar>,
}

/// What to inject.
#[derive(Debug, Clone, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct InjectCommand {
    /// Another command than the change of manifests.
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
    /// Manifests, YAML or JSON; `-` is standard input
    #[arg(short = 'f', long = "file", required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    #[command(flatten)]
    pub settings: InjectSettings,
    /// Only pods that ask for it by annotation
    #[arg(long)]
    pub annotated: bool,
    /// Leave what cannot be injected as it is, and exit with 0 [default: 1 and no output where a
    /// pod cannot be injected, 3 where an object has no pod template that is known]
    #[arg(long)]
    pub lenient: bool,
}

/// Options of `inject serve`.
#[derive(Debug, Clone, Args)]
pub struct InjectServeArgs {
    #[command(flatten)]
    pub settings: InjectSettings,
    /// Certificate chain of the webhook, PEM; read again when it changes
    #[arg(long, value_name = "FILE")]
    pub certificate: PathBuf,
    /// Its private key, PEM
    #[arg(long, value_name = "FILE")]
    pub key: PathBuf,
    /// Where API servers connect
    #[arg(long, value_name = "ADDR", default_value = "*:8443", value_parser = tokengauge_net::address::parse)]
    pub listen: SocketAddr,
}

/// Options of `probe`.
#[derive(Debug, Clone, Args)]
pub struct ProbeArgs {
    /// `http://…` or `https://…` is to answer with a 2xx, `tcp://HOST:PORT` to accept a connection
    #[arg(required = true, value_name = "URL")]
    pub urls: Vec<http::Uri>,
    /// How long to go on trying
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = humantime::parse_duration)]
    pub within: std::time::Duration,
    /// Trusted roots, PEM, in place of the system's
    #[arg(long, value_name = "FILE")]
    pub ca: Option<PathBuf>,
}

/// Options of `pause`.
#[derive(Debug, Clone, Args)]
pub struct PauseArgs {
    /// How long, such as `5s`
    #[arg(value_name = "DURATION", value_parser = humantime::parse_duration)]
    pub time: std::time::Duration,
}
