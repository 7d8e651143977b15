//! The commands for finished and recorded calls.

use super::*;
use clap::builder::PossibleValue;
use tokengauge_accounting::cost::budget::Period;
use tokengauge_core::dimension::{DIMENSIONS, Dimension};

/// The options and subcommands of `export`.
#[derive(Debug, Clone, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct ExportCommand {
    /// The subcommand, if calls are not exported.
    #[command(subcommand)]
    pub command: Option<ExportSubcommand>,
    #[command(flatten)]
    pub args: ExportArgs,
}

/// The subcommands of `export`.
#[derive(Debug, Clone, Subcommand)]
pub enum ExportSubcommand {
    /// Manage the stores that receive every finished call: create tables, show the state, send calls again
    #[command(subcommand)]
    Sink(SinkCommand),
}

/// The formats of `export`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum ExportFormat {
    /// Typed columns, compressed: for DuckDB, pandas, Spark and the like
    Parquet,
    /// Comma-separated values with a header line (RFC 4180)
    Csv,
    /// One call record per line, in the format of the call log
    Jsonl,
    /// Trace for `bench`, AIPerf or guidellm: start, lengths and blocks of the prompt or session per line
    Mooncake,
    /// Trace for AIPerf or guidellm: a conversation per line, with the blocks of each prompt
    Weka,
}

impl From<ExportFormat> for export::FileFormat {
    fn from(format: ExportFormat) -> Self {
        match format {
            ExportFormat::Parquet => export::FileFormat::Parquet,
            ExportFormat::Csv => export::FileFormat::Csv,
            ExportFormat::Jsonl => export::FileFormat::Jsonl,
            ExportFormat::Mooncake => export::FileFormat::Mooncake,
            ExportFormat::Weka => export::FileFormat::Weka,
        }
    }
}

/// Options of `export`.
#[derive(Debug, Clone, Args)]
pub struct ExportArgs {
    #[command(flatten)]
    pub config: ConfigArgs,
    /// Ledger file; overrides the configuration
    #[arg(long, value_name = "FILE", group = "calls_of")]
    pub ledger: Option<PathBuf>,
    #[command(flatten)]
    pub warehouse: WarehouseArgs,
    /// Format of the output
    #[arg(long, value_enum, default_value_t = ExportFormat::Jsonl)]
    pub format: ExportFormat,
    /// Export calls that began at or after this time: an instant, or a duration before now such as `72h`
    // `required` does not apply to subcommands.
    #[arg(long, value_name = "TIME", value_parser = When::parse, required = true)]
    pub since: Option<When>,
    /// Export calls that began before this time: an instant, or a duration before now such as `24h`
    #[arg(long, value_name = "TIME", value_parser = When::parse)]
    pub until: Option<When>,
    /// Output file [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// In CSV, write `'` before text that a spreadsheet would interpret as a formula. Names come from requests and may
    /// begin with `=`, `+`, `-`, `@`, a tab or a line break
    #[arg(long)]
    pub spreadsheet: bool,
}

/// An instant on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// A duration before now.
    Back(std::time::Duration),
    /// An instant in RFC 3339.
    At(std::time::SystemTime),
}

impl When {
    pub(super) fn parse(text: &str) -> Result<When, &'static str> {
        if let Ok(at) = humantime::parse_rfc3339_weak(text) {
            return Ok(When::At(at));
        }
        let back = humantime::parse_duration(text).map(When::Back);
        back.map_err(|_| "must be an instant such as 2026-11-21T08:00:00Z or a duration before now such as 72h")
    }

    /// Returns the instant relative to `now`.
    pub fn before(self, now: std::time::SystemTime) -> std::time::SystemTime {
        match self {
            When::At(at) => at,
            When::Back(back) => now.checked_sub(back).unwrap_or(std::time::UNIX_EPOCH),
        }
    }
}

/// A calendar month (UTC).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Month {
    pub from: std::time::SystemTime,
    /// The beginning of the next month.
    pub to: std::time::SystemTime,
}

impl Month {
    fn parse(text: &str) -> Result<Month, &'static str> {
        let reason = "must be a month such as 2026-11";
        let begin = format!("{text}-01T00:00:00Z");
        let from = humantime::parse_rfc3339(&begin).map_err(|_| reason)?;
        let now = from.duration_since(std::time::UNIX_EPOCH);
        let (_, end) = Period::Month.bounds(now.map_err(|_| reason)?.as_secs());
        let to = std::time::UNIX_EPOCH + std::time::Duration::from_secs(end);
        Ok(Month { from, to })
    }
}

/// Options of `top`.
#[derive(Debug, Clone, Args)]
pub struct TopArgs {
    #[command(flatten)]
    pub admin: AdminArgs,
    /// Interval between requests to the proxy
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = humantime::parse_duration)]
    pub every: std::time::Duration,
}

/// The options and subcommands of `report`.
#[derive(Debug, Clone, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct ReportCommand {
    /// A subcommand of `report`. Without one, `report` compares calls.
    #[command(subcommand)]
    pub command: Option<ReportSubcommand>,
    #[command(flatten)]
    pub args: ReportArgs,
}

/// The subcommands of `report`.
#[derive(Debug, Clone, Subcommand)]
pub enum ReportSubcommand {
    /// Analyze one session: critical path, prompt cache misses, trace
    Session(Box<SessionArgs>),
}

/// Options of `report`.
#[derive(Debug, Clone, Args)]
pub struct ReportArgs {
    /// Only calls that began at or after this time: an instant (RFC 3339), or a duration before now such as `72h`
    /// [default: all calls]
    #[arg(long, value_name = "WHEN")]
    pub since: Option<String>,
    /// Only calls that began before this time: an instant, or a duration before now such as `24h`
    #[arg(long, value_name = "WHEN")]
    pub until: Option<String>,
    /// Only calls that began in this month (UTC)
    #[arg(long, value_name = "YYYY-MM", value_parser = Month::parse, conflicts_with_all = ["since", "until"])]
    pub month: Option<Month>,
    /// Dimensions that group calls into rows
    #[arg(
        long,
        value_name = "WORDS",
        value_enum,
        value_delimiter = ',',
        default_value = "model"
    )]
    pub by: Vec<By>,
    /// Print the tokens that each tool adds to prompts, and their cost at list prices with and without a prompt cache,
    /// instead of groups
    #[arg(long, conflicts_with_all = ["by", "baseline"])]
    pub tools: bool,
    /// Row that the others are compared with, such as gpt-5.2, or gpt-5.2,chat for two dimensions in --by [default: the
    /// row with the most calls]
    #[arg(long, value_name = "NAME")]
    pub baseline: Option<String>,
    /// Read this ledger file [default: ask the proxy at --admin]
    #[arg(long, value_name = "FILE", conflicts_with_all = ["call_log", "admin"], group = "calls_of")]
    pub ledger: Option<PathBuf>,
    #[command(flatten)]
    pub warehouse: WarehouseArgs,
    /// Read these call logs, which `run --call-log` writes
    #[arg(long, value_name = "FILE", num_args = 1.., conflicts_with_all = ["admin", "store"])]
    pub call_log: Vec<PathBuf>,
    #[command(flatten)]
    pub admin: AdminArgs,
    #[command(flatten)]
    pub format: FormatArgs<ReportFormat>,
    /// Output file [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Show users by name. Each line of the file is a user as agents send it, or `USER = NAME`. The
    /// file is not sent to the proxy
    #[arg(long, value_name = "FILE")]
    pub user_names: Option<PathBuf>,
    /// With --format csv: write `'` before names that a spreadsheet would interpret as a formula
    #[arg(long)]
    pub spreadsheet: bool,
    /// Name of the boolean score that says whether a session succeeded, for cost, time and tokens per successful session
    #[arg(long, value_name = "SCORE", default_value = "success")]
    pub success: String,
    /// Include the TPS and TTFT of calls during the warm-up of their upstream
    #[arg(long)]
    pub with_warm_up: bool,
}

/// A dimension of `--by`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct By(pub Dimension);

impl clap::ValueEnum for By {
    fn value_variants<'a>() -> &'a [By] {
        const ALL: [By; DIMENSIONS.len()] = {
            let mut all = [By(Dimension::Model); DIMENSIONS.len()];
            let mut at = 0;
            while at < DIMENSIONS.len() {
                all[at] = By(DIMENSIONS[at].dimension);
                at += 1;
            }
            all
        };
        &ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        let row = self.0.definition();
        Some(PossibleValue::new(row.name.replace('_', "-")).help(row.about))
    }
}

/// The formats of `report`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum ReportFormat {
    /// Table for terminals
    #[value(alias = "table")]
    Text,
    /// Markdown for documents
    Markdown,
    /// JSON for programs
    Json,
    /// One HTML file with plots
    Html,
    /// Cost by calendar month (UTC) for spreadsheets (RFC 4180)
    Csv,
}
