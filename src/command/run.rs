//! `tokengauge run`: the proxy.

use super::DEFAULT_FILE;
use crate::Error;
use crate::cli::{COMMIT, RunArgs};
use std::path::PathBuf;
use std::sync::Arc;
use tokengauge_accounting::attribution::{PayerRules, payer_name};
use tokengauge_config::environment::{AGENT, COST_CENTER, TEAM, TENANT};
use tokengauge_config::{Config, DEFAULT_ADMIN, DEFAULT_LISTEN, Listener};
use tokengauge_core::payer::Payer;
use tokengauge_process::fallback::{self, Fallback};
use tokengauge_process::reload::Source;
use tokengauge_process::serve::Proxy;
use tokengauge_proxy::TrafficRuntimes;

pub(super) async fn run(args: RunArgs, runtimes: TrafficRuntimes) -> Result<(), Error> {
    let (proxy, fallback) = bind(&args, &runtimes).await?;
    tokengauge_process::signals::watch(proxy.shutdown())?;
    let configuration = proxy.config().origin.clone();
    let proxy = proxy.reloads(source(args)?.instead_of(fallback));
    tracing::info!(configuration, "started");
    proxy.serve().await
}

/// The fallback in use, if any, with the reason why the configuration was refused.
type FallbackInUse = Option<(Fallback, String)>;

/// Binds the proxy with its configuration. Uses the fallback if the configuration cannot be used and there is a
/// fallback.
async fn bind(args: &RunArgs, runtimes: &TrafficRuntimes) -> Result<(Proxy, FallbackInUse), Error> {
    let call_log = args.call_log.as_deref();
    let refused = match config(args) {
        Ok(config) => match Proxy::bind(config, call_log, runtimes, COMMIT).await {
            Ok(proxy) => return Ok((proxy, None)),
            Err(error @ Error::Address(_)) => return Err(error),
            Err(error) => error,
        },
        Err(error) => error,
    };
    let Some(fallback) = fallback(args) else {
        return Err(refused);
    };
    let fallback = fallback.map_err(|error| fallback::both(&refused, &error))?;
    let config = fallback.config();
    let running = fallback::running(&config);
    let reason = refused.to_string();
    let proxy = Proxy::bind(config, call_log, runtimes, COMMIT).await?;
    fallback.log(&reason, running);
    Ok((proxy, Some((fallback, reason))))
}

fn fallback(args: &RunArgs) -> Option<Result<Fallback, Error>> {
    let text = args.fallback_config.as_deref()?;
    let file = file(args).filter(|_| !text.trim().is_empty())?;
    let config = Config::parse(text, "--fallback-config").map_err(Error::from);
    let config = config.and_then(|config| overlaid(config, args));
    Some(config.map(|config| Fallback::new(config, args.on_refused_config, file)))
}

fn file(args: &RunArgs) -> Option<PathBuf> {
    match (&args.upstream, &args.config.config) {
        (Some(_), _) => None,
        (None, Some(file)) => Some(file.clone()),
        (None, None) => Some(DEFAULT_FILE.into()),
    }
}

fn source(args: RunArgs) -> Result<Source, Error> {
    Source::new(file(&args).as_deref(), move || config(&args))
}

fn config(args: &RunArgs) -> Result<Config, Error> {
    let config = match &args.upstream {
        Some(upstream) => {
            let listen = args.listen.unwrap_or(DEFAULT_LISTEN);
            Config::sidecar(upstream, listen, args.admin.unwrap_or(DEFAULT_ADMIN))
                .map_err(|error| Error::Configuration(error.to_string()))?
        }
        None => super::load(&args.config)?.0,
    };
    overlaid(config, args)
}

fn overlaid(mut config: Config, args: &RunArgs) -> Result<Config, Error> {
    if let Some(address) = args.listen {
        let tls = config.listeners.first();
        let tls = tls.and_then(|listener| listener.tls.clone());
        config.listeners = vec![Listener { address, tls }];
    }
    let admin = &mut config.admin;
    admin.address = args.admin.or(admin.address);
    admin.metrics_address = args.metrics_listen.or(admin.metrics_address);
    super::take_admin_token(&mut config)?;
    super::take_block_key(&mut config)?;
    if let Ok(name) = std::env::var(AGENT) {
        Arc::make_mut(&mut config.measure.attribution).set_default_agent(&name);
    }
    let measure = &mut config.measure;
    set_payer(&mut Arc::make_mut(&mut measure.attribution).payers);
    Ok(config)
}

/// Sets the default payer from the environment. An empty variable is ignored.
fn set_payer(payers: &mut PayerRules) {
    let named = |variable| std::env::var(variable).ok().as_deref().and_then(payer_name);
    let payer = Payer {
        team: named(TEAM),
        cost_center: named(COST_CENTER),
        tenant: named(TENANT),
    };
    payers.process = Arc::new(payer.or(&payers.process));
}
