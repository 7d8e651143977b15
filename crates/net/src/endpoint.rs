//! The endpoint of a server: scheme, host, port and base path.

use http::Uri;
use http::uri::{Authority, Scheme};

/// One server of an upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// `http` or `https`.
    pub scheme: Scheme,
    /// Host and, where it is not the scheme's own, port.
    pub authority: Authority,
    /// Put before the path of every request; no trailing slash, may be empty.
    pub base_path: String,
}

impl Endpoint {
    /// Its URL, where the base path is the whole path.
    pub fn url(&self) -> Uri {
        let path = match self.base_path.as_str() {
            "" => "/",
            path => path,
        };
        let url = Uri::builder()
            .scheme(self.scheme.clone())
            .authority(self.authority.clone())
            .path_and_query(path);
        url.build().expect("its parts were those of a URL")
    }
}

/// The HTTP version towards an upstream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// What ALPN chooses over TLS, HTTP/1.1 otherwise.
    #[default]
    Auto,
    /// HTTP/1.1 always.
    Http1,
    /// HTTP/2 always: by ALPN over TLS, by prior knowledge otherwise.
    Http2,
}
