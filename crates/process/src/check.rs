//! What the start of a process opens and reads, for `check`, which leaves nothing behind.

use crate::spending::Spending;
use crate::{ProcessError, notify, objectives, operators, quota_store, sinks};
use std::time::Instant;
use tokengauge_admin::Access;
use tokengauge_config::Config;
use tokengauge_net::tls;

/// The folder that `run` keeps its state in, as it opens it, but leaves nothing behind.
pub fn state(config: &Config) -> Result<(), ProcessError> {
    objectives::check(config)?;
    Spending::check(config)?;
    notify::check_state(config)
}

/// What receivers, sinks, the quota store and scrapers read at the start. Addresses are not bound: the process that is checked
/// for may run.
pub fn started(config: &Config) -> Result<(), ProcessError> {
    notify::check(config)?;
    quota_store::check(config)?;
    sinks::check(config)?;
    operators::check(config)
}

/// Reads certificates and keys, so that errors show now and not with the first connection.
pub fn files(config: &Config) -> Result<(), ProcessError> {
    for tls in config
        .listeners
        .iter()
        .filter_map(|listener| listener.tls.as_ref())
    {
        tls::Acceptor::new(tls).map_err(|error| ProcessError::Configuration(error.to_string()))?;
    }
    Access::new(&config.admin, Instant::now())
        .map_err(|error| ProcessError::Configuration(error.to_string()))?;
    for route in &config.routes {
        for upstream in route.upstreams() {
            tls::Connector::new(&upstream.tls, upstream.protocol).map_err(|error| {
                ProcessError::Configuration(format!("upstream {}: {error}", upstream.name))
            })?;
        }
    }
    Ok(())
}
