//! The addresses of pods: host and port of one pod, or a name that resolves to several pods.

use http::Uri;
use http::uri::Scheme;
use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;
use std::time::Duration;
use tokio::net::lookup_host;
use tokio::time::timeout;

const RESOLVE: Duration = Duration::from_secs(5);

/// An admin address: `HOST:PORT`, `http://HOST:PORT` or `https://HOST:PORT`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PodAddress {
    host: String,
    port: u16,
    tls: bool,
}

impl FromStr for PodAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<PodAddress, String> {
        let expected = || {
            format!(
                "`{text}` is not an address of pods such as gauges.llm.svc:9464, 10.0.0.7:9464 or \
                 https://gauges.llm.svc:9464"
            )
        };
        let whole = if text.contains("://") {
            text.to_owned()
        } else {
            format!("http://{text}")
        };
        let uri: Uri = whole.parse().map_err(|_| expected())?;
        let tls = match uri.scheme() {
            Some(scheme) if *scheme == Scheme::HTTP => false,
            Some(scheme) if *scheme == Scheme::HTTPS => true,
            _ => return Err(expected()),
        };
        let authority = uri.authority().ok_or_else(expected)?;
        let plain = authority.as_str().find('@').is_none() && uri.path() == "/";
        let port = authority.port_u16().filter(|port| *port > 0 && plain);
        Ok(PodAddress {
            host: authority.host().trim_matches(['[', ']']).to_owned(),
            port: port.ok_or_else(expected)?,
            tls,
        })
    }
}

impl PodAddress {
    /// All addresses that the host resolves to now. IPv6 addresses are used only if there are no
    /// IPv4 addresses, because a dual-stack pod has one address of each family.
    pub(super) async fn resolve(&self) -> Result<Vec<SocketAddr>, String> {
        match timeout(RESOLVE, lookup_host((self.host.as_str(), self.port))).await {
            Ok(Ok(addresses)) => {
                let all: Vec<_> = addresses.collect();
                let of_ipv4: Vec<_> = all.iter().copied().filter(SocketAddr::is_ipv4).collect();
                Ok(if of_ipv4.is_empty() { all } else { of_ipv4 })
            }
            Ok(Err(error)) => Err(format!("the name cannot be resolved: {error}")),
            Err(_) => Err(format!(
                "the name was not resolved within {} s",
                RESOLVE.as_secs()
            )),
        }
    }

    /// The URL of one resolved address. With TLS the URL keeps the host name, which the certificate
    /// is issued for.
    pub(super) fn url(&self, address: SocketAddr) -> String {
        if !self.tls {
            format!("http://{address}")
        } else if self.host.contains(':') {
            format!("https://[{}]:{}", self.host, self.port)
        } else {
            format!("https://{}:{}", self.host, self.port)
        }
    }
}

impl fmt::Display for PodAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}", self.host, self.port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> PodAddress {
        text.parse().expect(text)
    }

    #[test]
    fn an_address_is_a_host_with_a_port() {
        let at: SocketAddr = "10.0.0.7:9090".parse().expect("an address");
        assert_eq!(parsed("gauges:9090").url(at), "http://10.0.0.7:9090");
        assert_eq!(
            parsed("https://gauges.llm.svc:9443").url(at),
            "https://gauges.llm.svc:9443"
        );
        assert_eq!(parsed("[::1]:9090").to_string(), "::1:9090");
        for wrong in [
            "gauges",
            "ftp://gauges:1",
            "http://me:secret@gauges:9090",
            "gauges:0",
            "gauges:9090/path",
            "",
        ] {
            wrong.parse::<PodAddress>().expect_err(wrong);
        }
    }

    #[tokio::test]
    async fn a_name_has_all_of_its_addresses() {
        let found = parsed("localhost:9090").resolve().await.expect("resolved");
        assert_eq!(found, [([127, 0, 0, 1], 9090).into()]);
        let error = parsed("no-such-name.invalid:9090").resolve().await;
        assert!(error.expect_err("no such name").contains("resolved"));
    }
}
