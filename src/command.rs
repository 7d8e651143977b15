//! The commands, one file each.

mod annotate;
mod api_client;
#[cfg(feature = "sim")]
mod backend;
mod bench;
mod check;
mod dashboards;
#[cfg(feature = "sim")]
mod demo;
mod drift;
mod error;
mod experiment;
mod export;
mod fleet;
mod gate;
mod incident;
mod inject;
mod key_hash;
mod keys;
mod logging;
mod manual;
mod measured_by;
mod metrics;
mod pause;
mod probe;
mod progress;
mod prometheus;
mod record;
mod report;
mod rules;
mod run;
mod score;
mod session;
mod sink;
mod slo;
mod top;
mod warehouse;

use crate::Error;
use crate::cli::{
    Cli, Command, ConfigArgs, ExportSubcommand, InjectSubcommand, PrintCommand, ReportSubcommand,
};
#[cfg(feature = "sim")]
use crate::cli::{DemoArgs, DemoSubcommand};
use error::CommandError;
use serde::Serialize;
use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokengauge_config::environment::{ADMIN_TOKEN, BLOCK_KEY};
use tokengauge_config::{self as config, Config, Secret, Token};
use tokengauge_files::private as private_file;
use tokengauge_net::address;
use tokengauge_process::ledger::work_clock;
use tokengauge_process::{SystemError, output};
use tokengauge_store::ledger::Reader;
use tokio::net::TcpListener;
use tracing_subscriber::filter::LevelFilter;

const DEFAULT_FILE: &str = "proxy-config.toml";

pub fn run(cli: Cli) -> Result<(), Error> {
    let command = cli.command.unwrap_or(Command::Run(cli.run));
    match command {
        Command::Run(args) => {
            logging::start(LevelFilter::INFO);
            tokengauge_process::threads::forward(|runtimes| run::run(args, runtimes))
        }
        #[cfg(feature = "sim")]
        Command::Demo(demo) => match demo.command {
            Some(DemoSubcommand::Backend(args)) => {
                serving(LevelFilter::INFO, backend::backend(args))
            }
            None => serving(level_of_demo(&demo.args), demo::demo(demo.args)),
        },
        Command::Check(args) => check::check(&args),
        Command::Print(command) => print(command),
        Command::Report(report) => match &report.command {
            Some(ReportSubcommand::Session(args)) => session::session(args),
            None => report::report(&report.args),
        },
        Command::Top(args) => top::top(&args),
        Command::Export(export) => match &export.command {
            Some(ExportSubcommand::Sink(command)) => sink::sink(command),
            None => export::export(&export.args),
        },
        Command::Slo(command) => slo::slo(&command),
        Command::Bench(args) => bench::bench(&args),
        Command::Experiment(args) => experiment::experiment(&args),
        Command::Gate(args) => gate::gate(&args),
        Command::Drift(args) => drift::drift(&args),
        Command::Fleet(args) => serving(LevelFilter::INFO, fleet::fleet(*args)),
        Command::Inject(inject) => match inject.command {
            Some(InjectSubcommand::Serve(args)) => serving(LevelFilter::INFO, inject::serve(args)),
            None => inject::inject(&inject.args),
        },
        Command::Annotate(args) => annotate::annotate(&args),
        Command::Score(args) => score::score(&args),
        Command::Probe(args) => probe::probe(&args),
        Command::Pause(args) => {
            pause::pause(&args);
            Ok(())
        }
    }
}

fn print(command: PrintCommand) -> Result<(), Error> {
    match command {
        PrintCommand::Schema => keys::schema(),
        PrintCommand::Keys(args) => keys::keys(args.format.chosen()),
        PrintCommand::Metrics(args) => output::print(&metrics::metrics(args.format.chosen())?),
        PrintCommand::Dashboards(args) => output::print(&dashboards::dashboards(&args)?),
        PrintCommand::Rules(args) => output::print(&rules::rules(&args)?),
        PrintCommand::Completions(args) => manual::completions(&args),
        PrintCommand::Man(args) => manual::man(&args),
        PrintCommand::KeyHash => key_hash::key_hash(),
        PrintCommand::Record(args) => record::record(&args),
    }
}

/// A log line per call or per rehearsed failure would scroll the demo's own output away.
#[cfg(feature = "sim")]
fn level_of_demo(args: &DemoArgs) -> LevelFilter {
    match args.incident {
        Some(_) => LevelFilter::ERROR,
        None => LevelFilter::WARN,
    }
}

fn serving(
    level: LevelFilter,
    command: impl Future<Output = Result<(), Error>>,
) -> Result<(), Error> {
    logging::start(level);
    tokengauge_process::threads::serve(command)
}

fn in_order(since: Option<SystemTime>, until: Option<SystemTime>) -> Result<(), CommandError> {
    if since
        .zip(until)
        .is_some_and(|(since, until)| since >= until)
    {
        Err(CommandError::SinceAfterUntil)
    } else {
        Ok(())
    }
}

fn json(value: &impl Serialize) -> Result<String, CommandError> {
    Ok(serde_json::to_string_pretty(value)? + "\n")
}

fn json_lines<T: Serialize>(values: impl Iterator<Item = T>) -> Result<String, CommandError> {
    let lines = values.map(|value| Ok(serde_json::to_string(&value)? + "\n"));
    lines.collect()
}

/// Opens a reader of the ledger file with a query timeout for slow disks.
fn reader(path: &Path) -> Arc<Reader> {
    Reader::within(path, work_clock, Duration::from_secs(60))
}

fn existing_reader(path: &Path) -> Result<Arc<Reader>, CommandError> {
    let missing = || CommandError::NoLedger(path.to_owned());
    path.is_file().then(|| reader(path)).ok_or_else(missing)
}

fn listen(address: SocketAddr) -> Result<(TcpListener, SocketAddr), SystemError> {
    let failed = |error| SystemError::Listen(address, error);
    let listener = address::listen(address).and_then(TcpListener::from_std);
    let listener = listener.map_err(failed)?;
    let own = listener.local_addr().map_err(failed)?;
    Ok((listener, own))
}

/// Writes to a file that only its owner can read, or to standard output.
fn write(file: Option<&Path>, text: &str) -> Result<(), Error> {
    let Some(path) = file else {
        return output::print(text);
    };
    let written = private_file::create(path).and_then(|mut file| file.write_all(text.as_bytes()));
    Ok(written.map_err(SystemError::write(path))?)
}

fn load(args: &ConfigArgs) -> Result<(Config, String), Error> {
    let (text, origin) = text(args)?;
    Ok((Config::parse(&text, &origin)?, origin))
}

fn take_admin_token(config: &mut Config) -> Result<(), Error> {
    config.admin.token = secret_of(ADMIN_TOKEN)?.or(config.admin.token.take());
    Ok(())
}

fn take_block_key(config: &mut Config) -> Result<(), Error> {
    config.block_key = secret_of(BLOCK_KEY)?.or(config.block_key.take());
    Ok(())
}

/// The secret in an environment variable. An empty variable is ignored.
fn secret_of(variable: &str) -> Result<Option<Token>, Error> {
    let Some(secret) = std::env::var(variable)
        .ok()
        .filter(|secret| !secret.is_empty())
    else {
        return Ok(None);
    };
    let secret = secret.trim();
    config::check_token(secret)
        .map_err(|reason| Error::Configuration(format!("{variable}: {reason}")))?;
    Ok(Some(Token::Text(Secret::new(secret))))
}

fn text(args: &ConfigArgs) -> Result<(String, String), Error> {
    let default = Path::new(DEFAULT_FILE);
    let path = args.config.as_deref();
    match path.or_else(|| default.exists().then_some(default)) {
        Some(path) => Ok((config::text(path)?, path.display().to_string())),
        None => Ok((
            config::BUILT_IN.to_owned(),
            format!("the built-in {DEFAULT_FILE}"),
        )),
    }
}
