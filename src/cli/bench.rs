//! The options of `bench`.

use super::*;
use clap::ArgGroup;
use std::time::Duration;
use tokengauge_bench::length::Length;
use tokengauge_bench::objective::Objective;

/// Options of `bench`.
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Exit code 1: figures are withheld (the run was not steady, too few calls, failed calls, a late client), no load keeps the \
objectives, or with --fail-if-worse a figure is worse. Exit code 3: no load is shown to keep or to miss the objectives, or \
--fail-if-worse has too few trials. Definitions: docs/bench.md")]
pub struct BenchArgs {
    /// The backend, or a proxy in front of it, such as http://127.0.0.1:8000
    #[arg(value_name = "URL", required_unless_present_any = ["compare", "schema"])]
    pub url: Option<http::Uri>,
    #[command(flatten)]
    pub request: BenchRequest,
    #[command(flatten)]
    pub load: BenchLoad,
    #[command(flatten)]
    pub criteria: BenchCriteria,
    /// What loads are to keep, such as ttft_p95<=500ms, tps_p10>=20 or latency_p99<=8s
    #[arg(long = "objective", value_name = "OBJECTIVE", value_delimiter = ',')]
    pub objectives: Vec<Objective>,
    /// Search for the highest load that keeps the objective of this name: `slo=NAME` of the proxy at --through, else of
    /// the configuration; may be given again. Without a load 1..64 calls at once are searched
    #[arg(long, value_name = "slo=NAME", value_parser = slo_name)]
    pub until: Vec<String>,
    #[command(flatten)]
    pub config: ConfigArgs,
    /// What the backend costs an hour, all its GPUs together, in US dollars
    #[arg(long, value_name = "USD", value_parser = positive)]
    pub usd_per_hour: Option<f64>,
    /// The operators' address of a tokengauge that the calls go through: its records of them are
    /// shown too, and the difference
    #[arg(long, value_name = "ADDR")]
    pub through: Option<String>,
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
    #[command(flatten)]
    pub format: FormatArgs<BenchFormat>,
    /// Write the results to this file, too: .json, .md, .html or .xml (JUnit); may be given again
    #[arg(short, long, value_name = "FILE")]
    pub output: Vec<PathBuf>,
    /// Compare the results in two JSON files: the old one, the new one
    #[arg(long, num_args = 2, value_names = ["OLD", "NEW"], conflicts_with_all = ["url", "schema"])]
    pub compare: Option<Vec<PathBuf>>,
    /// With --compare: exit with 1 if a figure is worse, and with 3 if there are too few trials to show it or the new result
    /// withholds a figure
    #[arg(long, requires = "compare")]
    pub fail_if_worse: bool,
    /// Print the JSON Schema of results
    #[arg(long, conflicts_with = "url")]
    pub schema: bool,
}

/// What `bench` asks for.
#[derive(Debug, Clone, Args)]
#[command(group = ArgGroup::new("trace").args(["input_file", "from", "store"]))]
pub struct BenchRequest {
    /// The dialect: chat, completions, responses, messages, gemini, ollama, ollama_generate,
    /// cohere, tgi, llama_cpp or converse
    #[arg(long, value_name = "TYPE", default_value = "chat")]
    pub endpoint_type: tokengauge_bench::endpoint::EndpointType,
    /// The path of requests, in place of the dialect's
    #[arg(long, value_name = "PATH")]
    pub endpoint: Option<String>,
    /// The model to ask for
    #[arg(short, long, value_name = "NAME", default_value = "")]
    pub model: String,
    /// Tokens of prompts: 512, 128..1024 (uniform), 512~64 (mean~deviation)
    #[arg(
        long,
        value_name = "TOKENS",
        default_value = "512",
        conflicts_with = "trace"
    )]
    pub isl: Length,
    /// Tokens of answers at most, written the same way [default: as the backend likes]
    #[arg(long, value_name = "TOKENS", conflicts_with = "trace")]
    pub osl: Option<Length>,
    /// Prompts from this file: a text a line, or JSON lines with `text`, or a mooncake trace
    /// (`export --format mooncake`) with `input_length`
    #[arg(long, value_name = "FILE")]
    pub input_file: Option<PathBuf>,
    /// The calls of this ledger as a trace: lengths, starts and sessions, as `export --format mooncake` writes them
    #[arg(long, value_name = "LEDGER")]
    pub from: Option<PathBuf>,
    #[command(flatten)]
    pub warehouse: WarehouseArgs,
    /// With --from or --store: calls that began then or later, an instant or a time back [default: 24h]
    #[arg(long, value_name = "TIME", value_parser = When::parse, conflicts_with = "input_file", requires = "trace")]
    pub since: Option<When>,
    /// Ask the engine not to end before the wanted length (vLLM, SGLang)
    #[arg(long)]
    pub ignore_eos: bool,
    /// More members of the request's body, as a JSON object
    #[arg(long, value_name = "JSON", value_parser = object)]
    pub extra_inputs: Option<serde_json::Map<String, serde_json::Value>>,
    /// A header of requests, `NAME: VALUE`; may be given again
    #[arg(short = 'H', long = "header", value_name = "HEADER")]
    pub headers: Vec<String>,
    /// The environment variable with the key for the backend; without it no key is sent
    #[arg(long, value_name = "NAME")]
    pub api_key_env: Option<String>,
    /// Trusted roots for https, PEM, in place of the system's
    #[arg(long, value_name = "FILE")]
    pub ca: Option<PathBuf>,
    /// A certificate chain to show to the backend, PEM
    #[arg(long, value_name = "FILE", requires = "key")]
    pub cert: Option<PathBuf>,
    /// Its private key, PEM
    #[arg(long, value_name = "FILE", requires = "cert")]
    pub key: Option<PathBuf>,
    /// Over HTTP/2, many calls on a connection: by ALPN with https, else by prior knowledge
    #[arg(long)]
    pub http2: bool,
    /// How long a call may take
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = humantime::parse_duration)]
    pub request_timeout: Duration,
}

/// What load `bench` puts on the backend.
#[derive(Debug, Clone, Args)]
pub struct BenchLoad {
    /// Closed loop: calls at once; several loads are 1,2,4,8; a range 1..64 is searched for the
    /// highest that keeps the objectives [default: 1]
    #[arg(long, value_name = "N", conflicts_with_all = ["request_rate", "fixed_schedule"])]
    pub concurrency: Option<String>,
    /// Open loop: calls per second, however many are under way, written the same way
    #[arg(long, value_name = "RATE", conflicts_with = "fixed_schedule")]
    pub request_rate: Option<String>,
    /// How calls arrive in an open loop
    #[arg(long, value_enum, default_value_t = BenchArrival::Poisson)]
    pub arrival_pattern: BenchArrival,
    /// Calls begin when those of the trace in --input-file, --from or --store did
    #[arg(long, requires = "trace")]
    pub fixed_schedule: bool,
    /// With --fixed-schedule: a call of a session waits for the end of the one before, then as long as in the trace; texts
    /// of a session grow by the same words, as a conversation does
    #[arg(long, requires = "fixed_schedule")]
    pub multi_turn: bool,
    /// The step of rates at which a search ends [default: a fiftieth of the range]
    #[arg(long, value_name = "RATE", value_parser = positive)]
    pub search_step: Option<f64>,
    /// Trials of each load
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub trials: u32,
    /// At the begin of each trial, for connections, caches and compilation
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = humantime::parse_duration)]
    pub warmup_duration: Duration,
    /// After that at the whole load, until queues are as full as they get
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = humantime::parse_duration)]
    pub burn_in_duration: Duration,
    /// Calls that begin in this time count
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = humantime::parse_duration)]
    pub benchmark_duration: Duration,
    /// How long after that they may take to end
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = humantime::parse_duration)]
    pub grace_period: Duration,
    /// The seed of texts, arrivals, the order of loads and resampling [default: a new one]
    #[arg(long, value_name = "SEED")]
    pub random_seed: Option<u64>,
}

/// When a run of `bench` counts.
#[derive(Debug, Clone, Args)]
pub struct BenchCriteria {
    /// The percentage within which TTFT and TPS must be shown to stay over a trial
    #[arg(long, value_name = "PERCENT", default_value_t = 5.0, value_parser = positive)]
    pub steady_within: f64,
    /// Make no further trials of a load, --trials at most, once throughput, TPS and TTFT are known within this percentage, by
    /// intervals that hold after every trial
    #[arg(long, value_name = "PERCENT", value_parser = positive)]
    pub stop_within: Option<f64>,
    /// The percentage of calls that may fail
    #[arg(long, value_name = "PERCENT", default_value_t = 0.0, value_parser = percent)]
    pub max_failed: f64,
    /// How late this client may be [default: 5 % of the median TTFT, 10ms at least]
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration)]
    pub max_client_lag: Option<Duration>,
    /// The length of an observation of throughput; a trial has 50 at least
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = interval)]
    pub sample_interval: Duration,
}

/// How calls arrive in an open loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum BenchArrival {
    /// Independent of each other
    Poisson,
    /// In equal steps
    Constant,
}

/// The formats of `bench`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum BenchFormat {
    /// For terminals
    #[value(alias = "table")]
    Text,
    /// For documents
    Markdown,
    /// For programs
    Json,
}

fn slo_name(text: &str) -> Result<String, &'static str> {
    let name = text.strip_prefix("slo=").filter(|name| !name.is_empty());
    name.map(str::to_owned)
        .ok_or("is slo=NAME, where NAME is that of an [[slo]]")
}

fn positive(text: &str) -> Result<f64, &'static str> {
    let number = text
        .parse()
        .ok()
        .filter(|number: &f64| *number > 0.0 && number.is_finite());
    number.ok_or("is a number above 0")
}

fn percent(text: &str) -> Result<f64, &'static str> {
    let number = text
        .parse()
        .ok()
        .filter(|number| (0.0..=100.0).contains(number));
    number.ok_or("is a percentage from 0 to 100")
}

fn interval(text: &str) -> Result<Duration, &'static str> {
    let found = humantime::parse_duration(text)
        .ok()
        .filter(|length| (Duration::from_millis(10)..=Duration::from_secs(600)).contains(length));
    found.ok_or("is a duration from 10ms to 10m")
}

fn object(text: &str) -> Result<serde_json::Map<String, serde_json::Value>, serde_json::Error> {
    serde_json::from_str(text)
}
