//! The options of `demo`.

use super::*;
use tokengauge_config::DEFAULT_LISTEN;

/// What to simulate.
#[derive(Debug, Clone, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct DemoCommand {
    /// Another command than the whole demo.
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
    /// Objectives, workloads, budgets and so on of this file, in place of the demo's; the
    /// upstreams and routes are the demo's in any case
    #[arg(short, long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Keep calls and counts in this folder
    #[arg(long, value_name = "DIR")]
    pub state_dir: Option<PathBuf>,
    /// Where agents connect
    #[arg(long, value_name = "ADDR", default_value_t = DEFAULT_LISTEN, value_parser = address::parse)]
    pub listen: SocketAddr,
    /// Where operators connect
    #[arg(long, value_name = "ADDR", default_value_t = DEFAULT_ADMIN, value_parser = address::parse)]
    pub admin: SocketAddr,
    /// Rehearse an incident: after a while a backend becomes bad, and an alert arrives, which is
    /// printed
    #[arg(long, value_enum)]
    pub incident: Option<DemoIncident>,
    /// Simulated agents at work at the same time
    #[arg(long, value_name = "N", default_value_t = 12, value_parser = clap::value_parser!(u16).range(1..=500))]
    pub agents: u16,
    /// Stop by itself after this time, such as `30s` [default: runs until stopped]
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration)]
    pub stop_after: Option<std::time::Duration>,
    /// Append one JSON line per finished call to this file; `-` is standard output
    #[arg(long, value_name = "FILE")]
    pub call_log: Option<PathBuf>,
}

/// What happens to a backend of the demo.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum DemoIncident {
    /// It decodes slowly
    SlowUpstream,
    /// Its streams stand still for seconds
    Stalls,
    /// It answers 503
    Errors,
    /// It starts anew, and its first tokens come late
    ColdStart,
}

/// Options of `demo backend`.
#[derive(Debug, Clone, Args)]
#[command(after_help = tokengauge_sim::HELP)]
pub struct BackendArgs {
    /// Where clients connect; port 0 picks one
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8090", value_parser = address::parse)]
    pub listen: SocketAddr,
    /// How the model behaves, as the settings below say; the request header `x-sim` overlays it
    #[arg(long, value_name = "SETTINGS", default_value = "")]
    pub behave: String,
    /// Serve recorded bodies from this folder to requests with the header `x-sim-body`
    #[arg(long, value_name = "DIR")]
    pub bodies: Option<PathBuf>,
    /// Print one JSON line per call: what was really done
    #[arg(long)]
    pub print: bool,
}
