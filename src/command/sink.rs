//! `tokengauge export sink`: tables, state and replays of sinks.

use super::api_client::{self, Proxy};
use crate::Error;
use crate::cli::{AnswerFormat, DdlArgs, SinkCommand, SinkReplayArgs, SinkStatusArgs};
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};
use tokengauge_core::time::Timestamp;
use tokengauge_process::output::{self, printable};
use tokengauge_process::sinks::origin;
use tokengauge_sink::clickhouse::{ClickHouse, add_columns, create_table};
use tokengauge_sink::{
    AnySink, ClickHouseSettings, Location, Replayed, SinkKind, SinkSettings, replay,
};
use tokengauge_store::ledger::Reader;

/// How long a single query of the ledger may take, on a slow disk.
const TIMEOUT: Duration = Duration::from_secs(60);

pub(super) fn sink(command: &SinkCommand) -> Result<(), Error> {
    match command {
        SinkCommand::Ddl(args) => ddl(args),
        SinkCommand::Status(args) => status(args),
        SinkCommand::Replay(args) => replay_calls(args),
    }
}

fn failed(error: impl std::fmt::Display) -> Error {
    Error::Failed(error.to_string())
}

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
        let reason = "has no such [[sink]] of kind clickhouse, for S3 needs no table; --config names another file";
        return Err(Error::Failed(format!("{origin} {reason}")));
    }
    for settings in tables {
        let (database, table) = (&settings.database, &settings.table);
        let statements = [create_table(database, table), add_columns(database, table)];
        output::print(&format!("{};\n", statements.join(";\n\n")))?;
        if args.apply {
            apply(settings, &statements)?;
        }
    }
    Ok(())
}

fn apply(settings: &ClickHouseSettings, statements: &[String]) -> Result<(), Error> {
    let client = ClickHouse::new(settings.clone(), &origin()).map_err(failed)?;
    api_client::runtime()?.block_on(async {
        for statement in statements {
            client.run(statement).await.map_err(failed)?;
        }
        Ok(())
    })
}

#[derive(Deserialize, Serialize)]
struct Answer {
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
    /// Proxies of before it was known say nothing.
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
    let answer: Answer = api_client::runtime()?.block_on(proxy.get("/api/v1/sinks"))?;
    if args.format.chosen() == AnswerFormat::Json {
        let text = serde_json::to_string_pretty(&answer).map_err(failed)?;
        return output::print(&format!("{text}\n"));
    }
    output::print(&table(&answer.sinks))
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
        // Writing to a string does not fail.
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
    let (config, origin_of_config) = super::load(&args.config)?;
    let ledger = config.ledger.as_ref().map(|ledger| ledger.path.as_path());
    let Some(path) = args.ledger.as_deref().or(ledger) else {
        return Err(Error::Failed(format!(
            "{origin_of_config} keeps no ledger; name its file with --ledger, or with --config the configuration that keeps one"
        )));
    };
    let named = |sink: &&SinkSettings| args.sink.as_ref().is_none_or(|name| sink.name == *name);
    let sinks: Vec<&SinkSettings> = config.sinks.iter().filter(named).collect();
    let [sink] = sinks[..] else {
        let all: Vec<&str> = config.sinks.iter().map(|sink| sink.name.as_str()).collect();
        let reason = match &all[..] {
            [] => "has no [[sink]]; --config names the file that has".to_owned(),
            all => format!(
                "has these: {}; name one of them with --sink",
                all.join(", ")
            ),
        };
        return Err(Error::Failed(format!("{origin_of_config} {reason}")));
    };
    let now = SystemTime::now();
    let since = args.since.before(now);
    let until = args.until.map_or(now, |until| until.before(now));
    super::in_order(Some(since), Some(until))?;
    let sent = send_all(sink, path, (since, until))?;
    let known = match sink.kind() {
        // It keeps each call once, whether it had it or not.
        SinkKind::ClickHouse => String::new(),
        SinkKind::S3 => format!(", {} were there", sent.known),
    };
    output::note(&format!(
        "{} calls sent{known}, {} refused",
        sent.sent, sent.refused
    ));
    Ok(())
}

/// Sends the calls of a ledger that began within a time.
fn send_all(
    settings: &SinkSettings,
    ledger: &Path,
    span: (SystemTime, SystemTime),
) -> Result<Replayed, Error> {
    let sink = AnySink::new(&settings.location, &origin()).map_err(failed)?;
    let reader = Reader::within(ledger, Instant::now, TIMEOUT);
    let (mut after, mut all) = (None, Replayed::default());
    let runtime = api_client::runtime()?;
    loop {
        let page = reader.rows(span, after, settings.batch_rows);
        let (rows, last) = page.map_err(failed)?;
        if rows.is_empty() {
            return Ok(all);
        }
        after = last;
        all += runtime.block_on(replay(&sink, rows)).map_err(|error| {
            let sent = all.sent;
            Error::Failed(format!(
                "{error}; {sent} calls were sent before, which can be sent again"
            ))
        })?;
    }
}
