//! One file per command, which puts the crates together for it.

mod ab;
mod api_client;
mod bench;
mod capsule;
mod check;
mod config_keys;
mod dashboards;
#[cfg(feature = "sim")]
mod demo;
mod drift;
mod export;
mod fleet;
mod gate;
mod inject;
mod key_hash;
mod logging;
mod manual;
mod mark;
mod measured_by;
mod metrics;
mod pause;
mod probe;
mod progress;
mod prometheus;
mod replay;
mod report;
mod rules;
mod run;
mod session;
#[cfg(feature = "sim")]
mod sim;
mod sink;
mod slo;
mod store;
mod top;

use crate::Error;
use crate::cli::{Cli, Command, ConfigArgs};
use std::path::Path;
use std::time::SystemTime;
use tokengauge_config::environment::ADMIN_TOKEN;
use tokengauge_config::{self as config, Config, Secret, Token};
use tokengauge_process::output;
use tracing_subscriber::filter::LevelFilter;

/// The configuration file where no option names one.
const DEFAULT_FILE: &str = "proxy-config.toml";

/// Runs a command.
pub fn run(cli: Cli) -> Result<(), Error> {
    let command = cli.command.unwrap_or(Command::Run(cli.run));
    match command {
        Command::Run(args) => {
            logging::start(LevelFilter::INFO);
            tokengauge_process::threads::forward(|runtimes| run::run(args, runtimes))
        }
        // A line per call, or per failure that is rehearsed, would scroll the demo's own output away.
        #[cfg(feature = "sim")]
        Command::Demo(args) => match args.incident {
            Some(_) => serving(LevelFilter::ERROR, demo::demo(args)),
            None => serving(LevelFilter::WARN, demo::demo(args)),
        },
        #[cfg(feature = "sim")]
        Command::Sim(args) => serving(LevelFilter::INFO, sim::sim(args)),
        Command::Bench(args) => bench::bench(&args),
        Command::Check(args) => check::check(&args),
        Command::Config(command) => config_keys::config(command),
        Command::Export(args) => export::export(&args),
        Command::Slo(command) => slo::slo(&command),
        Command::Replay(args) => replay::replay(&args),
        Command::Top(args) => top::top(&args),
        Command::Report(args) => report::report(&args),
        Command::KeyHash => key_hash::key_hash(),
        Command::Session(args) => session::session(&args),
        Command::Capsule(args) => capsule::capsule(&args),
        Command::Ab(args) => ab::ab(&args),
        Command::Gate(args) => gate::gate(&args),
        Command::Mark(args) => mark::mark(&args),
        Command::Sink(command) => sink::sink(&command),
        Command::Drift(args) => drift::drift(&args),
        Command::Fleet(args) => serving(LevelFilter::INFO, fleet::fleet(*args)),
        Command::Metrics(args) => output::print(&metrics::metrics(&args)?),
        Command::Inject(args) => inject::inject(&args),
        Command::Injector(args) => serving(LevelFilter::INFO, inject::injector(args)),
        Command::Rules(args) => output::print(&rules::rules(&args)?),
        Command::Probe(args) => probe::probe(&args),
        Command::Pause(args) => {
            pause::pause(&args);
            Ok(())
        }
        Command::Completions(args) => manual::completions(&args),
        Command::Man(args) => manual::man(&args),
        Command::Dashboards(args) => output::print(&dashboards::dashboards(&args)?),
    }
}

/// Runs a command that serves until it is stopped, with the log level `level` unless the
/// environment sets another.
fn serving(
    level: LevelFilter,
    command: impl Future<Output = Result<(), Error>>,
) -> Result<(), Error> {
    logging::start(level);
    tokengauge_process::threads::serve(command)
}

/// From when on and before when, if the one is before the other.
fn in_order(since: Option<SystemTime>, until: Option<SystemTime>) -> Result<(), Error> {
    match since
        .zip(until)
        .is_some_and(|(since, until)| since >= until)
    {
        true => Err(Error::Failed("--since must be before --until".to_owned())),
        false => Ok(()),
    }
}

/// Loads the configuration; returns also where it came from.
fn load(args: &ConfigArgs) -> Result<(Config, String), Error> {
    let (text, origin) = text(args)?;
    Ok((Config::parse(&text, &origin)?, origin))
}

/// Replaces the token of the configuration by that of the environment, if there is one.
fn take_admin_token(config: &mut Config) -> Result<(), Error> {
    let Some(token) = std::env::var(ADMIN_TOKEN)
        .ok()
        .filter(|token| !token.is_empty())
    else {
        return Ok(());
    };
    let token = token.trim();
    config::check_token(token)
        .map_err(|reason| Error::Configuration(format!("{ADMIN_TOKEN}: {reason}")))?;
    config.admin.token = Some(Token::Text(Secret::new(token)));
    Ok(())
}

/// The configuration's text, and where it came from.
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
