//! The commands for sinks, and the option of other commands that reads from a warehouse.

use super::*;
use tokengauge_sink::WarehouseUrl;

/// The subcommands of `export sink`.
#[derive(Debug, Clone, Subcommand)]
pub enum SinkCommand {
    /// Print the statements that create the ClickHouse table of a sink, or add missing columns to an older table
    Ddl(DdlArgs),
    /// Show the state of the sinks of a running proxy: waiting, stored and failed calls
    Status(SinkStatusArgs),
    /// Send calls of the ledger to a sink again, or calls that are older than the sink
    Replay(SinkReplayArgs),
}

/// Options of `export sink ddl`.
#[derive(Debug, Clone, Args)]
pub struct DdlArgs {
    #[command(flatten)]
    pub config: ConfigArgs,
    /// Print only the table of this sink [default: every sink of kind clickhouse]
    #[arg(long, value_name = "NAME")]
    pub sink: Option<String>,
    /// Also run the statements. The user of the sink needs the permission
    #[arg(long)]
    pub apply: bool,
    /// Make a replicated table on every host of this cluster, and a Distributed table over them, which sinks write to
    #[arg(long, value_name = "NAME")]
    pub cluster: Option<String>,
    /// Delete calls that are older, such as 90d [default: keep all]
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration)]
    pub keep: Option<std::time::Duration>,
}

/// Options of `export sink status`.
#[derive(Debug, Clone, Args)]
pub struct SinkStatusArgs {
    #[command(flatten)]
    pub admin: AdminArgs,
    #[command(flatten)]
    pub format: FormatArgs<OutputFormat>,
}

/// Options of `export sink replay`.
#[derive(Debug, Clone, Args)]
pub struct SinkReplayArgs {
    #[command(flatten)]
    pub config: ConfigArgs,
    /// Sink to send to [default: the only sink]
    #[arg(long, value_name = "NAME")]
    pub sink: Option<String>,
    /// Ledger file; overrides the configuration
    #[arg(long, value_name = "FILE")]
    pub ledger: Option<PathBuf>,
    /// Send calls that began at or after this time: an instant, or a duration before now such as `72h`
    #[arg(long, value_name = "TIME", value_parser = When::parse)]
    pub since: When,
    /// Send calls that began before this time: an instant, or a duration before now such as `24h` [default: now]
    #[arg(long, value_name = "TIME", value_parser = When::parse)]
    pub until: Option<When>,
}

/// A warehouse that is read instead of a ledger.
#[derive(Debug, Clone, Default, Args)]
pub struct WarehouseArgs {
    /// Read the calls of all processes from this ClickHouse table: clickhouse://USER@HOST:8123/DATABASE?table=TABLE.
    /// The password is read from $CLICKHOUSE_PASSWORD
    #[arg(id = "store", long = "store", value_name = "URL", group = "calls_of")]
    pub url: Option<WarehouseUrl>,
    /// With --store: read calls that began at or after this time: an instant, or a duration before now such as `72h`
    /// [default: --since, or 7 days]
    #[arg(id = "store_since", long = "store-since", value_name = "TIME")]
    #[arg(value_parser = When::parse, requires = "store")]
    pub since: Option<When>,
}
