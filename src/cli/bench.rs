//! The options of `bench`.

use super::*;
use clap::ArgGroup;
use std::time::Duration;
use tokengauge_bench::length::Length;
use tokengauge_bench::objective::Objective;

/// Options of `bench`.
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Exit code 1: no load meets the objectives, figures are withheld (except in a search), or with --fail-if-worse a figure is \
worse. Figures are withheld if the run was not steady, had few or failed calls, or had a late client. Exit code 3: no \
load is shown to meet or to miss the objectives, or --fail-if-worse has too few trials. Definitions: docs/bench.md")]
pub struct BenchArgs {
    /// URL of the backend or of a proxy in front of it, such as http://127.0.0.1:8000
    #[arg(value_name = "URL", required_unless_present_any = ["compare", "schema"])]
    pub url: Option<http::Uri>,
    #[command(flatten)]
    pub request: BenchRequest,
    #[command(flatten)]
    pub load: BenchLoad,
    #[command(flatten)]
    pub criteria: BenchCriteria,
    /// Objectives that loads must meet, such as ttft_p95<=500ms, tps_p10>=20 or latency_p99<=8s
    #[arg(long = "objective", value_name = "OBJECTIVE", value_delimiter = ',')]
    pub objectives: Vec<Objective>,
    /// Search for the highest load that meets the objective NAME of the proxy at --through, or of the
    /// configuration without --through; may be repeated. The default range of the search is 1..64 concurrent calls
    #[arg(long, value_name = "slo=NAME", value_parser = slo_name)]
    pub until: Vec<String>,
    #[command(flatten)]
    pub config: ConfigArgs,
    /// Cost of the backend with all its GPUs, in US dollars per hour
    #[arg(long, value_name = "USD", value_parser = positive)]
    pub usd_per_hour: Option<f64>,
    /// Admin address of a tokengauge proxy between this client and the backend. The results then also show the proxy's
    /// measurements of the same calls
    #[arg(long, value_name = "ADDR")]
    pub through: Option<String>,
    /// File with the token of the proxy at --through
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// The token of the proxy at --through. It can be set only in the environment, because other users can see the
    /// command line
    #[arg(
        long = "admin-token",
        hide = true,
        env = ADMIN_TOKEN,
        hide_env_values = true
    )]
    pub token: Option<String>,
    #[command(flatten)]
    pub format: FormatArgs<BenchFormat>,
    /// Also write the results to this file: .json, .md, .html or .xml (JUnit); may be repeated
    #[arg(short, long, value_name = "FILE")]
    pub output: Vec<PathBuf>,
    /// Compare the results in two JSON files: the old one and the new one
    #[arg(long, num_args = 2, value_names = ["OLD", "NEW"], conflicts_with_all = ["url", "schema"])]
    pub compare: Option<Vec<PathBuf>>,
    /// With --compare: exit with 1 if a figure is worse, and with 3 if the results cannot show it (too few trials or
    /// withheld figures)
    #[arg(long, requires = "compare")]
    pub fail_if_worse: bool,
    /// Print the JSON Schema of results
    #[arg(long, conflicts_with = "url")]
    pub schema: bool,
}

/// The requests of `bench`.
#[derive(Debug, Clone, Args)]
#[command(group = ArgGroup::new("trace").args(["input_file", "from", "store"]))]
pub struct BenchRequest {
    /// The dialect: chat, completions, responses, messages, gemini, ollama, ollama_generate,
    /// cohere, tgi, llama_cpp or converse
    #[arg(long, value_name = "TYPE", default_value = "chat")]
    pub endpoint_type: tokengauge_bench::endpoint::EndpointType,
    /// Path of requests, overrides the path of the dialect
    #[arg(long, value_name = "PATH")]
    pub endpoint: Option<String>,
    /// Model to request
    #[arg(short, long, value_name = "NAME", default_value = "")]
    pub model: String,
    /// Tokens per prompt: 512, 128..1024 (uniform) or 512~64 (mean~deviation)
    #[arg(
        long,
        value_name = "TOKENS",
        default_value = "512",
        conflicts_with = "trace"
    )]
    pub isl: Length,
    /// Maximum number of output tokens, with the same syntax [default: the backend decides]
    #[arg(long, value_name = "TOKENS", conflicts_with = "trace")]
    pub osl: Option<Length>,
    /// File with prompts: one prompt per line, JSON lines with `text`, or a mooncake trace (`export --format mooncake`)
    /// with `input_length`
    #[arg(long, value_name = "FILE")]
    pub input_file: Option<PathBuf>,
    /// Use the calls of this ledger as a trace: lengths, starts and sessions, like `export --format mooncake`
    #[arg(long, value_name = "LEDGER")]
    pub from: Option<PathBuf>,
    #[command(flatten)]
    pub warehouse: WarehouseArgs,
    /// With --from or --store: use calls that began at or after this time: an instant, or a duration before now such as
    /// `72h` [default: 24h]
    #[arg(long, value_name = "TIME", value_parser = When::parse, conflicts_with = "input_file", requires = "trace")]
    pub since: Option<When>,
    /// Ask the engine to generate the full number of tokens (vLLM, SGLang)
    #[arg(long)]
    pub ignore_eos: bool,
    /// Additional members of the request body, as a JSON object
    #[arg(long, value_name = "JSON", value_parser = object)]
    pub extra_inputs: Option<serde_json::Map<String, serde_json::Value>>,
    /// Request header, `NAME: VALUE`; may be repeated
    #[arg(short = 'H', long = "header", value_name = "HEADER")]
    pub headers: Vec<String>,
    /// Environment variable that contains the API key of the backend [default: no key]
    #[arg(long, value_name = "NAME")]
    pub api_key_env: Option<String>,
    /// PEM file with trusted root certificates [default: those that the system trusts]
    #[arg(long, value_name = "FILE")]
    pub ca: Option<PathBuf>,
    /// PEM file with the client certificate chain for the backend
    #[arg(long, value_name = "FILE", requires = "key")]
    pub cert: Option<PathBuf>,
    /// PEM file with the private key of the client certificate
    #[arg(long, value_name = "FILE", requires = "cert")]
    pub key: Option<PathBuf>,
    /// Use HTTP/2, with ALPN for https and prior knowledge for http
    #[arg(long)]
    pub http2: bool,
    /// Timeout of a call
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = humantime::parse_duration)]
    pub request_timeout: Duration,
}

/// The load that `bench` puts on the backend.
#[derive(Debug, Clone, Args)]
pub struct BenchLoad {
    /// Closed loop: number of concurrent calls, such as 4, or several loads such as 1,2,4,8. A range such as 1..64 is
    /// searched for the highest load that meets the objectives [default: 1]
    #[arg(long, value_name = "N", conflicts_with_all = ["request_rate", "fixed_schedule"])]
    pub concurrency: Option<String>,
    /// Open loop: calls per second, independent of responses, with the syntax of --concurrency
    #[arg(long, value_name = "RATE", conflicts_with = "fixed_schedule")]
    pub request_rate: Option<String>,
    /// Arrival pattern of calls in an open loop
    #[arg(long, value_enum, default_value_t = BenchArrival::Poisson)]
    pub arrival_pattern: BenchArrival,
    /// Start calls at the times in the trace of --input-file, --from or --store
    #[arg(long, requires = "trace")]
    pub fixed_schedule: bool,
    /// With --fixed-schedule: start a call after the previous call of its session has ended, plus the pause in the
    /// trace. The prompts of a session grow like a conversation
    #[arg(long, requires = "fixed_schedule")]
    pub multi_turn: bool,
    /// Step of the request rate at which a search ends [default: 1/50 of the range]
    #[arg(long, value_name = "RATE", value_parser = positive)]
    pub search_step: Option<f64>,
    /// Number of trials of each load
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub trials: u32,
    /// Warm-up at the beginning of each trial, for connections, caches and compilation
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = humantime::parse_duration)]
    pub warmup_duration: Duration,
    /// Time at the full load after the warm-up, for queues to fill
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = humantime::parse_duration)]
    pub burn_in_duration: Duration,
    /// Duration of the measurement: calls that begin in this time count
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = humantime::parse_duration)]
    pub benchmark_duration: Duration,
    /// Maximum time after the measurement for calls to end
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = humantime::parse_duration)]
    pub grace_period: Duration,
    /// Seed of prompts, arrivals, the order of loads and resampling [default: random]
    #[arg(long, value_name = "SEED")]
    pub random_seed: Option<u64>,
}

/// The conditions for valid results of `bench`.
#[derive(Debug, Clone, Args)]
pub struct BenchCriteria {
    /// Percentage within which TTFT and TPS must be shown to remain during a trial; otherwise their figures are withheld
    #[arg(long, value_name = "PERCENT", default_value_t = 5.0, value_parser = positive)]
    pub steady_within: f64,
    /// End the trials of a load when throughput, TPS and TTFT are known within this percentage. The intervals remain
    /// valid after every trial
    #[arg(long, value_name = "PERCENT", value_parser = positive)]
    pub stop_within: Option<f64>,
    /// Largest percentage of calls that may fail
    #[arg(long, value_name = "PERCENT", default_value_t = 0.0, value_parser = percent)]
    pub max_failed: f64,
    /// Largest delay of this client [default: 5 % of the median TTFT, at least 10ms]
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration)]
    pub max_client_lag: Option<Duration>,
    /// Interval for observations of throughput; a trial needs at least 50 intervals
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = interval)]
    pub sample_interval: Duration,
}

/// Arrival patterns of calls in an open loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum BenchArrival {
    /// Independent arrivals
    Poisson,
    /// Arrivals in equal steps
    Constant,
}

/// The formats of `bench`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum BenchFormat {
    /// Table for terminals
    #[value(alias = "table")]
    Text,
    /// Markdown for documents
    Markdown,
    /// JSON for programs
    Json,
}

fn slo_name(text: &str) -> Result<String, &'static str> {
    let name = text.strip_prefix("slo=").filter(|name| !name.is_empty());
    name.map(str::to_owned)
        .ok_or("must be slo=NAME with the name of an [[slo]]")
}

fn positive(text: &str) -> Result<f64, &'static str> {
    let number = text
        .parse()
        .ok()
        .filter(|number: &f64| *number > 0.0 && number.is_finite());
    number.ok_or("must be a number above 0")
}

fn percent(text: &str) -> Result<f64, &'static str> {
    let number = text
        .parse()
        .ok()
        .filter(|number| (0.0..=100.0).contains(number));
    number.ok_or("must be a percentage from 0 to 100")
}

fn interval(text: &str) -> Result<Duration, &'static str> {
    let found = humantime::parse_duration(text)
        .ok()
        .filter(|length| (Duration::from_millis(10)..=Duration::from_secs(600)).contains(length));
    found.ok_or("must be a duration from 10ms to 10m")
}

fn object(text: &str) -> Result<serde_json::Map<String, serde_json::Value>, serde_json::Error> {
    serde_json::from_str(text)
}
