//! The command line: commands, options and help texts.

mod annotate;
mod bench;
mod calls;
mod cluster;
#[cfg(feature = "sim")]
mod demo;
mod drift;
mod experiment;
mod fleet;
mod format;
mod gate;
mod incident;
mod print;
mod renamed;
mod score;
mod session;
mod sink;
mod slo;

use clap::{Args, CommandFactory, Parser, Subcommand};
use std::net::SocketAddr;
use std::path::PathBuf;
use tokengauge_config::DEFAULT_ADMIN;
use tokengauge_config::environment::*;
use tokengauge_core::call::Dialect;
use tokengauge_inject::settings::NativeSidecar;
use tokengauge_net::address;
use tokengauge_store::export;

pub use annotate::*;
pub use bench::*;
pub use calls::*;
pub use cluster::*;
#[cfg(feature = "sim")]
pub use demo::*;
pub use drift::*;
pub use experiment::*;
pub use fleet::*;
pub use format::*;
pub use gate::*;
pub use incident::*;
pub use print::*;
pub use renamed::*;
pub use score::*;
pub use session::*;
pub use sink::*;
pub use slo::*;

pub const COMMIT: &str = env!("TOKENGAUGE_COMMIT");

/// A transparent streaming reverse proxy that measures tokens per second on live LLM traffic. Without a command it runs
/// the proxy.
#[derive(Debug, Parser)]
#[command(name = "tokengauge", version, args_conflicts_with_subcommands = true)]
#[command(
    after_help = "Exit codes: 0 success; 1 failure; 2 wrong command line; 3 `inject` skipped objects, `drift` found drift, `gate` is inconclusive\n  or `bench` cannot show a result; 78 the configuration cannot be used; 130 `bench` was interrupted.\n\
    Log level: TOKENGAUGE_LOG=error|warn|info|debug (default info).\n\
    Token of the admin address; overrides the configuration: TOKENGAUGE_ADMIN_TOKEN."
)]
pub struct Cli {
    /// What to do [default: run]
    #[command(subcommand)]
    pub command: Option<Command>,
    #[command(flatten)]
    pub run: RunArgs,
}

/// Returns the command line with the version text.
pub fn command() -> clap::Command {
    Cli::command().long_version(version())
}

/// The version, the commit of the build, and the date of the price list.
fn version() -> String {
    let (version, commit) = (env!("CARGO_PKG_VERSION"), COMMIT);
    let prices = tokengauge_accounting::cost::prices_checked_on().unwrap_or("an unknown date");
    format!("{version}\ncommit {commit}\nprice list of {prices}")
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the proxy (the default)
    Run(RunArgs),
    #[cfg(feature = "sim")]
    /// Run the proxy with simulated agents and backends, without a key or a network
    Demo(DemoCommand),
    /// Check the configuration and report every mistake with its line
    Check(CheckArgs),
    /// Print references, dashboards, rules, completions and other built-in files
    #[command(subcommand)]
    Print(PrintCommand),
    /// Compare finished calls by model and other dimensions: speed, time to first token, cost, errors
    Report(Box<ReportCommand>),
    /// Watch a running proxy in the terminal: streams, models, objectives, sessions
    Top(TopArgs),
    /// Export the calls of the ledger as Parquet, CSV or JSON lines
    Export(Box<ExportCommand>),
    /// Show, suggest and test service level objectives
    #[command(subcommand)]
    Slo(SloCommand),
    /// Benchmark a backend under a load, a ramp or a search: speed, time to first token, price
    Bench(Box<BenchArgs>),
    /// Compare the variants of an experiment with intervals: speed, waiting time, cost, failures
    Experiment(Box<ExperimentArgs>),
    /// Decide whether a rollout may continue, by comparing a candidate with a baseline
    Gate(Box<GateArgs>),
    /// Find what changed against the previous weeks, when it changed and why
    Drift(DriftArgs),
    /// Serve the live page and the API for many pods
    Fleet(Box<FleetArgs>),
    /// Add the sidecar to Kubernetes manifests
    Inject(InjectCommand),
    /// Add a note, such as a deployment, to the figures of a running proxy
    Annotate(AnnotateArgs),
    /// Record quality scores of calls, sessions or traces, next to their speed and cost
    Score(ScoreArgs),
    /// Request addresses until they answer, for containers without a shell
    #[command(hide = true)]
    Probe(ProbeArgs),
    /// Sleep for a duration, for use as a preStop hook in images without a shell
    #[command(hide = true)]
    Pause(PauseArgs),
}

/// The origin of the configuration.
#[derive(Debug, Clone, Default, Args)]
pub struct ConfigArgs {
    /// Configuration file, or a values file of the Helm chart (.yaml) with `config` in it [default: ./proxy-config.toml
    /// if it exists, otherwise the built-in copy]
    #[arg(short, long, value_name = "FILE", env = "TOKENGAUGE_CONFIG")]
    pub config: Option<PathBuf>,
}

/// Options of `run`.
#[derive(Debug, Clone, Default, Args)]
pub struct RunArgs {
    #[command(flatten)]
    pub config: ConfigArgs,
    /// Forward everything to this URL without reading a configuration file
    #[arg(long, value_name = "URL", conflicts_with = "config")]
    pub upstream: Option<String>,
    /// Address for agents; overrides the configuration. Port 0 picks a free port
    #[arg(long, value_name = "ADDR", value_parser = address::parse)]
    pub listen: Option<SocketAddr>,
    /// Admin address for operators; overrides the configuration
    #[arg(long, value_name = "ADDR", value_parser = address::parse)]
    pub admin: Option<SocketAddr>,
    /// Address that serves only `/metrics` and health checks; overrides the configuration
    #[arg(long, value_name = "ADDR", value_parser = address::parse)]
    pub metrics_listen: Option<SocketAddr>,
    /// Append one JSON line per finished call to this file; `-` is standard output
    #[arg(long, value_name = "FILE")]
    pub call_log: Option<PathBuf>,
    /// For sidecars: a configuration as TOML text with upstreams and routes. The proxy uses it while the configuration
    /// is missing or refused. Without it the process exits with 78
    #[arg(
        long,
        value_name = "TOML",
        env = FALLBACK_CONFIG,
        hide_env_values = true
    )]
    pub fallback_config: Option<String>,
    /// How to answer calls while the fallback configuration is in use
    #[arg(
        long,
        value_enum,
        default_value_t,
        env = ON_REFUSED_CONFIG
    )]
    pub on_refused_config: OnRefusedConfig,
}

/// Options of `check`.
#[derive(Debug, Clone, Args)]
pub struct CheckArgs {
    #[command(flatten)]
    pub config: ConfigArgs,
    /// Exit with 1 if there are warnings
    #[arg(long)]
    pub strict: bool,
    #[command(flatten)]
    pub format: FormatArgs<OutputFormat>,
}

/// The address of a running proxy and its token.
#[derive(Debug, Clone, Args)]
pub struct AdminArgs {
    /// Admin address of the proxy, HOST:PORT or https://HOST:PORT
    #[arg(long, value_name = "ADDR", default_value_t = DEFAULT_ADMIN.to_string())]
    pub admin: String,
    /// File with the token of the admin address
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// The token of the admin address. It can be set only in the environment, because other users can see the command
    /// line
    #[arg(
        long = "admin-token",
        hide = true,
        env = ADMIN_TOKEN,
        hide_env_values = true
    )]
    pub token: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::print::dialect;
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn run_is_the_default_command() {
        let cli = Cli::try_parse_from(["tokengauge", "--upstream", "http://h"]).expect("valid");
        assert!(cli.command.is_none());
        assert_eq!(cli.run.upstream.as_deref(), Some("http://h"));
    }

    #[test]
    fn an_upstream_and_a_file_exclude_each_other() {
        let both = [
            "tokengauge",
            "run",
            "--upstream",
            "http://h",
            "--config",
            "c.toml",
        ];
        assert!(Cli::try_parse_from(both).is_err());
    }

    #[test]
    fn dialects_are_named_as_in_the_configuration() {
        assert_eq!(dialect("openai_chat"), Ok(Dialect::OpenaiChat));
        assert!(
            dialect("klingon")
                .expect_err("unknown")
                .to_string()
                .contains("openai_chat")
        );
    }
}
