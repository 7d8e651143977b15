//! The commands for sinks, and the option of other commands that reads from a warehouse.

use super::*;
use tokengauge_sink::WarehouseUrl;

/// What to do with sinks.
#[derive(Debug, Clone, Subcommand)]
pub enum SinkCommand {
    /// Print the statements that make a sink's table in ClickHouse, and give an older one the columns it lacks
    Ddl(DdlArgs),
    /// How the sinks of a running proxy stand: what waits, what was stored, what failed
    Status(SinkStatusArgs),
    /// Send calls of the ledger again, or those of before there was the sink
    Replay(SinkReplayArgs),
}

/// Options of `export sink ddl`.
#[derive(Debug, Clone, Args)]
pub struct DdlArgs {
    #[command(flatten)]
    pub config: ConfigArgs,
    /// Only of this sink [default: every sink of kind clickhouse]
    #[arg(long, value_name = "NAME")]
    pub sink: Option<String>,
    /// Run the statements, too, by the sink's user, who needs the permission
    #[arg(long)]
    pub apply: bool,
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
    /// The sink to send to [default: the only one]
    #[arg(long, value_name = "NAME")]
    pub sink: Option<String>,
    /// The ledger's file, in place of the configuration's
    #[arg(long, value_name = "FILE")]
    pub ledger: Option<PathBuf>,
    /// Calls that began then or later: an instant, or a time back such as `72h`
    #[arg(long, value_name = "TIME", value_parser = When::parse)]
    pub since: When,
    /// Calls that began before: an instant, or a time back [default: now]
    #[arg(long, value_name = "TIME", value_parser = When::parse)]
    pub until: Option<When>,
}

/// A store to read from in place of a ledger.
#[derive(Debug, Clone, Default, Args)]
pub struct WarehouseArgs {
    /// Read the calls of this table of ClickHouse, of all processes that write to it:
    /// clickhouse://USER@HOST:8123/DATABASE?table=TABLE; the password is in $CLICKHOUSE_PASSWORD
    #[arg(id = "store", long = "store", value_name = "URL", group = "calls_of")]
    pub url: Option<WarehouseUrl>,
    /// With --store: calls that began then or later [default: 7 days back, or --since]
    #[arg(id = "store_since", long = "store-since", value_name = "TIME")]
    #[arg(value_parser = When::parse, requires = "store")]
    pub since: Option<When>,
}
