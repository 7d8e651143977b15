//! For the command `check`: opens and reads what a process needs at its start, and leaves nothing behind.

use crate::spending::Spending;
use crate::{ProcessError, notify, objectives, operators, quota_store, sinks};
use std::time::Instant;
use tokengauge_admin::Access;
use tokengauge_config::Config;
use tokengauge_net::tls;

/// Checks that `run` could open the folder for its state. Leaves nothing behind.
pub fn state(config: &Config) -> Result<(), ProcessError> {
    objectives::check(config)?;
    Spending::check(config)?;
    notify::check_state(config)
}

/// Reads the files that receivers, sinks, the quota store and scrapers need at the start. Binds no address, because a
/// process with this configuration may be running.
pub fn started(config: &Config) -> Result<(), ProcessError> {
    notify::check(config)?;
    quota_store::check(config)?;
    sinks::check(config)?;
    operators::check(config)
}

/// Reads certificates and keys, so that errors appear at the start and not with the first connection.
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
