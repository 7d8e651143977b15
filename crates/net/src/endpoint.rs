//! Address of an upstream server: scheme, host, port and base path.

use http::Uri;
use http::uri::{Authority, Scheme};

/// One server of an upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    pub scheme: Scheme,
    /// Host, and port unless it is the default of the scheme.
    pub authority: Authority,
    /// Prefix for the path of every request. May be empty, has no trailing slash.
    pub base_path: String,
}

impl Endpoint {
    /// The URL of the base path.
    pub fn url(&self) -> Uri {
        let path = match self.base_path.as_str() {
            "" => "/",
            path => path,
        };
        let url = Uri::builder()
            .scheme(self.scheme.clone())
            .authority(self.authority.clone())
            .path_and_query(path);
        url.build().expect("the parts are from a valid URL")
    }
}

/// HTTP version for connections to an upstream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// With TLS, ALPN chooses. Without TLS, HTTP/1.1.
    #[default]
    Auto,
    Http1,
    /// HTTP/2 always: negotiated by ALPN with TLS, by prior knowledge without.
    Http2,
}
