//! The command line: the commands, their options and their help.

use crate::call::Dialect;
use crate::config::{DEFAULT_ADMIN, DEFAULT_LISTEN};
use crate::inject::settings::Native;
use crate::ledger::FileFormat;
use clap::{Args, Parser, Subcommand};
use std::net::SocketAddr;
use std::path::PathBuf;

/// A transparent streaming reverse proxy that measures tokens per second on live LLM
/// traffic. Without a command it runs the proxy.
#[derive(Debug, Parser)]
#[command(name = "tokengauge", version, args_conflicts_with_subcommands = true)]
#[command(
    after_help = "Exit codes: 0 done, 1 failed, 2 wrong usage, 78 bad configuration.\n\
    Log level: TOKENGAUGE_LOG=error|warn|info|debug (default info)."
)]
pub struct Cli {
    /// What to do; `run` when nothing is named.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// The options of `run`.
    #[command(flatten)]
    pub run: RunArgs,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the proxy (the default)
    Run(RunArgs),
    /// Run the proxy with a simulated backend and simulated agents: numbers move at once
    Demo(DemoArgs),
    /// Read the configuration and say what is wrong with it, line by line
    Check(CheckArgs),
    /// Write the calls of the ledger to a file for analysis: Parquet, CSV or JSON lines
    Export(ExportArgs),
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
    /// Compare finished calls: speed, time to first token, cost, errors, by model and more
    Report(ReportArgs),
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
    #[arg(long, value_name = "ADDR")]
    pub listen: Option<SocketAddr>,
    /// Where operators connect, in place of the configuration's address
    #[arg(long, value_name = "ADDR")]
    pub admin: Option<SocketAddr>,
    /// Append one JSON line per finished call to this file; `-` is standard output
    #[arg(long, value_name = "FILE")]
    pub call_log: Option<PathBuf>,
}

/// Options of `demo`.
#[derive(Debug, Clone, Args)]
pub struct DemoArgs {
    /// Where agents connect
    #[arg(long, value_name = "ADDR", default_value_t = DEFAULT_LISTEN)]
    pub listen: SocketAddr,
    /// Where operators connect
    #[arg(long, value_name = "ADDR", default_value_t = DEFAULT_ADMIN)]
    pub admin: SocketAddr,
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

/// Options of `check`.
#[derive(Debug, Clone, Args)]
pub struct CheckArgs {
    /// Where the configuration comes from.
    #[command(flatten)]
    pub config: ConfigArgs,
}

/// Options of `export`.
#[derive(Debug, Clone, Args)]
pub struct ExportArgs {
    /// Where the configuration comes from, which names the ledger.
    #[command(flatten)]
    pub config: ConfigArgs,
    /// The ledger's file, in place of the configuration's
    #[arg(long, value_name = "FILE")]
    pub ledger: Option<PathBuf>,
    /// How to write
    #[arg(long, value_enum)]
    pub format: FileFormat,
    /// Calls that began then or later: an instant, or a time back such as `72h`
    #[arg(long, value_name = "TIME", value_parser = When::parse)]
    pub since: When,
    /// Calls that began before: an instant, or a time back
    #[arg(long, value_name = "TIME", value_parser = When::parse)]
    pub until: Option<When>,
    /// Where to [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// An instant, as people write it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// So long ago.
    Back(std::time::Duration),
    /// RFC 3339.
    At(std::time::SystemTime),
}

impl When {
    fn parse(text: &str) -> Result<When, String> {
        if let Ok(at) = humantime::parse_rfc3339_weak(text) {
            return Ok(When::At(at));
        }
        let back = humantime::parse_duration(text).map(When::Back);
        back.map_err(|_| {
            "is an instant such as 2026-11-21T08:00:00Z, or a time back such as 72h".to_owned()
        })
    }

    /// The instant, where it is `now`.
    pub fn before(self, now: std::time::SystemTime) -> std::time::SystemTime {
        match self {
            When::At(at) => at,
            When::Back(back) => now.checked_sub(back).unwrap_or(std::time::UNIX_EPOCH),
        }
    }
}

/// Options of `sim`.
#[derive(Debug, Clone, Args)]
#[command(after_help = crate::sim::HELP)]
pub struct SimArgs {
    /// Where clients connect; port 0 picks one
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8090")]
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

/// What to do with objectives.
#[derive(Debug, Clone, Subcommand)]
pub enum SloCommand {
    /// Print how every objective stands: budget left, burn rates, time to exhaustion
    Status(StatusArgs),
    /// Propose objectives that recorded calls would have met, with the budget left
    Suggest(SuggestArgs),
    /// Judge recorded calls by the objectives of a configuration
    Test(TestArgs),
    /// Print the [[slo]] of a file of OpenSLO v1 documents
    Import(ImportArgs),
    /// Print the objectives of the configuration as OpenSLO v1 documents
    Export(CheckArgs),
}

/// Options of `slo suggest`.
#[derive(Debug, Clone, Args)]
pub struct SuggestArgs {
    /// Call logs, as `run --call-log` writes them
    #[arg(required = true, value_name = "FILE")]
    pub logs: Vec<PathBuf>,
    /// Only calls that ended within this time of the newest
    #[arg(long, value_name = "DURATION", default_value = "7days", value_parser = humantime::parse_duration)]
    pub last: std::time::Duration,
    /// The share of calls that is to be good
    #[arg(long, value_name = "SHARE", default_value_t = 0.99, value_parser = share)]
    pub objective: f64,
    /// The time that the budget is for
    #[arg(long, value_name = "DURATION", default_value = "30days", value_parser = humantime::parse_duration)]
    pub window: std::time::Duration,
}

/// Options of `slo test`.
#[derive(Debug, Clone, Args)]
pub struct TestArgs {
    /// Call logs, as `run --call-log` writes them
    #[arg(required = true, value_name = "FILE")]
    pub logs: Vec<PathBuf>,
    /// The configuration with the objectives.
    #[command(flatten)]
    pub config: ConfigArgs,
    /// Only calls that ended within this time of the newest [default: all]
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration)]
    pub last: Option<std::time::Duration>,
    /// Exit with 1 where an objective would have been missed
    #[arg(long)]
    pub strict: bool,
}

/// Options of `slo import`.
#[derive(Debug, Clone, Args)]
pub struct ImportArgs {
    /// A file of OpenSLO v1 documents
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
}

/// A running proxy and how to be let in.
#[derive(Debug, Clone, Args)]
pub struct AdminArgs {
    /// Where the proxy's operators connect; with TLS `https://HOST:PORT`
    #[arg(long, value_name = "ADDR", default_value_t = DEFAULT_ADMIN.to_string())]
    pub admin: String,
    /// A file with the token of its [admin]
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// The token itself, from the environment alone: a command line can be seen by others
    #[arg(
        long = "admin-token",
        hide = true,
        env = "TOKENGAUGE_ADMIN_TOKEN",
        hide_env_values = true
    )]
    pub token: Option<String>,
}

/// Options of `top`.
#[derive(Debug, Clone, Args)]
pub struct TopArgs {
    /// The proxy to watch.
    #[command(flatten)]
    pub admin: AdminArgs,
    /// How often it is asked
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = humantime::parse_duration)]
    pub every: std::time::Duration,
}

/// Options of `report`.
#[derive(Debug, Clone, Args)]
pub struct ReportArgs {
    /// Only calls that began at this instant (RFC 3339) or so long ago at most, such as
    /// 72h or 7d [default: all there are]
    #[arg(long, value_name = "WHEN")]
    pub since: Option<String>,
    /// Only calls that began before this instant or longer ago
    #[arg(long, value_name = "WHEN")]
    pub until: Option<String>,
    /// What the calls of a row have in common
    #[arg(
        long,
        value_name = "WORDS",
        value_enum,
        value_delimiter = ',',
        default_value = "model"
    )]
    pub by: Vec<By>,
    /// Read this ledger [default: ask the proxy at --admin]
    #[arg(long, value_name = "FILE", conflicts_with_all = ["call_log", "admin"])]
    pub ledger: Option<PathBuf>,
    /// Read these call logs, as `run --call-log` writes them
    #[arg(long, value_name = "FILE", num_args = 1.., conflicts_with = "admin")]
    pub call_log: Vec<PathBuf>,
    /// The proxy to ask.
    #[command(flatten)]
    pub admin: AdminArgs,
    /// What to write
    #[arg(long, value_enum, default_value_t = ReportFormat::Table)]
    pub format: ReportFormat,
    /// Where to [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Have the speeds of calls in that came while their upstream warmed up
    #[arg(long)]
    pub with_warm_up: bool,
}

/// What calls have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum By {
    /// The model that answered, else the one asked for
    Model,
    /// The workload
    Workload,
    /// The upstream
    Upstream,
    /// The agent
    Agent,
    /// The route
    Route,
    /// The experiment
    Experiment,
    /// The variant of the experiment
    Variant,
}

/// What `report` writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum ReportFormat {
    /// For terminals
    Table,
    /// For documents
    Markdown,
    /// For programs
    Json,
    /// One file with plots, for browsers
    Html,
}

/// Options of `slo status`.
#[derive(Debug, Clone, Args)]
pub struct StatusArgs {
    /// The proxy to ask.
    #[command(flatten)]
    pub admin: AdminArgs,
    /// Print the API's JSON instead of a table
    #[arg(long)]
    pub json: bool,
}

/// Options of `replay`.
#[derive(Debug, Clone, Args)]
pub struct ReplayArgs {
    /// A response body; or a folder with `response.body` and `meta.json`; or a folder of
    /// such folders at any depth
    #[arg(required = true, value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    /// The shapes in the body [default: from --request-path or the first event]
    #[arg(long, value_name = "DIALECT", value_parser = dialect)]
    pub dialect: Option<Dialect>,
    /// The path of the request, which tells the dialect
    #[arg(long, value_name = "PATH", default_value = "/")]
    pub request_path: String,
    /// The request's body
    #[arg(long, value_name = "FILE")]
    pub request: Option<PathBuf>,
    /// The response's content type [default: told by its first bytes]
    #[arg(long, value_name = "TYPE")]
    pub content_type: Option<String>,
    /// The response's content encoding: gzip, deflate, br or zstd
    #[arg(long, value_name = "NAME")]
    pub content_encoding: Option<String>,
    /// The response's status
    #[arg(long, value_name = "CODE", default_value_t = 200, value_parser = clap::value_parser!(u16).range(100..=599))]
    pub status: u16,
    /// Bytes of one frame [default: the whole body is one]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub frame_bytes: Option<u32>,
    /// Time between frames as the meter is told it; nothing waits
    #[arg(long, value_name = "DURATION", default_value = "20ms", value_parser = humantime::parse_duration)]
    pub gap: std::time::Duration,
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
    pub native_sidecar: Option<Native>,
}

/// Options of `inject`.
#[derive(Debug, Clone, Args)]
pub struct InjectArgs {
    /// Manifests, YAML or JSON; `-` is standard input
    #[arg(short = 'f', long = "file", required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// What is injected.
    #[command(flatten)]
    pub settings: InjectSettings,
    /// Only pods that ask for it by annotation
    #[arg(long)]
    pub annotated: bool,
    /// Leave what cannot be injected as it is, and exit with 0
    #[arg(long)]
    pub lenient: bool,
}

/// Options of `injector`.
#[derive(Debug, Clone, Args)]
pub struct InjectorArgs {
    /// What is injected.
    #[command(flatten)]
    pub settings: InjectSettings,
    /// Certificate chain of the webhook, PEM; read again when it changes
    #[arg(long, value_name = "FILE")]
    pub certificate: PathBuf,
    /// Its private key, PEM
    #[arg(long, value_name = "FILE")]
    pub key: PathBuf,
    /// Where API servers connect
    #[arg(long, value_name = "ADDR", default_value = "0.0.0.0:8443")]
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

/// A label's value that needs no quoting in PromQL.
fn job(name: &str) -> Result<String, String> {
    let sound = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
    if name.is_empty() || !name.chars().all(sound) {
        return Err("is made of letters, digits and -_./".into());
    }
    Ok(name.to_owned())
}

/// Whole seconds, and few enough that an hour has several.
fn resolution(text: &str) -> Result<std::time::Duration, String> {
    let given = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    if given.subsec_nanos() != 0 || !(5..=600).contains(&given.as_secs()) {
        return Err("is whole seconds, from 5s to 10m".into());
    }
    Ok(given)
}

fn share(text: &str) -> Result<f64, String> {
    let share = text
        .parse()
        .ok()
        .filter(|share| *share > 0.0 && *share <= 1.0);
    share.ok_or_else(|| "a share is above 0 and at most 1, such as 0.99".to_owned())
}

fn dialect(name: &str) -> Result<Dialect, String> {
    use serde::Deserialize;
    use serde::de::value::{Error, StrDeserializer};
    Dialect::deserialize(StrDeserializer::<Error>::new(name)).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

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
                .contains("openai_chat")
        );
    }
}
