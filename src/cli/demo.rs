//! The options of `demo`.

use super::*;
use tokengauge_config::DEFAULT_LISTEN;

/// The options and subcommands of `demo`.
#[derive(Debug, Clone, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct DemoCommand {
    /// The subcommand, if the demo is not run.
    #[command(subcommand)]
    pub command: Option<DemoSubcommand>,
    #[command(flatten)]
    pub args: DemoArgs,
}

/// The subcommands of `demo`.
#[derive(Debug, Clone, Subcommand)]
pub enum DemoSubcommand {
    /// Run only the simulated backend
    Backend(BackendArgs),
}

/// Options of `demo`.
#[derive(Debug, Clone, Args)]
pub struct DemoArgs {
    /// File with objectives, workloads, budgets and other tables, instead of the demo's. The demo always replaces
    /// upstreams and routes
    #[arg(short, long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Keep calls and counts in this folder
    #[arg(long, value_name = "DIR")]
    pub state_dir: Option<PathBuf>,
    /// Address for agents
    #[arg(long, value_name = "ADDR", default_value_t = DEFAULT_LISTEN, value_parser = address::parse)]
    pub listen: SocketAddr,
    /// Admin address for operators
    #[arg(long, value_name = "ADDR", default_value_t = DEFAULT_ADMIN, value_parser = address::parse)]
    pub admin: SocketAddr,
    /// Rehearse an incident: after a healthy period a backend degrades, an alert arrives, and the demo prints it
    #[arg(long, value_enum)]
    pub incident: Option<DemoIncident>,
    /// Number of concurrent simulated agents
    #[arg(long, value_name = "N", default_value_t = 12, value_parser = clap::value_parser!(u16).range(1..=500))]
    pub agents: u16,
    /// Stop after this time, such as `30s` [default: run until stopped]
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration)]
    pub stop_after: Option<std::time::Duration>,
    /// Append one JSON line per finished call to this file; `-` is standard output
    #[arg(long, value_name = "FILE")]
    pub call_log: Option<PathBuf>,
}

/// Incidents of a backend of the demo.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum DemoIncident {
    /// The backend decodes slowly
    SlowUpstream,
    /// Streams of the backend stall for seconds
    Stalls,
    /// The backend answers 503
    Errors,
    /// The backend restarts, and its first tokens are late
    ColdStart,
}

/// Options of `demo backend`.
#[derive(Debug, Clone, Args)]
#[command(after_help = tokengauge_sim::HELP)]
pub struct BackendArgs {
    /// Address for clients; port 0 picks a free port
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8090", value_parser = address::parse)]
    pub listen: SocketAddr,
    /// Behaviour of the model, with the settings below. The request header `x-sim` overrides settings for one request
    #[arg(long, value_name = "SETTINGS", default_value = "")]
    pub behave: String,
    /// Folder with recorded bodies for requests with the header `x-sim-body`
    #[arg(long, value_name = "DIR")]
    pub bodies: Option<PathBuf>,
    /// Print one JSON line per call with its true figures
    #[arg(long)]
    pub print: bool,
}
