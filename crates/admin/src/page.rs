//! The live page: static files in the binary.
//!
//! The files are served without the token. They contain no data of this process, only the script that requests it, and a
//! browser cannot send a token when it opens an address. The script's requests to the API need the token.

use super::api;
use axum::extract::Path;
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use sha2::{Digest, Sha256};
use std::borrow::Cow;
use std::io::Write;
use std::sync::LazyLock;
use tokengauge_core::dimension::DIMENSIONS;

/// The content security policy: only files and the API of this origin, no inline scripts or styles, no frames, no forms, no
/// markup from text.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
    img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; \
    frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'";

/// The paths of the views, which index.html names. Each path serves the same page, and its script shows the view in the
/// address. `{id}` is the id of a session or a call.
pub(super) static VIEWS: LazyLock<Vec<String>> = LazyLock::new(|| {
    let index = asset("index.html").map_or("", |index| &index.text);
    let paths = index.split(" data-path=\"").skip(1);
    let paths = paths.filter_map(|rest| rest.split('"').next());
    paths.map(|path| format!("/{path}")).collect()
});

/// The page for addresses one level down, whose relative links start with `..`.
static BELOW: LazyLock<Asset> = LazyLock::new(|| {
    let index = asset("index.html").map_or("", |index| &index.text);
    let up = index
        .replace("href=\"", "href=\"../")
        .replace("href=\"../#", "href=\"#")
        .replace("src=\"", "src=\"../");
    Asset::new("index.html", up)
});

const FOLDER: &str = "/page/";

/// A file with its compressed form, each with an ETag.
pub(super) struct Asset {
    name: &'static str,
    text: Cow<'static, str>,
    tag: HeaderValue,
    gzip: Bytes,
    gzip_tag: HeaderValue,
}

static ASSETS: LazyLock<Vec<Asset>> = LazyLock::new(|| {
    let mut all: Vec<Asset> = include!(concat!(env!("OUT_DIR"), "/page_files.rs"));
    all.push(Asset::new("dimensions.js", dimensions()));
    all
});

fn dimensions() -> String {
    let shown = DIMENSIONS.iter().filter_map(|row| Some((row, row.title?)));
    let titles = shown
        .clone()
        .map(|(row, title)| format!("{}: {title:?}", row.name));
    let names = shown
        .filter(|(row, _)| row.filter)
        .map(|(row, _)| format!("{:?}", row.name));
    format!(
        "// Made of the program's table of dimensions.\nexport const DIMENSIONS = {{ {} }};\nexport const NAMES = [{}];\n",
        titles.collect::<Vec<_>>().join(", "),
        names.collect::<Vec<_>>().join(", "),
    )
}

pub(super) fn is_static(path: &str) -> bool {
    path == "/"
        || VIEWS.iter().any(|view| is_of(view, path))
        || path
            .strip_prefix(FOLDER)
            .is_some_and(|name| asset(name).is_some())
}

fn is_of(view: &str, path: &str) -> bool {
    match view.strip_suffix("{id}") {
        Some(folder) => path
            .strip_prefix(folder)
            .is_some_and(|id| !id.is_empty() && !id.contains('/')),
        None => path == view,
    }
}

pub(super) async fn view(uri: Uri, headers: HeaderMap) -> Response {
    let below = uri.path().matches('/').count() > 1;
    if below {
        BELOW.serve(&headers)
    } else {
        serve("index.html", &headers)
    }
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
    /// Creates a file. The extension of its name determines the content type.
    pub(super) fn new(name: &'static str, text: impl Into<Cow<'static, str>>) -> Asset {
        let text = text.into();
        let digest = Sha256::digest(text.as_bytes());
        let digest: String = digest.iter().take(8).map(|b| format!("{b:02x}")).collect();
        let tag = |of: &str| {
            let quoted = format!("\"{digest}{of}\"");
            HeaderValue::from_str(&quoted).expect("hex digits and letters in quotes")
        };
        Asset {
            name,
            gzip: gzip(text.as_bytes()),
            tag: tag(""),
            gzip_tag: tag("-gzip"),
            text,
        }
    }

    /// The file, compressed if the request accepts that, or 304 if the client has it already.
    pub(super) fn serve(&'static self, headers: &HeaderMap) -> Response {
        let compressed = accepts_gzip(headers);
        let tag = if compressed {
            &self.gzip_tag
        } else {
            &self.tag
        };
        let known = headers.get_all(header::IF_NONE_MATCH);
        let known = known.iter().filter_map(|line| line.to_str().ok());
        let fresh = known
            .flat_map(|line| line.split(','))
            .map(|known| known.trim().trim_start_matches("W/"))
            .any(|known| known == "*" || known.as_bytes() == tag.as_bytes());
        let kind = [(header::CONTENT_TYPE, kind(self.name))];
        let mut response = match (fresh, compressed) {
            (true, _) => StatusCode::NOT_MODIFIED.into_response(),
            (false, true) => (kind, self.gzip.clone()).into_response(),
            (false, false) => (kind, self.text.as_ref()).into_response(),
        };
        let head = response.headers_mut();
        if compressed && !fresh {
            head.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
        head.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
        head.insert(header::ETAG, tag.clone());
        for (name, value) in HEAD {
            head.insert(name, HeaderValue::from_static(value));
        }
        response
    }
}

fn accepts_gzip(headers: &HeaderMap) -> bool {
    let lines = headers.get_all(header::ACCEPT_ENCODING).iter();
    let codings = lines.filter_map(|line| line.to_str().ok());
    codings.flat_map(|line| line.split(',')).any(|coding| {
        let (name, parameters) = coding.split_once(';').unwrap_or((coding, ""));
        let weight = parameters.trim().strip_prefix("q=");
        let refused = weight.is_some_and(|weight| weight.parse() == Ok(0.0));
        name.trim().eq_ignore_ascii_case("gzip") && !refused
    })
}

fn gzip(text: &[u8]) -> Bytes {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    let written = encoder.write_all(text).and_then(|()| encoder.finish());
    Bytes::from(written.expect("memory takes every write"))
}

/// The headers of every file. Browsers revalidate each time, since another version of the proxy may run later. The ETag
/// makes revalidation cheap.
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
