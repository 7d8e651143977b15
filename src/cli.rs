//! The command line: the commands, their options and their help.

mod ab;
mod bench;
mod calls;
mod capsule;
mod cluster;
mod config;
mod drift;
mod fleet;
mod gate;
mod mark;
mod session;
mod sink;
mod slo;

use clap::{Args, CommandFactory, Parser, Subcommand};
use std::net::SocketAddr;
use std::path::PathBuf;
use tokengauge_config::DEFAULT_ADMIN;
#[cfg(feature = "sim")]
use tokengauge_config::DEFAULT_LISTEN;
use tokengauge_config::environment::*;
use tokengauge_core::call::Dialect;
use tokengauge_inject::settings::NativeSidecar;
use tokengauge_net::address;
use tokengauge_store::ledger;

pub use ab::*;
pub use bench::*;
pub use calls::*;
pub use capsule::*;
pub use cluster::*;
pub use config::*;
pub use drift::*;
pub use fleet::*;
pub use gate::*;
pub use mark::*;
pub use session::*;
pub use sink::*;
pub use slo::*;

/// The commit that the program is built from.
pub const COMMIT: &str = env!("TOKENGAUGE_COMMIT");

/// A transparent streaming reverse proxy that measures tokens per second on live LLM
/// traffic. Without a command it runs the proxy.
#[derive(Debug, Parser)]
#[command(name = "tokengauge", version, args_conflicts_with_subcommands = true)]
#[command(
    after_help = "Exit codes: 0 done, 1 failed, 2 wrong usage, 3 `inject` left something out, `drift` found drift or `gate` is inconclusive,\n  78 bad configuration, 130 `bench` was stopped before its end.\n\
    Log level: TOKENGAUGE_LOG=error|warn|info|debug (default info).\n\
    Token of the admin address, before the configuration's: TOKENGAUGE_ADMIN_TOKEN."
)]
pub struct Cli {
    /// What to do; `run` when nothing is named.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// The options of `run`.
    #[command(flatten)]
    pub run: RunArgs,
}

/// The command line, with what `--version` says.
pub fn command() -> clap::Command {
    Cli::command().long_version(version())
}

/// The version, the commit that it was built from, and the day of the list of prices.
fn version() -> String {
    let (version, commit) = (env!("CARGO_PKG_VERSION"), COMMIT);
    let prices = tokengauge_accounting::cost::prices_checked_on().unwrap_or("an unknown day");
    format!("{version}\ncommit {commit}\nlist of prices of {prices}")
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the proxy (the default)
    Run(RunArgs),
    #[cfg(feature = "sim")]
    /// Run the proxy with a simulated backend and simulated agents: numbers move at once
    Demo(DemoArgs),
    /// Read the configuration and say what is wrong with it, line by line
    Check(CheckArgs),
    /// What a configuration file may hold: its JSON Schema, and the reference of its keys
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Write the calls of the ledger to a file for analysis: Parquet, CSV or JSON lines
    Export(ExportArgs),
    #[cfg(feature = "sim")]
    /// Run the simulated backend alone
    Sim(SimArgs),
    /// Service level objectives: how they stand, and what others would be
    #[command(subcommand)]
    Slo(SloCommand),
    /// Put a recorded response through the meter and print its call record
    Replay(ReplayArgs),
    /// Print every metric there is: kind, unit, labels, meaning
    Metrics(MetricsArgs),
    /// Print the Grafana dashboards, or write them into a folder
    Dashboards(DashboardsArgs),
    /// Watch a running proxy in the terminal: streams, models, objectives, sessions
    Top(TopArgs),
    /// Benchmark a backend under a load, ramp or search: speed, time to first token, price
    Bench(Box<BenchArgs>),
    /// Compare finished calls: speed, time to first token, cost, errors, by model and more
    Report(ReportArgs),
    /// Print the digests that stand for keys in the configuration and in records; keys are read from standard input
    KeyHash,
    /// What a session was made of: its critical path, what its prompt cache missed, its trace
    Session(SessionArgs),
    /// An incident as one HTML file: curves, cause, budget, the worst calls, configuration
    Capsule(CapsuleArgs),
    /// Compare the variants of an experiment: speed, waiting, cost, failures, with intervals
    Ab(Box<AbArgs>),
    /// Whether a rollout may go on: a candidate's calls against those of a baseline
    Gate(Box<GateArgs>),
    /// Note what happened, such as a deployment, beside the figures of a running proxy
    Mark(MarkArgs),
    /// Stores that get every finished call: their tables, how they stand, and calls sent again
    #[command(subcommand)]
    Sink(SinkCommand),
    /// What has changed against the weeks before, since when and why
    Drift(DriftArgs),
    /// Serve the live page and the API for many pods at once, over a store and the pods' event streams
    Fleet(Box<FleetArgs>),
    /// Print Prometheus rules: alerts on the proxy, and on the configuration's objectives
    Rules(RulesArgs),
    /// Put the sidecar into manifests: Deployments, Jobs, Pods and so on
    Inject(InjectArgs),
    /// Serve the admission webhook that puts the sidecar into pods
    Injector(InjectorArgs),
    /// Ask addresses until they answer: a test where there is no shell
    Probe(ProbeArgs),
    /// Wait: a hook where there is no shell
    Pause(PauseArgs),
    /// Print the completions of these commands for a shell
    Completions(CompletionsArgs),
    /// Print the manual page, or write those of all commands into a folder
    Man(ManArgs),
}

/// Where the configuration comes from.
#[derive(Debug, Clone, Default, Args)]
pub struct ConfigArgs {
    /// Configuration file, or a file of the chart's values (.yaml) with `config` in it
    /// [default: ./proxy-config.toml, else the built-in copy of it]
    #[arg(short, long, value_name = "FILE", env = "TOKENGAUGE_CONFIG")]
    pub config: Option<PathBuf>,
}

/// Options of `run`.
#[derive(Debug, Clone, Default, Args)]
pub struct RunArgs {
    /// Where the configuration comes from.
    #[command(flatten)]
    pub config: ConfigArgs,
    /// Forward everything to this URL; no configuration file is read
    #[arg(long, value_name = "URL", conflicts_with = "config")]
    pub upstream: Option<String>,
    /// Where agents connect, in place of the configuration's addresses; port 0 picks one
    #[arg(long, value_name = "ADDR", value_parser = address::parse)]
    pub listen: Option<SocketAddr>,
    /// Where operators connect, in place of the configuration's address
    #[arg(long, value_name = "ADDR", value_parser = address::parse)]
    pub admin: Option<SocketAddr>,
    /// Where `/metrics` and health alone are, in place of the configuration's address
    #[arg(long, value_name = "ADDR", value_parser = address::parse)]
    pub metrics_listen: Option<SocketAddr>,
    /// Append one JSON line per finished call to this file; `-` is standard output
    #[arg(long, value_name = "FILE")]
    pub call_log: Option<PathBuf>,
    /// For sidecars: a configuration as TOML text, upstreams and routes, to run by where the
    /// configuration is missing or refused at the start, until it can be used; without it the
    /// process exits with 78
    #[arg(
        long,
        value_name = "TOML",
        env = FALLBACK_CONFIG,
        hide_env_values = true
    )]
    pub fallback_config: Option<String>,
    /// What becomes of calls while the fallback is in use
    #[arg(
        long,
        value_enum,
        default_value_t,
        env = ON_REFUSED_CONFIG
    )]
    pub on_refused_config: OnRefusedConfig,
}

/// Options of `demo`.
#[cfg(feature = "sim")]
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
#[cfg(feature = "sim")]
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

/// Options of `check`.
#[derive(Debug, Clone, Args)]
pub struct CheckArgs {
    /// Where the configuration comes from.
    #[command(flatten)]
    pub config: ConfigArgs,
    /// Exit with 1 where there is a warning
    #[arg(long)]
    pub strict: bool,
}

/// Options of `completions`.
#[derive(Debug, Clone, Args)]
pub struct CompletionsArgs {
    /// The shell
    #[arg(value_enum)]
    pub shell: clap_complete::Shell,
}

/// Options of `man`.
#[derive(Debug, Clone, Args)]
pub struct ManArgs {
    /// Write a page for each command into this folder
    #[arg(value_name = "DIR")]
    pub folder: Option<PathBuf>,
}

/// Options of `sim`.
#[cfg(feature = "sim")]
#[derive(Debug, Clone, Args)]
#[command(after_help = tokengauge_sim::HELP)]
pub struct SimArgs {
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

/// The address of a running proxy, and the token for it.
#[derive(Debug, Clone, Args)]
pub struct AdminArgs {
    /// Where the proxy's operators connect; with TLS `https://HOST:PORT`
    #[arg(long, value_name = "ADDR", default_value_t = DEFAULT_ADMIN.to_string())]
    pub admin: String,
    /// A file with the token of that address
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// The token itself, from the environment alone: a command line can be seen by others
    #[arg(
        long = "admin-token",
        hide = true,
        env = ADMIN_TOKEN,
        hide_env_values = true
    )]
    pub token: Option<String>,
}

/// Options of `metrics`.
#[derive(Debug, Clone, Args)]
pub struct MetricsArgs {
    /// One JSON object per metric, with its buckets, in place of a Markdown table
    #[arg(long)]
    pub json: bool,
}

/// Options of `dashboards`.
#[derive(Debug, Clone, Args)]
pub struct DashboardsArgs {
    /// The one to print [default: the list of them]
    #[arg(value_name = "NAME", conflicts_with = "write")]
    pub name: Option<String>,
    /// Write all of them and a provisioning file into this folder
    #[arg(long, value_name = "DIR")]
    pub write: Option<PathBuf>,
}

/// Options of `rules`.
#[derive(Debug, Clone, Args)]
pub struct RulesArgs {
    /// Where the configuration comes from.
    #[command(flatten)]
    pub config: ConfigArgs,
    /// What to print
    #[arg(long, value_enum, default_value_t = RulesFormat::File)]
    pub format: RulesFormat,
    /// The job label that Prometheus gives the proxies
    #[arg(long, value_name = "NAME", default_value = "tokengauge", value_parser = job)]
    pub job: String,
    /// Where the runbooks are
    #[arg(long, value_name = "URL", default_value = "docs/runbooks.md")]
    pub runbooks: String,
    /// Where Grafana is
    #[arg(long, value_name = "URL", default_value = "")]
    pub grafana: String,
    /// The length of the increases that are recorded and summed up to the budget
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = resolution)]
    pub resolution: std::time::Duration,
    /// Labels by which budgets and alerts are kept apart, such as `namespace,cluster`
    #[arg(long, value_name = "LABELS", value_delimiter = ',', value_parser = grouping)]
    pub by: Vec<String>,
}

/// What `rules` prints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum RulesFormat {
    /// A file for Prometheus' `rule_files`
    File,
    /// A `PrometheusRule` for the Prometheus operator
    Operator,
    /// Values for the chart: the same rules, and the objectives that they are of
    Helm,
    /// The part of Alertmanager's configuration by which a page silences its ticket
    Alertmanager,
}

/// A label's value that needs no quoting in PromQL.
fn job(name: &str) -> Result<String, &'static str> {
    let sound = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
    if name.is_empty() || !name.chars().all(sound) {
        return Err("is made of letters, digits and -_./");
    }
    Ok(name.to_owned())
}

/// A label that Prometheus adds to what it scrapes.
fn grouping(name: &str) -> Result<String, &'static str> {
    let sound = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if name.is_empty() || !name.chars().all(sound) || name.starts_with(|c: char| c.is_ascii_digit())
    {
        return Err("is made of letters, digits and _");
    }
    if ["slo", "window", "alertname", "severity", "le"].contains(&name) {
        return Err("is a label of the rules themselves");
    }
    Ok(name.to_owned())
}

/// Whole seconds, and few enough that an hour has several.
fn resolution(text: &str) -> Result<std::time::Duration, Box<dyn std::error::Error + Send + Sync>> {
    let given = humantime::parse_duration(text)?;
    if given.subsec_nanos() != 0 || !(5..=600).contains(&given.as_secs()) {
        return Err("is whole seconds, from 5s to 10m".into());
    }
    Ok(given)
}

#[cfg(test)]
mod tests {
    use super::calls::dialect;
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
