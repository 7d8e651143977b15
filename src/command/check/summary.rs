//! The summary of a valid configuration.

use tokengauge_accounting::attribution::Workload;
use tokengauge_accounting::sharing::OnError;
use tokengauge_config::{Admin, Config, Route};
use tokengauge_core::caller::{Mode, OnUnreadable};
use tokengauge_core::experiment::{AssignedUnit, SplitBy};
use tokengauge_core::time::span_text;
use tokengauge_proxy::settings::Split;
use tokengauge_sink::SinkSettings;
use tokengauge_slo::{Destination, Objective, Receiver};

/// Returns the lines in the order in which a call reaches the described parts.
pub(super) fn lines(config: &Config) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for listener in &config.listeners {
        let tls = if listener.tls.is_some() { " (TLS)" } else { "" };
        lines.push(format!("agents connect to {}{tls}", listener.address));
    }
    lines.extend(operators(&config.admin));
    lines.extend(config.routes.iter().map(|one| route(one)));
    for scrape in &config.scrapes {
        let (upstream, every) = (&scrape.upstream, scrape.interval);
        lines.push(format!(
            "{upstream}: engine metrics are scraped every {every:?}"
        ));
    }
    for route in &config.routes {
        lines.extend(route.split.iter().map(|one| split(&route.name, one)));
    }
    lines.extend(config.measure.workloads.iter().map(workload));
    lines.extend(config.slos.iter().map(|one| objective(one)));
    lines.extend(config.receivers.iter().map(receiver));
    lines.extend(limits(config));
    lines.extend(config.quota_store.as_ref().map(quota_store));
    lines.push(ledger(config));
    let durable = config.ledger.is_some();
    lines.extend(config.sinks.iter().map(|one| sink(one, durable)));
    lines.extend(config.of_each_replica());
    lines
}

fn operators(admin: &Admin) -> Vec<String> {
    let with = |token| if token { ", with a token" } else { "" };
    let tls = if admin.tls.is_some() { " (TLS)" } else { "" };
    let mut lines = vec![match admin.address {
        Some(address) => {
            let token = with(admin.token.is_some());
            format!("operators connect to {address}{tls}{token}")
        }
        None => "no admin address".to_owned(),
    }];
    lines.extend(admin.metrics_address.map(|address| {
        let token = with(admin.metrics_token);
        format!("health checks and metrics are at {address}{token}")
    }));
    lines
}

fn workload(workload: &Workload) -> String {
    let mut of: Vec<String> = Vec::new();
    of.extend(workload.route.iter().map(|name| format!("route {name}")));
    of.extend(workload.model.iter().map(|name| format!("model {name}")));
    of.extend(workload.agent.iter().map(|name| format!("agent {name}")));
    // Values of headers may be secrets.
    let headers = workload.headers.iter();
    of.extend(headers.map(|(name, _)| format!("header {name}")));
    if of.is_empty() {
        of.push("all calls".to_owned());
    }
    format!("workload {}: {}", workload.name, of.join(", "))
}

fn objective(objective: &Objective) -> String {
    let share = (objective.objective * 1e6).round() / 1e4;
    let window = if objective.calendar_month {
        "the calendar month".to_owned()
    } else {
        span_text(objective.window)
    };
    let sli = objective.judgement.sli.in_words();
    format!(
        "objective {}: {sli}, {share} % over {window}",
        objective.name
    )
}

fn receiver(receiver: &Receiver) -> String {
    let (name, kind) = (&receiver.name, receiver.kind.as_str());
    // A URL may be a secret.
    let to = match &receiver.url {
        Destination::Url(_) => String::new(),
        Destination::File(path) => format!(", its URL from {}", path.display()),
    };
    let what = receiver.severity.map_or("every alert".to_owned(), |only| {
        format!("alerts of severity {}", only.as_str())
    });
    format!("receiver {name} ({kind}): {what}{to}")
}

fn ledger(config: &Config) -> String {
    let Some(ledger) = &config.ledger else {
        return "no ledger: finished calls are only in memory".to_owned();
    };
    let age = span_text(ledger.retention_age);
    let megabytes = ledger.retention_bytes / 1_000_000;
    let path = ledger.path.display();
    format!("ledger {path}: calls of the last {age}, at most {megabytes} MB")
}

fn quota_store(settings: &tokengauge_quota_store::Settings) -> String {
    let sharing = &settings.sharing;
    let (address, prefix) = (&settings.address, &settings.prefix);
    let shared = match sharing.mode {
        Mode::Enforce => "limits, spending and alerts are shared",
        Mode::Shadow => {
            "shadow mode, refusals of shared limits are only counted; alerts are shared"
        }
    };
    let without = match sharing.on_error {
        OnError::Local => format!("1/{} of each limit in each process", sharing.replicas),
        OnError::Open => "all calls are admitted".to_owned(),
        OnError::Closed => "limited calls are refused".to_owned(),
    };
    format!(
        "quota store {address}, keys {prefix}*: {shared}; leases of {}; while the store does not respond: {without}",
        span_text(sharing.lease)
    )
}

fn sink(sink: &SinkSettings, durable: bool) -> String {
    let (name, address) = (&sink.name, sink.address());
    let waits = if durable {
        "in the ledger".to_owned()
    } else {
        format!("in memory, at most {}", sink.queue)
    };
    format!("sink {name} to {address}: calls wait {waits}")
}

fn limits(config: &Config) -> Vec<String> {
    let does = |mode| match mode {
        Mode::Enforce => "refuses with 429",
        Mode::Shadow => "shadow mode, refuses nothing",
    };
    let unread = |policy, mode| match (policy, mode) {
        (OnUnreadable::Refuse, Mode::Enforce) => "unreadable bodies are refused with 422",
        (OnUnreadable::Refuse, Mode::Shadow) => "unreadable bodies count as refused",
        (OnUnreadable::Count, _) => "unreadable bodies are counted",
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

fn split(route: &str, split: &Split) -> String {
    let arms = split.arms.iter().map(|arm| {
        let (name, weight, upstream) = (&arm.name, arm.weight, &arm.upstream.name);
        format!("{name} → {upstream} (weight {weight})")
    });
    let by = match split.by {
        SplitBy::Unit(AssignedUnit::Session) => "session".to_owned(),
        SplitBy::Unit(AssignedUnit::Agent) => "agent".to_owned(),
        SplitBy::Unit(AssignedUnit::User) => "user".to_owned(),
        SplitBy::Block(length) => format!("block of {}", span_text(length)),
    };
    let arms = arms.collect::<Vec<_>>().join(", ");
    format!("experiment {}: {route} by {by}: {arms}", split.experiment)
}

fn route(route: &Route) -> String {
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
