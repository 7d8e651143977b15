//! `tokengauge check`: validates the configuration, with line, column and reason of each error.

mod summary;

use super::spending::Spending;
use super::{ledger, notify, objectives, operators, quota_store, sinks};
use crate::Error;
use crate::cli::CheckArgs;
use crate::output;
use std::time::Instant;
use tokengauge_admin::Access;
use tokengauge_config::{self as config, Config};
use tokengauge_net::tls;

pub(super) fn check(args: &CheckArgs) -> Result<(), Error> {
    let (text, origin) = super::text(&args.config)?;
    let mut config = Config::parse(&text, &origin)?;
    super::take_admin_token(&mut config)?;
    config::check_named_files(&text, &origin)?;
    files(&config)?;
    started(&config)?;
    // A file of values names folders of the pod.
    let here = !args.config.config.as_deref().is_some_and(config::is_values);
    if here {
        state(&config)?;
    }
    let mut warnings: Vec<String> = config.warnings.iter().map(ToString::to_string).collect();
    let unwritable = here.then(|| ledger::unwritable(&config)).flatten();
    warnings.extend(unwritable.map(|reason| format!(": {reason}")));
    for warning in &warnings {
        output::note(&format!("warning: {origin}{warning}"));
    }
    let mut text = match warnings.len() {
        0 => format!("{origin}: valid\n"),
        1 => format!("{origin}: valid, with a warning\n"),
        several => format!("{origin}: valid, with {several} warnings\n"),
    };
    for line in summary::lines(&config) {
        text += &format!("  {line}\n");
    }
    output::print(&text)?;
    match args.strict && !warnings.is_empty() {
        true => Err(Error::Failed("there are warnings".to_owned())),
        false => Ok(()),
    }
}

/// The folder that `run` keeps its state in, as it opens it, but leaves nothing behind.
fn state(config: &Config) -> Result<(), Error> {
    objectives::check(config)?;
    Spending::check(config)?;
    notify::check_state(config)
}

/// What receivers, sinks, the quota store and scrapers read at the start. Addresses are not bound: the process that is checked
/// for may run.
fn started(config: &Config) -> Result<(), Error> {
    notify::check(config)?;
    quota_store::check(config)?;
    sinks::check(config)?;
    operators::check(config)
}

/// Reads certificates and keys, so that errors show now and not with the first connection.
pub(super) fn files(config: &Config) -> Result<(), Error> {
    for tls in config
        .listeners
        .iter()
        .filter_map(|listener| listener.tls.as_ref())
    {
        tls::Acceptor::new(tls).map_err(|error| Error::Configuration(error.to_string()))?;
    }
    Access::new(&config.admin, Instant::now())
        .map_err(|error| Error::Configuration(error.to_string()))?;
    for route in &config.routes {
        for upstream in route.upstreams() {
            tls::Connector::new(&upstream.tls, upstream.protocol).map_err(|error| {
                Error::Configuration(format!("upstream {}: {error}", upstream.name))
            })?;
        }
    }
    Ok(())
}
