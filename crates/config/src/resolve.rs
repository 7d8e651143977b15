//! From the file's tables to settings: fills in defaults, resolves names and collects every problem.

use super::common::{client_tls, headers, server_tls};
use super::file::DEFAULT_DRAIN;
use super::file::DEFAULT_LISTEN;
use super::file::{self, File};
use super::memory_limit::{default_bytes, default_streams};
use super::problems::{Problem, Problems, check_label};
use super::spanned::Spanned;
use super::unreachable;
use super::*;
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use tokengauge_meter::settings::Analysis;

pub(super) fn config(file: File, text: &str) -> Result<Config, Vec<Problem>> {
    let mut problems = Problems::of(text);
    let mut scrapes = operators::scrapes(&file.upstream, &mut problems);
    let gpus = cost::gpus(&file.upstream, &mut problems);
    let facts = operators::facts(&file.upstream, &mut problems);
    let think_tags = operators::think_tags(&file.upstream);
    let upstreams = upstreams(file.upstream, &mut problems);
    for scrape in &mut scrapes {
        if let Some(upstream) = upstreams.get(&*scrape.upstream) {
            scrape.tls = upstream.tls.clone();
        }
    }
    let mut routes = routes(file.route, &upstreams, &mut problems);
    let experiments =
        experiments::experiments(file.experiment, &upstreams, &mut routes, &mut problems);
    let listen = file.listen.is_some();
    let listeners = listeners(file.listen, file.tls, &mut problems);
    let ports: Vec<_> = listeners.iter().map(|one| one.address.port()).collect();
    let ports = listen.then_some(&ports[..]);
    let given = attribution::given(file.agent, ports, &mut problems);
    let own_use = file.admin.own_use;
    let payers = payers::rules(
        file.payer,
        &file.attribution,
        own_use,
        (ports, &routes),
        &mut problems,
    );
    let limits = limits(file.limits);
    let hash_users = file.measure.hash_users;
    let (analysis, block_key) = analysis::analysis(file.analysis, &mut problems);
    let mut measure = measure(file.measure, analysis);
    measure.attribution =
        attribution::rules(hash_users, file.attribution, (given, payers), &mut problems).into();
    measure.workloads = objectives::workloads(file.workload, &routes, &mut problems).into();
    let prices = PriceList {
        configured: cost::prices(file.price, &upstreams, &mut problems),
        shipped: file.shipped_prices.unwrap_or(true),
        gpus,
    };
    measure.upstream_facts = Arc::new(facts);
    measure.think_tags = Arc::new(think_tags);
    let budgets = cost::budgets(file.budget, &routes, &measure, &mut problems);
    let receivers = receivers::receivers(file.notify, &mut problems);
    let slos = objectives::slos(file.slo, &routes, &measure, &mut problems);
    let quotas = quotas::quotas(file.quota, &slos, &routes, &measure, &mut problems);
    let quota_store = quota_store::quota_store(file.quota_store, &mut problems);
    let runaway = runaway::limits(&file.runaway, &mut problems);
    let admin = operators::admin(file.admin, &mut problems);
    operators::check_separate(&admin, &upstreams, &mut problems);
    let ledger = ledger::ledger(file.ledger, file.state_dir.as_deref(), &mut problems);
    let sinks = sinks::sinks(file.sink, &mut problems);
    let drifts = drift::drifts(
        file.drift,
        &routes,
        &measure,
        ledger.as_ref(),
        &mut problems,
    );
    let known = gate::Known {
        routes: &routes,
        measure: &measure,
        slos: &slos,
    };
    let gates = gate::gates(file.gate, &known, &mut problems);
    if !problems.found.is_empty() {
        problems
            .found
            .sort_by_key(|problem| (problem.line, problem.column));
        return Err(problems.found);
    }
    let drain_timeout = file.drain_timeout.map_or(DEFAULT_DRAIN, |span| span.0);
    Ok(Config {
        listeners,
        admin,
        routes,
        experiments,
        scrapes,
        limits,
        measure,
        block_key,
        otlp: Otlp {
            call_records: file.otlp.call_records,
            conventions: file.otlp.conventions,
            langfuse: file.otlp.langfuse,
        },
        drain_timeout,
        slos,
        receivers,
        budgets,
        prices,
        quotas,
        quota_store,
        runaway,
        drifts,
        gates,
        state_dir: file.state_dir,
        ledger,
        sinks,
        refusal: None,
        warnings: problems.warnings,
        origin: String::new(),
        digest: digest(text),
        redacted: redacted::redacted(text).into(),
    })
}

/// The first 16 hexadecimal digits of the SHA-256 of a configuration.
pub(super) fn digest(text: &str) -> String {
    let digest = Sha256::digest(text.as_bytes());
    digest
        .iter()
        .take(8)
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

fn listeners(
    listen: Option<Spanned<file::Listen>>,
    tls: Option<file::ServerTls>,
    problems: &mut Problems<'_>,
) -> Vec<Listener> {
    let addresses = match listen.as_ref().map(|listen| listen.get_ref()) {
        None => vec![DEFAULT_LISTEN],
        Some(file::Listen::One(address)) => vec![address.0],
        Some(file::Listen::Several(addresses)) => addresses.iter().map(|one| one.0).collect(),
    };
    if let (true, Some(listen)) = (addresses.is_empty(), &listen) {
        problems.at(listen, "must contain at least one address");
    }
    let tls = tls.map(server_tls);
    addresses
        .into_iter()
        .map(|address| Listener {
            address,
            tls: tls.clone(),
        })
        .collect()
}

fn limits(written: file::Limits) -> Limits {
    let default = Limits::default();
    Limits {
        connections: written
            .connections
            .map_or(default.connections, Spanned::into_inner),
        head_bytes: written
            .head_bytes
            .map_or(default.head_bytes, |size| size.into_inner().0),
        http2_streams: written.http2_streams.unwrap_or(default.http2_streams),
        total_http2_streams: written
            .total_http2_streams
            .map_or_else(default_streams, Spanned::into_inner),
        head_timeout: written
            .head_timeout
            .map_or(default.head_timeout, |span| span.0),
        idle_timeout: written
            .idle_timeout
            .map_or(default.idle_timeout, |span| span.0),
        requests_per_minute: written.requests_per_minute,
    }
}

fn measure(written: file::Measure, analysis: Analysis) -> Measure {
    let default = Measure::default();
    Measure {
        min_output_tokens: written
            .min_output_tokens
            .unwrap_or(default.min_output_tokens),
        buffered_above: written.buffered_above.unwrap_or(default.buffered_above),
        stall_threshold: written
            .stall_threshold
            .map_or(default.stall_threshold, |span| span.0),
        warm_up_calls: written.warm_up_calls.unwrap_or(default.warm_up_calls),
        warm_up_for: written
            .warm_up_for
            .map_or(default.warm_up_for, |span| span.0),
        body_bytes: written.body_bytes.map_or(default.body_bytes, |size| size.0),
        memory_bytes: written
            .memory_bytes
            .map_or_else(default_bytes, |size| size.0),
        recent_calls: written.recent_calls.unwrap_or(default.recent_calls),
        max_models: written.max_models.unwrap_or(default.max_models),
        attribution: default.attribution,
        workloads: default.workloads,
        think_tags: default.think_tags,
        upstream_facts: default.upstream_facts,
        analysis,
    }
}

fn upstreams(
    written: Vec<Spanned<file::Upstream>>,
    problems: &mut Problems<'_>,
) -> HashMap<String, Arc<Upstream>> {
    if written.is_empty() {
        problems.nowhere(
            "upstream",
            "there is none; add an [[upstream]] with a name and a url",
        );
    }
    let mut upstreams = HashMap::new();
    for spanned in written {
        let name = spanned.get_ref().name.clone();
        check_label(&name, problems);
        let upstream = upstream(spanned, problems);
        if upstreams
            .insert(name.get_ref().clone(), Arc::new(upstream))
            .is_some()
        {
            problems.at(
                &name,
                format!(
                    "there are two upstreams named `{}`; give each its own `name`",
                    name.get_ref()
                ),
            );
        }
    }
    upstreams
}

fn upstream(spanned: Spanned<file::Upstream>, problems: &mut Problems<'_>) -> Upstream {
    let endpoints = endpoints(&spanned, problems);
    let written = spanned.into_inner();
    let default = Timeouts::default();
    Upstream {
        name: written.name.into_inner().into(),
        endpoints,
        protocol: written.protocol,
        tls: client_tls(written.tls, problems),
        timeouts: Timeouts {
            connect: written
                .timeouts
                .connect
                .map_or(default.connect, |span| span.0),
            head: written.timeouts.head.map_or(default.head, |span| span.0),
            idle: written.timeouts.idle.map_or(default.idle, |span| span.0),
            send: written.timeouts.send.map_or(default.send, |span| span.0),
        },
        max_idle: written.max_idle.unwrap_or(DEFAULT_MAX_IDLE),
        idle_for: written.idle_for.map_or(DEFAULT_IDLE_FOR, |span| span.0),
        eject_for: written.eject_for.map_or(DEFAULT_EJECT_FOR, |span| span.0),
        max_connections: written.max_connections,
        max_pending: written.max_pending.unwrap_or(DEFAULT_MAX_PENDING),
        resend_bytes: written.resend_bytes.map_or(0, |size| size.0),
    }
}

fn endpoints(spanned: &Spanned<file::Upstream>, problems: &mut Problems<'_>) -> Vec<Endpoint> {
    let written = spanned.get_ref();
    match (&written.url, &written.urls) {
        (Some(url), None) => vec![url.get_ref().0.clone()],
        (None, Some(urls)) if !urls.get_ref().is_empty() => {
            urls.get_ref().iter().map(|url| url.0.clone()).collect()
        }
        (None, Some(urls)) => {
            problems.at(urls, "must contain at least one URL");
            Vec::new()
        }
        (Some(url), Some(_)) => {
            problems.at(url, "give either `url` or `urls`, not both");
            Vec::new()
        }
        (None, None) => {
            problems.at(&written.name, "this upstream has neither `url` nor `urls`");
            Vec::new()
        }
    }
}

fn routes(
    written: Vec<Spanned<file::Route>>,
    upstreams: &HashMap<String, Arc<Upstream>>,
    problems: &mut Problems<'_>,
) -> Vec<Arc<Route>> {
    if written.is_empty() {
        problems.nowhere(
            "route",
            "there is none; add a [[route]] with a path and an upstream",
        );
    }
    let mut names: HashMap<Arc<str>, ()> = HashMap::new();
    let mut routes = Vec::new();
    let mut places = Vec::new();
    for spanned in written {
        let place = spanned
            .get_ref()
            .name
            .clone()
            .unwrap_or_else(|| spanned.get_ref().upstream.clone());
        let Some(route) = route(spanned.into_inner(), upstreams, problems) else {
            continue;
        };
        if names.insert(route.name.clone(), ()).is_some() {
            problems.at(
                &place,
                format!(
                    "there are two routes named `{}`; give each its own `name`",
                    route.name
                ),
            );
        }
        unreachable::route(&route, &place, &routes, &places, problems);
        routes.push(Arc::new(route));
        places.push(place);
    }
    routes
}

fn route(
    written: file::Route,
    upstreams: &HashMap<String, Arc<Upstream>>,
    problems: &mut Problems<'_>,
) -> Option<Route> {
    let Some(upstream) = upstreams.get(written.upstream.get_ref()) else {
        let wanted = written.upstream.get_ref();
        problems.at(
            &written.upstream,
            format!("there is no upstream named `{wanted}`"),
        );
        return None;
    };
    let path_prefix = path_prefix(written.path, problems);
    let headers = headers(written.headers, problems);
    if let Some(name) = &written.name {
        check_label(name, problems);
    }
    let upgrades = upgrades(written.upgrades, problems);
    Some(Route {
        name: written
            .name
            .map_or_else(|| upstream.name.clone(), |name| name.into_inner().into()),
        matches: Matches {
            path_prefix,
            host: written.host.map(|host| route_host(&host, problems)),
            headers,
        },
        strip_prefix: written.strip.unwrap_or(true),
        upstream: upstream.clone(),
        dialect: written.dialect,
        workload: written.workload.map(Into::into),
        inject_usage: written.inject_usage,
        add_via: written.via,
        add_forwarded: written.forwarded,
        ratelimit_headers: written.ratelimit_headers,
        upgrades,
        split: None,
    })
}

/// The host of a route, in lower case. A port is refused, because it would never match.
fn route_host(written: &Spanned<String>, problems: &mut Problems<'_>) -> String {
    let host = written.get_ref().to_ascii_lowercase();
    let authority = host.parse::<http::uri::Authority>();
    if !authority.is_ok_and(|authority| authority.host() == host) {
        problems.at(
            written,
            format!(
                "`{host}` is not a host, such as `llm.example`; leave out scheme, port and path"
            ),
        );
    }
    host
}

fn upgrades(written: Option<Vec<Spanned<String>>>, problems: &mut Problems<'_>) -> Vec<String> {
    let Some(written) = written else {
        return default_upgrades();
    };
    for protocol in &written {
        let name = protocol.get_ref().to_ascii_lowercase();
        if name.is_empty() || name.contains([',', ' ']) || name.parse::<HeaderValue>().is_err() {
            problems.at(
                protocol,
                format!(
                    "`{name}` cannot be the name of a protocol; write one name without spaces or commas, such as \
                     `websocket`"
                ),
            );
        } else if name.split('/').next() == Some("h2c") {
            problems.at(
                protocol,
                format!(
                    "an upgrade to `{name}` would bypass routing and measuring; agents may speak \
                     HTTP/2 from the start"
                ),
            );
        }
    }
    written.into_iter().map(Spanned::into_inner).collect()
}

fn path_prefix(written: Option<Spanned<String>>, problems: &mut Problems<'_>) -> String {
    let Some(path) = written else {
        return String::new();
    };
    if !path.get_ref().starts_with('/') || path.get_ref().contains(['?', '#']) {
        problems.at(
            &path,
            "must be a path prefix that starts with `/`, such as `/openai`",
        );
    }
    path.get_ref().trim_end_matches('/').to_owned()
}
