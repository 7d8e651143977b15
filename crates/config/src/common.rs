//! Settings that several tables share: TLS and request headers.

use super::file;
use super::problems::Problems;
use super::spanned::Spanned;
use super::{ClientTls, ServerTls};
use http::{HeaderName, HeaderValue};

pub(super) fn server_tls(tls: file::ServerTls) -> ServerTls {
    ServerTls {
        certificate: tls.certificate,
        key: tls.key,
        client_ca: tls.client_ca,
    }
}

pub(super) fn client_tls(written: file::ClientTls, problems: &mut Problems<'_>) -> ClientTls {
    let identity = match (written.certificate, written.key) {
        (Some(certificate), Some(key)) => Some((certificate.into_inner(), key.into_inner())),
        (None, None) => None,
        (Some(alone), None) => {
            problems.at(&alone, "a client certificate needs its `key`");
            None
        }
        (None, Some(alone)) => {
            problems.at(&alone, "a client key needs its `certificate`");
            None
        }
    };
    ClientTls {
        ca: written.ca,
        identity,
        server_name: written.server_name,
    }
}

pub(super) fn headers(
    written: std::collections::BTreeMap<String, Spanned<String>>,
    problems: &mut Problems<'_>,
) -> Vec<(HeaderName, HeaderValue)> {
    let mut headers = Vec::new();
    for (name, value) in written {
        match (
            name.parse::<HeaderName>(),
            value.get_ref().parse::<HeaderValue>(),
        ) {
            (Ok(name), Ok(mut value)) => {
                // The value may be an API key.
                value.set_sensitive(true);
                headers.push((name, value));
            }
            (Err(_), _) => problems.at(&value, format!("`{name}` is not a header name")),
            (_, Err(_)) => problems.at(&value, "is not a header value"),
        }
    }
    headers
}
