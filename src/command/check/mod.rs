//! `tokengauge check`: validates the configuration, with line, column and reason of each error.

mod summary;

use crate::Error;
use crate::admin::Access;
use crate::cli::CheckArgs;
use crate::config::{self, Config};
use crate::output;
use std::time::Instant;
use tokengauge_net::tls;

pub(super) fn check(args: &CheckArgs) -> Result<(), Error> {
    let (text, origin) = super::text(&args.config)?;
    let mut config = Config::parse(&text, &origin)?;
    super::take_admin_token(&mut config)?;
    config::check_named_files(&text, &origin)?;
    files(&config)?;
    for warning in &config.warnings {
        output::note(&format!("warning: {origin}{warning}"));
    }
    let mut text = match config.warnings.len() {
        0 => format!("{origin}: valid\n"),
        1 => format!("{origin}: valid, with a warning\n"),
        several => format!("{origin}: valid, with {several} warnings\n"),
    };
    for line in summary::lines(&config) {
        text += &format!("  {line}\n");
    }
    output::print(&text)?;
    match args.strict && !config.warnings.is_empty() {
        true => Err(Error::Failed("there are warnings".to_owned())),
        false => Ok(()),
    }
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
