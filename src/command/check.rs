//! `tokengauge check`: validates the configuration, with line and reason of each error.

use crate::Error;
use crate::admin::Access;
use crate::caller::{Mode, OnUnreadable};
use crate::cli::CheckArgs;
use crate::config::{Config, Route};
use crate::output;
use std::time::Instant;
use tokengauge_core::experiment::AssignedUnit;
use tokengauge_net::tls;
use tokengauge_proxy::settings::{Split, SplitBy};

pub(super) fn check(args: &CheckArgs) -> Result<(), Error> {
    let (mut config, origin) = super::load(&args.config)?;
    super::take_admin_token(&mut config)?;
    files(&config)?;
    let mut text = format!("{origin}: valid\n");
    for listener in &config.listeners {
        let tls = if listener.tls.is_some() { " (TLS)" } else { "" };
        text += &format!("  agents connect to {}{tls}\n", listener.address);
    }
    match config.admin.address {
        Some(address) => {
            let tls = if config.admin.tls.is_some() {
                " (TLS)"
            } else {
                ""
            };
            let token = if config.admin.token.is_some() {
                ", with a token"
            } else {
                ""
            };
            text += &format!("  operators connect to {address}{tls}{token}\n");
        }
        None => text += "  no admin address\n",
    }
    if let Some(address) = config.admin.metrics_address {
        let token = match config.admin.metrics_token {
            true => ", with a token",
            false => "",
        };
        text += &format!("  health and metrics alone are at {address}{token}\n");
    }
    for route in &config.routes {
        text += &format!("  {}\n", describe(route));
    }
    for scrape in &config.scrapes {
        text += &format!(
            "  {}: its own metrics every {:?}\n",
            scrape.upstream, scrape.interval
        );
    }
    for route in &config.routes {
        if let Some(split) = &route.split {
            text += &format!("  {}\n", describe_split(&route.name, split));
        }
    }
    for limit in limits(&config) {
        text += &format!("  {limit}\n");
    }
    for line in config.of_each_replica() {
        text += &format!("  {line}\n");
    }
    output::print(&text)
}

/// The limits that refuse calls, and those that would if they were enforced.
fn limits(config: &Config) -> Vec<String> {
    let does = |mode| match mode {
        Mode::Enforce => "refuses with 429",
        Mode::Shadow => "shadow mode, refuses nothing",
    };
    let unread = |policy, mode| match (policy, mode) {
        (OnUnreadable::Refuse, Mode::Enforce) => "a body that cannot be read with 422",
        (OnUnreadable::Refuse, Mode::Shadow) => "a body that cannot be read counts as refused",
        (OnUnreadable::Count, _) => "a body that cannot be read counts",
    };
    let quotas = config.quotas.iter().map(|quota| {
        let (does, unread) = (does(quota.mode), unread(quota.on_unreadable, quota.mode));
        let (name, per) = (&quota.name, quota.per.as_str());
        format!("quota {name}, per {per}: {does}; {unread}")
    });
    let blocking = config.budgets.iter().filter(|budget| budget.block);
    let budgets = blocking.map(|budget| {
        let (does, unread) = (does(budget.mode), unread(budget.on_unreadable, budget.mode));
        let (name, per) = (&budget.name, budget.per.as_str());
        format!("budget {name}, per {per}: {does}; {unread}")
    });
    quotas.chain(budgets).collect()
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

fn describe_split(route: &str, split: &Split) -> String {
    let arms = split.arms.iter().map(|arm| {
        let (name, weight, upstream) = (&arm.name, arm.weight, &arm.upstream.name);
        format!("{name} → {upstream} (weight {weight})")
    });
    let by = match split.by {
        SplitBy::Unit(AssignedUnit::Session) => "session".to_owned(),
        SplitBy::Unit(AssignedUnit::Agent) => "agent".to_owned(),
        SplitBy::Unit(AssignedUnit::User) => "user".to_owned(),
        SplitBy::Block(length) => format!("block of {}", humantime::format_duration(length)),
    };
    let arms = arms.collect::<Vec<_>>().join(", ");
    format!("experiment {}: {route} by {by}: {arms}", split.experiment)
}

fn describe(route: &Route) -> String {
    let host = route.matches.host.as_deref().unwrap_or("");
    let prefix = &route.matches.path_prefix;
    let endpoints: Vec<String> = route
        .upstream
        .endpoints
        .iter()
        .map(|endpoint| {
            format!(
                "{}://{}{}",
                endpoint.scheme, endpoint.authority, endpoint.base_path
            )
        })
        .collect();
    format!(
        "{}: {host}{prefix}/… → {}",
        route.name,
        endpoints.join(", ")
    )
}
