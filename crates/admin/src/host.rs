//! The accepted values of `host` if the admin address has no token. A foreign web page may resolve its own name to this
//! address (DNS rebinding), and the browser would let it read the responses. However, the browser then sends the page's
//! name in `host`.

use axum::extract::Request;
use axum::http::header;
use axum::http::uri::Authority;
use std::net::IpAddr;

/// Suffixes of names that only a cluster's own DNS resolves.
const CLUSTER: [&str; 2] = [".svc", ".cluster.local"];

#[derive(Clone, Debug, Default)]
pub(super) struct Hosts {
    /// Whether the address is on loopback, where cluster names are not accepted.
    pub(super) local: bool,
    pub(super) configured: Vec<String>,
}

impl Hosts {
    /// Whether the `host` of `request` is an IP address or a name that a foreign page cannot have. A request without `host`
    /// does not come from a browser.
    pub(super) fn answer_to(&self, request: &Request) -> bool {
        if let Some(authority) = request.uri().authority() {
            return self.include(authority.host());
        }
        let Some(host) = request.headers().get(header::HOST) else {
            return true;
        };
        let authority = host.to_str().ok().map(str::parse::<Authority>);
        authority.is_some_and(|authority| authority.is_ok_and(|host| self.include(host.host())))
    }

    fn include(&self, host: &str) -> bool {
        let host = host.to_ascii_lowercase();
        let address = host.trim_matches(['[', ']']).parse::<IpAddr>();
        let name = host.strip_suffix('.').unwrap_or(&host);
        address.is_ok()
            || name == "localhost"
            || self.configured.iter().any(|configured| configured == name)
            || (!self.local && is_of_cluster(&host))
    }
}

/// Whether the name has no dot, so that it is looked up in local search domains, or belongs to the cluster.
fn is_of_cluster(host: &str) -> bool {
    let name = host.strip_suffix('.').unwrap_or(host);
    let of_cluster = CLUSTER.iter().any(|end| name.ends_with(end));
    of_cluster || (!host.is_empty() && !host.contains('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIGURED: &str = "gauge.example.com";

    fn included(local: bool, host: &str) -> bool {
        let hosts = Hosts {
            local,
            configured: vec![CONFIGURED.to_owned()],
        };
        hosts.include(host)
    }

    #[test]
    fn addresses_localhost_and_configured_names_are_answered_to_everywhere() {
        let names = ["127.0.0.1", "10.1.2.3", "[fd00::1]", "[::1]", "localhost"];
        let more = ["LocalHost", "localhost.", CONFIGURED, "Gauge.Example.COM."];
        for host in names.into_iter().chain(more) {
            assert!(included(true, host), "{host}");
            assert!(included(false, host), "{host}");
        }
    }

    #[test]
    fn names_of_a_cluster_are_answered_to_where_a_cluster_gets() {
        for host in [
            "tokengauge-admin",
            "tokengauge-admin.monitoring.svc",
            "tokengauge-admin.monitoring.svc.cluster.local.",
        ] {
            assert!(included(false, host), "{host}");
            assert!(!included(true, host), "{host}");
        }
    }

    #[test]
    fn names_that_anybody_can_have_are_not() {
        for host in [
            "evil.example",
            "gauge.example.com.evil.example",
            "evilgauge.example.com",
            "svc.evil.example",
            "evil.svc.example",
            "cluster.local.evil.example",
            "127.0.0.1.nip.io",
            "localhost.evil.example",
            // A name that ends with a dot is looked up only in the public DNS.
            "ai.",
            "",
            ".",
        ] {
            assert!(!included(false, host), "{host}");
            assert!(!included(true, host), "{host}");
        }
    }
}
