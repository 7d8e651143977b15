//! `tokengauge run`: the proxy.

use super::DEFAULT_FILE;
use super::reload::Source;
use super::serve::Proxy;
use crate::Error;
use crate::cli::RunArgs;
use crate::config::{Config, DEFAULT_ADMIN, DEFAULT_LISTEN, Listener};

pub(super) async fn run(args: RunArgs) -> Result<(), Error> {
    let (config, origin) = config(&args)?;
    let proxy = Proxy::bind(config, args.call_log.as_deref()).await?;
    super::signals::watch(proxy.shutdown())?;
    let proxy = proxy.reloads(source(args)?);
    tracing::info!(configuration = origin, "started");
    proxy.serve().await
}

/// The same configuration, as its file is by then.
fn source(args: RunArgs) -> Result<Source, Error> {
    let file = match (&args.upstream, &args.config.config) {
        (Some(_), _) => None,
        (None, Some(file)) => Some(file.clone()),
        (None, None) => Some(DEFAULT_FILE.into()),
    };
    Source::new(file.as_deref(), move || Ok(config(&args)?.0))
}

/// The configuration, overlaid by the command line.
fn config(args: &RunArgs) -> Result<(Config, String), Error> {
    if let Some(upstream) = &args.upstream {
        let listen = args.listen.unwrap_or(DEFAULT_LISTEN);
        let config = Config::sidecar(upstream, listen, args.admin.unwrap_or(DEFAULT_ADMIN));
        return Ok((
            config.map_err(Error::Configuration)?,
            "--upstream".to_owned(),
        ));
    }
    let (mut config, origin) = super::load(&args.config)?;
    if let Some(address) = args.listen {
        let tls = config
            .listeners
            .first()
            .and_then(|listener| listener.tls.clone());
        config.listeners = vec![Listener { address, tls }];
    }
    if let Some(address) = args.admin {
        config.admin.address = Some(address);
    }
    Ok((config, origin))
}
