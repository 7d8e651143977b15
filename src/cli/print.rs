//! The options of `print`.

use super::*;

/// The subcommands of `print`.
#[derive(Debug, Clone, Subcommand)]
pub enum PrintCommand {
    /// Print the JSON Schema of the configuration file (draft 2020-12), for editors and pipelines
    Schema,
    /// Print every key of the configuration file with its type, bounds, default and meaning
    Keys(ReferenceArgs),
    /// Print every metric with its kind, unit, labels and meaning
    Metrics(ReferenceArgs),
    /// Print the Grafana dashboards, or write them into a folder
    Dashboards(DashboardsArgs),
    /// Print Prometheus rules: alerts on the proxy and on the configured objectives
    Rules(RulesArgs),
    /// Print shell completions
    Completions(CompletionsArgs),
    /// Print the manual page, or write the manual pages of all commands into a folder
    Man(ManArgs),
    /// Read keys from standard input and print the digests that represent them in the configuration and in call records
    KeyHash,
    /// Measure a recorded response and print its call record
    Record(RecordArgs),
}

/// Options of `print keys` and `print metrics`.
#[derive(Debug, Clone, Args)]
pub struct ReferenceArgs {
    #[command(flatten)]
    pub format: FormatArgs<ReferenceFormat>,
}

/// Options of `print dashboards`.
#[derive(Debug, Clone, Args)]
pub struct DashboardsArgs {
    /// Dashboard to print [default: list all dashboards]
    #[arg(value_name = "NAME", conflicts_with = "write")]
    pub name: Option<String>,
    /// Write all dashboards and a provisioning file into this folder
    #[arg(long, value_name = "DIR")]
    pub write: Option<PathBuf>,
}

/// Options of `print rules`.
#[derive(Debug, Clone, Args)]
pub struct RulesArgs {
    #[command(flatten)]
    pub config: ConfigArgs,
    /// Format of the rules
    #[arg(long, value_enum, default_value_t = RulesFormat::File)]
    pub format: RulesFormat,
    /// Value of the `job` label of the proxies in Prometheus
    #[arg(long, value_name = "NAME", default_value = "tokengauge", value_parser = job)]
    pub job: String,
    /// URL of the runbooks
    #[arg(long, value_name = "URL", default_value = "docs/runbooks.md")]
    pub runbooks: String,
    /// URL of Grafana
    #[arg(long, value_name = "URL", default_value = "")]
    pub grafana: String,
    /// Length of the increases that are recorded and summed for the error budget
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = resolution)]
    pub resolution: std::time::Duration,
    /// Labels that separate budgets and alerts, such as `namespace,cluster`
    #[arg(long, value_name = "LABELS", value_delimiter = ',', value_parser = grouping)]
    pub by: Vec<String>,
}

/// The formats of `print rules`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum RulesFormat {
    /// Rule file for `rule_files` of Prometheus
    File,
    /// A `PrometheusRule` for the Prometheus operator
    Operator,
    /// Values for the Helm chart with the rules and their objectives
    Helm,
    /// Inhibit rules for Alertmanager, with which a page silences its ticket
    Alertmanager,
}

/// Parses a label value that needs no quoting in PromQL.
fn job(name: &str) -> Result<String, &'static str> {
    let sound = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
    if name.is_empty() || !name.chars().all(sound) {
        return Err("must consist of letters, digits and -_./");
    }
    Ok(name.to_owned())
}

/// Parses the name of a label that Prometheus adds to its targets.
fn grouping(name: &str) -> Result<String, &'static str> {
    let sound = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if name.is_empty() || !name.chars().all(sound) || name.starts_with(|c: char| c.is_ascii_digit())
    {
        return Err("must consist of letters, digits and _");
    }
    if ["slo", "window", "alertname", "severity", "le"].contains(&name) {
        return Err("must not be a label that the rules set");
    }
    Ok(name.to_owned())
}

/// Parses whole seconds that divide an hour into several parts.
fn resolution(text: &str) -> Result<std::time::Duration, Box<dyn std::error::Error + Send + Sync>> {
    let given = humantime::parse_duration(text)?;
    if given.subsec_nanos() != 0 || !(5..=600).contains(&given.as_secs()) {
        return Err("must be whole seconds from 5s to 10m".into());
    }
    Ok(given)
}

/// Options of `print completions`.
#[derive(Debug, Clone, Args)]
pub struct CompletionsArgs {
    /// Name of the shell
    #[arg(value_enum)]
    pub shell: clap_complete::Shell,
}

/// Options of `print man`.
#[derive(Debug, Clone, Args)]
pub struct ManArgs {
    /// Write one manual page per command into this folder
    #[arg(value_name = "DIR")]
    pub folder: Option<PathBuf>,
}

/// Options of `print record`.
#[derive(Debug, Clone, Args)]
pub struct RecordArgs {
    /// Response body, or a folder with `response.body` and `meta.json`, or a folder that contains such folders at any
    /// depth
    #[arg(required = true, value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    /// Dialect of the body [default: detected from --request-path or the first event]
    #[arg(long, value_name = "DIALECT", value_parser = dialect)]
    pub dialect: Option<Dialect>,
    /// Path of the request, which determines the dialect
    #[arg(long, value_name = "PATH", default_value = "/")]
    pub request_path: String,
    /// File with the request body
    #[arg(long, value_name = "FILE")]
    pub request: Option<PathBuf>,
    /// Content type of the response [default: detected from its first bytes]
    #[arg(long, value_name = "TYPE")]
    pub content_type: Option<String>,
    /// Content encoding of the response: gzip, deflate, br or zstd
    #[arg(long, value_name = "NAME")]
    pub content_encoding: Option<String>,
    /// Status of the response
    #[arg(long, value_name = "CODE", default_value_t = 200, value_parser = clap::value_parser!(u16).range(100..=599))]
    pub status: u16,
    /// Bytes per chunk [default: the whole body is one chunk]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub frame_bytes: Option<u32>,
    /// Simulated time between chunks; the command does not wait
    #[arg(long, value_name = "DURATION", default_value = "20ms", value_parser = humantime::parse_duration)]
    pub gap: std::time::Duration,
    /// No effect: the records are always JSON
    #[arg(long, hide = true)]
    pub json: bool,
}

pub(super) fn dialect(name: &str) -> Result<Dialect, serde::de::value::Error> {
    use serde::Deserialize;
    Dialect::deserialize(serde::de::value::StrDeserializer::new(name))
}
