//! Version, listeners, routes and settings of the process, for the live page.

use super::Services;
use super::api::{Problem, QueryParams};
use axum::Json;
use axum::extract::{RawQuery, State};
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::Serialize;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::SystemTime;
use tokengauge_config::{Config, Endpoint, Route};
use tokengauge_core::call::Dialect;
use tokengauge_core::pod::PodName;
use tokengauge_core::time::Timestamp;
use tokengauge_core::upstream_facts::UpstreamFacts;
use tokengauge_fleet::FleetInfo;

/// Version, listeners, routes and settings of the process. It contains no secrets: only the names of the headers that a
/// route requires.
#[derive(Clone, Debug, Default, JsonSchema, Serialize)]
pub struct ProcessInfo {
    /// The version of the program.
    pub version: &'static str,
    /// The commit from which the program was built.
    #[serde(skip)]
    pub commit: &'static str,
    /// When the process started (RFC 3339, UTC).
    pub started_at: Timestamp,
    /// The addresses to which agents connect, as bound.
    pub listeners: Vec<Listener>,
    /// The routes. The first route that matches a request is used.
    pub routes: Vec<RouteInfo>,
    /// The settings that affect numbers on the page.
    pub measure: Settings,
    /// The text of the configuration, without comments and secrets.
    #[serde(skip)]
    pub configuration: Arc<str>,
    /// The beginning of the digest of the configuration's text.
    #[serde(skip)]
    pub digest: String,
    /// The file from which the configuration was read, or another name for its source.
    #[serde(skip)]
    pub origin: String,
    /// Whether the admin address uses TLS.
    #[serde(skip)]
    pub admin_tls: bool,
    /// The pod of the process, if known.
    pub pod: Option<PodName>,
    /// The sources of a fleet's figures; absent for a single process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fleet: Option<FleetInfo>,
}

/// An address that agents connect to.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct Listener {
    /// The address, with the actual port if port 0 is configured.
    #[schemars(with = "String")]
    pub address: SocketAddr,
    /// Whether the address uses TLS.
    pub tls: bool,
}

/// A route, and the upstream that it forwards to.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct RouteInfo {
    /// The name of the route.
    pub name: Arc<str>,
    /// The path prefix; empty if every path matches.
    pub path: String,
    /// The host that requests must have.
    pub host: Option<String>,
    /// The names of the headers that requests must have.
    pub headers: Vec<String>,
    /// The configured dialect. Without one the dialect is detected by path.
    pub dialect: Option<Dialect>,
    /// The workload of the route's calls.
    pub workload: Option<Arc<str>>,
    /// The name of the upstream.
    pub upstream: Arc<str>,
    /// The endpoints of the upstream.
    pub urls: Vec<String>,
    /// The configured facts about the upstream's engine and hardware.
    pub upstream_facts: Option<Arc<UpstreamFacts>>,
}

/// The settings that affect numbers on the page.
#[derive(Clone, Copy, Debug, Default, JsonSchema, Serialize)]
#[schemars(rename = "Measure")]
pub struct Settings {
    /// A call with fewer tokens after the first chunk has no `tps.output`.
    pub min_output_tokens: u64,
    /// Above this number of tokens per second a stream counts as buffered, since no model is that fast.
    pub buffered_above: f64,
    /// The seconds without a token that count as a stall.
    pub stall_threshold: f64,
    /// The number of finished calls in memory.
    pub recent_calls: usize,
}

impl ProcessInfo {
    pub fn new(config: &Config, addresses: &[SocketAddr], started: SystemTime) -> ProcessInfo {
        let listeners = config.listeners.iter().zip(addresses);
        ProcessInfo {
            version: env!("CARGO_PKG_VERSION"),
            commit: "",
            started_at: started.into(),
            listeners: listeners
                .map(|(listener, address)| Listener {
                    address: *address,
                    tls: listener.tls.is_some(),
                })
                .collect(),
            routes: config
                .routes
                .iter()
                .map(|route| way(route, config))
                .collect(),
            measure: Settings {
                min_output_tokens: config.measure.min_output_tokens,
                buffered_above: config.measure.buffered_above,
                stall_threshold: config.measure.stall_threshold.as_secs_f64(),
                recent_calls: config.measure.recent_calls,
            },
            configuration: Arc::clone(&config.redacted),
            digest: config.digest.clone(),
            admin_tls: config.admin.tls.is_some(),
            origin: config.origin.clone(),
            pod: None,
            fleet: None,
        }
    }

    pub fn under(&self, config: &Config, addresses: &[SocketAddr]) -> ProcessInfo {
        ProcessInfo {
            commit: self.commit,
            pod: self.pod.clone(),
            ..ProcessInfo::new(config, addresses, self.started_at.time())
        }
    }
}

fn way(route: &Route, config: &Config) -> RouteInfo {
    let names = route.matches.headers.iter().map(|(name, _)| name);
    RouteInfo {
        name: Arc::clone(&route.name),
        path: route.matches.path_prefix.clone(),
        host: route.matches.host.clone(),
        headers: names.map(|name| name.as_str().to_owned()).collect(),
        dialect: route.dialect,
        workload: route.workload.clone(),
        upstream: Arc::clone(&route.upstream.name),
        urls: route.upstream.endpoints.iter().map(url).collect(),
        upstream_facts: config
            .measure
            .upstream_facts
            .get(&route.upstream.name)
            .cloned(),
    }
}

fn url(endpoint: &Endpoint) -> String {
    let host = endpoint.authority.host();
    // Only host and port are shown, since user and password may precede an `@`.
    let port = endpoint.authority.port().map(|port| format!(":{port}"));
    let port = port.unwrap_or_default();
    format!("{}://{host}{port}{}", endpoint.scheme, endpoint.base_path)
}

/// The process, and whether it is ready for traffic.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "About")]
pub(crate) struct Now<'a> {
    #[serde(flatten)]
    about: &'a ProcessInfo,
    /// Whether the process is ready for traffic.
    ready: bool,
}

pub(super) async fn about(
    State(services): State<Services>,
    RawQuery(query): RawQuery,
) -> Result<Response, Problem> {
    QueryParams::of(query.as_deref(), &[])?;
    let now = Now {
        about: &services.about.load(),
        ready: services.readiness.is_ready(),
    };
    Ok(Json(now).into_response())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_route_requires_is_listed_without_the_values() {
        let text = r#"
            [[upstream]]
            name = "u"
            url = "https://engine.internal:8443/base"
            [[route]]
            name = "r"
            path = "/r"
            host = "llm.example"
            headers = { x-team = "not-to-be-told" }
            upstream = "u"
        "#;
        let config = Config::parse(text, "test").unwrap_or_else(|invalid| panic!("{invalid}"));
        let bound: SocketAddr = "127.0.0.1:4321".parse().expect("an address");
        let about = ProcessInfo::new(&config, &[bound], SystemTime::UNIX_EPOCH);
        let shown = serde_json::to_value(&about).expect("JSON");
        assert_eq!(shown["started_at"], "1970-01-01T00:00:00.000Z");
        assert_eq!(shown["listeners"][0]["address"], "127.0.0.1:4321");
        let route = &shown["routes"][0];
        assert_eq!(route["path"], "/r");
        assert_eq!(route["headers"], serde_json::json!(["x-team"]));
        assert_eq!(route["urls"][0], "https://engine.internal:8443/base");
        assert!(!shown.to_string().contains("not-to-be-told"));
    }
}
