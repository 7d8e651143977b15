//! `tokengauge export sink`: tables, state and replays of sinks.

use super::api_client::{self, Proxy};
use super::error::CommandError;
use crate::Error;
use crate::cli::{DdlArgs, OutputFormat, SinkCommand, SinkReplayArgs, SinkStatusArgs};
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;
use std::path::Path;
use std::time::SystemTime;
use tokengauge_core::time::Timestamp;
use tokengauge_process::Fatal;
use tokengauge_process::output::{self, printable};
use tokengauge_process::sinks::origin;
use tokengauge_sink::clickhouse::ClickHouse;
use tokengauge_sink::clickhouse_schema::Schema;
use tokengauge_sink::{
    AnySink, ClickHouseSettings, Location, Replayed, SendError, SinkKind, SinkSettings, replay,
};
use tokengauge_store::query::{Filter, Paging};

pub(super) fn sink(command: &SinkCommand) -> Result<(), Error> {
    match command {
        SinkCommand::Ddl(args) => ddl(args),
        SinkCommand::Status(args) => status(args),
        SinkCommand::Replay(args) => replay_calls(args),
    }
}

#[derive(Debug, thiserror::Error)]
enum SinkCommandError {
    #[error("{0} has no [[sink]]; name a configuration that has one with --config")]
    NoSink(String),
    #[error(
        "{0} has no matching [[sink]] of kind clickhouse (S3 needs no table); name another configuration with --config"
    )]
    NoTable(String),
    #[error("{origin} has several sinks: {names}; name one of them with --sink")]
    Several { origin: String, names: String },
    #[error("{source}; {sent} calls were already sent; it is safe to run the replay again")]
    Replay { sent: u64, source: SendError },
    #[error(transparent)]
    Unusable(#[from] std::io::Error),
}

impl Fatal for SinkCommandError {}

fn ddl(args: &DdlArgs) -> Result<(), Error> {
    let (config, origin) = super::load(&args.config)?;
    let wanted = |sink: &&SinkSettings| match &args.sink {
        Some(name) => sink.name == *name,
        None => sink.kind() == SinkKind::ClickHouse,
    };
    let tables: Vec<&ClickHouseSettings> = config
        .sinks
        .iter()
        .filter(wanted)
        .filter_map(|sink| match &sink.location {
            Location::ClickHouse(settings) => Some(settings),
            Location::S3(_) => None,
        })
        .collect();
    if tables.is_empty() {
        return Err(SinkCommandError::NoTable(origin).into());
    }
    for settings in tables {
        let schema = Schema {
            database: settings.database.clone(),
            table: settings.table.clone(),
            cluster: args.cluster.clone(),
            keep: args.keep,
        };
        let statements = schema.statements();
        output::print(&format!("{};\n", statements.join(";\n\n")))?;
        if args.apply {
            apply(settings, &schema)?;
        }
    }
    Ok(())
}

fn apply(settings: &ClickHouseSettings, schema: &Schema) -> Result<(), Error> {
    let client = ClickHouse::new(settings.clone(), &origin())
        .map_err(|error| CommandError::refused(&settings.url, error))?;
    api_client::runtime()?.block_on(async {
        let has_old_rows = client.run(&schema.has_old_rows()).await?;
        let statements = if has_old_rows.starts_with(b"1") {
            schema.statements_with_old_rows()
        } else {
            schema.statements()
        };
        for statement in statements {
            client.run(&statement).await?;
        }
        Ok(())
    })
}

#[derive(Deserialize, Serialize)]
struct SinksBody {
    sinks: Vec<Row>,
}

#[derive(Deserialize, Serialize)]
struct Row {
    name: String,
    kind: String,
    address: String,
    durable: bool,
    ledger_error: Option<String>,
    waiting: u64,
    /// Older proxies do not send this field.
    #[serde(default)]
    in_memory: u64,
    lag_seconds: f64,
    rows: u64,
    batches: u64,
    lost: u64,
    failing: u64,
    error: Option<String>,
    stored_at: Option<Timestamp>,
}

fn status(args: &SinkStatusArgs) -> Result<(), Error> {
    let proxy = Proxy::of(&args.admin)?;
    let response: SinksBody = api_client::runtime()?.block_on(proxy.get("/api/v1/sinks"))?;
    if args.format.chosen() == OutputFormat::Json {
        return output::print(&super::json(&response)?);
    }
    output::print(&table(&response.sinks))
}

fn table(sinks: &[Row]) -> String {
    if sinks.is_empty() {
        return "no sinks\n".to_owned();
    }
    let mut text = String::new();
    for sink in sinks {
        let in_ledger = sink.waiting - sink.in_memory.min(sink.waiting);
        let waiting = match (in_ledger, sink.in_memory) {
            (calls, 0) if sink.durable || calls > 0 => format!("{calls} calls in the ledger"),
            (0, calls) => format!("{calls} calls in memory"),
            (calls, in_memory) => {
                format!("{calls} calls in the ledger, {in_memory} calls in memory")
            }
        };
        let stored = sink.stored_at.map(|at| at.to_string());
        let stored = stored.as_deref().unwrap_or("never");
        // Writing to a string never fails.
        let _ = writeln!(
            text,
            "{} ({}, {})\n  waiting    {waiting}, the oldest {:.0} s\n  \
             stored     {} calls in {} batches, the last {stored}\n  lost       {} calls",
            printable(&sink.name),
            printable(&sink.kind),
            printable(&sink.address),
            sink.lag_seconds,
            sink.rows,
            sink.batches,
            sink.lost,
        );
        if let Some(reason) = &sink.ledger_error {
            let _ = writeln!(
                text,
                "  ledger     cannot be written ({}): new calls wait in memory",
                printable(reason)
            );
        }
        if let Some(error) = &sink.error {
            let _ = writeln!(
                text,
                "  failing    {} times: {}",
                sink.failing,
                printable(error)
            );
        }
    }
    text
}

fn replay_calls(args: &SinkReplayArgs) -> Result<(), Error> {
    let (config, config_origin) = super::load(&args.config)?;
    let ledger = config.ledger.as_ref().map(|ledger| ledger.path.as_path());
    let Some(path) = args.ledger.as_deref().or(ledger) else {
        return Err(CommandError::NoLedgerConfigured(config_origin).into());
    };
    let named = |sink: &&SinkSettings| args.sink.as_ref().is_none_or(|name| sink.name == *name);
    let sinks: Vec<&SinkSettings> = config.sinks.iter().filter(named).collect();
    let [sink] = sinks[..] else {
        let all: Vec<&str> = config.sinks.iter().map(|sink| sink.name.as_str()).collect();
        let (origin, names) = (config_origin, all.join(", "));
        return Err(match &all[..] {
            [] => SinkCommandError::NoSink(origin),
            _ => SinkCommandError::Several { origin, names },
        }
        .into());
    };
    let now = SystemTime::now();
    let since = args.since.before(now);
    let until = args.until.map_or(now, |until| until.before(now));
    super::in_order(Some(since), Some(until))?;
    let sent = send_all(sink, path, (since, until))?;
    let known = match sink.kind() {
        // ClickHouse keeps one copy of each call.
        SinkKind::ClickHouse => String::new(),
        SinkKind::S3 => format!(", {} already stored", sent.known),
    };
    output::note(&format!(
        "{} calls sent{known}, {} refused",
        sent.sent, sent.refused
    ));
    Ok(())
}

fn send_all(
    settings: &SinkSettings,
    ledger: &Path,
    span: (SystemTime, SystemTime),
) -> Result<Replayed, Error> {
    let sink = AnySink::named(settings, &origin()).map_err(SinkCommandError::from)?;
    let reader = super::reader(ledger);
    let mut all = Replayed::default();
    let runtime = api_client::runtime()?;
    let filter = Filter {
        since: Some(span.0),
        until: Some(span.1),
        ..Filter::default()
    };
    let mut page = Paging {
        limit: settings.batch_rows,
        cursor: None,
    };
    loop {
        let found = reader.in_order(&filter, &page)?;
        if found.rows.is_empty() {
            return Ok(all);
        }
        let rows = found.rows.into_iter().map(|row| row.values).collect();
        let sent = all.sent;
        all += runtime
            .block_on(replay(&sink, rows))
            .map_err(|source| SinkCommandError::Replay { sent, source })?;
        page.cursor = found.next_cursor;
        if page.cursor.is_none() {
            return Ok(all);
        }
    }
}
