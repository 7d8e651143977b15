//! The live page: static files within the binary.
//!
//! They are served without the token: they hold no figure of this process, only the script
//! that requests them, and a browser cannot send a token when it opens an address. The
//! script's requests to the API need the token.

use super::{api, runbooks};
use axum::extract::Path;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use sha2::{Digest, Sha256};
use std::borrow::Cow;
use std::sync::LazyLock;

/// The content security policy: only files and API of this origin, no inline script or style,
/// no framing, no forms, no markup from text.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
    img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; \
    frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'";

/// The path of all files but the page itself.
const FOLDER: &str = "/page/";

/// A file, with its ETag.
pub(super) struct Asset {
    name: &'static str,
    text: Cow<'static, str>,
    tag: HeaderValue,
}

macro_rules! assets {
    ($($name:literal),* $(,)?) => {
        vec![$(Asset::new($name, include_str!($name))),*]
    };
}

static ASSETS: LazyLock<Vec<Asset>> = LazyLock::new(|| {
    assets![
        "api.js",
        "calls.js",
        "capacity.js",
        "chart.js",
        "compare.js",
        "connect.js",
        "cost.js",
        "dom.js",
        "experiments.js",
        "filters.js",
        "format.js",
        "health.js",
        "icon.svg",
        "index.html",
        "layout.css",
        "live.js",
        "main.js",
        "marks.js",
        "objectives.js",
        "runbooks.css",
        "session.js",
        "sessions.js",
        "speeds.js",
        "streams.js",
        "table.js",
        "tables.css",
        "theme.css",
        "theme.js",
        "tiles.js",
        "waterfall.js",
        "words.js",
        "vendor/uplot.css",
        "vendor/uplot.js",
    ]
});

/// Whether `path` is a file of the page.
pub(super) fn is_static(path: &str) -> bool {
    path == "/"
        || path == runbooks::PATH
        || path
            .strip_prefix(FOLDER)
            .is_some_and(|name| asset(name).is_some())
}

pub(super) async fn index(headers: HeaderMap) -> Response {
    serve("index.html", &headers)
}

pub(super) async fn file(Path(name): Path<String>, headers: HeaderMap) -> Response {
    serve(&name, &headers)
}

fn asset(name: &str) -> Option<&'static Asset> {
    ASSETS.iter().find(|asset| asset.name == name)
}

fn serve(name: &str, headers: &HeaderMap) -> Response {
    match asset(name) {
        Some(asset) => asset.serve(headers),
        None => {
            api::Problem::new(StatusCode::NOT_FOUND, "the page has no such file").into_response()
        }
    }
}

impl Asset {
    /// A file by its name, which has the extension of its kind.
    pub(super) fn new(name: &'static str, text: impl Into<Cow<'static, str>>) -> Asset {
        let text = text.into();
        let digest = Sha256::digest(text.as_bytes());
        let digest: String = digest.iter().take(8).map(|b| format!("{b:02x}")).collect();
        let tag = HeaderValue::from_str(&format!("\"{digest}\"")).expect("hex digits in quotes");
        Asset { name, text, tag }
    }

    /// The file, or 304 where the request knows it.
    pub(super) fn serve(&'static self, headers: &HeaderMap) -> Response {
        let known = headers.get_all(header::IF_NONE_MATCH);
        let known = known.iter().filter_map(|line| line.to_str().ok());
        let fresh = known
            .flat_map(|line| line.split(','))
            .map(|known| known.trim().trim_start_matches("W/"))
            .any(|known| known == "*" || known.as_bytes() == self.tag.as_bytes());
        let mut response = if fresh {
            StatusCode::NOT_MODIFIED.into_response()
        } else {
            let kind = [(header::CONTENT_TYPE, kind(self.name))];
            (kind, self.text.as_ref()).into_response()
        };
        let head = response.headers_mut();
        head.insert(header::ETAG, self.tag.clone());
        for (name, value) in HEAD {
            head.insert(name, HeaderValue::from_static(value));
        }
        response
    }
}

/// The headers of every file. Browsers revalidate each time, since another version may run
/// later; the ETag makes that cheap.
const HEAD: [(header::HeaderName, &str); 5] = [
    (header::CACHE_CONTROL, "no-cache"),
    (header::CONTENT_SECURITY_POLICY, POLICY),
    (
        header::HeaderName::from_static("cross-origin-opener-policy"),
        "same-origin",
    ),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::X_FRAME_OPTIONS, "DENY"),
];

fn kind(name: &str) -> &'static str {
    match name.rsplit_once('.') {
        Some((_, "html")) => "text/html; charset=utf-8",
        Some((_, "css")) => "text/css; charset=utf-8",
        Some((_, "js")) => "text/javascript; charset=utf-8",
        Some((_, "svg")) => "image/svg+xml",
        _ => "text/plain; charset=utf-8",
    }
}

#[cfg(test)]
mod tests;
